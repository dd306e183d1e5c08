"""OTLP logs: some instrumentations write messages into log records instead of spans.

A record with a trace id and a span id becomes an event of that span, which `merge_spans` joins to it. Other records are ignored, and so are
verdicts about a span.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.otlp.spans import Span, SpanEvent, convert_any_value, find_near_field, read_attributes
from proctor.evidence.values.access import find_first, list_at, read_object, text_or_none, wrong_kind_error
from proctor.model.evidence import Json
from proctor.model.show import show

KEYS = ("resourceLogs", "resource_logs")
VERDICT = "gen_ai.evaluation.result"
"""The event with a verdict about a span."""


def sniff(document: Json) -> bool:
    """Return whether this is an OTLP request with logs."""
    return isinstance(document, dict) and any(isinstance(document.get(key), list) for key in KEYS)


def read_logs(document: Json, path: str = "$") -> list[Span]:
    """Return the events of one OTLP JSON request with logs, by their spans, which have nothing else."""
    entry = read_object(document, path)
    key = next(key for key in KEYS if key in entry)
    found: list[Span] = []
    for index, resource in enumerate(list_at(entry[key], f"{path}.{key}")):
        at = f"{path}.{key}[{index}]"
        records = list_records(read_object(resource, at), at)
        found.extend(span for record in records if (span := read_record(read_object(record, f"a log record in {at}"))) is not None)
    return gather_events(found)


def list_records(resource: dict[str, Json], path: str) -> list[Json]:
    """Return the log records of one resource. Raises `EvidenceError` if there is something else in their place."""
    scopes = _list_entries(resource, ("scopeLogs", "scope_logs"), ("resource", "schemaUrl", "schema_url"), path)
    found: list[Json] = []
    for index, scope in enumerate(scopes):
        at = f"{path}.scopeLogs[{index}]"
        found.extend(_list_entries(read_object(scope, at), ("logRecords", "log_records"), ("scope", "schemaUrl", "schema_url"), at))
    return found


def _list_entries(holder: dict[str, Json], keys: tuple[str, str], others: tuple[str, ...], path: str) -> list[Json]:
    entries = find_first(holder, *keys)
    other = next((key for key in holder if key not in keys and key not in others), None) if entries is None else None
    if other is not None:
        raise EvidenceError(f"{path}: expected {keys[0]}, found {show(other)}")
    return [] if entries is None else list_at(entries, f"{path}.{keys[0]}")


def read_record(record: dict[str, Any]) -> Span | None:
    """Return a log record in JSON as an event of its span, or None if it has no span."""
    # A misspelt id or body would silently drop the record.
    lost = find_near_field(record, _RECORD_KEYS)
    if lost is not None:
        raise EvidenceError(f"a log record: {show(lost)} is not recognised")
    for key in _TEXTS:
        if not isinstance(record.get(key), (str, type(None))):
            raise wrong_kind_error(f"a log record: {key}", "text", record[key])
    trace_id = text_or_none(find_first(record, "traceId", "trace_id"))
    span_id = text_or_none(find_first(record, "spanId", "span_id"))
    if not trace_id or not span_id:
        return None
    attributes = record.get("attributes")
    if not isinstance(attributes, (list, dict, type(None))):
        raise wrong_kind_error("a log record: attributes", "a list", attributes)
    name = text_or_none(find_first(record, "eventName", "event_name"))
    return make_event_span(trace_id.lower(), span_id.lower(), name, read_attributes(attributes), convert_any_value(record.get("body")))


_TEXTS = ("traceId", "trace_id", "spanId", "span_id", "eventName", "event_name")
_RECORD_KEYS = frozenset((*_TEXTS, "body", "attributes"))


def make_event_span(trace_id: str, span_id: str, name: str | None, attributes: dict[str, Json], body: Json) -> Span | None:
    """Return a span with nothing but one event of the span with these ids, or None if it is not an event of an agent."""
    name = name or text_or_none(attributes.get("event.name"))
    if not name or name == VERDICT or not trace_id.strip("0") or not span_id.strip("0"):
        return None
    # Newer instrumentations write the message into attributes, older ones into the body; readers of events find both in one object.
    held = attributes if body in (None, {}) else {**attributes, "body": body}
    return Span(trace_id=trace_id, id=span_id, events=(SpanEvent(name, held),))


def gather_events(spans: Iterable[Span]) -> list[Span]:
    """Return each span once, with all its events in order."""
    found: dict[tuple[str, str], list[Span]] = {}
    for span in spans:
        found.setdefault((span.trace_id, span.id), []).append(span)
    return [
        same[0] if len(same) == 1 else msgspec.structs.replace(same[0], events=tuple([event for span in same for event in span.events]))
        for same in found.values()
    ]
