"""Parts of HTTP messages: compressed bodies, `Retry-After`, queries and forms.

A response with a `Content-Encoding` is decompressed completely or not at all. A stream that is cut off, has trailing data, or uses an
unsupported encoding is incomplete: anything claimed to be absent could be in the missing part. So each of them is rejected. `gzip` may have
several members, which form one text; `deflate` comes with or without its wrapping, as servers differ.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping
from typing import Literal

ACCEPT_ENCODING = "gzip, deflate"
_PIECE = 1 << 20
"""The maximum size of one decompressed piece: a few bytes can become gigabytes."""
_GZIP_BEGINS = b"\x1f\x8b"
_MARK = 2
"""The number of bytes needed to recognise the beginning of a stream."""
# zlib's window sizes: 15 for zlib wrapping, 31 for gzip, -15 for raw data.
_WRAPPED, _GZIP, _BARE = 15, 31, -15


class BadPacking(Exception):
    """Why a response cannot be decompressed."""


class TooLarge(Exception):
    """The response is too large."""


async def unpack_answer(pieces: AsyncIterable[bytes], header: str, *, max_bytes: int) -> bytes:
    """Return a whole response, decompressed. Raises `BadPacking`, or `TooLarge` as soon as there are more than `max_bytes`."""
    # Nested compression multiplies the size layer by layer, so such a response is rejected.
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
    """Decompresses one response, piece by piece."""

    def __init__(self, header: str) -> None:
        """Raises `BadPacking` for an unsupported `Content-Encoding`."""
        self._how = _read_coding(header)
        self._stream = zlib.decompressobj(_GZIP)
        self._begun = False
        self._held = b""
        """The first byte of a stream: two are needed to recognise it, and a network may split anywhere."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the decompressed data of a piece of the response. Raises `BadPacking`."""
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
            # After a full piece, output may be left in the decompressor even if no input is left.
            more = bool(data) or (len(piece) == _PIECE and not self._stream.eof)

    def finish(self) -> None:
        """Raise `BadPacking` unless the end was reached."""
        if self._held or (self._begun and not self._stream.eof):
            raise BadPacking(f"it is {self._how}, and breaks off")

    def _unpack(self, data: bytes) -> tuple[bytes, bytes]:
        """Return one decompressed piece, and the remaining data."""
        try:
            piece = self._stream.decompress(data, _PIECE)
        except zlib.error as error:
            raise BadPacking(f"it is not {self._how}: {error}") from None
        return piece, self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail

    def _may_begin(self, data: bytes) -> bool:
        """Return whether a stream may begin like this: after the first one only `gzip` allows more."""
        return not self._begun or (self._how == "gzip" and _GZIP_BEGINS.startswith(data[:_MARK]))

    def _begin(self, data: bytes) -> None:
        """Open the stream that begins here; it is rejected if it has fewer than two bytes."""
        if not self._may_begin(data):
            raise BadPacking(f"it is {self._how}, and something else follows its end")
        # RFC 1950: the method is 8, and both bytes together are a multiple of 31. Raw data hardly ever begins like this.
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


_SECONDS = re.compile(r"(\d{1,9})\d{0,9}(\.\d{1,9})?", re.ASCII)


def read_retry_after_s(headers: Mapping[str, str], *, clock: Callable[[], float] | None = None) -> float | None:
    """Return the seconds that the headers (with lower-case names) ask to wait, or None.

    A date is compared with the server's own clock if it sends one, since ours may be wrong, else with `clock`, if given.
    """
    exact = _read_seconds(headers.get("retry-after-ms", ""))
    if exact is not None:
        return exact / 1000
    value = headers.get("retry-after", "")
    seconds = _read_seconds(value)
    if seconds is not None or not value.strip():
        return seconds
    then, now = _read_date(value), _read_date(headers.get("date", ""))
    if now is None and clock is not None:
        now = clock()
    return None if then is None or now is None else max(0.0, then - now)


def _read_seconds(text: str) -> float | None:
    seconds = _SECONDS.fullmatch(text.strip())
    # More than nine digits are cut: that is decades, so there is no retry.
    return float(seconds[1] + (seconds[2] or "")) if seconds else None


def _read_date(text: str) -> float | None:
    from email.utils import parsedate_to_datetime  # slow to load, and dates are rare

    try:
        return parsedate_to_datetime(text).timestamp()
    # A server may send anything here: an invalid date counts as no header.
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def decode_percent(text: str) -> str:
    """Return text with `%20` and the like decoded; invalid UTF-8 becomes the replacement character."""
    if "%" not in text:
        return text
    # A lone surrogate cannot be encoded otherwise and must not raise here; decoding turns it into replacement characters.
    data = _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), text.encode("utf-8", "surrogatepass"))
    return data.decode("utf-8", "replace")


def encode_percent(text: str, keep: str = "") -> str:
    """Return text with everything but letters, digits, `-._~` and the characters to `keep` percent-encoded."""
    plain = _PLAIN | set(keep.encode())
    return "".join(chr(byte) if byte in plain else f"%{byte:02X}" for byte in text.encode("utf-8", "replace"))


def decode_query(text: str) -> tuple[tuple[str, str], ...]:
    """Return the names and values of a query or a form, in order; `+` is a space."""
    pairs: list[tuple[str, str]] = []
    for part in text.split("&"):
        if part:
            name, _, value = part.partition("=")
            pairs.append((decode_percent(name.replace("+", " ")), decode_percent(value.replace("+", " "))))
    return tuple(pairs)


def encode_query(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names and values as a query."""
    return "&".join(f"{encode_percent(name, ':')}={encode_percent(value, ':/,|')}" for name, value in pairs)
