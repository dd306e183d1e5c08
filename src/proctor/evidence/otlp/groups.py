"""OTLP requests as a receiver takes them: span by span, so that one that cannot be used does not take the others down.

A span without a trace id or span id, or with one of zeros only, belongs to no trace and is refused, as the protocol says. A log record
without them is no fault: it is passed over, since it tells nothing about an agent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.otlp import logs as otlp_logs
from proctor.evidence.otlp.invalid_utf8 import decode_otlp
from proctor.evidence.otlp.logs import gather_events, list_records, read_record
from proctor.evidence.otlp.protobuf import read_log_groups, read_protobuf_groups
from proctor.evidence.otlp.spans import Span, SpanGroup, find_scope_name, list_scope_spans, list_scopes, read_attributes, read_span
from proctor.evidence.otlp.wire_format import WireLimits
from proctor.evidence.values.access import dict_or_empty, list_of, read_object
from proctor.model.evidence import Json

_KEYS = ("resourceSpans", "resource_spans")
_LONGEST_ID = 255
"""Characters of an id; those of the protocol have 32 and 16."""
_TOLD = 5
"""Reasons in the answer to a request that was refused in part."""


class Received(msgspec.Struct):
    """What one request holds."""

    groups: list[SpanGroup]
    refused: int = 0
    """Spans, or log records, that cannot be used."""
    reasons: list[str] = []
    """Why, for the first few."""
    noun: Literal["spans", "log records"] = "spans"
    """What its sender counts in."""

    def count(self, span: Span) -> int:
        """Return how much of the request a span stands for: itself, or every log record that tells of it."""
        return 1 if self.noun == "spans" else len(span.events)

    def refuse(self, reason: str, count: int = 1) -> None:
        """Count what cannot be used."""
        self.refused += count
        if len(self.reasons) < _TOLD and reason not in self.reasons:
            self.reasons = [*self.reasons, reason]


def receive_protobuf(data: bytes, limits: WireLimits | None = None) -> Received:
    """Read a binary request. Raises `EvidenceError` when it is none, `TooMuch` when it holds more than `limits` allow."""
    received = Received([])
    received.groups = read_protobuf_groups(data, received.refuse, limits)
    return _check_request(received)


def receive_text(data: bytes, read: Callable[[Json], Received]) -> Received:
    """Read a request in JSON, of spans or logs by `read`, without what has texts that are not UTF-8. Raises `EvidenceError`."""
    broken = Received([])
    received = read(decode_otlp(data, broken.refuse))
    # Two counts of different items: what was taken out before decoding never reached the reader.
    received.refused += broken.refused
    received.reasons = [*broken.reasons, *received.reasons][:_TOLD]
    return received


def receive_json(document: Json) -> Received:
    """Return a request in JSON. Raises `EvidenceError` when it is none."""
    entry = dict_or_empty(document)
    key = next((key for key in _KEYS if isinstance(entry.get(key), list)), None)
    if key is None:
        raise EvidenceError("$: expected OTLP with resourceSpans, a list")
    received = Received([])
    for index, group in enumerate(map(dict_or_empty, list_of(entry[key]))):
        if not group:
            continue  # millions of them cost nothing
        try:
            received.groups.append(_group(group, f"$.{key}[{index}]", received))
        except EvidenceError as error:
            received.refuse(error.message)
    return _check_request(received)


def receive_logs_protobuf(data: bytes, limits: WireLimits | None = None) -> Received:
    """Read a binary request with logs. Raises `EvidenceError` when it is none, `TooMuch` when it holds more than `limits` allow."""
    received = Received([], noun="log records")
    received.groups = read_log_groups(data, received.refuse, limits)
    return _check_request(received)


def receive_logs_json(document: Json) -> Received:
    """Return a request with logs in JSON. Raises `EvidenceError` when it is none."""
    entry = dict_or_empty(document)
    key = next((key for key in otlp_logs.KEYS if isinstance(entry.get(key), list)), None)
    if key is None:
        raise EvidenceError("$: expected OTLP with resourceLogs, a list")
    received = Received([], noun="log records")
    for index, group in enumerate(map(dict_or_empty, list_of(entry[key]))):
        if not group:
            continue
        spans: list[Span] = []
        try:
            records = list_records(group, f"$.{key}[{index}]")
        except EvidenceError as error:
            received.refuse(error.message)
            continue
        for record in records:
            try:
                span = read_record(read_object(record, "a log record"))
            except EvidenceError as error:
                received.refuse(error.message)
            else:
                spans.extend([span] if span is not None else [])
        resource = read_attributes(dict_or_empty(group.get("resource")).get("attributes"))
        received.groups.append(SpanGroup(resource, gather_events(spans)))
    return _check_request(received)


def _group(group: dict[str, Json], path: str, received: Received) -> SpanGroup:
    spans: list[Span] = []
    for number, scope in enumerate(list_scopes(group, path)):
        at, name = f"{path}.scopeSpans[{number}].spans", find_scope_name(scope)
        for place, span in enumerate(list_scope_spans(scope, at)):
            try:
                spans.append(_lower_ids(read_span(span, f"{at}[{place}]", scope=name)))
            except EvidenceError as error:
                received.refuse(error.message)
    return SpanGroup(read_attributes(dict_or_empty(group.get("resource")).get("attributes")), spans)


def _check_request(received: Received) -> Received:
    # Looked at once more only where an id is bad: nearly every request is whole, and is passed on without a copy.
    for index, group in enumerate(received.groups):
        if any(not _is_id(span.trace_id) or not _is_id(span.id) for span in group.spans):
            good = [span for span in group.spans if _is_id(span.trace_id) and _is_id(span.id)]
            bad = [span for span in group.spans if not _is_id(span.trace_id) or not _is_id(span.id)]
            told = "a span has no trace id or no span id" if received.noun == "spans" else "a log record has an id that is too long"
            received.refuse(told, sum(map(received.count, bad)))
            received.groups[index] = SpanGroup(group.resource, good)
    return received


def _lower_ids(span: Span) -> Span:
    """Return a span with its ids in lower case: they are hexadecimal, in either case."""
    # Exporters differ in case, and a trace spread over two of them must come together under one id.
    ids = {"trace_id": span.trace_id.lower(), "id": span.id.lower(), "parent_id": span.parent_id and span.parent_id.lower()}
    if all(getattr(span, name) == value for name, value in ids.items()):
        return span
    return msgspec.structs.replace(span, **ids)


def _is_id(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_ID and text.strip("0") != ""
