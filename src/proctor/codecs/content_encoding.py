"""Decompresses an answer over HTTP (`Content-Encoding`), to its very end or not at all.

A stream that is cut off, has trailing data, or uses an unsupported encoding is incomplete: whatever is
claimed to be absent could lie in the other. So each of them is refused. `gzip` may have several members, which are one text; `deflate`
comes with its wrapping or without, as servers differ.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterable, Iterator
from typing import Literal

ACCEPT_ENCODING = "gzip, deflate"
"""What is sent as `accept-encoding`."""
_PIECE = 1 << 20
"""How much is unpacked in one go: a few bytes can become gigabytes."""
_GZIP_BEGINS = b"\x1f\x8b"
_MARK = 2
"""Bytes needed to recognise the beginning of a stream."""
# The numbers of zlib: 15 for data in its own wrapping, 31 for gzip's, -15 for bare data.
_WRAPPED, _GZIP, _BARE = 15, 31, -15


class BadPacking(Exception):
    """Why what came cannot be unpacked."""


class TooLarge(Exception):
    """The answer is larger than it may be."""


async def unpack_answer(pieces: AsyncIterable[bytes], header: str, *, max_bytes: int) -> bytes:
    """Return a whole answer, decompressed. Raises `BadPacking`, or `TooLarge` as soon as there are more than `max_bytes`."""
    # Packed more than once, little becomes much layer by layer: such an answer is not read.
    unpacker = _Unpacker(header)
    found: list[bytes] = []
    size = 0
    async for packed in pieces:
        for piece in unpacker.feed(packed):
            size += len(piece)
            if size > max_bytes:
                raise TooLarge
            found.append(piece)
    unpacker.finish()
    return b"".join(found)


class _Unpacker:
    """Unpacks one answer, piece by piece."""

    def __init__(self, header: str) -> None:
        """Raises `BadPacking` for a `Content-Encoding` that is not read here."""
        self._how = _read_coding(header)
        self._stream = zlib.decompressobj(_GZIP)
        self._begun = False
        self._held = b""
        """The first byte of a stream: two are needed to recognise it, and a network may split anywhere."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what a piece of the answer decompresses to. Raises `BadPacking`."""
        if self._how == "identity":
            yield data
            return
        data, self._held = self._held + data, b""
        more = bool(data)
        while more:
            if not self._begun or self._stream.eof:
                if len(data) < _MARK and self._may_begin(data):
                    self._held = data
                    return
                self._begin(data)
            piece, data = self._unpack(data)
            if piece:
                yield piece
            # A full piece may have left something inside, though no data are left.
            more = bool(data) or (len(piece) == _PIECE and not self._stream.eof)

    def finish(self) -> None:
        """Raise `BadPacking` unless the end was reached."""
        if self._held or (self._begun and not self._stream.eof):
            raise BadPacking(f"it is {self._how}, and breaks off")

    def _unpack(self, data: bytes) -> tuple[bytes, bytes]:
        """Return one decompressed piece, and the data that is left."""
        try:
            piece = self._stream.decompress(data, _PIECE)
        except zlib.error as error:
            raise BadPacking(f"it is not {self._how}: {error}") from None
        return piece, self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail

    def _may_begin(self, data: bytes) -> bool:
        """Return whether a stream may begin like this: after the first one only `gzip` has others."""
        return not self._begun or (self._how == "gzip" and _GZIP_BEGINS.startswith(data[:_MARK]))

    def _begin(self, data: bytes) -> None:
        """Open the stream that begins here; there are two bytes of it, or it is refused."""
        if not self._may_begin(data):
            raise BadPacking(f"it is {self._how}, and something else follows its end")
        # RFC 1950: the method is 8, and both bytes together are a multiple of 31. Raw data hardly ever begins so.
        wrapped = data[0] & 15 == 8 and int.from_bytes(data[:_MARK], "big") % 31 == 0
        self._stream = zlib.decompressobj(_GZIP if self._how == "gzip" else _WRAPPED if wrapped else _BARE)
        self._begun = True


def _read_coding(header: str) -> Literal["identity", "gzip", "deflate"]:
    match header.strip().lower():
        case "" | "identity":
            return "identity"
        case "gzip" | "x-gzip":
            return "gzip"
        case "deflate":
            return "deflate"
        case other:
            raise BadPacking(f"it is packed in a way that is not read here ({other[:40]!r})")
