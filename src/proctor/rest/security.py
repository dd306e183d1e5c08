"""Decides which requests are accepted.

`HostCheck` rejects foreign `Host` headers (DNS rebinding) and foreign `Origin` headers; there are no CORS headers. `Authentication` finds
the caller before the body is read: by key (`Authorization: Bearer` or `x-api-key`), by session cookie (pages, and reading `/api/`), or as
the local user of a service on loopback without organization keys, unless a proxy forwarded the request. Links to shared runs need no key
and are counted by address. The caller of an event stream is checked again periodically: the stream ends when its key or session does.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proctor.errors import StoreError
from proctor.pages.forms import LARGEST_FORM, is_form
from proctor.pages.session_cookie import LOGIN_PATH, find_session_token, is_secure
from proctor.rest.errors import find_presented_key, make_error_response, make_refusal_response
from proctor.rest.limits import RateLimits, declares_at_most, drain_body, has_body
from proctor.service.access.callers import Caller
from proctor.service.access.keys import authenticate, find_local_caller, find_session_caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal

LATE_FORM_S = 5.0
"""Seconds in which the form of an ended session must arrive."""
LATE_FORMS = 20
"""The maximum number of such forms in memory; for further ones the error page does not repeat the input."""


def is_late_form(scope: Scope) -> bool:
    """Return whether a request has a form that our own page could have sent from a session: complete and small."""
    headers = Headers(scope=scope)
    return (
        scope["method"] == "POST"
        and scope["path"] not in (LOGIN_PATH, "/ui/logout")
        and not is_shared(scope["path"])
        and is_form(headers)
        and declares_at_most(headers, LARGEST_FORM)
        and find_session_token(scope) is not None
    )


async def _read_form(receive: Receive) -> bytes:
    """Return a form that arrives in time; empty if it is too slow, or larger than declared."""
    body = b""
    try:
        async with asyncio.timeout(LATE_FORM_S):
            while len(body) <= LARGEST_FORM:
                message = await receive()
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    return body if message["type"] == "http.request" and len(body) <= LARGEST_FORM else b""
    except TimeoutError:
        pass
    return b""


_KEY_REQUIRED = "a key is required: Authorization: Bearer proctor_org_..., or x-api-key"
OPEN_PATHS = frozenset({"/", "/health", "/openapi.json"})
"""Paths that need no key."""
RECHECK_S = 1.0
"""Seconds between checks of a stream's caller. Keys revoked by another process are noticed a few seconds later."""
SHARED_PREFIXES = ("/shared/", "/ui/shared/")
"""Links to shared runs: no key, no session, no body, and a rate limit by address."""
OPEN_PREFIXES = ("/static/",)
"""Assets of pages, the same for everyone."""
_LARGEST_LOGIN = 4_000
"""Bytes of a login request, which needs no key."""
_DRAINED = 1_000_000
"""Bytes of a body that are discarded before it is rejected, since many clients read the response only after sending everything."""
# RFC 9110: uri-host [":" port], limited to DNS and container names and addresses.
_HOST = re.compile(
    r"(?:(?P<name>[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,253}[A-Za-z0-9_])?)|\[(?P<six>[0-9A-Fa-f:.]{2,45})\])(?::(?P<port>[0-9]{1,5}))?", re.ASCII
)
_SURFACE = re.compile(r"/(?:sandboxes|v1/benchmark-runs)/[^/]+/[^/]")
_PASSED_ON = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
"""Headers that proxies add: a forwarded request is not from the local user."""


