"""Parts of a data set, estimates, columns that are carried into the results, and the bound of a gate."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import proctor as library
from proctor.batches.run import BatchOptions, run_batch
from proctor.decide.selection import select_ids
from proctor.errors import InputError
from tests.batches.batch_world import InlineExecutor, evaluate, make_trace, read_results, write_lines, write_parquet, write_suite
from tests.integration.running import proctor

pytestmark = pytest.mark.timeout(120)


def write_data(folder: Path) -> Path:
    write_parquet(folder / "data" / "a.parquet", [make_trace(number) for number in range(100)], group=30)
    write_lines(folder / "data" / "b.jsonl", [make_trace(number) for number in range(100, 150)])
    return folder / "data"


@pytest.mark.parametrize("limit", [1, 30, 99, 100, 101, 149, 150, 1_000])
def test_a_limit_takes_the_first_records(limit: int, tmp_path: Path) -> None:
    summary, _ = evaluate(write_suite(tmp_path), [write_data(tmp_path)], tmp_path / "out", limit=limit, partition_bytes=4_000)
    assert summary.traces == min(limit, 150)
    assert {row["trace"] for row in read_results(tmp_path / "out")} == {f"t{number}" for number in range(min(limit, 150))}


def test_a_sample_is_the_same_for_any_split_and_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = write_data(tmp_path)
    found: list[set[str]] = []
    for number, (place, size) in enumerate(((data, None), ("data", 500))):
        summary, _ = evaluate(write_suite(tmp_path), [place], tmp_path / f"out{number}", sample=0.3, partition_bytes=size)
        assert (summary.records + summary.left_out, summary.records) == (150, summary.traces)
        found.append({row["trace"] for row in read_results(tmp_path / f"out{number}")})
    assert found[0] == found[1] and 20 < len(found[0]) < 70


def test_only_whole_suites_with_cases_are_evaluated(tmp_path: Path) -> None:
    suite = library.load_suite(write_suite(tmp_path))
    options = BatchOptions(places=(str(tmp_path / "data"),), output=tmp_path / "out")
    for wrong, message in (
        (msgspec.structs.replace(suite, cases=()), "the suite has no cases"),
        (select_ids(suite, {"refund"}), "a whole suite, not a selection"),
    ):
        with pytest.raises(InputError, match=message):
            run_batch(wrong, options, InlineExecutor())
    assert not (tmp_path / "out").exists()


def test_columns_are_carried_into_the_results(tmp_path: Path) -> None:
    records = [make_trace(number, metadata={"tier": f"t{number % 2}"}) for number in range(6)]
    place = tmp_path / "data" / "region=eu"
    place.mkdir(parents=True)
    pq.write_table(pa.table({"record": [json.dumps(record) for record in records], "user": list(range(6))}), place / "a.parquet")
    options: dict[str, Any] = {"carry": ("user", "tier", "region", "nothing")}
    evaluate(write_suite(tmp_path), [place], tmp_path / "out", **options)
    rows = read_results(tmp_path / "out")
    assert [(row["user"], row["tier"], row["region"], row["nothing"]) for row in rows[:4:2]] == [
        ("0", "t0", "eu", None),
        ("1", "t1", "eu", None),
    ]
    # A changed case is decided alone, and the columns are there for all.
    evaluate(write_suite(tmp_path, word="nowhere"), [place], tmp_path / "out", **options)
    assert {row["user"] for row in read_results(tmp_path / "out") if row["case"] == "short"} == set("012345")
    with pytest.raises(InputError, match="--carry 'case'"):
        evaluate(write_suite(tmp_path), [place], tmp_path / "other", carry=("case",))


def test_a_dry_run_estimates_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_suite(tmp_path)
    write_data(tmp_path)
    done = proctor("batch", "suite.yaml", "data", "--output", "out", "--dry-run", "-j", "2")
    assert done.code == 0 and "2 files" in done.out and "about 150 records" in done.out and not (tmp_path / "out").exists()


@pytest.mark.parametrize(("share", "code"), [("0.8", 0), ("0.81", 1)])
def test_a_gate_has_a_bound(share: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_suite(tmp_path)
    write_lines(tmp_path / "a.jsonl", [make_trace(number) for number in range(50)])
    assert proctor("batch", "suite.yaml", "a.jsonl", "--output", f"out-{share}", "--fail-under", share, "-j", "1").code == code
    write_lines(tmp_path / "b.jsonl", [make_trace(1), "{"])
    assert proctor("batch", "suite.yaml", "b.jsonl", "--output", f"bad-{share}", "--fail-under", "0", "-j", "1").code == 1


def test_a_notebook_shows_the_cases_and_pandas_reads_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary, _ = evaluate(write_suite(tmp_path), [write_data(tmp_path)], tmp_path / "out")
    shown = summary._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert "refund" in shown and "120 of 150" in shown and isinstance(summary, library.BatchSummary)
    reads: list[Any] = []
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(read_parquet=lambda path, columns: reads.append((path, columns))))
    summary.to_pandas(["trace"])
    assert reads == [(f"{tmp_path}/out/results", ["trace"])]
