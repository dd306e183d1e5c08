"""Every row of a data set is in the figures: decided, in `errors`, or left out by `--where`; none goes without a word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.batches.batch_world import (
    evaluate,
    make_trace,
    read_errors,
    read_results,
    render_batch,
    render_batch_html,
    render_batch_markdown,
    write_lines,
    write_parquet,
    write_suite,
)

TRACE = json.dumps(make_trace(1))
EMPTY_LIST = "it holds no run of an agent: a list, or a page, without entries"


def test_a_row_without_a_record_is_an_error(tmp_path: Path) -> None:
    data = write_parquet(tmp_path / "a.parquet", [TRACE, "", "  ", None, "[]", TRACE])
    summary, _ = evaluate(write_suite(tmp_path), [data], tmp_path / "out")
    assert (summary.records, summary.traces, summary.errors, summary.has_passed) == (6, 2, 4, False)
    assert [(row["row"], row["code"], row["reason"]) for row in read_errors(tmp_path / "out")] == [
        (2, "empty_record", "the row has no record: its column is empty"),
        (3, "empty_record", "the row has no record: its column is empty"),
        (4, "empty_record", "the row has no record: its column is null"),
        (5, "empty_record", EMPTY_LIST),
    ]


def test_a_blank_line_is_ignored_and_an_empty_list_is_an_error(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "a.jsonl", [TRACE, "", "  ", "[]", '{"data": []}'])
    summary, _ = evaluate(write_suite(tmp_path), [data], tmp_path / "out")
    assert (summary.records, summary.traces, summary.errors) == (3, 1, 2)
    assert read_errors(tmp_path / "out")[0]["reason"] == EMPTY_LIST


WHERE = [
    ("tier = 'gold'", 3, 4),
    ("tier = 'gold' and day = '1'", 2, 2),
    ("tier is null", 1, 6),
    ("tier = 'nobody'", 0, 7),
]


@pytest.mark.parametrize("kind", ["parquet", "lines"])
@pytest.mark.parametrize(("where", "read", "left_out"), WHERE)
def test_rows_left_out_by_a_condition_are_counted(where: str, read: int, left_out: int, kind: str, tmp_path: Path) -> None:
    tiers = {"1": ["gold", "free", "gold", None], "2": ["free", "gold", "free"]}
    for day, values in tiers.items():
        folder = tmp_path / "data" / f"day={day}"
        folder.mkdir(parents=True)
        if kind == "parquet":
            pq.write_table(pa.table({"record": [TRACE] * len(values), "tier": values}), folder / "a.parquet", row_group_size=2)
        else:
            write_lines(folder / "a.jsonl", [*({**json.loads(TRACE), **({"tier": tier} if tier else {})} for tier in values), ""])
    summary, _ = evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "out", where=where, by=(("tier",),))
    ruled_out = 1 if "day" in where else 0
    assert (summary.records, summary.left_out, summary.files_ruled_out) == (read, left_out, ruled_out)
    assert summary.records + summary.left_out == (4 if ruled_out else 7)


def test_every_report_counts_rows_left_out_by_a_condition(tmp_path: Path) -> None:
    for day in (1, 2):
        write_lines(tmp_path / "data" / f"day={day}" / "a.jsonl", [{**make_trace(1), "tier": tier} for tier in ("gold", "free", "free")])
    summary, _ = evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "out", where="tier = 'gold' and day = '2'")
    assert "where tier = 'gold' and day = '2': 2 rows and 1 file left out" in render_batch(summary)
    assert "where `tier = 'gold' and day = '2'`: 2 rows and 1 file left out" in render_batch_markdown(summary)
    assert "</code>: 2 rows and 1 file left out" in render_batch_html(summary)


def test_rows_that_are_lost_together_are_counted_one_by_one(tmp_path: Path) -> None:
    data = write_parquet(tmp_path / "a.parquet", [{**make_trace(number), "text": f"{number:064}"} for number in range(300)], group=100)
    torn = bytearray(data.read_bytes())
    group = pq.read_metadata(data).row_group(1).column(0)
    torn[group.dictionary_page_offset + 40 : group.dictionary_page_offset + 140] = b"\xff" * 100
    data.write_bytes(torn)
    summary, _ = evaluate(write_suite(tmp_path), [data], tmp_path / "out")
    assert (summary.errors, summary.unread, summary.records, summary.traces) == (1, 100, 300, 200)
    assert "100 records not read or decided" in render_batch(summary)
    assert "### 100 records not read or decided" in render_batch_markdown(summary)
    assert "100 records not read or decided" in render_batch_html(summary)


def test_one_fault_is_one_time(tmp_path: Path) -> None:
    summary, _ = evaluate(write_suite(tmp_path), [write_lines(tmp_path / "a.jsonl", [TRACE, "{"])], tmp_path / "out")
    assert "  1 time\n      not JSON" in render_batch(summary) and "- **1 time**\n  not JSON" in render_batch_markdown(summary)


def _count_rows(output: Path) -> int:
    decided = {(row["file"], row["row"], row["offset"]) for row in read_results(output)}
    return len(decided) + sum(row["rows"] for row in read_errors(output))


def test_rows_in_are_rows_out(tmp_path: Path) -> None:
    odd: list[Any] = [TRACE, "", "null", "[]", "{}", "3", '"x"', '{"foo": 1}', "{bad", f"[{TRACE}, {TRACE}]", None, '{"tool_calls": 7}']
    data = write_parquet(tmp_path / "a.parquet", odd, group=5)
    summary, _ = evaluate(write_suite(tmp_path), [data], tmp_path / "out")
    assert summary.records == len(odd) == _count_rows(tmp_path / "out")


def test_cases_without_traces_are_reported(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "a.jsonl", [make_trace(1, case="refund")])
    summary, _ = evaluate(write_suite(tmp_path), [data], tmp_path / "out")
    assert summary.warnings == ("none of 1 trace answers 1 case (short): their result is unknown",)
