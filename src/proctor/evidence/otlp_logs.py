"""OTLP logs: some instrumentations put what was said into log records instead of into spans.

A record that names its trace and span becomes an event of that span; `merge_spans` joins it to the span wherever that came from. Other
records tell nothing about an agent and are passed over, and so are verdicts: what an examiner said of a span is no part of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from proctor.evidence.shape import dict_of, first_of, list_at, list_of, object_at, text_or_none
from proctor.evidence.spans import Span, SpanEvent, any_value, read_attributes
from proctor.model.evidence import Json

KEYS = ("resourceLogs", "resource_logs")
VERDICT = "gen_ai.evaluation.result"
"""The event that tells what an examiner said of a span."""


def sniff(document: Json) -> bool:
    """Whether this is an OTLP request with logs."""
    return isinstance(document, dict) and any(isinstance(document.get(key), list) for key in KEYS)


def spans_of_logs(document: Json, path: str = "$") -> list[Span]:
    """Return the events of one OTLP JSON request with logs, by their spans, which have nothing else."""
    entry = object_at(document, path)
    key = next(key for key in KEYS if key in entry)
    found: list[Span] = []
    for resource in map(dict_of, list_at(entry[key], f"{path}.{key}")):
        found.extend(span for record in records_in(resource) if (span := span_of_record(dict_of(record))) is not None)
    return gather_events(found)


def records_in(resource: dict[str, Json]) -> list[Json]:
    """Return the log records of one resource."""
    scopes = map(dict_of, list_of(first_of(resource, "scopeLogs", "scope_logs")))
    return [record for scope in scopes for record in list_of(first_of(scope, "logRecords", "log_records"))]


def span_of_record(record: dict[str, Any]) -> Span | None:
    """Return a log record in JSON as an event of its span; nothing where it is no event of one."""
    trace_id = text_or_none(first_of(record, "traceId", "trace_id"))
    span_id = text_or_none(first_of(record, "spanId", "span_id"))
    if not trace_id or not span_id:
        return None
    attributes = read_attributes(record.get("attributes"))
    name = text_or_none(first_of(record, "eventName", "event_name"))
    return event_span(trace_id.lower(), span_id.lower(), name, attributes, any_value(record.get("body")))


def event_span(trace_id: str, span_id: str, name: str | None, attributes: dict[str, Json], body: Json) -> Span | None:
    """Return a span that holds nothing but one event of the span with these ids; nothing where no agent's event is told."""
    name = name or text_or_none(attributes.get("event.name"))
    # Ids of zeros stand for none.
    if not name or name == VERDICT or not trace_id.strip("0") or not span_id.strip("0"):
        return None
    held = attributes if body in (None, {}) else {**attributes, "body": body}
    return Span(trace_id=trace_id, id=span_id, events=(SpanEvent(name, held),))


def gather_events(spans: Iterable[Span]) -> list[Span]:
    """Return each span once, with all its events in their order: a request may hold thousands of records of one span."""
    found: dict[tuple[str, str], list[Span]] = {}
    for span in spans:
        found.setdefault((span.trace_id, span.id), []).append(span)
    return [
        same[0] if len(same) == 1 else msgspec.structs.replace(same[0], events=tuple([event for span in same for event in span.events]))
        for same in found.values()
    ]
