"""`--where` and `--by` with values of another type: reported instead of silently reading less."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proctor.errors import InputError
from tests.batches.batch_world import evaluate, make_trace, write_lines, write_parquet, write_suite

TRACE = json.dumps(make_trace(1))
LINES = [
    ("tokens = '3'", 1, ["'tokens' with the text '3', and 5 of 8 lines"]),
    ("tokens >= 3", 5, []),
    ("flag = 'true' or tokens >= 3", 5, ["'flag' with the text 'true', and 5 of 8 lines"]),
    ("flag = true", 5, []),
    ("tier is null", 8, ["'tier'"]),
]


@pytest.mark.parametrize(("where", "traces", "messages"), LINES)
def test_values_of_another_type_are_reported(where: str, traces: int, messages: list[str], tmp_path: Path) -> None:
    numbers = [{**make_trace(1), "tokens": number, "flag": True} for number in range(5)]
    texts = [{**make_trace(1), "tokens": str(number)} for number in range(3, 6)]
    data = write_lines(tmp_path / "a.jsonl", [*numbers, *texts])
    summary, _ = evaluate(write_suite(tmp_path), [data], tmp_path / "out", where=where, partition_bytes=500)
    assert summary.traces == traces and len(summary.warnings) == len(messages)
    assert all(part in warning for part, warning in zip(messages, summary.warnings, strict=True)), summary.warnings


COLUMNS = [
    ("price = 2", 1),
    ("price > 1.5", 2),
    ("price in (1, 2.50)", 2),
    ("at >= '09:30:00'", 2),
    ("small > 300", 0),
    ("small > -300", 3),
]


@pytest.mark.parametrize(("where", "traces"), COLUMNS)
def test_columns_of_every_type_are_compared(where: str, traces: int, tmp_path: Path) -> None:
    columns = {
        "record": [TRACE] * 3,
        "price": pa.array([Decimal("1"), Decimal("2"), Decimal("2.5")], pa.decimal128(10, 2)),
        "at": pa.array([9 * 3600, 10 * 3600, 11 * 3600], pa.time32("s")),
        "small": pa.array([1, 2, 3], pa.int8()),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    summary, _ = evaluate(write_suite(tmp_path), [tmp_path / "a.parquet"], tmp_path / "out", where=where)
    assert (summary.traces, summary.left_out, summary.failures) == (traces, 3 - traces, ())


FOLDERS = [("day is null", 2, 3), ("day is not null", 3, 0), ("day >= '2026-10-01'", 3, 2), ("not day = '2026-10-05'", 3, 2)]


@pytest.mark.parametrize(("where", "traces", "_left_out"), FOLDERS)
def test_a_folder_without_a_value_is_null(where: str, traces: int, _left_out: int, tmp_path: Path) -> None:
    write_parquet(tmp_path / "data" / "day=2026-10-01" / "a.parquet", [TRACE] * 3)
    write_parquet(tmp_path / "data" / "day=__HIVE_DEFAULT_PARTITION__" / "a.parquet", [TRACE] * 2)
    summary, _ = evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "out", where=where, by=(("day",),))
    assert (summary.traces, summary.errors) == (traces, 0)
    assert [one.values for one in summary.slices[0].slices] == [(None,) if where == "day is null" else ("2026-10-01",)]


def test_folders_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "day=2026-10-01" / "a.parquet", [TRACE])
    with pytest.raises(InputError, match="the folders have day=2026-10-01, which cannot be compared with the number 20261001"):
        evaluate(write_suite(tmp_path), [tmp_path / "day=2026-10-01"], tmp_path / "out", where="day >= 20261001")


def test_slices_by_an_unknown_value_are_reported(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "a.jsonl", [{**make_trace(1), "tier": "gold"}] * 3)
    summary, _ = evaluate(write_suite(tmp_path), [data], tmp_path / "out", by=(("plan",), ("tier", "plan"), ("tier",)))
    expected = "expected a column, a key of the folders or of the metadata, day, model or case"
    assert summary.warnings == (f"--by 'plan': none of 3 traces has it; {expected}",)
