"""Tables of spans whose columns have other types: the verdicts of the same traces over OTLP, or an error, and never anything greener."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proctor.errors import EvidenceError
from proctor.evidence.otlp.spans import Span
from proctor.evidence.reading import read_document
from tests.batches.batch_world import evaluate, read_errors, write_lines, write_suite
from tests.batches.span_world import read_recording, write_phoenix_row, write_requests, write_span_row
from tests.batches.spans.test_spans import RECORDING, decide_by_check, read_verdicts

pytestmark = pytest.mark.timeout(60)
SUITE = """\
proctor: 1
name: Columns
cases:
  - id: never
    expect: [{tool_not_called: delete_order}, {no_tool_errors: {}}]
  - id: looked-up
    expect: [{tool_called: lookup_order}, {response_not_empty: {}}]
  - id: fast
    expect: {responded_within: 3600000}
"""
SPANS = read_recording(RECORDING)
Columns = dict[str, pa.Array]


def write_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def make(read: Callable[[Span], Any], kind: Any = None) -> pa.Array:
    return pa.array([read(span) for span in SPANS], kind)


def write_moments(unit: str, divide: int) -> Columns:
    kind = pa.timestamp(unit, "UTC")
    return {
        "start_time_unix_nano": make(lambda span: span.start_ns // divide, kind),
        "end_time_unix_nano": make(lambda span: span.end_ns // divide, kind),
    }


def list_texts(span: Span) -> list[tuple[str, str]]:
    return [(key, write_text(value)) for key, value in span.attributes.items()]


CHANGED: dict[str, Columns] = {
    "moments of nanoseconds in columns of numbers": write_moments("ns", 1),
    "moments of microseconds in columns of numbers": write_moments("us", 1_000),
    "attributes as a map of texts": {"attributes": make(list_texts, pa.map_(pa.string(), pa.string()))},
    "attributes as a list of keys and texts": {
        "attributes": make(lambda span: [{"key": key, "value": value} for key, value in list_texts(span)])
    },
    "attributes as bytes": {"attributes": make(lambda span: json.dumps(span.attributes).encode())},
    "ids as bytes": {
        "trace_id": make(lambda span: bytes.fromhex(span.trace_id), pa.binary(16)),
        "span_id": make(lambda span: bytes.fromhex(span.id), pa.binary(8)),
        "parent_span_id": make(lambda span: bytes.fromhex(span.parent_id) if span.parent_id else None, pa.binary()),
    },
}


@pytest.mark.parametrize("what", CHANGED)
def test_columns_of_other_types_give_the_same_verdicts(what: str, tmp_path: Path) -> None:
    suite = write_suite(tmp_path, text=SUITE)
    rows = [write_span_row(span) for span in SPANS]
    columns = {name: pa.array([row[name] for row in rows]) for name in rows[0]} | CHANGED[what]
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=7)
    evaluate(suite, [tmp_path / "a.parquet"], tmp_path / "out")
    expected = decide_by_check(suite, [write_lines(tmp_path / "otlp.jsonl", write_requests(RECORDING))])
    assert not read_errors(tmp_path / "out")
    assert {key: verdict[0] for key, verdict in read_verdicts(tmp_path / "out").items()} == {
        key: verdict[0] for key, verdict in expected.items()
    }
    assert "pass" in {verdict[0] for key, verdict in expected.items() if key[1] == "never"}


def test_a_table_with_a_column_for_each_attribute_is_read_under_plain_names_too(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, text=SUITE)
    rows = [json.loads(json.dumps(write_phoenix_row(span), default=str)) for span in SPANS]
    evaluate(suite, [write_lines(tmp_path / "phoenix.jsonl", rows)], tmp_path / "phoenix")
    plain = [{name.removeprefix("context."): value for name, value in row.items()} for row in rows]
    evaluate(suite, [write_lines(tmp_path / "plain.jsonl", plain)], tmp_path / "plain")
    found = {key: verdict[0] for key, verdict in read_verdicts(tmp_path / "plain").items()}
    assert found == {key: verdict[0] for key, verdict in read_verdicts(tmp_path / "phoenix").items()} and "pass" in found.values()


def test_a_row_that_is_named_a_trace_of_mlflow_and_has_no_spans_is_an_error() -> None:
    with pytest.raises(EvidenceError, match="no spans"):
        read_document(write_span_row(SPANS[0]), format="mlflow")
