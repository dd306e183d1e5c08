"""Spans that could not be read: no trace that may lack them is believed to be whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.batches.batch_world import evaluate, read_errors, read_results, write_lines, write_suite
from tests.batches.span_world import read_recording, write_phoenix_row, write_requests, write_span_row
from tests.batches.spans.test_spans import NEGATIVE, RECORDING, read_verdicts, write_table

pytestmark = pytest.mark.timeout(60)
SUITE = f"""{NEGATIVE}\
  - id: fast
    expect: {{responded_within: 3600000}}
  - id: looked-up
    expect: {{tool_called: lookup_order}}
"""


def split_by_trace(rows: list[dict[str, Any]], key: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row[key], []).append(row)
    return found


def list_passed(output: Path, *cases: str) -> set[str]:
    """The traces that passed one of these cases."""
    return {row["trace"] for row in read_results(output) if row["outcome"] == "pass" and row["case"] in cases}


def list_traces(output: Path) -> set[str]:
    return {row["trace"] for row in read_results(output)}


def test_an_unreadable_file_makes_every_trace_incomplete(tmp_path: Path) -> None:
    rows = [write_span_row(span) for span in read_recording(RECORDING)]
    suite = write_suite(tmp_path, text=SUITE)
    write_table(tmp_path / "data" / "a.parquet", rows[:-8])
    # The last ones are in a truncated file.
    cut = write_table(tmp_path / "data" / "b.parquet", rows[-8:])
    whole = cut.read_bytes()
    cut.write_bytes(whole[: len(whole) // 2])
    summary, _ = evaluate(suite, [tmp_path / "data"], tmp_path / "out")
    assert not list_passed(tmp_path / "out", "never", "fast") and list_traces(tmp_path / "out")
    assert list_passed(tmp_path / "out", "looked-up"), "what was seen did happen"
    for row in read_results(tmp_path / "out"):
        reason = row["verdicts"][0]["reason"]
        # A trace that ends in a request for a tool gives that as its reason.
        ends_early = "nothing after it is recorded" in reason
        assert row["case"] != "never" or ends_early or ("b.parquet" in reason and "may hold spans of this trace" in reason)
    (error,) = read_errors(tmp_path / "out")
    assert error["file"].endswith("b.parquet") and error["row"] is None and error["code"] == "unreadable_file"
    assert any("may lack spans" in warning for warning in summary.warnings)
    # The repaired folder is decided again; so is one in which a good file breaks.
    cut.write_bytes(whole)
    repaired, _ = evaluate(suite, [tmp_path / "data"], tmp_path / "out")
    assert list_passed(tmp_path / "out", "never") and not repaired.errors and not repaired.warnings
    cut.write_bytes(whole[:-100])
    evaluate(suite, [tmp_path / "data"], tmp_path / "out")
    assert not list_passed(tmp_path / "out", "never")
    cut.unlink()
    gone, _ = evaluate(suite, [tmp_path / "data"], tmp_path / "out")
    assert list_passed(tmp_path / "out", "never") and not gone.errors, "what is no part of the data set any more is not missing"


def test_a_lost_row_with_a_trace_id_affects_only_that_trace(tmp_path: Path) -> None:
    rows = [write_span_row(span) for span in read_recording(RECORDING)]
    suite = write_suite(tmp_path, text=SUITE)
    places = write_lines(tmp_path / "a.jsonl", rows)
    evaluate(suite, [places], tmp_path / "plain")
    victim = rows[10]["trace_id"]
    assert victim in list_passed(tmp_path / "plain", "never")
    broken = [json.dumps(row) for row in rows]
    broken[10] = broken[10].replace('"span_id": "', '"span_id": ')
    write_lines(tmp_path / "b.jsonl", broken)
    evaluate(suite, [tmp_path / "b.jsonl"], tmp_path / "out")
    assert list_passed(tmp_path / "out", "never") == list_passed(tmp_path / "plain", "never") - {victim}
    reasons = [row["verdicts"][0]["reason"] for row in read_results(tmp_path / "out") if (row["trace"], row["case"]) == (victim, "never")]
    assert len(reasons) == 1 and "b.jsonl, row 11" in reasons[0]
    others = {key: value for key, value in read_verdicts(tmp_path / "plain").items() if key[0] != victim}
    assert {key: value for key, value in read_verdicts(tmp_path / "out").items() if key[0] != victim} == others


BROKEN: dict[str, str] = {
    "a row without a trace": '{"trace_id": null, "span_id": "1", "name": "delete_order"}',
    "a row whose trace is a list": '{"trace_id": [5], "span_id": "1", "name": "delete_order"}',
    "a line that was cut off": '{"trace_id": "',
    "no JSON": "{broken",
    "bytes": "\x00\x00\x00\x00",
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_lost_row_without_a_trace_id_affects_every_trace(what: str, tmp_path: Path) -> None:
    rows = [json.dumps(write_span_row(span)) for span in read_recording(RECORDING)]
    write_lines(tmp_path / "a.jsonl", [*rows[:5], BROKEN[what], *rows[5:]])
    evaluate(write_suite(tmp_path, text=SUITE), [tmp_path / "a.jsonl"], tmp_path / "out")
    assert list_traces(tmp_path / "out") and not list_passed(tmp_path / "out", "never", "fast")
    assert [row["row"] for row in read_errors(tmp_path / "out")] == [6]


def test_a_span_without_a_trace_affects_every_trace(tmp_path: Path) -> None:
    requests = write_requests(RECORDING)
    requests[3]["resourceSpans"][0]["scopeSpans"][0]["spans"].append({"spanId": "1" * 16, "name": "delete_order"})
    write_lines(tmp_path / "a.jsonl", requests)
    evaluate(write_suite(tmp_path, text=SUITE), [tmp_path / "a.jsonl"], tmp_path / "out")
    assert not list_passed(tmp_path / "out", "never")


def test_requests_with_metrics_hold_no_spans_and_lose_none(tmp_path: Path) -> None:
    requests = write_requests(RECORDING)
    metrics = {"resourceMetrics": [{"resource": {}, "scopeMetrics": []}]}
    suite = write_suite(tmp_path, text=SUITE)
    evaluate(suite, [write_lines(tmp_path / "a.jsonl", requests)], tmp_path / "plain")
    write_lines(tmp_path / "b.jsonl", [metrics, *requests[:5], metrics, *requests[5:]])
    summary, _ = evaluate(suite, [tmp_path / "b.jsonl"], tmp_path / "out")
    assert not summary.errors and read_verdicts(tmp_path / "out") == read_verdicts(tmp_path / "plain")


def test_a_file_of_spans_is_recognised_whatever_its_first_line(tmp_path: Path) -> None:
    rows = [json.dumps(write_span_row(span)) for span in read_recording(RECORDING)]
    suite = write_suite(tmp_path, text=SUITE)
    write_lines(tmp_path / "data" / "a.jsonl", rows[:20])
    write_lines(tmp_path / "data" / "b.jsonl", ["", *rows[20:]])
    evaluate(suite, [tmp_path / "data"], tmp_path / "blank")
    evaluate(suite, [write_lines(tmp_path / "c.jsonl", rows)], tmp_path / "plain")
    assert read_verdicts(tmp_path / "blank") == read_verdicts(tmp_path / "plain") and not read_errors(tmp_path / "blank")
    write_lines(tmp_path / "data" / "b.jsonl", ["{broken", *rows[20:]])
    evaluate(suite, [tmp_path / "data"], tmp_path / "out")
    assert list_traces(tmp_path / "out") == list_traces(tmp_path / "plain") and not list_passed(tmp_path / "out", "never")
    # Nothing of it can be read, and the other file has spans.
    write_lines(tmp_path / "data" / "b.jsonl", ["{broken"])
    evaluate(suite, [tmp_path / "data"], tmp_path / "all")
    assert list_traces(tmp_path / "all") and not list_passed(tmp_path / "all", "never")


def _break_column(path: Path, group: int, column: str) -> None:
    """Overwrite the values of one column in one row group."""
    row_group = pq.read_metadata(path).row_group(group)
    names = [row_group.column(number).path_in_schema for number in range(row_group.num_columns)]
    chunk = row_group.column(names.index(column))
    data = bytearray(path.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(("column", "as_bytes"), [("attributes", False), ("attributes", True), ("trace_id", False)])
def test_the_ids_of_an_unreadable_row_group_name_the_affected_traces(column: str, as_bytes: bool, tmp_path: Path) -> None:
    rows = [write_span_row(span) for span in read_recording(RECORDING)]
    suite = write_suite(tmp_path, text=SUITE)
    path = write_table(
        tmp_path / "a.parquet", [{**row, "trace_id": bytes.fromhex(row["trace_id"])} if as_bytes else row for row in rows], group=5
    )
    evaluate(suite, [path], tmp_path / "plain")
    _break_column(path, 2, column)
    evaluate(suite, [path], tmp_path / "out")
    hit = {row["trace_id"] for row in rows[10:15]} if column == "attributes" else {row["trace_id"] for row in rows}
    passed = list_passed(tmp_path / "plain", "never")
    assert hit & passed and list_passed(tmp_path / "out", "never") == passed - hit
    (error,) = read_errors(tmp_path / "out")
    assert (error["code"], error["row"], error["rows"]) == ("unreadable_rows", 11, 5)


@pytest.mark.parametrize("broken", [b"\xff", b'{"gen_ai.'], ids=["no UTF-8", "no JSON"])
def test_unreadable_attribute_bytes_are_unknown(broken: bytes, tmp_path: Path) -> None:
    call = {"type": "tool_call", "id": "c", "name": "delete_order", "arguments": {}}

    def write_chat(part: dict[str, Any]) -> dict[str, Any]:
        return {"operation.name": "chat", "output.messages": json.dumps([{"role": "assistant", "parts": [part]}])}

    answer = {"type": "text", "content": "ok"}
    recorded = [{"operation.name": "invoke_agent"}, write_chat(answer), write_chat(call), write_chat(answer)]
    texts = [json.dumps({f"gen_ai.{key}": value for key, value in one.items()}).encode() for one in recorded]
    columns = {
        "trace_id": pa.array([bytes(range(0x80, 0x90))] * 4, pa.binary(16)),
        "span_id": [f"b7ad6b716920333{number}" for number in range(4)],
        "parent_span_id": [None, *["b7ad6b7169203330"] * 3],
        "name": ["run", "one", "two", "three"],
        "start_time_unix_nano": [10**18 + number for number in range(4)],
        "end_time_unix_nano": [10**18 + 9 - number for number in range(4)],
        "raw": pa.array([b"\xff"] * 4, pa.binary()),  # unread columns may contain anything
    }
    suite = write_suite(tmp_path, text="proctor: 1\ncases: [{id: never, expect: [{tool_not_called: delete_order}]}]\n")
    for name, attributes in (("whole", texts), ("broken", [*texts[:2], broken + texts[2], texts[3]])):
        pq.write_table(pa.table({**columns, "attributes": pa.array(attributes, pa.binary())}), tmp_path / f"{name}.parquet")
        evaluate(suite, [tmp_path / f"{name}.parquet"], tmp_path / name)
    assert [row["outcome"] for row in read_results(tmp_path / "whole")] == ["fail"] and not read_errors(tmp_path / "whole")
    assert [row["outcome"] for row in read_results(tmp_path / "broken")] == ["error"]


def test_non_utf8_text_is_an_error_of_its_row(tmp_path: Path) -> None:
    rows = [write_phoenix_row(span) for span in read_recording(RECORDING)]
    suite = write_suite(tmp_path, text=SUITE)
    names = ["context.trace_id", "context.span_id", "parent_id", "name", "span_kind", "start_time", "end_time"]
    columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name in names}
    texts = [json.dumps({key.removeprefix("attributes."): row[key] for key in row if key.startswith("attributes.")}) for row in rows]
    binary = pa.array([b"\xff\xfe" if number == 10 else text.encode() for number, text in enumerate(texts)], pa.binary())
    columns["attributes"] = binary.view(pa.string())
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=20)
    evaluate(suite, [tmp_path / "a.parquet"], tmp_path / "out")
    (error,) = read_errors(tmp_path / "out")
    assert (error["row"], error["rows"]) == (11, 1)
    victim = rows[10]["context.trace_id"]
    passed = list_passed(tmp_path / "out", "never")
    assert passed and victim not in passed
