"""The wire format of protobuf, walked without decoding it, so that a request with too many messages is refused."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from proctor.errors import EvidenceError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_DEPTH = 100
"""Levels of messages inside each other, as the decoder itself allows."""

Shape = dict[int, Any]


class WireLimits(NamedTuple):
    """The maximum content of one protobuf request."""

    messages: int
    fields: int


class TooMuch(EvidenceError):
    """Raised for a request that contains more than the limits allow."""


@functools.cache
def build_shape(descriptor: Any) -> Shape:
    """Return which fields of a message are messages, recursively."""
    known: dict[str, Shape] = {}

    def build(descriptor: Any) -> Shape:
        if descriptor.full_name not in known:
            # Added before its fields are visited: an `AnyValue` may contain an `AnyValue`.
            shape = known[descriptor.full_name] = {}
            shape.update({field.number: build(field.message_type) for field in descriptor.fields if field.message_type is not None})
        return known[descriptor.full_name]

    return build(descriptor)


def check_size(data: bytes, shape: Shape, limits: WireLimits) -> None:
    """Raise `TooMuch` for a request that contains more than allowed, and `EvidenceError` for bytes that are not protobuf."""
    # A field takes at least two bytes, and the request itself is one message.
    if len(data) // 2 <= limits.messages:
        return
    messages = fields = place = 0
    # The ends of the enclosing messages, instead of recursion: a hostile request may nest arbitrarily deep.
    ends: list[tuple[int, Shape]] = []
    end = len(data)
    try:
        while True:
            while place >= end:
                if place > end:
                    raise _broken_error()
                if not ends:
                    return
                end, shape = ends.pop()
            # Nearly every tag and length is one byte and is read inline, because a function call for each would be too slow.
            tag = data[place]
            place += 1
            if tag > 127:
                tag, place = _read_varint(data, place - 1)
            fields += 1
            if fields > limits.fields:
                raise TooMuch(f"more than {limits.fields} fields of protobuf in one request (--protobuf-fields)")
            if tag & 7 != _BYTES:
                place = _skip(data, place, tag & 7)
                continue
            length = data[place]
            place += 1
            if length > 127:
                length, place = _read_varint(data, place - 1)
            inner = shape.get(tag >> 3)
            if inner is None:
                place += length
                continue
            messages += 1
            if messages > limits.messages:
                raise TooMuch(f"more than {limits.messages} messages of protobuf in one request (--protobuf-messages)")
            if place + length > end:
                raise _broken_error()
            if len(ends) >= _MAX_DEPTH:
                raise TooMuch(f"messages of protobuf more than {_MAX_DEPTH} levels deep")
            ends.append((end, shape))
            end, shape = place + length, inner
    # The bytes end inside a field. Checking for the end before each byte would slow down every valid request.
    except IndexError:
        raise _broken_error() from None


def select_fields(data: bytes, number: int) -> list[bytes]:
    """Return the content of every length-delimited field with this number. Raises `EvidenceError` for bytes that are not protobuf."""
    found: list[bytes] = []
    place = 0
    try:
        while place < len(data):
            tag, place = _read_varint(data, place)
            if tag & 7 != _BYTES:
                place = _skip(data, place, tag & 7)
                continue
            length, place = _read_varint(data, place)
            if tag >> 3 == number:
                found.append(data[place : place + length])
            place += length
    except IndexError:
        raise _broken_error() from None
    if place > len(data):
        raise _broken_error()
    return found


def _skip(data: bytes, place: int, kind: int) -> int:
    if kind == _VARINT:
        return _read_varint(data, place)[1]
    if kind in (_FIXED64, _FIXED32):
        return place + (8 if kind == _FIXED64 else 4)
    raise _broken_error()  # Groups are an old form that OTLP does not use.


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[place]
        place += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, place
        shift += 7
        if shift > 63:
            raise _broken_error()


def _broken_error() -> EvidenceError:
    return EvidenceError("binary data that is not OTLP protobuf")
