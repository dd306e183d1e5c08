"""One HTTP exchange with an agent: sent, bounded, and recorded on the tape.

An answer of any status is returned (`no_answer.py` decides which are not the agent's). No connection, a timeout, a broken or too large
answer is a `TargetFault`. Redirects are followed on the same host only (with method and body, except after 303), so that credentials reach
no other host. No cookies are stored, no proxy or password is taken from the environment. Secrets that an agent echoes are removed from its
answer. A restricted transport may refuse an address; the fault has its reason.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import urljoin, urlsplit

import msgspec

from proctor.cassettes.ports import LIVE, Tape
from proctor.codecs.http import ACCEPT_ENCODING, BadPacking, TooLarge, unpack_answer
from proctor.errors import EvidenceError, MissingExtra, SpecError, TargetError
from proctor.evidence.values.json_bytes import decode, too_deep_error
from proctor.llm.connections import MakeTransport
from proctor.model.evidence import Json
from proctor.model.json_values import exceeds_depth
from proctor.model.show import show
from proctor.model.typed import convert_to
from proctor.network.addresses import AddressRefused
from proctor.targets.shared.faults import TargetFault
from proctor.targets.shared.masking import Ids, Secrets

if TYPE_CHECKING:
    import httpx2

MAX_ANSWER_BYTES = 50 * 1024 * 1024
"""The largest answer that is read, also after decompression."""
MOST_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_STORED_HEADERS = ("content-type", "retry-after", "date", "x-request-id", "www-authenticate")
_DEFAULT_PORTS = {"http": 80, "https": 443}


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request."""

    method: str
    url: str
    headers: dict[str, str] = {}
    body: Json = None
    has_body: bool = False
    """Whether `body` is sent (as JSON), null included."""


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A response: JSON in `body`, else `text`."""

    status: int
    headers: dict[str, str] = {}
    body: Json = None
    text: str | None = None
    json_text: bool = False
    """Whether `text` was a JSON text, in quotes."""
    unread: str | None = None
    """Why the bytes are not text; `text` is then a printable form of them."""
    duration_ms: float = 0.0
    """From sending the request on an open connection to the end of the answer."""
    redirects: tuple[str, ...] = ()
    """The redirects of the request, as text."""


def read_content(status: int, data: bytes, charset: str | None) -> HttpAnswer:
    """Return an answer of these bytes; `charset` is the one in its header."""
    charset = charset or "utf-8"
    try:
        text, unread = data.decode(charset), None
    except (LookupError, UnicodeError) as error:
        text, unread = data.decode("utf-8", "replace"), f"it is not text in {charset}"
        if isinstance(error, LookupError):
            unread = f"unknown charset {charset[:40]!r}"
        elif isinstance(error, UnicodeDecodeError):
            unread = f"{unread}: byte 0x{data[error.start]:02x} at offset {error.start}"
    # JSON is UTF-8 regardless of the header, so both byte strings are tried, the more likely one first.
    reencoded = text.encode("utf-8", "replace") if unread is None else data
    for candidate in dict.fromkeys((reencoded, data) if data.isascii() else (data, reencoded)):
        try:
            value = decode(candidate)
        except EvidenceError as error:
            # Invalid JSON; treating it as text would hide that.
            if error.code in ("too_deep", "duplicate_key"):
                return HttpAnswer(status=status, text=text, unread=error.message)
            continue
        if isinstance(value, str):
            return HttpAnswer(status=status, text=value, json_text=True)
        if value is not None:
            return (
                HttpAnswer(status=status, text=text, unread=too_deep_error().message)
                if exceeds_depth(value)
                else HttpAnswer(status=status, body=value)
            )
    return HttpAnswer(status=status, text=text, unread=unread)


class Wire:
    """Connections to an agent, shared by all attempts between `open` and `close`."""

    def __init__(
        self, *, secrets: frozenset[str] = frozenset(), limit_bytes: int = MAX_ANSWER_BYTES, transport: MakeTransport | None = None
    ) -> None:
        self.secrets = Secrets(secrets)
        self._transport = transport
        self._limit = limit_bytes
        self._clients: dict[str, httpx2.AsyncClient] | None = None
        """By scheme, each created on first use."""

    async def open(self) -> None:
        """Prepare to connect; nothing is sent yet."""
        if self._clients is not None:
            return
        try:
            importlib.import_module("httpx2")  # takes a sixth of a second, here instead of at the first message
        except ImportError:
            raise MissingExtra("An HTTP target", "live") from None
        self._clients = {}

    async def close(self) -> None:
        """Close every connection."""
        clients, self._clients = self._clients or {}, None
        for client in clients.values():
            await client.aclose()

    def _get_client(self, request: HttpRequest) -> httpx2.AsyncClient:
        if self._clients is None:
            raise TargetFault("not_open", f"{self.show_url(request.url)}: the target was not opened")
        scheme = request.url.partition(":")[0].lower()
        client = self._clients.get(scheme)
        if client is None:
            client = self._clients[scheme] = new_client(certificates=scheme != "http", transport=self._transport)
        return client

    async def exchange(self, request: HttpRequest, *, tape: Tape, ids: Ids, timeout_s: float) -> HttpAnswer:
        """Send a request and wait for the answer."""
        return await self.exchange_over_tape(request, partial(self.send, request, timeout_s=timeout_s), tape=tape, ids=ids)

    async def exchange_over_tape(
        self, request: HttpRequest, send: Callable[[], Awaitable[HttpAnswer]], *, tape: Tape, ids: Ids, note: str | None = None
    ) -> HttpAnswer:
        """Return the answer of `send`, through the tape; `note` distinguishes requests to the same address."""
        if tape is LIVE:
            return await send()

        async def keep() -> Json:
            return ids.mask(msgspec.to_builtins(await send()))

        described: dict[str, Json] = {
            "method": request.method,
            "url": self.secrets.hide_address(request.url),
            "headers": self.secrets.hide_headers(request.headers),
            **({"body": self.secrets.hide_in(request.body)} if request.has_body else {}),
            **({"note": note} if note is not None else {}),
        }
        try:
            answer = await tape.exchange("http", ids.mask(described), keep)
        except TargetError as error:
            if type(error) is not TargetError:
                raise
            # A replayed fault has lost its type.
            raise TargetFault(error.code, error.message, safe=error.safe) from None
        try:
            return convert_to(ids.restore(answer), HttpAnswer)
        except msgspec.ValidationError as error:
            raise TargetFault("bad_answer", f"the tape's answer to {self._describe_request(request)}: {error}") from None

    async def send(self, request: HttpRequest, *, timeout_s: float) -> HttpAnswer:
        """Send without the tape, following redirects on the same host."""
        bound = asyncio.timeout(timeout_s)
        try:
            async with bound:
                watch = Stopwatch()
                redirects: list[str] = []
                for _ in range(MOST_REDIRECTS + 1):
                    answer, location = await self._send_once(request, watch)
                    if answer.status not in _REDIRECTS or not location:
                        return msgspec.structs.replace(answer, redirects=tuple(redirects)) if redirects else answer
                    onward = urljoin(request.url, location)
                    # Every step is compared with the previous one, so a chain of redirects never leaves the server.
                    if not is_same_server(request.url, onward):
                        raise TargetFault(
                            "redirected",
                            f"{self.show_url(request.url)} redirects to another host, {self.show_url(onward)}: "
                            "not followed, since it would be sent "
                            "the message and the credentials; if it is right, write it as the address of the target",
                        )
                    request = msgspec.structs.replace(request, url=onward)
                    changed = ", requested with GET and without the message" if answer.status == 303 else ""
                    redirects.append(f"status {answer.status} led on to {self.show_url(onward)}{changed}")
                    if changed:
                        request = msgspec.structs.replace(request, method="GET", body=None, has_body=False)
                raise TargetFault("redirected", f"{self.show_url(request.url)}: more than {MOST_REDIRECTS} redirects")
        except TimeoutError:
            # A `TimeoutError` from inside is not our timeout.
            if not bound.expired():
                raise
            raise TargetFault("timeout", f"{self._describe_request(request)}: no whole answer within {timeout_s:g} s") from None

    def show_url(self, url: str) -> str:
        """Return an address for a message, without secrets."""
        return self.secrets.hide_address(url)

    def _describe_request(self, request: HttpRequest) -> str:
        return f"{request.method} {self.show_url(request.url)}"

    async def _send_once(self, request: HttpRequest, watch: Stopwatch) -> tuple[HttpAnswer, str | None]:
        import httpx2  # loaded by `open`

        try:
            client = self._get_client(request)
            defaults = {"accept": "application/json, */*;q=0.5", "accept-encoding": ACCEPT_ENCODING, "user-agent": "proctor"}
            if request.has_body:
                defaults["content-type"] = "application/json"
            known = {name.lower() for name in request.headers}
            headers = {**{name: value for name, value in defaults.items() if name not in known}, **request.headers}
            built = client.build_request(
                request.method,
                request.url,
                # As bytes: httpx2 encodes header texts as ASCII, and would raise for any other character.
                headers=[(name.encode(), value.encode()) for name, value in headers.items()],
                content=json_bytes(request.body) if request.has_body else None,
            )
            watch.listen(built.extensions)
            # Streamed, so that an answer beyond the limit is aborted instead of read to its end.
            with watch:
                response = await client.send(built, stream=True, auth=None)
                received = dict(response.headers.items())
                try:
                    data = await unpack_answer(response.aiter_raw(), received.get("content-encoding", ""), max_bytes=self._limit)
                finally:
                    await response.aclose()
        except (httpx2.InvalidURL, httpx2.TransportError, AddressRefused, TooLarge, BadPacking) as error:
            why = self.secrets.hide(str(error)) or type(error).__name__
            code, safe = "transport", False
            if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol | httpx2.LocalProtocolError):
                code, safe = "bad_request", True
            elif isinstance(error, AddressRefused):
                code = "address_refused"
            elif isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
                code, safe, why = "unreachable", True, f"cannot connect ({why}); is the agent running there?"
            elif isinstance(error, TooLarge):
                code, why = "too_large", f"the answer is larger than {self._limit / 2**20:g} MB; it was not read on"
            elif isinstance(error, BadPacking):
                code, why = "bad_answer", f"the answer cannot be unpacked ({error})"
            else:
                why = f"the connection broke before the answer was complete ({why})"
            raise TargetFault(code, f"{self._describe_request(request)}: {why}", safe=safe) from None
        headers = {name: self.secrets.hide(received[name]) for name in _STORED_HEADERS if name in received}
        if "retry-after" not in headers:
            headers.pop("date", None)  # needed only for a wait
        # The client parses the whole header; most name no charset.
        has_charset = "charset" in received.get("content-type", "").lower()
        answer = read_content(response.status_code, data, response.charset_encoding if has_charset else None)
        text = self.secrets.hide(answer.text) if answer.text is not None else None
        answer = msgspec.structs.replace(
            answer, headers=headers, duration_ms=watch.read_ms(), body=self.secrets.hide_in(answer.body), text=text
        )
        return answer, received.get("location")


def new_client(*, certificates: bool, transport: MakeTransport | None = None) -> httpx2.AsyncClient:
    """Return a client for agents; without `certificates` only plain HTTP, because loading certificates takes 80 ms."""
    import ssl  # these come with the client
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    import httpx2  # loaded by `open`

    return httpx2.AsyncClient(
        # A shared cookie jar would carry the session of one case into the next.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        timeout=None,  # `send` limits the time of every exchange
        # The runner limits the number of concurrent attempts; with a limit
        # here, requests would wait for a connection within their own timeout.
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100),
        trust_env=False,
        transport=transport(certificates) if transport is not None else None,
        verify=True if certificates else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    )


def is_same_server(one: str, other: str) -> bool:
    """Return whether two addresses belong to one server; `http` to `https` on the same host counts, not the reverse."""
    first, second = urlsplit(one), urlsplit(other)
    if second.scheme not in _DEFAULT_PORTS or first.hostname != second.hostname:
        return False
    if first.scheme == second.scheme:
        return _get_port(first) == _get_port(second)
    return first.scheme == "http" and _get_port(first) == 80 and _get_port(second) == 443


def check_address(url: str, field: str) -> None:
    """Raise `SpecError` unless this is the address of a web server. The message does not show it, because it may contain a secret."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in _DEFAULT_PORTS and bool(parts.hostname) and _get_port(parts) is not None
    except ValueError:
        sound = False
    if not sound or any(character.isspace() for character in url):
        raise SpecError(f"{field}: expected an address such as http://127.0.0.1:9000/chat", field=field)


