"""How much a request may bring, and how often a key may ask.

A body is taken in before anybody looks at it: counted while it streams in, whatever its headers promise; decompressed with the same
bound, so that a few bytes cannot become gigabytes; and, if it is JSON, scanned for how deeply it is nested before anything recursive
touches it. All bodies that are held at one moment share one budget: many large ones at once are asked to come again rather than to fill
the memory.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Callable
from itertools import accumulate

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proctor.serve.errors import PROTOBUF, refusal_response
from proctor.service.refusals import Refusal

BODY_TIMEOUT_S = 60.0
_DRAIN_S = 5.0
_LARGE = 200_000
_MOST_BUCKETS = 10_000
# Always matches to the end of a string or of the text, and takes no character twice: linear on anything.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.?)*+(?:"|\Z)', re.DOTALL)
# As many whole strings, and what stands between them, as can be looked through in a few milliseconds.
_PIECE = re.compile(rb'(?:"(?:[^"\\]++|\\.?)*+(?:"|\Z)|[^"]{1,64}+){1,4000}+', re.DOTALL)
_NOT_BRACKETS = bytes(code for code in range(256) if code not in b"[]{}")
_STEPS = [0] * 256
for _code in b"[{":
    _STEPS[_code] = 1
for _code in b"]}":
    _STEPS[_code] = -1


class BodyLimits:
    """Takes in the body of a request, or refuses it."""

    def __init__(self, app: ASGIApp, *, largest: int, deepest: int, waiting: int) -> None:
        self._app = app
        self._largest = largest
        self._deepest = deepest
        self._room = waiting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its whole body, decompressed."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if "transfer-encoding" not in headers and headers.get("content-length", "0") == "0":
            await self._app(scope, receive, send)
            return
        held = 0

        def hold(count: int) -> None:
            nonlocal held
            if count > self._room:
                raise Refusal("UNAVAILABLE", "the service is busy with other large requests", retry_after_s=1)
            self._room -= count
            held += count

        try:
            try:
                body = await self._take_in(headers, receive, hold)
            except Refusal as refusal:
                await refusal_response(scope, refusal)(scope, receive, send)
                return
            if body is None:
                return  # the caller has gone
            _make_plain(scope, len(body))
            scope.setdefault("state", {})["body"] = body
            await self._app(scope, _replay(body, receive), send)
        finally:
            self._room += held

    async def _take_in(self, headers: Headers, receive: Receive, hold: Callable[[int], None]) -> bytes | None:
        encoding = headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity", "gzip", "deflate"):
            raise Refusal("UNSUPPORTED_MEDIA_TYPE", f"content encoding {encoding[:40]!r} is not known; there are gzip and deflate")
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                body = await self._read(headers, receive, hold)
        except TimeoutError:
            raise Refusal("BAD_REQUEST", f"the body did not arrive within {BODY_TIMEOUT_S:g} s") from None
        if body is None:
            return None
        if encoding in ("gzip", "deflate"):
            body = inflated(body, self._largest)
            hold(len(body))
        if not headers.get("content-type", "").lower().startswith(PROTOBUF) and await self._too_deep(body):
            raise Refusal("BAD_REQUEST", f"the body is nested more than {self._deepest} levels deep")
        return body

    async def _read(self, headers: Headers, receive: Receive, hold: Callable[[int], None]) -> bytes | None:
        promised = headers.get("content-length", "")
        if promised.isdecimal() and len(promised) < 20 and int(promised) > self._largest:
            await _drain(receive, 4 * self._largest)
            raise self._too_large()
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size > self._largest:
                if message.get("more_body", False):
                    await _drain(receive, 4 * self._largest)
                raise self._too_large()
            hold(len(chunk))
            chunks.append(chunk)
            if not message.get("more_body", False):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _too_deep(self, body: bytes) -> bool:
        # Looking through a large body takes long enough for others to notice.
        if len(body) > _LARGE:
            return await asyncio.to_thread(deeper_than, body, self._deepest)
        return deeper_than(body, self._deepest)

    def _too_large(self) -> Refusal:
        return Refusal("PAYLOAD_TOO_LARGE", f"the body is larger than {self._largest} bytes")


def inflated(body: bytes, largest: int) -> bytes:
    """What gzip or zlib made small; refused when it is more than `largest` bytes, before they are all there."""
    parts: list[bytes] = []
    size = 0
    try:
        while body:
            engine = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
            part = engine.decompress(body, largest - size + 1)
            size += len(part)
            if size > largest or engine.unconsumed_tail:
                raise Refusal("PAYLOAD_TOO_LARGE", f"the body is larger than {largest} bytes once it is decompressed")
            if not engine.eof:
                raise Refusal("BAD_REQUEST", "the compressed body is cut off")
            parts.append(part)
            # A file of gzip may be several, one behind the other.
            body = engine.unused_data.lstrip(b"\0")
            if len(parts) > 1_000:
                raise Refusal("BAD_REQUEST", "the compressed body consists of too many parts")
    except zlib.error:
        raise Refusal("BAD_REQUEST", "the body cannot be decompressed") from None
    return b"".join(parts)


def deeper_than(body: bytes, deepest: int) -> bool:
    """Whether JSON is nested more than `deepest` levels. Of what is no JSON the answer may be anything."""
    if body.count(b"[") + body.count(b"{") <= deepest:
        return False
    depth = 0
    # Piece by piece, so that other threads have their turn in between.
    for piece in _PIECE.finditer(body):
        brackets = _STRING.sub(b"", piece.group()).translate(None, _NOT_BRACKETS)
        depths = list(accumulate(map(_STEPS.__getitem__, brackets), initial=depth))
        if max(depths) > deepest:
            return True
        depth = depths[-1]
    return False


async def _drain(receive: Receive, most: int) -> None:
    """Let the caller finish speaking, within reason: many only listen then."""
    taken = 0
    try:
        async with asyncio.timeout(_DRAIN_S):
            while taken <= most:
                message = await receive()
                taken += len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _make_plain(scope: Scope, size: int) -> None:
    # In place: the layers outside want to see which route was found in this scope.
    dropped = (b"content-encoding", b"content-length", b"transfer-encoding")
    headers = [(name, value) for name, value in scope["headers"] if name not in dropped]
    scope["headers"] = [*headers, (b"content-length", str(size).encode())]


def _replay(body: bytes, receive: Receive) -> Receive:
    first = True

    async def once() -> Message:
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return once


class Buckets:
    """How many requests each key has left: as many as a minute allows at once, filled up again evenly."""

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        self._most = float(per_minute)
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def wait_s(self, key: str) -> float:
        """Take one; 0 when there was one, else how long until there is."""
        if self._most <= 0:
            return 0.0
        now = self._clock()
        left, at = self._left.pop(key, (self._most, now))
        left = min(self._most, left + max(0.0, now - at) * self._most / 60)
        while len(self._left) >= _MOST_BUCKETS:
            self._left.pop(next(iter(self._left)))
        if left < 1:
            self._left[key] = (left, now)
            return (1 - left) * 60 / self._most
        self._left[key] = (left - 1, now)
        return 0.0
