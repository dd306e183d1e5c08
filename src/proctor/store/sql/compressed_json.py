"""Stores large values (evidence, results, documents) as compressed JSON.

zlib at its fastest level, on every version of Python: a database must stay readable when the interpreter changes. What is read back is
bounded, so that a row that was tampered with cannot fill the memory.
"""

from __future__ import annotations

import zlib

from proctor.errors import StoreError
from proctor.model.evidence import Json
from proctor.model.json_values import decode_any_json, encode_any_json

LARGEST_BODY = 512 * 1024 * 1024
"""Maximum bytes of JSON in one body. Incoming bodies are far smaller; this is for reading."""


class BodyTooLarge(StoreError):
    """A stored body above the reader's limit."""


def pack(value: object) -> bytes:
    """Return JSON, or a Struct, in stored form."""
    return compress_bytes(to_json(value))


def unpack(body: bytes, *, largest: int = LARGEST_BODY) -> Json:
    """Return the value given to `pack`. Raises `StoreError` for invalid or too large bytes."""
    return from_json(expand_bytes(body, largest=largest))


def compress_bytes(data: bytes) -> bytes:
    """Return compressed bytes."""
    return zlib.compress(data, 1)


def expand_bytes(body: bytes, *, largest: int = LARGEST_BODY) -> bytes:
    """Return the bytes given to `compress_bytes`. Raises `StoreError` like `unpack`."""
    # Limited: a few kilobytes can decompress to gigabytes.
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
    """Return any JSON value, or a Struct, as text, including values that the fast encoder does not support."""
    return encode_any_json(value)


def from_json(data: bytes | str) -> Json:
    """Return the value given to `to_json`. Raises `StoreError`."""
    try:
        return decode_any_json(data)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"a stored value is no JSON: {error}") from error
