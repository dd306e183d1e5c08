"""OTLP: traces as OpenTelemetry exports them, in JSON and in protobuf.

A document may hold several traces; each is one evidence. A trace may be spread over several documents: `merge_spans` puts them
together before `evidence_of` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable

from proctor.errors import EvidenceError
from proctor.evidence.otlp_protobuf import spans_of_protobuf
from proctor.evidence.shape import dict_of
from proctor.evidence.span_evidence import evidence_of
from proctor.evidence.spans import Span, merge_spans, spans_of_request
from proctor.model.evidence import Evidence, Json

_KEYS = ("resourceSpans", "resource_spans")


def sniff(document: Json) -> bool:
    """Whether this is an OTLP request (or a trace as Tempo stores it, with `batches`)."""
    if not isinstance(document, dict):
        return False
    if any(isinstance(document.get(key), list) for key in _KEYS):
        return True
    batches = document.get("batches")
    return isinstance(batches, list) and any("scopeSpans" in dict_of(batch) for batch in batches)


def read(document: Json) -> list[Evidence]:
    """Every trace in one request."""
    return read_batches([spans_of_request(document)])


def read_protobuf(data: bytes) -> list[Evidence]:
    """Every trace in one binary request."""
    spans = spans_of_protobuf(data)
    if not spans:
        raise EvidenceError("OTLP protobuf without spans")
    return read_batches([spans])


def read_batches(batches: Iterable[Iterable[Span]]) -> list[Evidence]:
    """The traces of several requests, spans of the same trace merged."""
    return [evidence_of(spans) for spans in merge_spans(batches).values()]