def json_bytes(value: Json) -> bytes:
    """Return the value as JSON."""
    try:
        return msgspec.json.encode(value)
    except OverflowError:
        import json  # only integers above 64 bits come here

        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        raise TargetFault("bad_request", f"half a surrogate pair cannot be sent: {show(value)}", safe=True) from None


def _get_port(parts: Any) -> int | None:
    port = cast("int | None", parts.port)
    return port if port is not None else _DEFAULT_PORTS.get(parts.scheme)


_SENDING = ".send_request_headers.started"
"""Event names of the HTTP client for an open connection and a sent request, after the name of the protocol."""


def read_clock() -> float:
    """Return the seconds of a monotonic clock."""
    return time.perf_counter()


class Stopwatch:
    """The total time spent waiting for an agent: the sum of all intervals from a request or call to its response."""

    def __init__(self) -> None:
        self._total_s = 0.0
        self._since: float | None = None
        self._is_sent = False
        self._extensions: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._since, self._is_sent = read_clock(), False
        return self

    def __exit__(self, *_: object) -> None:
        if self._since is not None:
            self._total_s += read_clock() - self._since

    def call(self, work: Callable[[], object]) -> object:
        """Return the result of `work`, measured in its own thread."""
        with self:
            return work()

    def listen(self, extensions: dict[str, Any]) -> None:
        """Have the HTTP client report the events of a request with these extensions, up to the one that counts."""
        self._extensions = extensions
        extensions["trace"] = self.note_event

    async def note_event(self, name: str, _: object) -> None:
        """Handle an event of the HTTP client: an exchange begins when the connection is open and the headers are sent."""
        if not self._is_sent and name.endswith(_SENDING):
            self._since, self._is_sent = read_clock(), True
            # Every further event would cost time.
            self._extensions.pop("trace", None)

    def read_ms(self) -> float:
        """Return the milliseconds of all intervals."""
        return round(self._total_s * 1000, 3)
