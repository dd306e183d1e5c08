"""Limits the size of request bodies and the number of requests per key.

A body is received before anything reads it: counted while it streams in, within a time limit, decompressed with the same size limit, and
measured if it is JSON. All bodies in memory share one budget (`BodyBudget`).
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proctor.rest.errors import PROTOBUF, find_dialect, make_refusal_response
from proctor.rest.memory import RELEASED
from proctor.service.refusals import Refusal
from proctor.service.settings import ServiceSettings

FREE_RATIO = 1_000_000
"""Size in bytes up to which the compression ratio of a body is not checked."""
_INFLATE_SLICE = 65_536


def inflate_bounded(body: bytes, limits: ServiceSettings) -> bytes:
    """Return the decompressed body. Raises `Refusal` as soon as a limit is exceeded."""
    view = memoryview(body)
    out = bytearray()
    largest = min(limits.largest_body, max(FREE_RATIO, limits.compression_ratio * len(body)))
    place = members = 0
    try:
        while place < len(body):
            members += 1
            if members > limits.gzip_members:
                raise Refusal("PAYLOAD_TOO_LARGE", f"the compressed body has more than {limits.gzip_members} gzip members (--gzip-members)")
            place = _inflate_member(view, place, out, largest)
            if len(out) > largest:
                if largest == limits.largest_body:
                    reason = f"the decompressed body is larger than {largest} bytes (--largest-body)"
                else:
                    ratio = f"more than {limits.compression_ratio} times as large when decompressed (--compression-ratio)"
                    reason = f"the body of {len(body)} bytes is {ratio}"
                raise Refusal("PAYLOAD_TOO_LARGE", reason)
    except zlib.error:
        raise Refusal("BAD_REQUEST", "the body cannot be decompressed") from None
    return bytes(out)


def _inflate_member(view: memoryview, place: int, out: bytearray, largest: int) -> int:
    """Inflate one gzip member up to one byte more than `largest`, and return where it ends."""
    # 32 makes zlib detect gzip or zlib by the header, whatever the client declared.
    engine = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    # In slices, because zlib copies unused input each time.
    while not engine.eof and len(out) <= largest:
        if not engine.unconsumed_tail and place >= len(view):
            raise Refusal("BAD_REQUEST", "the compressed body is truncated")
        compressed = engine.unconsumed_tail or view[place : place + _INFLATE_SLICE]
        if not engine.unconsumed_tail:
            place += len(compressed)
        # Never 0, which means no limit to zlib.
        out += engine.decompress(compressed, min(_INFLATE_SLICE * 16, largest - len(out) + 1))
    return place - len(engine.unused_data)


STALLED_S = 1.0
"""Seconds without data after which a body may be dropped for another one of the same key."""


class BodyReservation:
    """The memory that one request body occupies, counted in the budget."""

    def __init__(self, budget: BodyBudget, organization: str, client: str) -> None:
        self.budget = budget
        self.organization = organization
        self.client = client
        self.size = 0
        self.last = 0.0
        """When its last bytes arrived, by the clock of the event loop."""
        self.arriving: asyncio.Timeout | None = None
        """The timeout of a body that is still arriving."""
        self.given_up = False

    def is_arriving(self) -> bool:
        """Return whether the body is still arriving and has not just timed out."""
        return self.arriving is not None and not self.arriving.expired()

    def drop(self, count: int) -> None:
        """Release `count` bytes."""
        count = min(count, self.size)
        self.size -= count
        self.budget.left += count
        RELEASED.add(count)

    def release(self) -> None:
        """Release all bytes."""
        self.drop(self.size)
        self.budget.bodies.discard(self)


class BodyBudget:
    """The memory that all request bodies share."""

    def __init__(self, most: int) -> None:
        self.most = self.left = most
        self.bodies: set[BodyReservation] = set()

    def enter(self, organization: str, client: str) -> BodyReservation:
        """Register the body of one request."""
        body = BodyReservation(self, organization, client)
        self.bodies.add(body)
        return body

    def take_bytes(self, body: BodyReservation, count: int) -> None:
        """Reserve bytes for a body, dropping other bodies if there are not enough. Raises `Refusal`."""
        while count > self.left:
            other = self._find_greediest(body, count)
            if other is None:
                reason = f"the service is busy: other requests hold {self.most - self.left} of {self.most} bytes (--waiting-bytes)"
                raise Refusal("UNAVAILABLE", reason, retry_after_s=1)
            # The task that reads it wakes up with a timeout; `given_up` marks the cause.
            other.given_up = True
            other.release()
            assert other.arriving is not None
            other.arriving.reschedule(asyncio.get_running_loop().time())
            # So that its next bytes do not extend the timeout, and the same body is not dropped twice.
            other.arriving = None
        self.left -= count
        body.size += count

    def _find_greediest(self, receiving: BodyReservation, count: int) -> BodyReservation | None:
        """Return the body to drop for another one, or None."""
        held: Counter[str | tuple[str, str]] = Counter()
        for body in self.bodies:
            held[body.organization] += body.size
            held[body.organization, body.client] += body.size

        def holds(body: BodyReservation) -> tuple[int, int]:
            return held[body.organization], held[body.organization, body.client]

        # A complete body is being processed and stays; an empty one frees nothing.
        others = [body for body in self.bodies if body is not receiving and body.is_arriving() and body.size]
        if not others:
            return None
        greediest = max(others, key=lambda body: (*holds(body), -body.last))
        of_all, of_client = holds(receiving)
        most_of_all, most_of_client = holds(greediest)
        # A sender that would then hold more than the largest holder gets nothing: two large senders would otherwise drop each other's
        # bodies in turn.
        if greediest.organization != receiving.organization:
            return greediest if of_all + count <= most_of_all else None
        if greediest.client != receiving.client:
            return greediest if of_client + count <= most_of_client else None
        now = asyncio.get_running_loop().time()
        stalled = [body for body in others if (body.organization, body.client) == (receiving.organization, receiving.client)]
        oldest = min(stalled, key=lambda body: body.last)
        return oldest if now - oldest.last >= STALLED_S else None


_SLICE = 262_144
"""Bytes scanned in one call, during which no other thread runs."""
_NOT_STRUCTURE, _NOT_COUNTED, _NOT_OPENING, _NOT_BRACKETS = (
    bytes(code for code in range(256) if code not in others) for others in (b'"[]{},', b"[{,", b"[{", b"[]{}")
)
_ALIKE = bytes.maketrans(b"{}", b"[]")


class JsonLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the JSON of one request."""

    objects: int
    values: int
    deepest: int
    part: int = 1
    """The divisor of the limits that requests with traces, states and datasets have."""

    @classmethod
    def of(cls, settings: ServiceSettings, *, part: int = 1) -> JsonLimits:
        """Return the limits of a service, divided by `part` for requests without traces, a state or a dataset."""
        objects, values = settings.json_objects // part, settings.json_values // part
        return cls(objects=objects, values=values, deepest=settings.deepest_body, part=part)


