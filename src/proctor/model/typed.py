"""Reads values of declared types from documents.

msgspec learns a type when the type is first read, and marks it as known before all of its fields are filled in. A second thread that reads
the same type at that moment follows an invalid pointer, and the whole process crashes. So types are learned only here, by one thread at a
time; reading a known type costs one set lookup. A decoder learns its type when it is first used: modules make many decoders when they are
imported, and a command uses few of them.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from typing import Any, TypeVar, cast, overload

import msgspec

T = TypeVar("T")

# Of `_thread`, because `threading` takes longer to import than this module.
_LEARNING = allocate_lock()
_KNOWN: set[Any] = set()


def learn_type(kind: Any) -> None:
    """Let msgspec learn a type and its parts before any thread reads a value of it."""
    if kind not in _KNOWN:
        with _LEARNING:
            msgspec.msgpack.Decoder(kind)
            _KNOWN.add(kind)


@overload
def convert_to(value: Any, kind: type[T], *, strict: bool = True) -> T: ...
@overload
def convert_to(value: Any, kind: Any, *, strict: bool = True) -> Any: ...
def convert_to(value: Any, kind: Any, *, strict: bool = True) -> Any:
    """Return a value of a declared type from plain dictionaries and lists."""
    learn_type(kind)
    return msgspec.convert(value, kind, strict=strict)


@overload
def decode_json(data: bytes | str, kind: type[T]) -> T: ...
@overload
def decode_json(data: bytes | str, kind: Any) -> Any: ...
def decode_json(data: bytes | str, kind: Any) -> Any:
    """Return the value of a declared type from a JSON text."""
    learn_type(kind)
    return msgspec.json.decode(data, type=kind)


@overload
def decode_msgpack(data: bytes, kind: type[T]) -> T: ...
@overload
def decode_msgpack(data: bytes, kind: Any) -> Any: ...
def decode_msgpack(data: bytes, kind: Any) -> Any:
    """Return the value of a declared type from a MessagePack document."""
    learn_type(kind)
    return msgspec.msgpack.decode(data, type=kind)


class _LazyDecoder:
    """Acts as a decoder of msgspec, which the first use makes."""

    def __init__(self, make: Callable[[Any], Any], kind: Any) -> None:
        self._make = make
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        # Making the decoder learns the type, which `learn_type` need not do before.
        with _LEARNING:
            decoder = self._make(self._kind)
            _KNOWN.add(self._kind)
        # The method becomes an attribute, so that later calls do not come this way.
        method = getattr(decoder, name)
        setattr(self, name, method)
        return method


@overload
def make_json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def make_json_decoder(kind: Any) -> msgspec.json.Decoder[Any]: ...
def make_json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return a decoder of JSON texts that hold one declared type."""
    return cast("msgspec.json.Decoder[Any]", _LazyDecoder(msgspec.json.Decoder, kind))


@overload
def make_msgpack_decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]: ...
@overload
def make_msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]: ...
def make_msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Return a decoder of MessagePack documents that hold one declared type."""
    return cast("msgspec.msgpack.Decoder[Any]", _LazyDecoder(msgspec.msgpack.Decoder, kind))
