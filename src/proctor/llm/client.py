"""One client for all providers that are reached over HTTP; what differs between them is a `Dialect`.

A model may refuse a part of a request that is not essential to it (`temperature` of a reasoning model, the old name of
`max_tokens`, a `seed`, a JSON Schema for the answer). Then the request is sent once more without that part, later requests leave
it out from the start, and every reply says so in `notes`. A value that is merely out of range is the user's mistake and stays a fault.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection

import msgspec

from proctor.llm.connections import MakeTransport
from proctor.llm.http import ModelWire, Refused
from proctor.llm.ports import ChatReply, ChatRequest
from proctor.llm.settings import ModelSettings, strip_url
from proctor.model.evidence import Json
from proctor.model.show import shorten, show

ConcededParts = Collection[str]
"""The parts of a request that the model refused: `temperature`, `seed`, `max_tokens`, `answer_schema`."""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """The way in which one provider wants to be asked."""

    provider: str
    url: Callable[[ModelSettings], str]
    headers: Callable[[ModelSettings], dict[str, str]]
    body: Callable[[ChatRequest, ModelSettings, ConcededParts], dict[str, Json]]
    reply: Callable[[dict[str, Json], ChatRequest, ConcededParts], ChatReply]
    """Raises `ModelFault` where the answer is of no use."""
    lacks: tuple[str, ...] = ()
    """Parts of a request that this API does not know at all."""
    instead: dict[str, str] = {}
    """What is done instead of a refused part, where it is not simply left out."""


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
    """A chat model behind an HTTP API."""

    def __init__(self, dialect: Dialect, settings: ModelSettings, *, transport: MakeTransport | None = None) -> None:
        self._dialect = dialect
        self._settings = settings
        self._url = dialect.url(settings)
        # Names of headers are compared without case; the user's own win.
        own = {name.lower(): value for name, value in settings.headers.items()}
        headers = {name: value for name, value in dialect.headers(settings).items() if name not in own}
        self._wire = ModelWire(
            timeout_s=settings.timeout_s,
            headers={**headers, **own},
            secrets=settings.list_secrets(),
            proxy=settings.proxy,
            transport=transport,
        )
        self._conceded: dict[str, str] = {}

    @property
    def provider(self) -> str:
        """The word that settings name it by."""
        return self._dialect.provider

    @property
    def name(self) -> str:
        """The model's name, as configured."""
        return self._settings.model or self._settings.deployment or ""

    @property
    def address(self) -> str:
        """Where the model is reached, without secrets: models of one name behind two addresses are two."""
        return strip_url(self._url)

    def limit_answers(self, max_bytes: int) -> None:
        """Read no more than `max_bytes` of an answer."""
        self._wire.limit_answers(max_bytes)

    def fill_defaults(self, request: ChatRequest) -> ChatRequest:
        """Return the request with the defaults of the settings filled in."""
        return self._settings.fill_defaults(request)

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Ask once, leaving out what the model refuses. Raises `ModelFault`."""
        request = self.fill_defaults(request)
        wanted = {word for word in _NAMES if getattr(request, word) is not None} - set(self._dialect.lacks)
        conceded = {word: why for word, why in self._conceded.items() if word in wanted}
        # Each round leaves out one more part that was refused, so there are no more rounds than parts.
        while True:
            body = self._dialect.body(request, self._settings, conceded)
            # Anew in each round: the time of requests that were refused is not that of the answer.
            started = time.perf_counter()
            try:
                answer = await self._wire.post(self._url, body)
                break
            except Refused as refusal:
                word = find_refused_part(refusal, wanted - set(conceded))
                if word is None:
                    raise
                conceded[word] = self._describe_concession(word, refusal)
        duration_ms = (time.perf_counter() - started) * 1000
        reply = self._dialect.reply(answer, request, conceded)
        # Only now: that the model answered without these parts proves that they were what it refused.
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
        await self._wire.close()

    def _describe_concession(self, word: str, refusal: Refused) -> str:
        instead = self._dialect.instead.get(word, "was left out")
        return f"{word} {instead}, the model refused it: {shorten(refusal.message)}"


def find_refused_part(refusal: Refused, parts: Collection[str]) -> str | None:
    """Return which inessential part of a request the provider refuses, if that is what it says."""
    said = f"{refusal.message} {show(refusal.error, 1000)}".lower()
    if not _UNWANTED.search(said):
        return None
    error: Json = refusal.error
    field = error.get("param") if isinstance(error, dict) else None
    # The field that the provider names goes first: the words about one part may mention another.
    for exact in (True, False):
        for part, names in _NAMES.items():
            if part not in parts:
                continue
            if exact and isinstance(field, str) and field.partition(".")[0] in names:
                return part
            if not exact and any(name in said for name in names):
                return part
    return None
