"""OTLP: traces as OpenTelemetry exports them, in JSON and in protobuf.

A document may hold several traces; each is one evidence. A trace may be spread over several documents: `merge_spans` puts them
together before `evidence_of` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable

from proctor.errors import EvidenceError
from proctor.evidence import otlp_logs
from proctor.evidence.otlp_logs import spans_of_logs
from proctor.evidence.otlp_logs_protobuf import spans_in_protobuf
from proctor.evidence.shape import dict_of
from proctor.evidence.span_evidence import evidence_of
from proctor.evidence.spans import Span, is_event_only, merge_spans, spans_of_request
from proctor.model.evidence import Evidence, Json

_KEYS = ("resourceSpans", "resource_spans")


def sniff(document: Json) -> bool:
    """Whether this is an OTLP request (or a trace as Tempo stores it, with `batches`)."""
    if not isinstance(document, dict):
        return False
    if any(isinstance(document.get(key), list) for key in _KEYS):
        return True
    if otlp_logs.sniff(document):
        return True
    batches = document.get("batches")
    return isinstance(batches, list) and any("scopeSpans" in dict_of(batch) for batch in batches)


def read(document: Json) -> list[Evidence]:
    """Every trace in one request."""
    return read_batches([spans_in_request(document)])


def spans_in_request(document: Json, path: str = "$") -> list[Span]:
    """Return the spans of one request, and what its logs tell of spans."""
    found = spans_of_logs(document, path) if otlp_logs.sniff(document) else []
    if isinstance(document, dict) and any(key in document for key in (*_KEYS, "batches")):
        found = [*spans_of_request(document, path), *found]
    return found


def read_protobuf(data: bytes) -> list[Evidence]:
    """Every trace in one binary request, with spans or with logs."""
    spans = spans_in_protobuf(data)
    if not spans:
        raise EvidenceError("OTLP protobuf without spans")
    return read_batches([spans])


def read_batches(batches: Iterable[Iterable[Span]]) -> list[Evidence]:
    """The traces of several requests, spans of the same trace merged."""
    traces = merge_spans(batches).values()
    return [evidence_of(spans) for spans in traces if not all(is_event_only(span) for span in spans)]
