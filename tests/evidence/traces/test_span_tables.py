"""Rows of spans, as observability systems export them, are the same evidence as the same traces over OTLP."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from proctor.errors import EvidenceError
from proctor.evidence.otlp.spans import Span
from proctor.evidence.reading import find_spans, read_bytes, read_document
from proctor.evidence.tables.read import find_columns, find_table, read_rows
from proctor.evidence.traces.read_otlp import read_batches
from proctor.evidence.values.access import read_time_ns
from proctor.model.evidence import Evidence
from tests.batches.span_world import (
    drop_nothing,
    read_recording,
    write_langfuse_row,
    write_langsmith_row,
    write_mlflow_rows,
    write_phoenix_row,
    write_span_row,
)


def as_dicts(found: list[Evidence]) -> list[dict[str, Any]]:
    """The fields of evidence, without the resource's description of its service."""
    entries: list[dict[str, Any]] = []
    for evidence in found:
        entry = msgspec.to_builtins(evidence)
        entry.pop("metadata", None)
        entries.append(json.loads(json.dumps(entry, sort_keys=True)))
    return entries


def as_summaries(found: list[Evidence]) -> list[Any]:
    return [
        (evidence.text, [(call.name, call.arguments, call.error) for call in evidence.tool_calls or ()], evidence.usage, evidence.model)
        for evidence in found
    ]


@pytest.mark.parametrize("name", ["langchain-0-oi", "openai-langfuse-3", "mlflow-langgraph", "anthropic-genai", "ai-sdk-6"])
def test_rows_in_the_words_of_opentelemetry_are_the_spans_themselves(name: str) -> None:
    spans = read_recording(name)
    rows = json.loads(json.dumps([write_span_row(span) for span in spans]))
    assert [find_table(row).name for row in rows] == ["spans"] * len(rows)  # type: ignore[union-attr]
    again = [span for row in rows for span in find_spans(row) or ()]
    assert as_dicts(read_batches([again])) == as_dicts(read_batches([spans]))
    assert as_dicts(read_document(rows)) == as_dicts(read_batches([spans])), "a list of rows is a whole document"


