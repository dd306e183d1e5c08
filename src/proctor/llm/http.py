"""The one way requests reach a model provider over HTTP.

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

Messages carry what the provider said, cleaned of every secret that was sent.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from proctor.errors import EvidenceError, MissingExtra
from proctor.evidence.json_bytes import decode, exceeds_depth
from proctor.llm.ports import ModelFault
from proctor.llm.settings import bare_address
from proctor.model.evidence import Json
from proctor.model.show import shorten, show

if TYPE_CHECKING:
    import httpx2

MAX_ANSWER = 50 * 1024 * 1024
"""Bytes of an answer that are read at most."""

MakeTransport = Callable[[bool], "httpx2.AsyncBaseTransport"]
"""How connections are made where they may not go everywhere; told whether certificates are looked at."""

_EXCERPT = 200
_AT_ONCE = 8
"""Requests of one line at a time."""
_MOST_LINES = 16
_SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,9})?")


class Refused(ModelFault):
    """The provider understood the request and will not have it; `error` is what it said about it, as it came."""

    def __init__(self, message: str, *, status: int, error: Json) -> None:
        super().__init__("bad_request", message, status=status)
        self.error: Json = error


class Answer(msgspec.Struct, frozen=True):
    """What came back, before it is judged."""

    status: int
    headers: dict[str, str]
    content: bytes


class _Line:
    """A client with the connections of a few requests.

    The client looks at every connection it has before each request: with fifty of them that is a third of all the work.
    """

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client
        self.under_way = 0


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
        self._headers = dict(headers)
        # Longest first: a secret may be part of another.
        self._secrets = sorted({secret for secret in secrets if len(secret) >= 4}, key=len, reverse=True)
        self._proxy = proxy
        self._transport = transport
        self._lines: list[_Line] = []
        self._certificates: ssl.SSLContext | None = None

    async def post(self, url: str, body: Json) -> dict[str, Json]:
        """The JSON object that answers `body`. Raises `ModelFault`."""
        content = encoded(body)
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._send(url, content)
        except TimeoutError:
            raise ModelFault("timeout", f"{bare_address(url)} did not answer within {self._timeout_s:g} s") from None
        if not 200 <= answer.status < 300:
            raise self._fault(url, answer)
        return self._document(url, answer)

    async def close(self) -> None:
        """Give back the connections."""
        lines, self._lines = self._lines, []
        async with asyncio.timeout(10):
            for line in lines:
                await line.client.aclose()

    def clean(self, text: str) -> str:
        """A text without the secrets that were sent."""
        for secret in self._secrets:
            text = text.replace(secret, "[redacted]")
        return text

    async def _send(self, url: str, content: bytes) -> Answer:
        try:
            import httpx2  # a fifth of a second; runs without a model never need it
        except ImportError:
            raise MissingExtra("Models over HTTP", "live") from None

        line = self._line(url)
        line.under_way += 1
        try:
            async with line.client.stream("POST", url, content=content) as response:
                return Answer(response.status_code, dict(response.headers), await self._read(url, response))
        except httpx2.TimeoutException:
            raise ModelFault("timeout", f"{bare_address(url)} did not answer within {self._timeout_s:g} s") from None
        except (httpx2.InvalidURL, UnicodeError):
            raise ModelFault("bad_request", f"{bare_address(url)} is not an address that can be reached") from None
        except httpx2.HTTPError as error:
            what = self.clean(str(error)) or type(error).__name__
            raise ModelFault("transport", f"cannot talk to {bare_address(url)}: {shorten(what)}") from None
        finally:
            line.under_way -= 1

    def _line(self, url: str) -> _Line:
        """The first line that is not busy; a new one where all are."""
        for line in self._lines:
            if line.under_way < _AT_ONCE:
                return line
        if len(self._lines) >= _MOST_LINES:
            return min(self._lines, key=lambda line: line.under_way)
        import httpx2  # loaded by the caller

        secure = not url.lower().startswith("http:")
        client = httpx2.AsyncClient(
            timeout=self._timeout_s,
            follow_redirects=False,
            trust_env=False,
            proxy=self._proxy,
            verify=self._verify(secure),
            transport=self._transport(secure) if self._transport is not None else None,
            headers={"accept": "application/json", "content-type": "application/json", **self._headers},
            # How many requests run at a time is the runner's decision, not the connection pool's.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100),
        )
        self._lines.append(_Line(client))
        return self._lines[-1]

    def _verify(self, secure: bool) -> ssl.SSLContext:
        """Whom to trust, read once: that takes as long as dozens of requests. Plain HTTP trusts nobody."""
        if self._certificates is None:
            import httpx2  # loaded by the caller

            tls = secure or self._proxy is not None
            self._certificates = httpx2.create_ssl_context(trust_env=False) if tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return self._certificates

    async def _read(self, url: str, response: httpx2.Response) -> bytes:
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.aiter_bytes():
            size += len(chunk)
            if size > MAX_ANSWER:
                raise ModelFault("bad_answer", f"{bare_address(url)} answered with more than {MAX_ANSWER // 1024 // 1024} MB")
            chunks.append(chunk)
        return b"".join(chunks)

    def _document(self, url: str, answer: Answer) -> dict[str, Json]:
        try:
            document = decode(answer.content)
        except EvidenceError as error:
            why = error.message
        else:
            if isinstance(document, dict) and not exceeds_depth(document):
                return document
            why = "not a JSON object" if not isinstance(document, dict) else "JSON nested too deep"
        message = f"{bare_address(url)} answered with something that cannot be used: {why}; it begins {self._excerpt(answer.content)}"
        raise ModelFault("bad_answer", message, status=answer.status)

    def _fault(self, url: str, answer: Answer) -> ModelFault:
        status, where = answer.status, bare_address(url)
        if 300 <= status < 400:
            return ModelFault(
                "bad_answer", f"{where} redirects to {_host_of(answer)}; redirects are not followed, the key would go along", status=status
            )
        error = _error_of(answer.content)
        said = self.clean(_message_of(error)) or self._excerpt(answer.content)
        message = f"{where} answered {status}: {shorten(said, 400)}"
        if status == 429:
            if isinstance(error, dict) and "insufficient_quota" in (error.get("code"), error.get("type")):
                return ModelFault("bad_request", message, status=status)
            return ModelFault("rate_limited", message, retry_after_s=retry_after(answer.headers), status=status)
        if status in (401, 403):
            return ModelFault("unauthorized", message, status=status)
        if status == 408:
            return ModelFault("timeout", message, retry_after_s=retry_after(answer.headers), status=status)
        if status >= 500:
            return ModelFault("overloaded", message, retry_after_s=retry_after(answer.headers), status=status)
        return Refused(message, status=status, error=error)

    def _excerpt(self, content: bytes) -> str:
        # Cleaned before it is cut, so that no half of a secret is left; more than enough for any key.
        text = self.clean(content[: _EXCERPT * 50].decode("utf-8", "replace"))
        return show(text[:_EXCERPT]) if text.strip() else "(nothing)"


def encoded(body: Json) -> bytes:
    """A request as JSON text."""
    try:
        return msgspec.json.encode(body)
    except RecursionError:
        raise ModelFault("bad_request", "the request is nested too deep to be sent") from None
    except (UnicodeEncodeError, OverflowError, msgspec.MsgspecError):
        import json  # slower, but it writes half surrogate pairs and integers of any size

        return json.dumps(body).encode()


def retry_after(headers: Mapping[str, str]) -> float | None:
    """How many seconds the provider asks to wait, if it does. `headers` have lower-case names."""
    exact = headers.get("retry-after-ms", "").strip()
    if _SECONDS.fullmatch(exact):
        return float(exact) / 1000
    said = headers.get("retry-after", "").strip()
    if not said:
        return None
    if _SECONDS.fullmatch(said):
        return float(said)
    then = _instant(said)
    if then is None:
        return None
    # The provider's own clock, where it tells it: ours may be wrong.
    now = _instant(headers.get("date", ""))
    return max(0.0, then - (time.time() if now is None else now))


def _instant(text: str) -> float | None:
    from email.utils import parsedate_to_datetime  # slow to load, and dates are rare

    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _host_of(redirect: Answer) -> str:
    try:
        target = urlsplit(redirect.headers.get("location", ""))
        return f"{target.scheme}://{target.hostname}" if target.hostname else "another address"
    except ValueError:
        return "another address"


def _error_of(content: bytes) -> Json:
    try:
        document = decode(content)
    except EvidenceError:
        return None
    if isinstance(document, list) and document:
        document = document[0]
    if not isinstance(document, dict):
        return None
    return document.get("error") or document


def _message_of(error: Json) -> str:
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
