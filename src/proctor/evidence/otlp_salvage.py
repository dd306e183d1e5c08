"""What can be used of a binary OTLP request that cannot be decoded as a whole.

The decoder gives up at the first text that is not UTF-8, and with it the spans of everybody whose exporter shares the batch. So the request
is taken apart by its wire format and each span (log record) is decoded alone: one that is broken costs itself, a broken resource or scope
what is in it. Traces and logs have the same envelope: resources, in them scopes, in them what is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from proctor.evidence.wire_format import fields_in, is_well_formed, shape_of

_FIRST, _SECOND = 1, 2
_EXAMINED = 100
Refuse = Callable[[str, int], None]
"""Is told why how many spans, or log records, cannot be used."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The kinds of messages in a request, by their generated classes."""

    resource: Any
    scope: Any
    item: Any
    noun: str
    """What an item is called: `span`, `log record`."""


def salvage(data: bytes, envelope: Envelope, refuse: Refuse) -> list[tuple[Any, list[tuple[Any, list[Any]]]]]:
    """Return resources, their scopes and the items in them, without what is broken. Raises `EvidenceError` where the envelope is."""
    found: list[tuple[Any, list[tuple[Any, list[Any]]]]] = []
    decoder = _Decoder()
    for group in _numbered(fields_in(data), _FIRST):
        parts = list(fields_in(group))
        scopes = [list(fields_in(scope)) for scope in _numbered(parts, _SECOND)]
        count = sum(number == _SECOND for scope in scopes for number, _ in scope)
        resource = decoder.decode(envelope.resource, b"".join(_numbered(parts, _FIRST)))
        if isinstance(resource, str):
            refuse(f"the resource of a {envelope.noun} {resource}", count)
            continue
        found.append((resource, [_salvage_scope(scope, envelope, decoder, refuse) for scope in scopes]))
    return found


def _salvage_scope(parts: list[tuple[int, bytes]], envelope: Envelope, decoder: _Decoder, refuse: Refuse) -> tuple[Any, list[Any]]:
    items = list(_numbered(parts, _SECOND))
    scope = decoder.decode(envelope.scope, b"".join(_numbered(parts, _FIRST)))
    if isinstance(scope, str):
        refuse(f"the scope of a {envelope.noun} {scope}", len(items))
        return envelope.scope(), []
    good: list[Any] = []
    for item in items:
        one = decoder.decode(envelope.item, item)
        if isinstance(one, str):
            refuse(f"a {envelope.noun} {one}", 1)
        else:
            good.append(one)
    return scope, good


class _Decoder:
    """Decodes messages one by one, and says of the first broken ones what is wrong with them."""

    def __init__(self) -> None:
        self._broken = 0

    def decode(self, kind: Any, data: bytes) -> Any:
        """Return the message, or what is wrong with it."""
        from google.protobuf.message import DecodeError  # optional, and there when this is called

        try:
            return kind.FromString(data)
        except (DecodeError, RecursionError):
            self._broken += 1
            if self._broken > _EXAMINED:
                return "cannot be decoded"
            whole = is_well_formed(data, shape_of(kind.DESCRIPTOR))
            return "has a text that is not UTF-8" if whole else "is no protobuf of OTLP"


def _numbered(fields: Iterable[tuple[int, bytes]], number: int) -> Iterable[bytes]:
    return (content for one, content in fields if one == number)
