"""One client for all HTTP providers; the differences between them are in a `Dialect`.

A model may refuse a part of a request that is not essential to it (`temperature` of a reasoning model, the old name of
`max_tokens`, a `seed`, a JSON Schema for the answer). Then the request is sent again without that part, later requests leave
it out from the start, and every reply lists it in `notes`. A value that is merely out of range is the user's mistake and stays a fault.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from urllib.parse import urlsplit

import msgspec

from proctor.codecs.http import read_retry_after_s
from proctor.errors import EvidenceError
from proctor.evidence.values.json_bytes import decode
from proctor.llm.connections import Answer, Connections, MakeTransport, NoAnswer
from proctor.llm.ports import ChatReply, ChatRequest, ModelFault, classify_status
from proctor.llm.settings import ModelSettings, strip_url
from proctor.model.evidence import Json
from proctor.model.json_values import encode_any_json, exceeds_depth
from proctor.model.show import shorten, show

# --- sends requests to a model provider over HTTP

MAX_ANSWER = 50 * 1024 * 1024

_EXCERPT = 200


class Refused(ModelFault):
    """A request that the provider rejected; `error` is its error object."""

    def __init__(self, message: str, *, status: int, error: Json) -> None:
        super().__init__("bad_request", message, status=status)
        self.error: Json = error


def _find_error(content: bytes) -> Json:
    try:
        document = decode(content)
    except EvidenceError:
        return None
    document = document[0] if isinstance(document, list) and document else document
    return (document.get("error") or document) if isinstance(document, dict) else None


def _find_message(error: Json) -> str:
    if not isinstance(error, dict):
        return error if isinstance(error, str) else ""
    message: Json = next((error[key] for key in ("message", "detail", "error", "msg") if error.get(key)), "")
    return message if isinstance(message, str) else show(message, 400)


ConcededParts = Collection[str]
"""The parts of a request that the model rejected: `temperature`, `seed`, `max_tokens`, `answer_schema`."""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """The request format of one provider."""

    provider: str
    url: Callable[[ModelSettings], str]
    headers: Callable[[ModelSettings], dict[str, str]]
    body: Callable[[ChatRequest, ModelSettings, ConcededParts], dict[str, Json]]
    reply: Callable[[dict[str, Json], ChatRequest, ConcededParts], ChatReply]
    """Raises `ModelFault` if the answer is unusable."""
    lacks: tuple[str, ...] = ()
    """Parts of a request that this API does not support."""
    instead: dict[str, str] = {}
    """Replacements for rejected parts that are not simply left out."""


_UNWANTED = re.compile(
    r"unsupported|not support|n't support|unknown|unrecogni[sz]ed|unexpected|extra (?:inputs|fields)|not permitted|not allowed"
    r"|deprecated|only the default|not available|not compatible|incompatible"
)
_NAMES = {
    "temperature": ("temperature",),
    "seed": ("seed",),
    "max_tokens": ("max_tokens", "max_completion_tokens"),
    "answer_schema": ("response_format", "json_schema", "output_config", "output_format", "text.format", "structured output"),
}


class HttpModel:
    """A chat model with an HTTP API."""

    def __init__(self, dialect: Dialect, settings: ModelSettings, *, transport: MakeTransport | None = None) -> None:
        self.provider = dialect.provider
        self.name = settings.model or settings.deployment or ""
        self._dialect = dialect
        self._settings = settings
        self._url = dialect.url(settings)
        self.address = strip_url(self._url)
        """The address of the model, without secrets, to distinguish models of the same name."""
        # Header names are case-insensitive; the user's own win.
        user_headers = {name.lower(): value for name, value in settings.headers.items()}
        headers = {name: value for name, value in dialect.headers(settings).items() if name not in user_headers}
        self._connections = Connections(
            {"accept": "application/json", "content-type": "application/json", **headers, **user_headers},
            max_bytes=MAX_ANSWER,
            proxy=settings.proxy,
            make_transport=transport,
        )
        self._conceded: dict[str, str] = {}

    def limit_answers(self, max_bytes: int) -> None:
        """Read at most `max_bytes` of an answer."""
        self._connections.max_bytes = max_bytes

    def fill_defaults(self, request: ChatRequest) -> ChatRequest:
        """Return the request with the defaults of the settings filled in."""
        return self._settings.fill_defaults(request)

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Send one request, leaving out parts that the model rejects. Raises `ModelFault`."""
        request = self.fill_defaults(request)
        parts = {word for word in _NAMES if getattr(request, word) is not None} - set(self._dialect.lacks)
        conceded = {word: why for word, why in self._conceded.items() if word in parts}
        # Each round leaves out one more rejected part, so there are at most as many rounds as parts.
        while True:
            body = self._dialect.body(request, self._settings, conceded)
            # Restarted in each round, to exclude the time of rejected requests.
            started = time.perf_counter()
            try:
                answer = await self.post(self._url, body)
                break
            except Refused as refusal:
                word = find_refused_part(refusal, parts - set(conceded))
                if word is None:
                    raise
                instead = self._dialect.instead.get(word, "was left out")
                conceded[word] = f"{word} {instead}, the model refused it: {shorten(refusal.message)}"
        duration_ms = (time.perf_counter() - started) * 1000
        reply = self._dialect.reply(answer, request, conceded)
        # Only now: the successful answer proves that these parts were the cause.
        self._conceded.update(conceded)
        lacking = [f"{word} is unknown to this API and was left out" for word in self._dialect.lacks if getattr(request, word) is not None]
        return msgspec.structs.replace(
            reply,
            raw_request=body,
            raw_response=answer,
            duration_ms=round(duration_ms, 3),
            notes=(*reply.notes, *lacking, *(conceded[word] for word in sorted(conceded))),
        )

    async def close(self) -> None:
        """Close the connections."""
        async with asyncio.timeout(10):
            await self._connections.close()

    async def post(self, url: str, body: Json) -> dict[str, Json]:
        """Post `body` and return the JSON object of the answer. Raises `ModelFault`."""
        try:
            content = encode_any_json(body)
        except RecursionError:
            raise ModelFault("bad_request", "the request is nested too deep to be sent") from None
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                answer = await self._connections.post(url, content)
        except TimeoutError:
            raise ModelFault("timeout", f"{strip_url(url)} did not answer within {self._settings.timeout_s:g} s") from None
        except NoAnswer as fault:
            why = shorten(self._settings.hide_secrets(fault.what))
            did = f"cannot talk to {strip_url(url)}: {why}" if fault.code == "transport" else f"{strip_url(url)} {why}"
            raise ModelFault(fault.code, did) from None
        if not 200 <= answer.status < 300:
            raise self._explain_status(url, answer)
        try:
            document = decode(answer.content)
        except EvidenceError as error:
            why = error.message
        else:
            if isinstance(document, dict) and not exceeds_depth(document):
                return document
            why = "not a JSON object" if not isinstance(document, dict) else "JSON nested too deep"
        message = f"{strip_url(url)} answered with something that cannot be used: {why}; it begins {self._quote_beginning(answer.content)}"
        raise ModelFault("bad_answer", message, status=answer.status)

    def _explain_status(self, url: str, answer: Answer) -> ModelFault:
        status, address = answer.status, strip_url(url)
        if 300 <= status < 400:
            place = "another address"
            with suppress(ValueError):
                target = urlsplit(answer.headers.get("location", ""))
                place = f"{target.scheme}://{target.hostname}" if target.hostname else place
            message = f"{address} redirects to {place}; redirects are not followed, the key would go along"
            return ModelFault("bad_answer", message, status=status)
        error = _find_error(answer.content)
        message = self._settings.hide_secrets(_find_message(error)) or self._quote_beginning(answer.content)
        message = f"{address} answered {status}: {shorten(message, 400)}"
        code = classify_status(status)
        if status == 429 and isinstance(error, dict) and "insufficient_quota" in (error.get("code"), error.get("type")):
            return ModelFault("bad_request", message, status=status)
        if code == "bad_request":
            return Refused(message, status=status, error=error)
        wait_s = None if code == "unauthorized" else read_retry_after_s(answer.headers, clock=time.time)
        return ModelFault(code, message, retry_after_s=wait_s, status=status)

    def _quote_beginning(self, content: bytes) -> str:
        # Secrets are removed before cutting, so that no partial secret remains; the length is enough for any key.
        text = self._settings.hide_secrets(content[: _EXCERPT * 50].decode("utf-8", "replace"))
        return show(text[:_EXCERPT]) if text.strip() else "(nothing)"


def find_refused_part(refusal: Refused, parts: Collection[str]) -> str | None:
    """Return the optional part of a request that the provider rejects, if that is the error."""
    message = f"{refusal.message} {show(refusal.error, 1000)}".lower()
    if not _UNWANTED.search(message):
        return None
    error: Json = refusal.error
    field = error.get("param") if isinstance(error, dict) else None
    # The field that the provider names comes first: the text about one part may mention another.
    for exact in (True, False):
        for part, names in _NAMES.items():
            if part not in parts:
                continue
            if exact and isinstance(field, str) and field.partition(".")[0] in names:
                return part
            if not exact and any(name in message for name in names):
                return part
    return None
