"""Parts of HTTP messages: compressed bodies, `Retry-After`, queries and forms.

A response with a `Content-Encoding` is decompressed completely or not at all, and once: compression inside of compression multiplies
sizes. A stream that is cut off, has trailing data, or uses an unsupported encoding is incomplete: anything claimed to be absent could be in
the missing part. So each of them is rejected. `gzip` may have several members, which form one text; `deflate` comes with or without its
wrapping, as servers differ.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from typing import Literal

ACCEPT_ENCODING = "gzip, deflate"
_GZIP_BEGINS = b"\x1f\x8b"
_MOST_MEMBERS = 100
"""The maximum number of members of a `gzip` response; each of them copies the rest."""
# zlib's window sizes: 15 for zlib wrapping, 31 for gzip, -15 for raw data.
_WRAPPED, _GZIP, _BARE = 15, 31, -15


class BadPacking(Exception):
    """Why a response cannot be decompressed."""


class TooLarge(Exception):
    """The response is too large."""


async def unpack_answer(pieces: AsyncIterable[bytes], header: str, *, max_bytes: int) -> bytes:
    """Return a whole response, decompressed. Raises `BadPacking`, or `TooLarge` if there are more than `max_bytes`, packed or not."""
    coding = _read_coding(header)
    packed = bytearray()
    async for piece in pieces:
        packed += piece
        if len(packed) > max_bytes:
            raise TooLarge
    return bytes(packed) if coding == "identity" else _unpack(bytes(packed), coding, max_bytes)


def _unpack(data: bytes, coding: Literal["gzip", "deflate"], max_bytes: int) -> bytes:
    unpacked = b""
    members = 0
    while data:
        # RFC 1950: the method is 8, and both bytes together are a multiple of 31. Raw data hardly ever begins like this.
        wrapped = data[0] & 15 == 8 and int.from_bytes(data[:2], "big") % 31 == 0
        stream = zlib.decompressobj(_GZIP if coding == "gzip" else _WRAPPED if wrapped else _BARE)
        try:
            # Bounded, since a few bytes can become gigabytes.
            unpacked += stream.decompress(data, max_bytes - len(unpacked) + 1)
        except zlib.error as error:
            raise BadPacking(f"it is not {coding}: {error}") from None
        if len(unpacked) > max_bytes:
            raise TooLarge
        if not stream.eof:
            raise BadPacking(f"it is {coding}, and breaks off")
        data = stream.unused_data
        members += 1
        if data and (coding != "gzip" or not data.startswith(_GZIP_BEGINS[: len(data)]) or members == _MOST_MEMBERS):
            raise BadPacking(f"it is {coding}, and something else follows its end")
    return unpacked


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
