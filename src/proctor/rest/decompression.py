"""Decompresses bodies (gzip, zlib): in linear time, beside the event loop, and only so large.

A few kilobytes can become megabytes, and thousands of empty files one behind the other cost as much as large ones. So there are three
limits: how large the whole may become, how many times as large as it came (`compression_ratio`, from a megabyte on), and how many files
of gzip may follow each other (`gzip_members`). They are kept while inflating, not afterwards.
"""

from __future__ import annotations

import asyncio
import zlib
from concurrent.futures import ThreadPoolExecutor

import msgspec

from proctor.service.refusals import Refusal
from proctor.service.settings import ServiceSettings

FREE_RATIO = 1_000_000
"""Bytes up to which a body may be any number of times as large as it came."""
_AT_ONCE = 100_000
"""Bytes that are inflated on the event loop: about a millisecond."""
_SLICE = 65_536


class InflateLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How large and how strange a compressed body may be."""

    largest: int
    members: int
    ratio: int

    @classmethod
    def of(cls, settings: ServiceSettings) -> InflateLimits:
        """Return the limits of a service."""
        return cls(largest=settings.largest_body, members=settings.gzip_members, ratio=settings.compression_ratio)


class _TooMuchAtOnce(Exception):
    """More than is inflated on the event loop."""


class Inflater:
    """Inflates small bodies at once and others one by one in a thread."""

    def __init__(self, limits: InflateLimits) -> None:
        self._limits = limits
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="inflate")

    async def inflate(self, body: bytes) -> bytes:
        """Return the body as it was before it was compressed. Raises `Refusal`."""
        if len(body) <= _AT_ONCE:
            try:
                return inflate_bounded(body, self._limits, stop=_AT_ONCE)
            except _TooMuchAtOnce:
                pass
        return await asyncio.get_running_loop().run_in_executor(self._pool, inflate_bounded, body, self._limits)


def inflate_bounded(body: bytes, limits: InflateLimits, *, stop: int | None = None) -> bytes:
    """Return the body decompressed. Raises `Refusal` for what is beyond a limit, before it is all there."""
    view = memoryview(body)
    out = bytearray()
    largest = min(limits.largest, max(FREE_RATIO, limits.ratio * len(body)))
    place = members = 0
    try:
        while place < len(body):
            members += 1
            if members > limits.members:
                told = f"the compressed body consists of more than {limits.members} files of gzip (--gzip-members)"
                raise Refusal("PAYLOAD_TOO_LARGE", told)
            place = _inflate_member(view, place, out, largest, limits, stop)
            place = _skip_zeros(body, place)
    except zlib.error:
        raise Refusal("BAD_REQUEST", "the body cannot be decompressed") from None
    return bytes(out)


def _inflate_member(view: memoryview, place: int, out: bytearray, largest: int, limits: InflateLimits, stop: int | None) -> int:
    """Inflate one file of gzip, and return where it ends."""
    # 32 lets zlib tell gzip from zlib by the header, whatever the client called it.
    engine = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    # Slices: what an engine does not use of its input it copies, each time.
    while not engine.eof:
        if not engine.unconsumed_tail and place >= len(view):
            raise Refusal("BAD_REQUEST", "the compressed body is cut off")
        given = engine.unconsumed_tail or view[place : place + _SLICE]
        if not engine.unconsumed_tail:
            place += len(given)
        # One byte beyond the limit is enough to see that there is more. At least 1, since zlib takes 0 for no limit at all.
        out += engine.decompress(given, max(1, min(_SLICE * 16, largest - len(out) + 1)))
        if stop is not None and len(out) > stop:
            raise _TooMuchAtOnce
        if len(out) > largest:
            raise _refuse_too_large(len(view), largest, limits)
    return place - len(engine.unused_data)


def _refuse_too_large(size: int, largest: int, limits: InflateLimits) -> Refusal:
    if largest == limits.largest:
        told = f"the body is larger than {limits.largest} bytes once it is decompressed (--largest-body)"
    else:
        told = f"the body of {size} bytes becomes more than {limits.ratio} times as large once it is decompressed (--compression-ratio)"
    return Refusal("PAYLOAD_TOO_LARGE", told)


def _skip_zeros(body: bytes, place: int) -> int:
    """Return where the next file begins: gzip may be padded with zeros."""
    while place < len(body) and body[place] == 0:
        # A slice at a time: `lstrip` copies what it leaves, and of the whole rest after each file that would be quadratic.
        piece = body[place : place + _SLICE]
        place += len(piece) - len(piece.lstrip(b"\0"))
    return place