def check_json(body: bytes, limits: JsonLimits) -> None:
    """Reject JSON that exceeds the limits; the result for anything else is undefined. Raises `Refusal`."""
    counted = body.translate(None, _NOT_COUNTED)
    if len(counted) <= limits.values and _count_objects(counted) <= min(limits.objects, limits.deepest):
        return  # within the limits even if none of them is inside a string
    objects = values = 0
    brackets: list[bytes] = []
    for outside in _cut_strings_out(body):
        counted = outside.translate(None, _NOT_COUNTED)
        values += len(counted)
        objects += _count_objects(counted)
        # Too many objects are rejected without measuring the depth, so the brackets are not needed.
        if objects <= limits.objects:
            brackets.append(outside.translate(None, _NOT_BRACKETS))
    for what, count, most, flag in (
        ("lists and objects", objects, limits.objects, "--json-objects"),
        ("values", values, limits.values, "--json-values"),
    ):
        if count > most:
            setting = flag if limits.part == 1 else f"1/{limits.part} of {flag}, which is for traces, states and datasets"
            raise Refusal("PAYLOAD_TOO_LARGE", f"the JSON of the body has {count} {what}; the limit is {most} ({setting})")
    # With more closing than opening brackets it is not JSON.
    if objects > limits.deepest and _is_deeper(b"".join(brackets)[: 2 * objects], limits.deepest):
        raise Refusal("BAD_REQUEST", f"the body is nested more than {limits.deepest} levels deep (--deepest-body)")


def _count_objects(counted: bytes) -> int:
    return len(counted.translate(None, _NOT_OPENING))


