"""OTLP logs: some instrumentations put what was said into log records instead of into spans.

A record that names its trace and span becomes an event of that span; `merge_spans` joins it to the span wherever that came from. Other
records tell nothing about an agent and are passed over, and so are verdicts: what an examiner said of a span is no part of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.otlp.spans import Span, SpanEvent, convert_any_value, read_attributes
from proctor.evidence.values.access import find_first, list_at, read_object, text_or_none, wrong_kind_error
from proctor.model.evidence import Json
from proctor.model.show import show

KEYS = ("resourceLogs", "resource_logs")
VERDICT = "gen_ai.evaluation.result"
"""The event that tells what an examiner said of a span."""


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
    """Return the log records of one resource; one that has something else in their place is refused."""
    scopes = _list_entries(resource, ("scopeLogs", "scope_logs"), ("resource", "schemaUrl", "schema_url"), path)
    found: list[Json] = []
    for index, scope in enumerate(scopes):
        at = f"{path}.scopeLogs[{index}]"
        found.extend(_list_entries(read_object(scope, at), ("logRecords", "log_records"), ("scope", "schemaUrl", "schema_url"), at))
    return found


def _list_entries(holder: dict[str, Json], keys: tuple[str, str], beside: tuple[str, ...], path: str) -> list[Json]:
    odd = next((key for key in holder if key not in keys and key not in beside), None)
    if odd is not None:
        raise EvidenceError(f"{path}: expected {keys[0]}, found {show(odd)}")
    entries = find_first(holder, *keys)
    return [] if entries is None else list_at(entries, f"{path}.{keys[0]}")


def read_record(record: dict[str, Any]) -> Span | None:
    """Return a log record in JSON as an event of its span, or None if it is no event of one."""
    # An unknown member may be a misspelt id or body, without which the record would be passed over in silence.
    odd = next((key for key in record if key not in _RECORD_KEYS), None)
    if odd is not None:
        raise EvidenceError(f"a log record: {show(odd)} is not understood")
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
_RECORD_KEYS = frozenset(
    (
        *(*_TEXTS, "timeUnixNano", "time_unix_nano", "observedTimeUnixNano", "observed_time_unix_nano", "severityNumber"),
        *("severity_number", "severityText", "severity_text", "body", "attributes", "droppedAttributesCount"),
        *("dropped_attributes_count", "flags"),
    )
)


def make_event_span(trace_id: str, span_id: str, name: str | None, attributes: dict[str, Json], body: Json) -> Span | None:
    """Return a span that holds nothing but one event of the span with these ids, or None where no agent's event is told."""
    name = name or text_or_none(attributes.get("event.name"))
    # Ids of zeros stand for none.
    if not name or name == VERDICT or not trace_id.strip("0") or not span_id.strip("0"):
        return None
    # Newer instrumentations put the message into attributes, older ones into the body: a reader of events finds both in one object.
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
