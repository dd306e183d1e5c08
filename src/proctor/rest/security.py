"""Decides who may speak to the service at all.

Two layers. `Doorkeeper` looks at where a request comes from: its `Host` must be a name of this service, so that a page in somebody's
browser cannot reach it under a name of its own (DNS rebinding), and its `Origin`, which only browsers send, must be the service itself.
There are no CORS headers. `Authentication` finds out who asks, before the body is taken in: by key (`Authorization: Bearer` or
`x-api-key`), or as the local user of a service on loopback that never had an organization key, unless a proxy passed the request on. A
browser has a session instead of a key (`pages/session_cookie.py`): pages are asked with it, and `/api/` may be read with it. What somebody
may do is decided by the verbs. A link to a run (`/shared/...`) is looked at without either; who asks is counted by address. Who follows a
stream is asked for the key or session again and again: when it is revoked or expires, the stream ends.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proctor.errors import StoreError
from proctor.pages.forms import LARGEST_FORM, is_form
from proctor.pages.session_cookie import LOGIN_PATH, find_session_token, is_secure
from proctor.rest.errors import find_presented_key, make_error_response, make_refusal_response
from proctor.rest.limits import BodyRoom, HeldBody, RateLimits, drain_body, has_body, promises_at_most
from proctor.service.access.callers import Caller
from proctor.service.access.keys import authenticate, find_local_caller, find_session_caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal

# --- receives forms of visitors who are refused before their screen is reached, so that what they typed can be given back

LATE_FORM_S = 5.0
"""How long such a form may take altogether."""
LATE_FORM_BYTES = 20 * LARGEST_FORM
"""Bytes of all such forms that are held at one moment."""


class LateForms:
    """The forms that come in from visitors who are refused."""

    def __init__(self) -> None:
        self._room = BodyRoom(LATE_FORM_BYTES)

    @asynccontextmanager
    async def receive_form(self, scope: Scope, receive: Receive) -> AsyncGenerator[bytes]:
        """Yield the body of a form, held for as long as the block lasts; nothing of one that came too slowly or found no room."""
        client = scope.get("client")
        # Whose organization it is cannot be told, so that the address alone says who holds the most.
        held = self._room.enter("", client[0] if client else "")
        try:
            yield await _read_body(receive, held)
        finally:
            held.release()


def is_late_form(scope: Scope) -> bool:
    """Return whether a request brings a form that our own page could have sent from a session: whole, small, and as forms are written."""
    headers = Headers(scope=scope)
    return (
        scope["method"] == "POST"
        and scope["path"] not in (LOGIN_PATH, "/ui/logout")
        and is_form(headers)
        and promises_at_most(headers, LARGEST_FORM)
        and find_session_token(scope) is not None
    )


async def _read_body(receive: Receive, held: HeldBody) -> bytes:
    """Return a body that is soon there and finds room. Any other is passed over: many clients only listen when they have spoken."""
    parts: list[bytes] = []
    seen, kept = 0, True
    try:
        async with asyncio.timeout(LATE_FORM_S) as held.arriving:
            while True:
                message = await receive()
                part: bytes = message.get("body", b"")
                seen += len(part)
                if message["type"] != "http.request" or seen > LARGEST_FORM:
                    break
                held.last = asyncio.get_running_loop().time()
                kept = kept and _has_room(held, len(part))
                if kept:
                    parts.append(part)
                else:
                    parts.clear()
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        pass  # its time is over, or others needed the room
    finally:
        held.arriving = None
    return b""


def _has_room(held: HeldBody, count: int) -> bool:
    """Hold so many bytes more and return True; let go of all where there is no room for them."""
    try:
        held.add(count)
    except Refusal:
        held.drop(held.size)
        return False
    return True


# ---


OPEN_PATHS = frozenset({"/", "/health", "/openapi.json"})
"""What anybody may read."""
RECHECK_S = 1.0
"""How often it is looked whether who follows a stream still may. Keys that another process revoked are known a few seconds later."""
SHARED_PREFIXES = ("/shared/", "/ui/shared/")
"""Where anybody looks at a run by a link to it: no key, no session, no body, and a count by address."""
OPEN_PREFIXES = ("/static/",)
"""What pages are made of, the same for everybody."""
_LARGEST_LOGIN = 4_000
"""Bytes of a request to log in, which anybody may send."""
_FORMS_PER_MINUTE = 120
"""Forms that are given back to one address, or key, of those who are refused: drawing the largest takes 50 ms."""
_DRAINED = 1_000_000
"""Bytes of a body on such a path that are passed over before it is refused, for clients that only listen when they have spoken."""
# RFC 9110: uri-host [":" port], of which only names as DNS and containers have them and addresses are used.
_HOST = re.compile(
    r"(?:(?P<name>[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,253}[A-Za-z0-9_])?)|\[(?P<six>[0-9A-Fa-f:.]{2,45})\])(?::(?P<port>[0-9]{1,5}))?", re.ASCII
)
_SURFACE = re.compile(r"/(?:sandboxes|v1/benchmark-runs)/[^/]+/[^/]")
_PASSED_ON = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
"""What proxies add: whom they speak for is not the local user, wherever they stand themselves."""


class Doorkeeper:
    """Refuses requests that were made under a wrong name or by a foreign page."""

    def __init__(self, app: ASGIApp, *, host: str, allowed_hosts: Collection[str] = ()) -> None:
        self._app = app
        self._names = {_normalise_name(name) for name in (*allowed_hosts, host, "localhost")}
        self._any_name = "*" in self._names
        # Bound to every address there is no name of its own; an address cannot be somebody else's name.
        self._any_address = is_unspecified(host)
        if self._any_address or is_loopback(host):
            self._names |= {"127.0.0.1", "::1"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what came in by the right name."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._find_refusal(scope, Headers(scope=scope))
        if refusal is not None:
            await make_refusal_response(scope, refusal)(scope, receive, send)
            return
        # For addresses in answers: the service as the client wrote it.
        scheme = "https" if is_secure(scope) else scope["scheme"]
        scope.setdefault("state", {})["root"] = f"{scheme}://{Headers(scope=scope)['host']}"
        await self._app(scope, receive, send)

    def _find_refusal(self, scope: Scope, headers: Headers) -> Refusal | None:
        host = headers.get("host", "")
        name = read_host(host)
        # Of two `Host` headers a proxy in front may have looked at the other one.
        if len(headers.getlist("host")) != 1 or name is None or not self._is_known(name):
            hint = f"start it with --allowed-host {name}" if name else None
            return Refusal("FORBIDDEN", f"this service is unknown as {host[:200]!r}", hint=hint)
        origin = headers.get("origin")
        if origin is not None:
            try:
                parts = urlsplit(origin)
            except ValueError:
                parts = urlsplit("")
            # A page that came without TLS may be anybody's, under any name.
            schemes = ("https",) if is_secure(scope) else ("http", "https")
            if parts.scheme not in schemes or parts.netloc.lower() != host.lower():
                return Refusal("FORBIDDEN", f"requests from pages of {origin[:200]!r} are not answered")
        # A browser that leaves the origin out may still say whose page it was.
        if scope["method"] not in ("GET", "HEAD") and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return Refusal("FORBIDDEN", "requests from pages of others are not answered")
        return None

    def _is_known(self, name: str) -> bool:
        if not name:
            return False
        return self._any_name or name in self._names or (self._any_address and _parse_address(name) is not None)


class Authentication:
    """Finds out who asks and how often, and refuses wrong keys. The caller is in `request.state.caller`, None on an open path."""

    def __init__(self, app: ASGIApp, *, loopback: bool) -> None:
        self._app = app
        self._loopback = loopback
        self._buckets: RateLimits | None = None
        self._late_forms = LateForms()
        self._form_buckets: RateLimits | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what comes from somebody we know."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if is_open(scope["path"]) or is_shared(scope["path"]):
            scope.setdefault("state", {})["caller"] = None
            if is_shared(scope["path"]):
                try:
                    self._count_request(scope["app"].state.hub, _name_address(scope))
                except Refusal as refusal:
                    await make_refusal_response(scope, refusal)(scope, receive, send)
                    return
            if has_body(scope):
                # From whoever may be anybody nothing is taken that costs room or time.
                await drain_body(receive, _DRAINED)
                await make_refusal_response(scope, Refusal("PAYLOAD_TOO_LARGE", "a request for this path has no body"))(
                    scope, receive, send
                )
                return
            await self._app(scope, receive, send)
            return
        hub: Hub = scope["app"].state.hub
        state = scope.setdefault("state", {})
        try:
            if is_page(scope["path"]):
                caller = await self._find_visitor(hub, scope)
                state["caller"] = caller
                await self._admit_visitor(hub, scope, receive, caller)
            elif is_surface(scope["path"]) and find_presented_key(scope) is None:
                # Simulated systems have a few paths for everybody, and one where a client gets its token; they know which.
                caller = await self._find_local(hub, scope)
                state["caller"] = caller
                self._admit_stranger(hub, scope, caller)
            else:
                caller = await self._find_caller(hub, scope)
                state["caller"] = caller
                self._count_request(hub, caller.actor)
        except (Refusal, StoreError) as error:
            await self._refuse(error, scope, receive, send)
            return
        await self._answer(hub, scope, receive, send)

    async def _refuse(self, error: Refusal | StoreError, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer whom nobody knows, or knows just now. What was typed into a form of somebody who had a session is given back to them."""
        state = scope["state"]
        if is_page(scope["path"]) and is_late_form(scope) and self._may_have_form_back(scope):
            async with self._late_forms.receive_form(scope, receive) as state["body"]:
                answer = make_error_response(scope, error)
            # Whoever reads the answer slowly keeps no room from others; and what was typed by somebody whom nobody knows is never logged.
            del state["body"]
        else:
            if is_page(scope["path"]) and has_body(scope):
                await drain_body(receive, _DRAINED)
            answer = make_error_response(scope, error)
        assert answer is not None
        await answer(scope, receive, send)

    def _may_have_form_back(self, scope: Scope) -> bool:
        """Count a form that is given back and return whether there were not too many."""
        if self._form_buckets is None:
            self._form_buckets = RateLimits(_FORMS_PER_MINUTE, scope["app"].state.hub.clock)
        caller: Caller | None = scope["state"].get("caller")
        return self._form_buckets.take_s(_name_address(scope) if caller is None else caller.actor) == 0

    async def _answer(self, hub: Hub, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request; an event stream only for as long as its caller is welcome."""
        request = asyncio.current_task()
        assert request is not None
        watch: asyncio.Task[None] | None = None
        complete = ended = False

        async def ended_when_unwelcome() -> None:
            nonlocal ended
            while await self._is_still_welcome(hub, scope):
                await asyncio.sleep(RECHECK_S)
            ended = True
            request.cancel()

        async def watched(message: Message) -> None:
            nonlocal watch, complete
            if message["type"] == "http.response.start" and _is_stream(message):
                # Any other answer is soon over; a stream would outlive the key it was asked with.
                watch = asyncio.create_task(ended_when_unwelcome())
            elif message["type"] == "http.response.body":
                complete = not message.get("more_body", False)
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except asyncio.CancelledError:
            # Somebody else has cancelled the request, and expects it to end by that.
            if not ended:
                raise
            # The cancellation was our own and is dealt with; else asyncio would count it as one from outside that still holds.
            request.uncancel()
            # Ended as every stream ends, so that the client does not take it for a broken connection.
            if not complete:
                await send({"type": "http.response.body", "body": b""})
        finally:
            if watch is not None:
                watch.cancel()

    async def _is_still_welcome(self, hub: Hub, scope: Scope) -> bool:
        try:
            await self._find_caller(hub, scope)
        except Refusal:
            return False
        except StoreError:
            pass  # nobody can say otherwise now
        return True

    async def _find_caller(self, hub: Hub, scope: Scope) -> Caller:
        key = find_presented_key(scope)
        if key is None:
            caller = await self._find_visitor(hub, scope) if may_use_session(scope) else await self._find_local(hub, scope)
            if caller is None:
                raise Refusal("UNAUTHORIZED", "a key is needed: Authorization: Bearer vk_..., or x-api-key")
            return caller
        caller = await authenticate(hub, key)
        if caller is None:
            # Guessing is limited by where it comes from; who has a key is not held up by it.
            self._count_request(hub, _name_address(scope))
            raise Refusal("UNAUTHORIZED", "the key is unknown, was revoked, or has expired")
        return caller

    async def _find_local(self, hub: Hub, scope: Scope) -> Caller | None:
        return await find_local_caller(hub) if self._loopback and _is_from_here(scope) else None

    async def _find_visitor(self, hub: Hub, scope: Scope) -> Caller | None:
        """Return who looks at pages: whose session it is, else the local user."""
        token = find_session_token(scope)
        found = None if token is None else await find_session_caller(hub, token)
        return found or await self._find_local(hub, scope)

    async def _admit_visitor(self, hub: Hub, scope: Scope, receive: Receive, caller: Caller | None) -> None:
        """Count the request of a visitor; refuse what a stranger sends, but for a key to log in with, which is counted by address."""
        if caller is not None:
            self._count_request(hub, caller.actor)
        elif has_body(scope):
            # Before anything else is looked at: whoever guesses keys does so at the login, too.
            self._count_request(hub, _name_address(scope))
            if scope["path"] != LOGIN_PATH or not promises_at_most(Headers(scope=scope), _LARGEST_LOGIN):
                raise Refusal("UNAUTHORIZED", "log in first")

    def _admit_stranger(self, hub: Hub, scope: Scope, caller: Caller | None) -> None:
        """Count the request of somebody without a key to a simulated system; refuse one with a large body."""
        self._count_request(hub, _name_address(scope) if caller is None else caller.actor)
        if caller is None and has_body(scope) and not promises_at_most(Headers(scope=scope), _LARGEST_LOGIN):
            raise Refusal("UNAUTHORIZED", "a key is needed: Authorization: Bearer vk_..., or x-api-key")

    def _count_request(self, hub: Hub, who: str) -> None:
        # Made late: the hub, whose settings and clock it takes, is there only when the application has started.
        if self._buckets is None:
            self._buckets = RateLimits(hub.settings.requests_per_minute, hub.clock)
        wait_s = self._buckets.take_s(who)
        if wait_s > 0 and who.startswith("address "):
            raise Refusal("RATE_LIMITED", "too many requests from this address", retry_after_s=wait_s)
        if wait_s > 0:
            raise Refusal("RATE_LIMITED", "too many requests with this key", retry_after_s=wait_s)


def _name_address(scope: Scope) -> str:
    """Return under which name the requests of an address are counted."""
    client = scope.get("client")
    return f"address {client[0] if client else ''}"


def _is_from_here(scope: Scope) -> bool:
    """Return whether a request seems to come from this machine: not passed on by a proxy, not sent off by a foreign page."""
    client = scope.get("client")
    if client is not None and not is_loopback(client[0]):
        return False
    headers = Headers(scope=scope)
    if any(name in headers for name in _PASSED_ON):
        return False
    # A link on a foreign page may lead somebody to our pages: it shows them to the reader alone, and reading changes nothing.
    follows_link = is_page(scope["path"]) and scope["method"] in ("GET", "HEAD") and headers.get("sec-fetch-dest") == "document"
    return headers.get("sec-fetch-site", "none") != "cross-site" or follows_link


def _is_stream(message: Message) -> bool:
    return Headers(raw=message["headers"]).get("content-type", "").startswith("text/event-stream")


def is_page(path: str) -> bool:
    """Return whether a path is one of the pages, which show strangers the way in."""
    return path == "/ui" or path.startswith("/ui/")


def is_surface(path: str) -> bool:
    """Return whether a path may lead to a simulated system."""
    return _SURFACE.match(path) is not None


def may_use_session(scope: Scope) -> bool:
    """Return whether a session will do instead of a key: reading our own interface, so that a page can follow a run.

    Whatever changes something needs a key here, or a form of the pages with its own proof of where it comes from.
    """
    return scope["method"] in ("GET", "HEAD") and scope["path"].startswith("/api/")


def is_open(path: str) -> bool:
    """Return whether anybody may read this path."""
    return path in OPEN_PATHS or path.startswith(OPEN_PREFIXES)


def is_shared(path: str) -> bool:
    """Return whether a path may be a link to a run."""
    return path.startswith(SHARED_PREFIXES)


def is_loopback(host: str) -> bool:
    """Return whether only programs of the same machine can reach this address."""
    address = _parse_address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def is_unspecified(host: str) -> bool:
    """Return whether this is every address of the machine: `0.0.0.0`, `::`, or nothing."""
    address = _parse_address(host)
    return host == "" if address is None else address.is_unspecified


def _parse_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return None


def _normalise_name(name: str) -> str:
    """Return a name in lower case, and an address as it is usually written."""
    address = _parse_address(name)
    return name.lower() if address is None else str(address)


def read_host(header: str) -> str | None:
    """Return the name in a `Host` header without its port; None for anything but `NAME`, `ADDRESS` or `[ADDRESS]`, and a port."""
    found = _HOST.fullmatch(header)
    if found is None or (found["port"] and int(found["port"]) > 65535):
        return None
    if found["six"] is None:
        return found["name"].lower()
    try:
        return str(ipaddress.IPv6Address(found["six"]))
    except ValueError:
        return None