class HostCheck:
    """Rejects requests with a foreign `Host` or `Origin`."""

    def __init__(self, app: ASGIApp, *, host: str, allowed_hosts: Collection[str] = ()) -> None:
        self._app = app
        self._names = {_normalise_name(name) for name in (*allowed_hosts, host, "localhost")}
        self._any_name = "*" in self._names
        # A service bound to every address has no name of its own; an address cannot be rebound.
        self._any_address = is_unspecified(host)
        if self._any_address or is_loopback(host):
            self._names |= {"127.0.0.1", "::1"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward requests with a known host."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._find_refusal(scope, Headers(scope=scope))
        if refusal is not None:
            await make_refusal_response(scope, refusal)(scope, receive, send)
            return
        # For addresses in responses: the service as the client addresses it.
        scheme = "https" if is_secure(scope) else scope["scheme"]
        scope.setdefault("state", {})["root"] = f"{scheme}://{Headers(scope=scope)['host']}"
        await self._app(scope, receive, send)

    def _find_refusal(self, scope: Scope, headers: Headers) -> Refusal | None:
        host = headers.get("host", "")
        name = read_host(host)
        # With two `Host` headers, a proxy may have checked the other one.
        if len(headers.getlist("host")) != 1 or name is None or not self._is_known(name):
            hint = f"start it with --allowed-host {name}" if name else None
            return Refusal("FORBIDDEN", f"unknown host {host[:200]!r}", hint=hint)
        origin = headers.get("origin")
        if origin is not None:
            try:
                parts = urlsplit(origin)
            except ValueError:
                parts = urlsplit("")
            # A page loaded without TLS may have been forged.
            schemes = ("https",) if is_secure(scope) else ("http", "https")
            if parts.scheme not in schemes or parts.netloc.lower() != host.lower():
                return Refusal("FORBIDDEN", f"requests from pages of {origin[:200]!r} are rejected")
        # A browser that omits the origin may still send the site relation.
        if scope["method"] not in ("GET", "HEAD") and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return Refusal("FORBIDDEN", "cross-site requests are rejected")
        return None

    def _is_known(self, name: str) -> bool:
        if not name:
            return False
        return self._any_name or name in self._names or (self._any_address and _parse_address(name) is not None)


class Authentication:
    """Finds the caller, applies the rate limit and rejects wrong keys. The caller is `request.state.caller`, None on an open path."""

    def __init__(self, app: ASGIApp, *, loopback: bool) -> None:
        self._app = app
        self._loopback = loopback
        self._buckets: RateLimits | None = None
        self._late_forms = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward authenticated requests."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        hub: Hub = scope["app"].state.hub
        scope.setdefault("state", {})["caller"] = None
        try:
            await self._admit(hub, scope)
        except (Refusal, StoreError) as error:
            await self._refuse(error, scope, receive, send)
            return
        await self._answer(hub, scope, receive, send)

    async def _admit(self, hub: Hub, scope: Scope) -> None:
        """Find the caller of a request and count it. Raises `Refusal` and `StoreError`."""
        path = scope["path"]
        if is_open(path) or is_shared(path):
            if is_shared(path):
                self._count_request(hub, scope, None)
            if has_body(scope):
                raise Refusal("PAYLOAD_TOO_LARGE", "requests to this path must not have a body")
        elif is_page(path):
            caller = await self._find_visitor(hub, scope)
            # First, because keys can be guessed at the login, too.
            if caller is not None or has_body(scope):
                self._count_request(hub, scope, caller)
            is_login = path == LOGIN_PATH and declares_at_most(Headers(scope=scope), _LARGEST_LOGIN)
            if caller is None and has_body(scope) and not is_login:
                raise Refusal("UNAUTHORIZED", "log in first")
        elif is_surface(path) and find_presented_key(scope) is None:
            # Simulated systems have some public paths, and one that issues tokens; they check their own tokens.
            caller = await self._find_local(hub, scope)
            self._count_request(hub, scope, caller)
            if caller is None and has_body(scope) and not declares_at_most(Headers(scope=scope), _LARGEST_LOGIN):
                raise Refusal("UNAUTHORIZED", _KEY_REQUIRED)
        else:
            self._count_request(hub, scope, await self._find_caller(hub, scope))

    async def _refuse(self, error: Refusal | StoreError, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that failed authentication; the error page contains what was typed into a form of a session."""
        state, path = scope["state"], scope["path"]
        is_limited = isinstance(error, Refusal) and error.code == "RATE_LIMITED"
        if is_page(path) and is_late_form(scope) and not is_limited and self._late_forms < LATE_FORMS:
            self._late_forms += 1
            try:
                state["body"] = await _read_form(receive)
                answer = make_error_response(scope, error)
            finally:
                # A slow reader must not occupy memory, and an unauthenticated form is never logged.
                state.pop("body", None)
                self._late_forms -= 1
        else:
            # Unauthenticated requests must not cost memory or time.
            if has_body(scope) and (is_page(path) or is_open(path) or is_shared(path)):
                await drain_body(receive, _DRAINED)
            answer = make_error_response(scope, error)
        assert answer is not None
        await answer(scope, receive, send)

    async def _answer(self, hub: Hub, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the request; an event stream ends when its caller loses access."""
        request = asyncio.current_task()
        assert request is not None
        watch: asyncio.Task[None] | None = None
        complete = ended = False

        async def end_without_access() -> None:
            nonlocal ended
            while await self._has_access(hub, scope):
                await asyncio.sleep(RECHECK_S)
            ended = True
            request.cancel()

        async def watched(message: Message) -> None:
            nonlocal watch, complete
            if message["type"] == "http.response.start" and _is_stream(message):
                # Other responses are short; a stream could outlive its key.
                watch = asyncio.create_task(end_without_access())
            elif message["type"] == "http.response.body":
                complete = not message.get("more_body", False)
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except asyncio.CancelledError:
            # The request was cancelled from outside.
            if not ended:
                raise
            # Our own cancellation is handled; otherwise asyncio would count it as one from outside.
            request.uncancel()
            # A normal end of the stream, so that the client does not see a broken connection.
            if not complete:
                await send({"type": "http.response.body", "body": b""})
        finally:
            if watch is not None:
                watch.cancel()

    async def _has_access(self, hub: Hub, scope: Scope) -> bool:
        try:
            await self._find_caller(hub, scope)
        except Refusal:
            return False
        except StoreError:
            pass  # database unavailable: keep the stream open
        return True

    async def _find_caller(self, hub: Hub, scope: Scope) -> Caller:
        key = find_presented_key(scope)
        if key is None:
            caller = await self._find_visitor(hub, scope) if may_use_session(scope) else await self._find_local(hub, scope)
            if caller is None:
                raise Refusal("UNAUTHORIZED", _KEY_REQUIRED)
            return caller
        caller = await authenticate(hub, key)
        if caller is None:
            # Guessing is limited by address and does not slow down callers with a key.
            self._count_request(hub, scope, None)
            raise Refusal("UNAUTHORIZED", "the key is unknown, revoked or expired")
        return caller

    async def _find_local(self, hub: Hub, scope: Scope) -> Caller | None:
        return await find_local_caller(hub) if self._loopback and _is_from_here(scope) else None

    async def _find_visitor(self, hub: Hub, scope: Scope) -> Caller | None:
        """Return the owner of the session, or the local user."""
        token = find_session_token(scope)
        session_caller = None if token is None else await find_session_caller(hub, token)
        return session_caller or await self._find_local(hub, scope)

    def _count_request(self, hub: Hub, scope: Scope, caller: Caller | None) -> None:
        """Note the caller, and apply the rate limit to it, or to the address of an unknown one. Raises `Refusal`."""
        scope["state"]["caller"] = caller
        # Created late: the hub exists only after the application has started.
        if self._buckets is None:
            self._buckets = RateLimits(hub.settings.requests_per_minute, hub.clock)
        client = scope.get("client")
        wait_s = self._buckets.take_s(f"address {client[0] if client else ''}" if caller is None else caller.actor)
        if wait_s > 0:
            source = "from this address" if caller is None else "with this key"
            raise Refusal("RATE_LIMITED", f"too many requests {source}", retry_after_s=wait_s)


def _is_from_here(scope: Scope) -> bool:
    """Return whether a request seems to come from this machine: not forwarded by a proxy, not sent by a foreign page."""
    client = scope.get("client")
    if client is not None and not is_loopback(client[0]):
        return False
    headers = Headers(scope=scope)
    if any(name in headers for name in _PASSED_ON):
        return False
    # A link on a foreign page may open our pages: only the reader sees them, and reading changes nothing.
    follows_link = is_page(scope["path"]) and scope["method"] in ("GET", "HEAD") and headers.get("sec-fetch-dest") == "document"
    return headers.get("sec-fetch-site", "none") != "cross-site" or follows_link


def _is_stream(message: Message) -> bool:
    return Headers(raw=message["headers"]).get("content-type", "").startswith("text/event-stream")


def is_page(path: str) -> bool:
    """Return whether a path is a page."""
    return path == "/ui" or path.startswith("/ui/")


def is_surface(path: str) -> bool:
    """Return whether a path may belong to a simulated system."""
    return _SURFACE.match(path) is not None


def may_use_session(scope: Scope) -> bool:
    """Return whether a session can replace a key: only for reading `/api/`, so that a page can follow a run."""
    return scope["method"] in ("GET", "HEAD") and scope["path"].startswith("/api/")


def is_open(path: str) -> bool:
    """Return whether a path needs no key."""
    return path in OPEN_PATHS or path.startswith(OPEN_PREFIXES)


def is_shared(path: str) -> bool:
    """Return whether a path may be a link to a shared run."""
    return path.startswith(SHARED_PREFIXES)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    address = _parse_address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def is_unspecified(host: str) -> bool:
    """Return whether a host means every address of the machine: `0.0.0.0`, `::`, or empty."""
    address = _parse_address(host)
    return host == "" if address is None else address.is_unspecified


def _parse_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return None


def _normalise_name(name: str) -> str:
    """Return a name in lower case, or an address in its usual form."""
    address = _parse_address(name)
    return name.lower() if address is None else str(address)


def read_host(header: str) -> str | None:
    """Return the name in a `Host` header without its port; None if it is malformed."""
    match = _HOST.fullmatch(header)
    if match is None or (match["port"] and int(match["port"]) > 65535):
        return None
    if match["six"] is None:
        return match["name"].lower()
    try:
        return str(ipaddress.IPv6Address(match["six"]))
    except ValueError:
        return None