@pytest.mark.parametrize("name", ["langchain-0-oi", "agno2-oi", "anthropic-js-oi", "haystack-pipeline-oi"])
def test_rows_of_phoenix_read_like_the_spans_sent(name: str) -> None:
    # Phoenix keeps neither resource nor instrumentation.
    spans = [
        msgspec.structs.replace(span, resource={}, scope="", start_ns=span.start_ns // 1000 * 1000, end_ns=span.end_ns // 1000 * 1000)
        for span in read_recording(name)
    ]
    rows = drop_nothing([write_phoenix_row(span) for span in spans])
    assert all(find_table(row) is find_columns(frozenset(rows[0])) for row in rows)
    again = read_rows(json.loads(json.dumps(rows, default=str)))
    assert again is not None and as_dicts(read_batches([again])) == as_dicts(read_batches([spans]))


def test_rows_of_mlflow_are_whole_traces() -> None:
    spans = read_recording("mlflow-langgraph")
    rows = write_mlflow_rows(spans)
    assert find_spans(rows[0]) is None, "nothing waits for the rest of a whole trace"
    found = [one for row in rows for one in read_bytes(json.dumps(row).encode())]
    assert as_summaries(found) == as_summaries(read_batches([spans])) and len(found) > 1
    as_json = [{"trace_id": row["trace_id"], "trace": json.dumps({"info": {}, "data": {"spans": row["spans"]}})} for row in rows]
    assert as_dicts(read_document(as_json)) == as_dicts(found)
    older = [{"info": {"request_id": "tr-1"}, "data": {"spans": [_encode_ids(span) for span in row["spans"]]}} for row in rows]
    assert as_dicts(read_document(older)) == as_dicts(found)


def _encode_ids(span: dict[str, Any]) -> dict[str, Any]:
    row = {**span, "trace_id": span["otel_trace_id"]}
    del row["otel_trace_id"]
    for name in ("trace_id", "span_id", "parent_span_id"):
        row[name] = base64.b64encode(bytes.fromhex(row[name])).decode() if row[name] else ""
    return row


@pytest.mark.parametrize("name", ["openai-langfuse-3", "langchain-langfuse"])
def test_observations_of_langfuse_are_the_spans_of_its_sdk(name: str) -> None:
    spans = read_recording(name)
    rows = [write_langfuse_row(span) for span in spans]
    assert {find_table(row).name for row in rows} == {"langfuse"}  # type: ignore[union-attr]
    assert as_summaries(read_batches([[span for row in rows for span in find_spans(row) or ()]])) == as_summaries(read_batches([spans]))
    trace = spans[0].trace_id
    whole = {"id": trace, "name": "t", "observations": [row for row in rows if row["traceId"] == trace]}
    assert find_spans(whole) is None
    assert as_summaries(read_document(whole)) == as_summaries(read_batches([[span for span in spans if span.trace_id == trace]]))
    snake = {"parentObservationId": "parent_observation_id", "traceId": "trace_id", "startTime": "start_time", "endTime": "end_time"}
    exported = [{snake.get(key, key): value for key, value in row.items()} for row in rows]
    assert as_summaries(read_document(exported)) == as_summaries(read_batches([spans]))


@pytest.mark.parametrize("name", ["langgraph-langsmith", "openai-langsmith"])
def test_runs_of_langsmith_are_the_spans_of_its_sdk(name: str) -> None:
    spans = read_recording(name)
    rows = drop_nothing([write_langsmith_row(span) for span in spans])
    assert {find_table(row).name for row in rows} == {"langsmith"}  # type: ignore[union-attr]
    assert as_summaries(read_document(rows)) == as_summaries(read_batches([spans]))


@pytest.mark.parametrize(
    "outputs",
    [
        {"output": {"tool_call_id": "c1", "content": "sunny"}},
        {"output": {"kwargs": {"tool_call_id": "c1", "content": "sunny"}}},
        {"output": {}, "tool_call_id": "c1"},
        {"tool_call_id": "c1", "content": "sunny"},
        {"kwargs": {"tool_call_id": "c1"}},
    ],
)
def test_a_tool_run_of_langsmith_has_the_id_of_its_call(outputs: dict[str, Any]) -> None:
    (span,) = read_rows({"id": "a", "trace_id": "t", "run_type": "tool", "name": "weather", "outputs": outputs}) or ()
    assert (span.attributes["gen_ai.tool.name"], span.attributes["gen_ai.tool.call.id"]) == ("weather", "c1")


@pytest.mark.parametrize(
    "row",
    [
        {"context.trace_id": "", "context.span_id": "a"},
        {"context.trace_id": "t", "context.span_id": 3},
        {"id": "a", "traceId": "", "parentObservationId": None, "type": "SPAN"},
        {"id": 3, "trace_id": "t", "run_type": "llm"},
        {"trace_id": "", "span_id": "a"},
        {"trace_id": "t", "span_id": [5]},
    ],
)
def test_a_row_that_belongs_to_no_trace_is_an_error(row: dict[str, Any]) -> None:
    with pytest.raises(EvidenceError):
        read_rows(row)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-10-01T12:00:00.000001Z", 1790856000000001000),
        ("2026-10-01 12:00:00+02:00", 1790848800000000000),
        ("2026-10-01", 1790812800000000000),
        (1790856000000000123, 1790856000000000123),
        ("1790856000000000123", 1790856000000000123),
        (1790856000000, 1790856000000000000),
        (1790856000, 1790856000000000000),
        ("soon", 0),
        (None, 0),
        (True, 0),
        (-5, 0),
        ("9" * 30, 0),
        (float("inf"), 0),
    ],
)
def test_moments_are_read_in_every_spelling(value: Any, expected: int) -> None:
    assert read_time_ns(value) == expected


def test_a_body_of_mibo_with_spans_stays_one() -> None:
    spans = [{"span_id": "a", "name": "x", "attributes": {"mlflow.spanType": '"LLM"'}}]
    assert find_table({"spans": spans}) is None
    assert find_spans({"spans": spans}) is None


def test_a_huge_nesting_in_a_row_ends_soon() -> None:
    deep: Any = "x"
    for _ in range(60):
        deep = {"a": deep}
    spans = read_rows({"context.trace_id": "t", "context.span_id": "s", "attributes.deep": deep})
    assert spans is not None and isinstance(spans[0], Span)
