"""What can be used of a binary OTLP request that cannot be decoded as a whole.

The decoder gives up at the first text that is not UTF-8, and with it the spans of everybody whose exporter shares the batch. So the request
is taken apart by its wire format and each span (log record) is decoded alone: one that is broken costs itself, a broken resource or scope
what is in it. Traces and logs have the same envelope: resources, in them scopes, in them what is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from proctor.evidence.otlp.wire_format import build_shape, is_well_formed, iterate_fields

_FIRST, _SECOND = 1, 2
_EXAMINED = 100
"""Broken items whose fault is looked for; the others are only counted."""
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
    for group in _select_fields(iterate_fields(data), _FIRST):
        parts = list(iterate_fields(group))
        scopes = [list(iterate_fields(scope)) for scope in _select_fields(parts, _SECOND)]
        # Counted before anything is decoded: a broken resource must say how many spans go with it.
        count = sum(number == _SECOND for scope in scopes for number, _ in scope)
        # Joined: by the rules of protobuf a message that occurs several times is the merge of its parts, which their concatenation is.
        resource = decoder.decode(envelope.resource, b"".join(_select_fields(parts, _FIRST)))
        if isinstance(resource, str):
            refuse(f"the resource of a {envelope.noun} {resource}", count)
            continue
        found.append((resource, [_salvage_scope(scope, envelope, decoder, refuse) for scope in scopes]))
    return found


def _salvage_scope(parts: list[tuple[int, bytes]], envelope: Envelope, decoder: _Decoder, refuse: Refuse) -> tuple[Any, list[Any]]:
    items = list(_select_fields(parts, _SECOND))
    scope = decoder.decode(envelope.scope, b"".join(_select_fields(parts, _FIRST)))
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
            # To say what is wrong means walking the bytes in Python; a hostile batch has thousands of broken spans.
            if self._broken > _EXAMINED:
                return "cannot be decoded"
            whole = is_well_formed(data, build_shape(kind.DESCRIPTOR))
            return "has a text that is not UTF-8" if whole else "is no protobuf of OTLP"


def _select_fields(fields: Iterable[tuple[int, bytes]], number: int) -> Iterable[bytes]:
    return (content for one, content in fields if one == number)