def _cut_strings_out(body: bytes) -> Iterator[bytes]:
    """Yield the commas and brackets outside of strings, slice by slice."""
    start = 0
    in_string = 0
    while start < len(body):
        piece = body[start : start + _SLICE]
        if (len(piece) - len(piece.rstrip(b"\\"))) & 1:
            piece = body[start : start + _SLICE + 1]  # keep an escaped character with its backslash
        start += len(piece)
        if b"\\" in piece:
            # In this order: the second half of an escaped backslash does not escape the quote after it.
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        # Two adjacent quotes do not change what is inside a string.
        parts = piece.translate(None, _NOT_STRUCTURE).replace(b'""', b"").split(b'"')
        # Every second part is outside strings; `inside` is 1 if the slice starts within one.
        yield b"".join(parts[in_string::2])
        in_string ^= (len(parts) - 1) & 1


def _is_deeper(brackets: bytes, deepest: int) -> bool:
    """Return whether brackets are nested deeper than this, by removing the innermost pairs, level by level."""
    # `[}` counts as a pair: it is not JSON, and no decoder accepts it.
    brackets = brackets.translate(_ALIKE)
    for _ in range(deepest):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return False
    return True


_DRAIN_S = 5.0
_LARGE, _LARGE_COMPRESSED = 200_000, 10_000
"""Bytes of JSON that are measured, and of compressed bodies that are inflated, on the event loop: a few milliseconds."""
_LARGE_PATHS = re.compile(r"/public/traces|/datasets(/[^/]*)?|/(task-runs|benchmark-runs)/[^/]*/state")
_SURFACES = re.compile(r"/(?:sandboxes|v1/benchmark-runs)/[^/]+/[^/]")
"""Requests to simulated systems, which may contain anything: files, messages, forms."""
_MOST_BUCKETS = 10_000
SMALL_PART = 10
"""Divisor of the JSON limits for requests without traces, a state or a dataset."""


