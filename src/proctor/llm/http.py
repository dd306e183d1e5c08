"""The one way in which requests reach a model provider over HTTP.

Rules. One request has one time limit, from connecting to the last byte. An answer of more than `MAX_ANSWER` bytes is not read to
its end. Redirects are never followed: the key would go along. Nothing is looked up in the environment (proxy, netrc). What goes
wrong becomes a `ModelFault`:

    429                       rate_limited, with what `Retry-After` asks for (seconds, or an HTTP date); an exhausted quota is
                              `bad_request`, because waiting does not help
    408                       timeout
    500, 502, 503, 504, 529   overloaded, and every other 5xx
    401, 403                  unauthorized
    other 4xx                 bad_request (as `Refused`, with the provider's error)
    3xx, or 2xx without JSON  bad_answer, with the beginning of what came
    no connection             transport
    more than `MAX_ANSWER`    too_large

Messages carry what the provider said, cleaned of every secret that was sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import msgspec

from proctor.codecs.retry_after import read_retry_after_s
from proctor.errors import EvidenceError
from proctor.evidence.values.json_bytes import decode, exceeds_depth
from proctor.llm.connections import Answer, Connections, MakeTransport, NoAnswer
from proctor.llm.ports import ModelFault
from proctor.llm.settings import strip_url
from proctor.model.evidence import Json
from proctor.model.show import shorten, show

MAX_ANSWER = 50 * 1024 * 1024
"""Bytes of an answer that are read at most."""

_EXCERPT = 200
"""Characters of an unusable answer that a message shows."""


class Refused(ModelFault):
    """A request that the provider understood and refuses; `error` is what it said about it, as it came."""

    def __init__(self, message: str, *, status: int, error: Json) -> None:
        super().__init__("bad_request", message, status=status)
        self.error: Json = error


class ModelWire:
    """Connections to one provider, opened with the first request."""

    def __init__(
        self,
        *,
        timeout_s: float,
        headers: Mapping[str, str],
        secrets: Iterable[str] = (),
        proxy: str | None = None,
        transport: MakeTransport | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        # Longest first: a secret may be part of another.
        # Hiding a text of three characters or fewer would tear holes in ordinary words.
        self._secrets = sorted({secret for secret in secrets if len(secret) >= 4}, key=len, reverse=True)
        self._connections = Connections(
            {"accept": "application/json", "content-type": "application/json", **headers},
            max_bytes=MAX_ANSWER,
            proxy=proxy,
            make_transport=transport,
        )

    async def post(self, url: str, body: Json) -> dict[str, Json]:
        """Post `body` and return the JSON object that answers it. Raises `ModelFault`."""
        content = encode_body(body)
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._connections.post(url, content)
        except TimeoutError:
            raise self._make_timeout(url) from None
        except NoAnswer as fault:
            raise self._explain_no_answer(url, fault) from None
        if not 200 <= answer.status < 300:
            raise self._explain_status(url, answer)
        return self._read_document(url, answer)

    def limit_answers(self, max_bytes: int) -> None:
        """Read no more than `max_bytes` of an answer."""
        self._connections.max_bytes = max_bytes

    async def close(self) -> None:
        """Close the connections."""
        async with asyncio.timeout(10):
            await self._connections.close()

    def hide_secrets(self, text: str) -> str:
        """Return a text without the secrets that were sent."""
        for secret in self._secrets:
            text = text.replace(secret, "[redacted]")
        return text

    def _make_timeout(self, url: str) -> ModelFault:
        return ModelFault("timeout", f"{strip_url(url)} did not answer within {self._timeout_s:g} s")

    def _explain_no_answer(self, url: str, fault: NoAnswer) -> ModelFault:
        match fault.code:
            case "transport":
                return ModelFault("transport", f"cannot talk to {strip_url(url)}: {shorten(self.hide_secrets(fault.what))}")
            case code:
                return ModelFault(code, f"{strip_url(url)} {shorten(self.hide_secrets(fault.what))}")

    def _read_document(self, url: str, answer: Answer) -> dict[str, Json]:
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
        status, where = answer.status, strip_url(url)
        if 300 <= status < 400:
            return ModelFault(
                "bad_answer",
                f"{where} redirects to {_find_redirect_host(answer)}; redirects are not followed, the key would go along",
                status=status,
            )
        error = _find_error(answer.content)
        said = self.hide_secrets(_find_message(error)) or self._quote_beginning(answer.content)
        message = f"{where} answered {status}: {shorten(said, 400)}"
        if status == 429:
            if isinstance(error, dict) and "insufficient_quota" in (error.get("code"), error.get("type")):
                return ModelFault("bad_request", message, status=status)
            return ModelFault("rate_limited", message, retry_after_s=read_retry_after_s(answer.headers, clock=time.time), status=status)
        if status in (401, 403):
            return ModelFault("unauthorized", message, status=status)
        if status == 408:
            return ModelFault("timeout", message, retry_after_s=read_retry_after_s(answer.headers, clock=time.time), status=status)
        if status >= 500:
            return ModelFault("overloaded", message, retry_after_s=read_retry_after_s(answer.headers, clock=time.time), status=status)
        return Refused(message, status=status, error=error)

    def _quote_beginning(self, content: bytes) -> str:
        # Cleaned before it is cut, so that no half of a secret is left; more than enough for any key.
        text = self.hide_secrets(content[: _EXCERPT * 50].decode("utf-8", "replace"))
        return show(text[:_EXCERPT]) if text.strip() else "(nothing)"


def encode_body(body: Json) -> bytes:
    """Return a request as JSON text."""
    try:
        return msgspec.json.encode(body)
    except RecursionError:
        raise ModelFault("bad_request", "the request is nested too deep to be sent") from None
    except (UnicodeEncodeError, OverflowError, msgspec.MsgspecError):
        import json  # slower, but it writes half surrogate pairs and integers of any size

        return json.dumps(body).encode()


def _find_redirect_host(redirect: Answer) -> str:
    try:
        target = urlsplit(redirect.headers.get("location", ""))
        return f"{target.scheme}://{target.hostname}" if target.hostname else "another address"
    except ValueError:
        return "another address"


def _find_error(content: bytes) -> Json:
    try:
        document = decode(content)
    except EvidenceError:
        return None
    if isinstance(document, list) and document:
        document = document[0]
    if not isinstance(document, dict):
        return None
    return document.get("error") or document


def _find_message(error: Json) -> str:
    if isinstance(error, str):
        return error
    if not isinstance(error, dict):
        return ""
    for key in ("message", "detail", "error", "msg"):
        said: Json = error.get(key)
        if isinstance(said, str) and said:
            return said
        if said:
            return show(said, 400)
    return ""
