"""OTLP requests as a receiver reads them: span by span, so that one unusable span does not fail the others."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Literal

import msgspec

from proctor.evidence.otlp.protobuf import read_protobuf_groups, read_protobuf_log_groups
from proctor.evidence.otlp.spans import Refuse, Span, SpanGroup, read_log_groups, read_trace_groups
from proctor.evidence.otlp.wire_format import WireLimits
from proctor.evidence.values.json_bytes import decode
from proctor.model.evidence import Json

_LONGEST_ID = 255
_MAX_REASONS = 5
# How `surrogateescape` decodes each byte that is not UTF-8; valid text cannot contain these characters.
_BROKEN = re.compile("[\udc80-\udcff]+")


class Received(msgspec.Struct):
    """The content of one request."""

    groups: list[SpanGroup]
    refused: int = 0
    reasons: list[str] = []
    noun: Literal["spans", "log records"] = "spans"

    def count(self, span: Span) -> int:
        """Return the number of items in a span: 1, or its log records."""
        return 1 if self.noun == "spans" else len(span.events)

    def refuse(self, reason: str, count: int = 1) -> None:
        """Count items that cannot be used."""
        self.refused += count
        if len(self.reasons) < _MAX_REASONS and reason not in self.reasons:
            self.reasons = [*self.reasons, reason]

    def drop(self, is_usable: Callable[[SpanGroup, Span], bool], reason: str) -> Received:
        """Refuse the spans that cannot be used."""
        for index, group in enumerate(self.groups):
            unusable = [span for span in group.spans if not is_usable(group, span)]
            if unusable:
                self.refuse(f"a {self.noun[:-1]} {reason}", sum(map(self.count, unusable)))
                self.groups[index] = SpanGroup(group.resource, [span for span in group.spans if is_usable(group, span)])
        return self


def receive_protobuf(data: bytes, limits: WireLimits | None = None) -> Received:
    """Read a binary request. Raises `EvidenceError` if it is not one, `TooMuch` if it contains more than `limits` allow."""
    return _receive("spans", lambda refuse: read_protobuf_groups(data, refuse, limits))


def receive_json(document: Json) -> Received:
    """Return a request in JSON. Raises `EvidenceError` if it is not one."""
    return _receive("spans", lambda refuse: read_trace_groups(document, refuse))


def receive_logs_protobuf(data: bytes, limits: WireLimits | None = None) -> Received:
    """Read a binary request with logs. Raises `EvidenceError` if it is not one, `TooMuch` if it contains more than `limits` allow."""
    return _receive("log records", lambda refuse: read_protobuf_log_groups(data, refuse, limits))


def receive_logs_json(document: Json) -> Received:
    """Return a request with logs in JSON. Raises `EvidenceError` if it is not one."""
    return _receive("log records", lambda refuse: read_log_groups(document, refuse))


def _receive(noun: Literal["spans", "log records"], read: Callable[[Refuse], list[SpanGroup]]) -> Received:
    received = Received([], noun=noun)
    received.groups = read(received.refuse)
    return received.drop(
        lambda group, span: _is_id(span.trace_id) and _is_id(span.id), "has no trace id or no span id, or one that is too long"
    )


def receive_text(data: bytes, read: Callable[[Json], Received]) -> Received:
    """Read a JSON request of spans or logs with `read`, skipping spans with invalid UTF-8. Raises `EvidenceError`."""
    try:
        data.decode()
    except UnicodeDecodeError:
        # No document can contain this mark by chance.
        mark = secrets.token_hex(16)
        received = read(decode(_BROKEN.sub(mark, data.decode(errors="surrogateescape")).encode()))
        broken = mark.encode()
        return received.drop(lambda group, span: broken not in msgspec.json.encode((group.resource, span)), "has a text that is not UTF-8")
    return read(decode(data))


def _is_id(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_ID and text.strip("0") != ""