class BodyLimits:
    """Receives the body of a request, or rejects it."""

    def __init__(self, app: ASGIApp, *, settings: ServiceSettings) -> None:
        self._app = app
        self._settings = settings
        self._budget = BodyBudget(settings.waiting_bytes)
        self._json = {False: JsonLimits.of(settings, part=SMALL_PART), True: JsonLimits.of(settings)}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="large bodies")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request with its whole, decompressed body."""
        if scope["type"] != "http" or not has_body(scope):
            await self._app(scope, receive, send)
            return
        reservation = self._budget.enter(*_find_holder(scope))
        try:
            try:
                body = await self._receive_body(scope, receive, reservation)
            except Refusal as refusal:
                # Before the response is sent: a client that reads slowly must not occupy memory.
                reservation.release()
                await make_refusal_response(scope, refusal)(scope, receive, send)
                return
            if body is None:
                return  # the client disconnected
            size = len(body)
            # In place: the outer layers read the route from this scope.
            dropped = (b"content-encoding", b"content-length", b"transfer-encoding")
            headers = [(name, value) for name, value in scope["headers"] if name not in dropped]
            scope["headers"] = [*headers, (b"content-length", str(size).encode())]
            scope.setdefault("state", {})["body"] = body
            await self._app(scope, _replay_body(body, receive), send)
        finally:
            reservation.release()

    async def _receive_body(self, scope: Scope, receive: Receive, reservation: BodyReservation) -> bytes | None:
        headers = Headers(scope=scope)
        encoding = headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity", "gzip", "deflate"):
            raise Refusal("UNSUPPORTED_MEDIA_TYPE", f"content encoding {encoding[:40]!r} is not supported; use gzip or deflate")
        promised = headers.get("content-length", "")
        # `int` raises for thousands of digits. The body is counted again while it streams in.
        if promised.isdecimal() and len(promised) < 20 and int(promised) > self._settings.largest_body:
            await drain_body(receive, 4 * self._settings.largest_body)
            raise self._refuse_too_large()
        body = await self._read_in_time(receive, reservation)
        if body is None:
            return None
        if encoding in ("gzip", "deflate"):
            size = len(body)
            inflate = partial(inflate_bounded, body, self._settings)
            body = inflate() if size <= _LARGE_COMPRESSED else await asyncio.get_running_loop().run_in_executor(self._pool, inflate)
            self._budget.take_bytes(reservation, len(body))
            reservation.drop(size)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        is_protobuf = kind == PROTOBUF and find_dialect(scope["path"]) == "otlp"
        is_file = _SURFACES.match(scope["path"]) is not None and body.lstrip(b" \t\r\n")[:1] not in (b"{", b"[")
        if not is_protobuf and not is_file:
            check = partial(check_json, body, self._json[may_be_large(scope["path"])])
            # Scanning a large body takes long enough to delay other requests.
            check() if len(body) <= _LARGE else await asyncio.get_running_loop().run_in_executor(self._pool, check)
        return body

    async def _read_in_time(self, receive: Receive, reservation: BodyReservation) -> bytes | None:
        """Read the body. Raises `Refusal` if it does not arrive in time, or was dropped for others."""
        limits = self._settings
        now = asyncio.get_running_loop().time
        end = now() + limits.body_timeout_s
        try:
            async with asyncio.timeout_at(min(end, now() + limits.body_stall_s)) as reservation.arriving:
                return await self._read_chunks(receive, reservation, end)
        except TimeoutError:
            if reservation.given_up:
                reason = "the body arrived too slowly and was dropped for other requests (--waiting-bytes)"
                raise Refusal("UNAVAILABLE", reason, retry_after_s=1) from None
            if now() >= end:
                reason = f"the body did not arrive within {limits.body_timeout_s:g} s (--body-timeout-s)"
            else:
                reason = f"no part of the body arrived for {limits.body_stall_s:g} s (--body-stall-s)"
            raise Refusal("REQUEST_TIMEOUT", reason) from None
        finally:
            reservation.arriving = None

    async def _read_chunks(self, receive: Receive, reservation: BodyReservation, end: float) -> bytes | None:
        clock = asyncio.get_running_loop().time
        chunks: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            chunk: bytes = message.get("body", b"")
            has_more = message.get("more_body", False)
            if reservation.size + len(chunk) > self._settings.largest_body:
                # Released before the rest is drained: a rejected body must not occupy memory.
                reservation.drop(reservation.size)
                chunks.clear()
                if has_more:
                    await drain_body(receive, 4 * self._settings.largest_body)
                raise self._refuse_too_large()
            reservation.last = clock()
            self._budget.take_bytes(reservation, len(chunk))
            chunks.append(chunk)
            if not has_more:
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)
            # Only bytes extend the timeout, not empty pieces. A dropped body has no timeout, and asyncio raises if an expired one is moved.
            if reservation.arriving is not None and chunk and not reservation.arriving.expired():
                reservation.arriving.reschedule(min(end, reservation.last + self._settings.body_stall_s))

    def _refuse_too_large(self) -> Refusal:
        return Refusal("PAYLOAD_TOO_LARGE", f"the body is larger than {self._settings.largest_body} bytes (--largest-body)")


def has_body(scope: Scope) -> bool:
    """Return whether a request declares a body."""
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers or headers.get("content-length", "0").strip("0") != ""


def declares_at_most(headers: Headers, most: int) -> bool:
    """Return whether a request declares an uncompressed body of at most `most` bytes."""
    size = headers.get("content-length", "")
    return size.isdecimal() and len(size) <= 9 and int(size) <= most and "content-encoding" not in headers


def _find_holder(scope: Scope) -> tuple[str, str]:
    """Return the organization and the key (or the address of the local user) that a body is counted for."""
    caller = scope.get("state", {}).get("caller")
    client = scope.get("client")
    address = client[0] if client else ""
    if caller is None:
        return "", address
    return caller.organization_id, caller.key_id or address


def may_be_large(path: str) -> bool:
    """Return whether requests to this path bring traces, the state of a run, a dataset, or data for a simulated system."""
    return find_dialect(path) == "otlp" or _LARGE_PATHS.fullmatch(path) is not None or _SURFACES.match(path) is not None


async def drain_body(receive: Receive, most: int) -> None:
    """Read and discard a body for a while, since many clients read the response only after sending everything."""
    drained = 0
    try:
        async with asyncio.timeout(_DRAIN_S):
            while drained <= most:
                message = await receive()
                drained += len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _replay_body(body: bytes, receive: Receive) -> Receive:
    first = True

    async def once() -> Message:
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return once


class RateLimits:
    """Token buckets per key: a full minute's requests at once, refilled evenly."""

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        self._most = float(per_minute)
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def take_s(self, key: str) -> float:
        """Take one request and return 0, or return the seconds until one is available."""
        if self._most <= 0:
            return 0.0
        now = self._clock()
        # Removed and added again, which keeps the dict in order of use: the least recently used key is evicted first.
        tokens, at = self._left.pop(key, (self._most, now))
        tokens = min(self._most, tokens + max(0.0, now - at) * self._most / 60)
        # Unauthenticated clients are counted by address, and may use any number of addresses.
        while len(self._left) >= _MOST_BUCKETS:
            self._left.pop(next(iter(self._left)))
        if tokens < 1:
            self._left[key] = (tokens, now)
            return (1 - tokens) * 60 / self._most
        self._left[key] = (tokens - 1, now)
        return 0.0
