"""Tables of spans that real software wrote (`make_span_tables.py`, `make_sdk_tables.py`): the same evidence as over OTLP."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proctor.evidence.reading import find_spans
from tests.batches.batch_world import evaluate, read_errors, read_results, write_suite
from tests.batches.span_table_checks import check_langfuse, check_langsmith, check_mlflow, check_phoenix
from tests.batches.span_world import read_recording, write_langfuse_row

TABLES = Path(__file__).parents[1] / "span_tables"
pytestmark = pytest.mark.timeout(60)


def test_the_data_frame_of_phoenix_is_the_evidence_that_was_sent(tmp_path: Path) -> None:
    check_phoenix(TABLES, tmp_path)


def test_the_traces_of_mlflow_are_the_evidence_that_it_sent(tmp_path: Path) -> None:
    check_mlflow(TABLES, tmp_path)


def test_observations_of_langfuse_are_the_evidence_that_its_sdk_sent(tmp_path: Path) -> None:
    check_langfuse(TABLES, tmp_path)


def test_runs_of_langsmith_are_the_evidence_that_its_sdk_sent(tmp_path: Path) -> None:
    check_langsmith(TABLES, tmp_path)


def test_scores_and_trace_headers_are_reported_and_hide_no_spans(tmp_path: Path) -> None:
    (tmp_path / "observations_v2").mkdir()
    (tmp_path / "observations_v2" / "1.parquet").write_bytes((TABLES / "langfuse-export.parquet").read_bytes())
    scores = {"id": ["s1"], "trace_id": ["t1"], "observation_id": [None], "name": ["good"], "value": [1.0], "data_type": ["NUMERIC"]}
    heads = {"id": ["t1"], "timestamp": ["2026-10-01 12:00:00.000000"], "bookmarked": [False], "user_id": [""], "session_id": [""]}
    for name, columns in (("scores", scores), ("traces", heads)):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table(columns), tmp_path / name / "1.parquet")
    text = "proctor: 1\nname: N\ncases:\n  - {id: never, expect: {tool_not_called: delete_order}}\n"
    suite = write_suite(tmp_path, text=text)
    evaluate(suite, [tmp_path / "observations_v2", tmp_path / "scores", tmp_path / "traces"], tmp_path / "out")
    assert [row["outcome"] for row in read_results(tmp_path / "out")] == ["pass"] * 3
    assert sorted(row["reason"][:20] for row in read_errors(tmp_path / "out")) == ["scores of Langfuse, ", "the heads of traces "]


def test_spans_of_another_instrumentation_are_read_from_a_langfuse_export(tmp_path: Path) -> None:
    rows = [write_langfuse_row(span) for span in read_recording("langchain-0-oi")]
    spans = [span for row in rows for span in find_spans(row) or ()]
    texts = [{**row, "metadata": {key: json.dumps(value) for key, value in row["metadata"].items()}} for row in rows]
    again = [span for row in texts for span in find_spans(row) or ()]
    assert again == spans and any("openinference.span.kind" in span.attributes for span in again)
