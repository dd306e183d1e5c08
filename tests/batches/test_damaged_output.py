"""Damaged batch outputs: missing results are reported and decided again, foreign files are reported."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import proctor
from proctor.batches.compare import compare_batches
from proctor.batches.run import BatchOptions, BatchProgress, open_batch, run_batch
from proctor.errors import InputError
from tests.batches.batch_world import InlineExecutor, evaluate, make_trace, read_errors, read_results, write_lines, write_suite

ROWS = 80


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A batch over forty traces and a broken line, in several partitions."""
    write_lines(tmp_path / "data" / "a.jsonl", [*map(make_trace, range(40)), "{broken"])
    write_suite(tmp_path)
    again(tmp_path)
    return tmp_path


def again(world: Path) -> tuple[proctor.BatchSummary, int]:
    return evaluate(world / "suite.yaml", [world / "data"], world / "out", partition_bytes=1500, resume=True)


def list_results(world: Path) -> list[Path]:
    return sorted((world / "out" / "results").glob("part-*"))


def test_foreign_files_next_to_the_results_are_reported(world: Path) -> None:
    first = list_results(world)[0]
    shutil.copy(first, first.with_name("copy.parquet"))
    shutil.copy(first, first.with_name(f"{first.stem} (1).parquet"))
    (warning,) = open_batch(world / "out").warnings
    assert warning.startswith("the output folder has 2 foreign files (results/copy.parquet)")
    # Another batch deletes files that look like its results and leaves the others.
    (warning,) = again(world)[0].warnings
    assert warning.startswith("the output folder has 1 foreign file") and len(read_results(world / "out")) > ROWS


def test_deleted_errors_are_found_again(world: Path) -> None:
    (error,) = read_errors(world / "out")
    shutil.rmtree(world / "out" / "errors")
    summary = open_batch(world / "out")
    assert not summary.is_complete and summary.committed == summary.partitions - 1
    summary, evaluated = again(world)
    assert (summary.is_complete, evaluated, read_errors(world / "out")) == (True, 1, [error])


def test_a_result_under_another_name_is_ignored(world: Path) -> None:
    first, second, *_ = list_results(world)
    whole = read_results(world / "out")
    shutil.copy(first, second)
    assert not open_batch(world / "out").is_complete
    with pytest.raises(InputError, match="is not finished"):
        compare_batches(str(world / "out"), str(world / "out"))
    assert again(world)[1] == 1 and read_results(world / "out") == whole


def test_a_result_with_damaged_pages_is_not_carried_over(world: Path) -> None:
    first = list_results(world)[0]
    data = bytearray(first.read_bytes())
    data[4:120] = b"\xff" * 116
    first.write_bytes(data)
    write_suite(world, word="done")
    summary, _ = again(world)
    assert summary.is_complete and not summary.failures and len(read_results(world / "out")) == ROWS
    assert summary.cases[0].rate.counts == {"fail": 8, "pass": 32}


def test_stored_progress_stays_unchanged(world: Path) -> None:
    seen: list[BatchProgress] = []
    options = BatchOptions(places=(str(world / "data"),), output=world / "other", partition_bytes=1500)
    run_batch(proctor.load_suite(world / "suite.yaml"), options, InlineExecutor(), seen.append)
    assert [one.done for one in seen] == list(range(len(seen))) and seen[-1].done == seen[-1].partitions > 1


def test_a_comparison_distinguishes_versions(world: Path) -> None:
    shutil.copytree(world / "out", world / "old")
    manifest = world / "old" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(f'"version": "{proctor.__version__}"', '"version": "0.0.1"'))
    found = compare_batches(str(world / "old"), str(world / "out"))
    assert f"decided by proctor 0.0.1 and by {proctor.__version__}, which may decide otherwise" in found.warnings
