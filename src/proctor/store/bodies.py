"""How large values (evidence, results, kept documents) are stored: JSON, compressed.

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
    """JSON, or a Struct, as it is stored."""
    return squeeze(to_json(value))


def unpack(body: bytes, *, largest: int = LARGEST_BODY) -> Json:
    """What `pack` was given. Raises `StoreError` for bytes that are no body, or too large a one."""
    return from_json(expand(body, largest=largest))


def squeeze(data: bytes) -> bytes:
    """Bytes that are JSON already, or something else, compressed."""
    return zlib.compress(data, 1)


def expand(body: bytes, *, largest: int = LARGEST_BODY) -> bytes:
    """What `squeeze` was given. Raises `StoreError` as `unpack` does."""
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
    """Any JSON value, or a Struct, as text; also what the fast encoder does not know."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # Halves of surrogate pairs, which JSON can spell and UTF-8 cannot.
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def from_json(data: bytes | str) -> Json:
    """What `to_json` was given. Raises `StoreError`."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        return _from_rare_json(data, error)


def _from_rare_json(data: bytes | str, error: Exception) -> Json:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise StoreError(f"a stored value is no JSON: {error}") from error
