"""OTLP: traces as OpenTelemetry exports them, in JSON and in protobuf. A document may contain several traces; each is one evidence."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from proctor.errors import EvidenceError
from proctor.evidence.otlp.protobuf import read_traces_or_logs
from proctor.evidence.otlp.spans import (
    TRACE_KEYS,
    Span,
    gather_events,
    is_event_only,
    is_log_request,
    merge_spans,
    read_log_groups,
    read_trace_groups,
)
from proctor.evidence.traces.build import build_evidence
from proctor.evidence.values.access import dict_or_empty, list_of
from proctor.model.account import Part
from proctor.model.evidence import Evidence, Json


def sniff(document: Json) -> bool:
    """Return whether this is an OTLP request (or a trace as Tempo stores it, with `batches`)."""
    document = _unwrap(document)
    batches = list_of(dict_or_empty(document).get("batches"))
    return _has_spans(document) or is_log_request(document) or any("scopeSpans" in dict_or_empty(batch) for batch in batches)


def _unwrap(document: Json) -> Json:
    """Return the trace in `{"trace": {"resourceSpans": [...]}}`, as the second API of Tempo returns it."""
    inner = dict_or_empty(document).get("trace")
    return inner if _has_spans(inner) else document


def _has_spans(document: Json) -> bool:
    return any(isinstance(dict_or_empty(document).get(key), list) for key in TRACE_KEYS[0][:2])


def read(document: Json) -> list[Evidence]:
    """Return every trace in one request."""
    return read_batches([read_request(document)])


def read_request(document: Json, path: str = "$") -> list[Span]:
    """Return the spans of one request, and the events of spans in its logs."""
    document = _unwrap(document)
    groups = read_log_groups(document, path=path) if is_log_request(document) else []
    found = gather_events(span for group in groups for span in group.spans)
    if isinstance(document, dict) and any(key in document for key in TRACE_KEYS[0]):
        found = [*(span for group in read_trace_groups(document, path=path) for span in group.spans), *found]
    return found


def read_protobuf(data: bytes) -> list[Evidence]:
    """Return every trace in one binary request, with spans or with logs."""
    spans = read_traces_or_logs(data)
    if not spans:
        raise EvidenceError("OTLP protobuf without spans")
    return read_batches([spans])


def read_batches(batches: Iterable[Iterable[Span]], parts: Collection[Part] | None = None) -> list[Evidence]:
    """Return the traces of several requests, spans of the same trace merged; `parts` are the parts that are read."""
    # If only log records came for a trace, its spans may be in another request, or were sampled away.
    traces = merge_spans(batches).values()
    return [build_evidence(spans, parts=parts) for spans in traces if not all(is_event_only(span) for span in spans)]
