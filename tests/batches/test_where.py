"""A batch over some rows of a data set: the same rows from Parquet and JSON lines, each under its own number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proctor.batches.run import open_batch
from proctor.errors import InputError
from proctor.sources.datasets import columns as dataset_columns
from tests.batches.batch_world import (
    evaluate,
    make_trace,
    read_errors,
    read_results,
    render_batch,
    render_batch_html,
    render_batch_markdown,
    write_lines,
    write_suite,
)

pytestmark = pytest.mark.timeout(60)


def write_both(folder: Path, count: int = 30) -> dict[str, Path]:
    """Write the same traces as Parquet with extra columns, and as JSON lines with extra keys."""
    columns = [{"agent": ("shop", "desk")[number % 2], "number": number} for number in range(count)]
    lines = write_lines(folder / "lines" / "a.jsonl", [{**make_trace(number), **more} for number, more in enumerate(columns)])
    table = pa.table(
        {
            "record": [json.dumps(make_trace(number)) for number in range(count)],
            "agent": [more["agent"] for more in columns],
            "number": [more["number"] for more in columns],
        }
    )
    (folder / "table").mkdir()
    pq.write_table(table, folder / "table" / "a.parquet", row_group_size=10)
    return {"lines": lines, "table": folder / "table" / "a.parquet"}


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("agent = 'shop' and number >= 24", [25, 27, 29]),
        ("number in (3, 28)", [4, 29]),
        ("not agent = 'shop' and number < 4", [2, 4]),
        ("number > 100", []),
    ],
)
def test_only_rows_that_fit_are_read_and_keep_their_numbers(where: str, rows: list[int], tmp_path: Path) -> None:
    suite = write_suite(tmp_path)
    for name, place in write_both(tmp_path).items():
        summary, _ = evaluate(suite, [place], tmp_path / f"out-{name}", where=where)
        assert sorted(row["row"] for row in read_results(tmp_path / f"out-{name}") if row["case"] == "short") == rows
        assert (summary.traces, summary.records, summary.where) == (len(rows), len(rows), where)
        assert [row["trace"] for row in read_results(tmp_path / f"out-{name}") if row["case"] == "short"] == [f"t{row - 1}" for row in rows]


def test_records_of_row_groups_that_do_not_fit_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = write_both(tmp_path)["table"]
    from proctor.sources.datasets import cells as dataset_cells

    seen: list[int] = []

    def count(batch: Any, columns: Any) -> Any:
        seen.append(batch.num_rows)
        return dataset_columns.make_cells(batch, columns)

    monkeypatch.setattr(dataset_cells, "make_cells", count)
    evaluate(write_suite(tmp_path), [place], tmp_path / "out", where="number >= 20")
    assert seen == [10]


def test_folders_are_ruled_out_before_anything_is_planned(tmp_path: Path) -> None:
    for day in (1, 2, 3):
        write_lines(tmp_path / "data" / f"day=2026-10-0{day}" / "a.jsonl", [make_trace(day)])
    suite = write_suite(tmp_path)
    summary, tasks = evaluate(suite, [tmp_path / "data"], tmp_path / "out", where="day >= '2026-10-02'")
    assert (tasks, summary.partitions, summary.traces) == (2, 2, 2)
    with pytest.raises(InputError, match=r"the folders \(day\) of all 3 files rule them out"):
        evaluate(suite, [tmp_path / "data"], tmp_path / "none", where="day > '2027'")


def test_a_line_that_is_no_json_is_an_error_for_any_condition(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{**make_trace(1), "agent": "shop"}, "{", make_trace(2), "[1]"])
    summary, _ = evaluate(write_suite(tmp_path), [tmp_path / "a.jsonl"], tmp_path / "out", where="agent = 'shop'")
    assert summary.traces == 1 and [row["row"] for row in read_errors(tmp_path / "out")] == [2]


def test_an_unknown_column_is_reported_with_the_nearest(tmp_path: Path) -> None:
    place = write_both(tmp_path)["table"]
    with pytest.raises(InputError, match="no column 'agnt'; nearest: 'agent'; it has record, agent, number"):
        evaluate(write_suite(tmp_path), [place], tmp_path / "out", where="agnt = 'shop'")
    with pytest.raises(InputError, match="int64, which cannot be compared with the text"):
        evaluate(write_suite(tmp_path), [place], tmp_path / "out2", where="number = 'seven'")
    with pytest.raises(InputError, match="--where, character 9"):
        evaluate(write_suite(tmp_path), [place], tmp_path / "out3", where="agent = shop")


def test_one_file_without_the_column_is_a_row_of_errors(tmp_path: Path) -> None:
    place = write_both(tmp_path)["table"]
    pq.write_table(pa.table({"record": [json.dumps(make_trace(1))]}), place.with_name("b.parquet"))
    summary, _ = evaluate(write_suite(tmp_path), [place.parent], tmp_path / "out", where="agent = 'shop'")
    (error,) = read_errors(tmp_path / "out")
    assert summary.traces == 15 and "no column 'agent'" in error["reason"] and error["file"].endswith("b.parquet")


def write_mixed(folder: Path) -> None:
    write_lines(folder / "data" / "a.jsonl", [make_trace(number, agent="shop", user={"tier": "gold"}) for number in range(20)])
    write_lines(folder / "data" / "b.jsonl", [make_trace(number, agent="desk") for number in range(20)])


@pytest.mark.parametrize(
    ("where", "warnings"),
    [
        ("agnt = 'shop'", ["--where asks for 'agnt', which none of 40 lines has"]),
        ("agent = 'shop' or user.tyer = 'gold'", ["--where asks for 'user.tyer', which none of 40 lines has"]),
        ("zzz is null", ["--where asks for 'zzz', which none of 40 lines has"]),
        # In some lines, or null there, is there.
        ("agent = 'shop' and user.tier = 'gold'", []),
    ],
)
def test_an_unknown_key_is_reported(where: str, warnings: list[str], tmp_path: Path) -> None:
    write_mixed(tmp_path)
    summary, _ = evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "out", where=where, partition_bytes=500)
    assert summary.partitions > 2 and len(summary.warnings) == len(warnings)
    for warning, expected in zip(summary.warnings, warnings, strict=True):
        assert warning.startswith(expected)
    for report in (render_batch(summary), render_batch_markdown(summary), render_batch_html(summary)):
        assert ("which none of 40 lines has" in report) is bool(warnings)
    assert open_batch(tmp_path / "out").warnings == summary.warnings


def test_keys_of_folders_and_columns_of_parquet_are_no_unknown_names(tmp_path: Path) -> None:
    write_lines(tmp_path / "data" / "day=1" / "a.jsonl", [make_trace(number) for number in range(5)])
    summary, _ = evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "out", where="day = '1'")
    assert summary.warnings == () and summary.traces == 5
