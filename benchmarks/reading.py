"""What reading evidence costs compared with decoding its JSON: plain records, and recorded traces of real frameworks by the span."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.ingestion import SUITE, requests
from benchmarks.measure import interleaved, is_compiled
from benchmarks.report import Figure
from benchmarks.traces import traces
from proctor import parse_suite
from proctor.decide.prepare import PreparedSuite
from proctor.evidence.otlp.protobuf import read_protobuf_spans
from proctor.evidence.otlp.spans import merge_spans
from proctor.evidence.reading import read_document
from proctor.evidence.traces.build import build_evidence
from proctor.model.account import Part

COUNT = 2_000
RECORDINGS = Path(__file__).parent.parent / "tests" / "evidence" / "frameworks"
FEW = (
    "langgraph-oi",
    "openai-agents-traceloop",
    "pydantic-ai-v5",
    "strands-latest",
    "adk2-own",
    "mlflow-agno",
    "ai-sdk-6",
    "semantic-kernel-own",
)
"""Recordings of different conventions; a name that is not recorded any more is an error."""


def figures() -> Iterator[Figure]:
    """CPU time of reading as a ratio to decoding the same documents."""
    written = [msgspec.json.encode(trace) for trace in traces(COUNT)]
    decoded = [msgspec.json.decode(line) for line in written]
    best = interleaved({"decode": lambda: [msgspec.json.decode(line) for line in written], "read": lambda: _read(decoded)})
    yield Figure(
        "plain evidence given as objects: reading / decoding, CPU",
        best["read"] / best["decode"],
        note=f"{best['read'] / COUNT * 1e6:.0f} µs a record of six calls",
    )
    recorded = [document for name in FEW for document in _requests(name)]
    spans = sum(_span_count(document) for document in recorded)
    bodies = [msgspec.json.encode(document) for document in recorded]
    best = interleaved({"decode": lambda: [msgspec.json.decode(body) for body in bodies], "read": lambda: _read(recorded)})
    yield Figure(
        "OTLP of real frameworks: reading / decoding, CPU",
        best["read"] / best["decode"],
        note=f"{best['read'] / spans * 1e6:.0f} µs a span, {sum(map(len, bodies)) // spans:,} bytes a span",
    )
    yield _figure_of_seven_spans()


def _figure_of_seven_spans() -> Figure:
    """Reading one trace of `benchmarks.ingestion`: every part, and the parts that its five checks read."""
    spans = list(merge_spans([read_protobuf_spans(requests(1)[0])]).values())
    parts = PreparedSuite(parse_suite(SUITE)).parts

    def read(wanted: frozenset[Part] | None) -> None:
        for trace in spans:
            build_evidence(trace, parts=wanted)

    best = interleaved({"all": lambda: read(None), "read": lambda: read(parts)})
    kind = "compiled" if is_compiled() else "interpreted"
    note = f"{best['read'] / len(spans) * 1e6:.0f} against {best['all'] / len(spans) * 1e6:.0f} µs a trace of seven spans, {kind}"
    return Figure("spans: the parts that five checks read / every part, CPU", best["read"] / best["all"], note=note)


def _read(documents: list[Any]) -> None:
    for document in documents:
        read_document(document)


def _requests(name: str) -> list[Any]:
    recorded = msgspec.json.decode((RECORDINGS / f"{name}.json").read_bytes())
    return [entry for entry in recorded if "resourceSpans" in entry] if isinstance(recorded, list) else [recorded]


def _span_count(request: dict[str, Any]) -> int:
    return sum(len(scope["spans"]) for group in request["resourceSpans"] for scope in group["scopeSpans"])
