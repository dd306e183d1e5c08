"""OTLP logs: some instrumentations put what was said into log records instead of into spans.

A record that names its trace and span becomes an event of that span; `merge_spans` joins it to the span wherever that came from. Other
records tell nothing about an agent and are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proctor.evidence.shape import dict_of, first_of, list_at, list_of, object_at, text_or_none
from proctor.evidence.spans import Span, SpanEvent, any_value, read_attributes
from proctor.model.evidence import Json

KEYS = ("resourceLogs", "resource_logs")


def sniff(document: Json) -> bool:
    """Whether this is an OTLP request with logs."""
    return isinstance(document, dict) and any(isinstance(document.get(key), list) for key in KEYS)


def spans_of_logs(document: Json, path: str = "$") -> list[Span]:
    """Return the events of one OTLP JSON request with logs, each in a span that has nothing else."""
    entry = object_at(document, path)
    key = next(key for key in KEYS if key in entry)
    found: list[Span] = []
    for resource in map(dict_of, list_at(entry[key], f"{path}.{key}")):
        for scope in map(dict_of, list_of(first_of(resource, "scopeLogs", "scope_logs"))):
            for record in map(dict_of, list_of(first_of(scope, "logRecords", "log_records"))):
                found.extend(_span_of(record))
    return found


def _span_of(record: dict[str, Any]) -> Iterator[Span]:
    trace_id = text_or_none(first_of(record, "traceId", "trace_id"))
    span_id = text_or_none(first_of(record, "spanId", "span_id"))
    if not trace_id or not span_id:
        return
    attributes = read_attributes(record.get("attributes"))
    name = text_or_none(first_of(record, "eventName", "event_name")) or text_or_none(attributes.get("event.name"))
    if name is None:
        return
    yield event_span(trace_id.lower(), span_id.lower(), name, attributes, any_value(record.get("body")))


def event_span(trace_id: str, span_id: str, name: str, attributes: dict[str, Json], body: Json) -> Span:
    """Return a span that holds nothing but one event of the span with this id."""
    held = attributes if body in (None, {}) else {**attributes, "body": body}
    return Span(trace_id=trace_id, id=span_id, events=(SpanEvent(name, held),))
