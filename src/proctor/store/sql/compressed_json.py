"""Stores large values (evidence, results, documents) as compressed JSON.

zlib at its fastest level, on every version of Python: a database must stay readable when the interpreter changes. What is read back is
bounded, so that a row that was tampered with cannot fill the memory.
"""

from __future__ import annotations

import json
import zlib

import msgspec

from proctor.errors import StoreError
from proctor.model.evidence import Json

LARGEST_BODY = 512 * 1024 * 1024
"""Bytes of JSON in one body. What comes in is far smaller; this is for reading back."""


class BodyTooLarge(StoreError):
    """A stored body that is larger than it may be where it is read."""


def pack(value: object) -> bytes:
    """Return JSON, or a Struct, as it is stored."""
    return compress_bytes(to_json(value))


def unpack(body: bytes, *, largest: int = LARGEST_BODY) -> Json:
    """Return what `pack` was given. Raises `StoreError` for bytes that are no body, or too large a one."""
    return from_json(expand_bytes(body, largest=largest))


def compress_bytes(data: bytes) -> bytes:
    """Return bytes that are JSON already, or something else, compressed."""
    return zlib.compress(data, 1)


def expand_bytes(body: bytes, *, largest: int = LARGEST_BODY) -> bytes:
    """Return what `compress_bytes` was given. Raises `StoreError` as `unpack` does."""
    # Unpacked up to a bound: a few kilobytes can be made to unpack to gigabytes.
    engine = zlib.decompressobj()
    try:
        data = engine.decompress(body, largest)
    except zlib.error as error:
        raise StoreError(f"a stored body cannot be read: {error}") from error
    if engine.unconsumed_tail:
        raise BodyTooLarge(f"a stored body is larger than {largest} bytes")
    if not engine.eof:
        raise StoreError("a stored body cannot be read: it is cut off")
    return data


def to_json(value: object) -> bytes:
    """Return any JSON value, or a Struct, as text; also what the fast encoder does not know."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # Halves of surrogate pairs, which JSON can spell and UTF-8 cannot.
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def from_json(data: bytes | str) -> Json:
    """Return what `to_json` was given. Raises `StoreError`."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        return _decode_slowly(data, error)


def _decode_slowly(data: bytes | str, error: Exception) -> Json:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise StoreError(f"a stored value is no JSON: {error}") from error
