"""OTLP logs: some instrumentations write messages into log records instead of spans.

A record with a trace id and a span id becomes an event of that span, which `merge_spans` joins to it. Other records are ignored, and so are
verdicts about a span.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.otlp.spans import (
    Refuse,
    RequestKeys,
    Span,
    SpanEvent,
    SpanGroup,
    convert_any_value,
    find_near_field,
    fold_id,
    read_attributes,
    read_groups,
)
from proctor.evidence.values.access import find_first, read_object, text_or_none, wrong_kind_error
from proctor.model.evidence import Json
from proctor.model.show import show

LOG_KEYS: RequestKeys = (("resourceLogs", "resource_logs"), ("scopeLogs", "scope_logs"), ("logRecords", "log_records"))
_VERDICT = "gen_ai.evaluation.result"
_TEXTS = ("traceId", "trace_id", "spanId", "span_id", "eventName", "event_name")
_RECORD_KEYS = frozenset((*_TEXTS, "body", "attributes"))


def sniff(document: Json) -> bool:
    """Return whether this is an OTLP request with logs."""
    return isinstance(document, dict) and any(isinstance(document.get(key), list) for key in LOG_KEYS[0])


def read_log_groups(document: Json, refuse: Refuse | None = None, path: str = "$") -> list[SpanGroup]:
    """Return the events of one OTLP JSON request with logs, by resource and span."""
    groups = read_groups(document, LOG_KEYS, lambda scope, resource: _read_record, refuse, path)
    return [SpanGroup(group.resource, gather_events(group.spans)) for group in groups]


def _read_record(value: Json, path: str) -> Span | None:
    """Return a log record as an event of its span, or None if it has no span."""
    record = read_object(value, path)
    # A misspelt id or body would silently drop the record.
    lost = find_near_field(record, _RECORD_KEYS)
    if lost is not None:
        raise EvidenceError(f"{path}: {show(lost)} is not recognised")
    for key in (*_TEXTS, "attributes"):
        if not isinstance(record.get(key), (str, type(None)) if key in _TEXTS else (list, dict, type(None))):
            raise wrong_kind_error(f"{path}.{key}", "text" if key in _TEXTS else "a list", record[key])
    trace_id, span_id = find_first(record, "traceId", "trace_id") or "", find_first(record, "spanId", "span_id") or ""
    name, body = find_first(record, "eventName", "event_name"), convert_any_value(record.get("body"))
    return make_event_span(fold_id(trace_id), fold_id(span_id), name, read_attributes(record.get("attributes")), body)


def make_event_span(trace_id: str, span_id: str, name: str | None, attributes: dict[str, Json], body: Json) -> Span | None:
    """Return a span with nothing but one event of the span with these ids, or None if it is not an event of an agent."""
    name = name or text_or_none(attributes.get("event.name"))
    if not name or name == _VERDICT or not trace_id.strip("0") or not span_id.strip("0"):
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
