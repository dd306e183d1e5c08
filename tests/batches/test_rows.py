"""A broken row of a table loses only that row: the others of its row group are decided, and the count is right."""

from __future__ import annotations

import datetime
import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.batches.batch_world import evaluate, make_trace, read_errors, read_results, write_lines, write_suite

TRACE = json.dumps(make_trace(1))
FAR = pa.array([0, 2**62, 5], pa.timestamp("us"))
TWICE = pa.array([[("a", "1")], [("a", "1"), ("a", "2")], [("a", "1")]], pa.map_(pa.string(), pa.string()))


def make_invalid_text(*texts: bytes) -> Any:
    """Text as a writer leaves it who does not look."""
    return pa.Array.from_buffers(pa.string(), len(texts), pa.array(texts, pa.binary()).buffers())


INVALID_TEXT = make_invalid_text(b"a", b"\xff", b"c")
CALLS = ["[]"] * 3
NO_CALLS = pa.array([[], [], []], pa.list_(pa.struct([("name", pa.string())])))
FIELDS: dict[str, dict[str, Any]] = {
    "text that is not UTF-8": {"text": INVALID_TEXT, "tool_calls": CALLS},
    "a moment beyond the years of Python": {"text": ["a"] * 3, "tool_calls": CALLS, "now": FAR},
    "a repeated key": {"text": ["a"] * 3, "tool_calls": CALLS, "metadata": TWICE},
    "bytes in a field": {"text": [b"a", b"\xff\xfe", b"c"], "tool_calls": CALLS},
    "text that is not UTF-8 in a struct": {"record": pa.StructArray.from_arrays([INVALID_TEXT, NO_CALLS], ["text", "tool_calls"])},
}


@pytest.mark.parametrize("what", FIELDS)
def test_one_unreadable_row_loses_one_row(what: str, tmp_path: Path) -> None:
    pq.write_table(pa.table(FIELDS[what]), tmp_path / "a.parquet")
    summary, _ = evaluate(write_suite(tmp_path), [tmp_path / "a.parquet"], tmp_path / "out")
    assert [(row["row"], row["rows"]) for row in read_errors(tmp_path / "out")] == [(2, 1)]
    assert {row["row"] for row in read_results(tmp_path / "out")} == {1, 3}
    assert (summary.records, summary.traces, summary.unread) == (3, 2, 1)


@pytest.mark.parametrize("column", [INVALID_TEXT, FAR, TWICE])
@pytest.mark.parametrize("name", ["tier", "trace_id"])
def test_an_unreadable_extra_column_loses_no_record(column: Any, name: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"record": [TRACE] * 3, name: column}), tmp_path / "a.parquet")
    summary, _ = evaluate(write_suite(tmp_path), [tmp_path / "a.parquet"], tmp_path / "out", by=((name,),))
    assert (summary.records, summary.traces, summary.errors) == (3, 3, 0)
    if column is INVALID_TEXT:
        assert [one.values for one in summary.slices[0].slices] == [("a",), ("c",), ("\ufffd",)]


def test_columns_of_other_types_are_the_same_record(tmp_path: Path) -> None:
    """Columns as databases and Spark write them: decimal numbers, texts as bytes, unrelated bytes."""
    now = datetime.datetime(2026, 10, 1, 12, tzinfo=datetime.UTC)
    columns = {
        "text": [b"done, run 1"],
        "tool_calls": [json.dumps(make_trace(1)["tool_calls"]).encode()],
        "duration_ms": [Decimal("101.50")],
        "model": pa.array(["small"]).dictionary_encode(),
        "now": [now],
        "digest": [b"\xff\xfe"],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    evaluate(write_suite(tmp_path), [tmp_path / "a.parquet"], tmp_path / "out")
    (first, second), errors = read_results(tmp_path / "out"), read_errors(tmp_path / "out")
    assert (first["outcome"], second["outcome"], first["duration_ms"], first["model"], errors) == ("pass", "pass", 101.5, "small", [])


@pytest.mark.parametrize("sample", ["n8n-2.8.4-execution-order-confirmed.json", "n8n-2.8.4-execution-ai-agent-tool.json"])
def test_executions_of_n8n_in_columns_are_those_of_the_file(sample: str, tmp_path: Path) -> None:
    record = json.loads((Path(__file__).parents[1] / "evidence" / "samples" / "n8n" / sample).read_text())
    columns = {name: [json.dumps(value) if isinstance(value, (dict, list)) else value] for name, value in record.items()}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    suite = write_suite(tmp_path, text="proctor: 1\nname: Shop\ncases: [{id: a, expect: {tool_not_called: refund}}]\n")
    evaluate(suite, [tmp_path / "a.parquet"], tmp_path / "table")
    evaluate(suite, [write_lines(tmp_path / "a.jsonl", [record])], tmp_path / "lines")
    (table,), (lines,) = read_results(tmp_path / "table"), read_results(tmp_path / "lines")
    assert (table["outcome"], table["verdicts"]) == (lines["outcome"], lines["verdicts"]) == ("pass", lines["verdicts"])


@pytest.mark.parametrize("where", [None, "record != 'x'"])
def test_a_damaged_page_is_rejected(where: str | None, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"record": [TRACE] * 3}), path, compression="none", use_dictionary=False, write_page_checksum=True)
    path.write_bytes(path.read_bytes().replace(b"done, run 1", b"DONE, run 1"))
    summary, _ = evaluate(write_suite(tmp_path), [path], tmp_path / "out", where=where)
    assert (summary.traces, summary.unread) == (0, 3)
    assert "checksum" in read_errors(tmp_path / "out")[0]["reason"].lower()


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_small_file_that_was_cut_off_keeps_its_beginning(codec: str, tmp_path: Path) -> None:
    chance = random.Random(7)
    lines = "".join(json.dumps(make_trace(1, text=f"done, run {chance.random()} {chance.random()}")) + "\n" for _ in range(3000))
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as packed:
        packed.write(lines.encode())
    data = sink.getvalue().to_pybytes()
    path = tmp_path / f"a.jsonl.{'gz' if codec == 'gzip' else 'zst'}"
    path.write_bytes(data[: len(data) * 9 // 10])
    summary, _ = evaluate(write_suite(tmp_path), [path], tmp_path / "out")
    assert summary.traces > 1000 and summary.errors == 1
    assert read_errors(tmp_path / "out")[0]["row"] == summary.traces + 1
