"""Small files that are merged into partitions: the same results, each with its own file and row."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from proctor import load_suite
from proctor.batches import plan as plan_module
from proctor.batches.compare import compare_batches
from proctor.batches.judging import JudgeBounds
from proctor.batches.plan import BatchOptions
from proctor.batches.run import open_batch, run_batch
from proctor.judge.scripted import ScriptedJudge
from proctor.sources.datasets import plan as dataset_plan
from proctor.sources.datasets.files import list_files
from proctor.sources.datasets.plan import MOST_FILES, PARTITION_BYTES, Partition, merge_small_files, plan_partitions
from tests.batches import test_judging
from tests.batches.batch_world import (
    InlineExecutor,
    evaluate,
    make_trace,
    read_errors,
    read_results,
    write_lines,
    write_parquet,
    write_suite,
)
from tests.batches.span_world import SPAN_SUITE, write_requests
from tests.integration.running import proctor

pytestmark = pytest.mark.timeout(120)
FILES = 60
BROKEN = (3, 40)
"""A file that is no Parquet, and one with a line that is no JSON."""


def write_files(folder: Path, files: int = FILES) -> Path:
    """Files with three traces each, of three kinds, in folders of two days; two of them are broken."""
    for number in range(files):
        place = folder / "data" / f"day=2026-10-0{1 + number % 2}" / f"{number:04}"
        records: list[Any] = [make_trace(3 * number + each, metadata={"tier": f"t{number % 3}"}) for each in range(3)]
        if number == BROKEN[1]:
            records[1] = "{"
        if number % 3 == 0:
            write_parquet(place.with_suffix(".parquet"), records)
        else:
            write_lines(place.with_suffix(".jsonl"), records)
        if number % 3 == 2:
            place.with_suffix(".jsonl.gz").write_bytes(gzip.compress(place.with_suffix(".jsonl").read_bytes()))
            place.with_suffix(".jsonl").unlink()
    (folder / "data" / f"day=2026-10-0{1 + BROKEN[0] % 2}" / f"{BROKEN[0]:04}.parquet").write_bytes(b"no Parquet")
    return folder / "data"


@pytest.fixture(autouse=True)
def few_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_plan, "_WANTED", 6)


def leave_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan as before, with a partition for each file."""
    monkeypatch.setattr(plan_module, "merge_small_files", lambda planned, *_: list(planned))


def sort_rows(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)


@pytest.mark.parametrize(
    ("files", "size", "count"), [(10_000, 20_000, 200), (10_000, 2_000_000, 304), (200, 10, 34), (60, 10, 60), (1, 10, 1)]
)
def test_partitions_are_bounded_by_bytes_and_by_files(
    files: int, size: int, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_plan, "_WANTED", 32)
    (file,) = list_files([str(write_lines(tmp_path / "a.jsonl", [make_trace(1)]))])
    planned = [
        Partition(id=f"{number:06}", file=msgspec.structs.replace(file, path=f"/{number}", size=size), end=size) for number in range(files)
    ]
    size_of_partition = dataset_plan.choose_partition_bytes([part.file for part in planned])
    merged = merge_small_files(planned, size_of_partition)
    assert [part for one in merged for part in one.list_parts()] == planned and len({one.id for one in merged}) == len(merged)
    assert all(len(one.list_parts()) <= MOST_FILES and one.file.size <= PARTITION_BYTES for one in merged)
    assert len(merged) == count and merge_small_files(planned, size_of_partition) == merged


@pytest.mark.parametrize("where", [None, "day = '2026-10-01' and tool_calls is not null", "nothing_like_it = 1"])
def test_results_are_those_of_single_files(where: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, suite = write_files(tmp_path), write_suite(tmp_path)
    options: dict[str, Any] = {"by": (("tier",), ("day", "tier")), "carry": ("tier",)}
    if where is not None:
        # Columns of the record are no columns of Parquet.
        options["where"], data = where, f"{data}/*/*.jsonl*"
    merged, tasks = evaluate(suite, [data], tmp_path / "merged", **options)
    with monkeypatch.context() as patched:
        leave_apart(patched)
        apart, single = evaluate(suite, [data], tmp_path / "apart", **options)
    assert tasks <= single / 2
    for name in ("records", "traces", "errors", "unread", "left_out", "cases", "days", "slices", "faults", "amounts", "warnings"):
        assert getattr(merged, name) == getattr(apart, name), name
    assert sort_rows(read_results(tmp_path / "merged")) == sort_rows(read_results(tmp_path / "apart"))
    assert sort_rows(read_errors(tmp_path / "merged")) == sort_rows(read_errors(tmp_path / "apart"))
    comparison = compare_batches(str(tmp_path / "apart"), str(tmp_path / "merged"))
    assert not comparison.comparison.newly_failing


def test_a_bad_file_is_named_and_the_others_are_decided(tmp_path: Path) -> None:
    summary, tasks = evaluate(write_suite(tmp_path), [write_files(tmp_path)], tmp_path / "out")
    assert summary.is_complete and tasks < FILES / 3 and summary.traces == 3 * FILES - 4
    errors = {(Path(error["file"]).name, error["row"], error["code"]) for error in read_errors(tmp_path / "out")}
    assert errors == {("0003.parquet", None, "unreadable_file"), ("0040.jsonl", 2, "unreadable_evidence")}
    places = {(Path(row["file"]).name.partition(".")[0], row["row"]) for row in read_results(tmp_path / "out")}
    assert places == {
        (f"{number:04}", row) for number in range(FILES) for row in (1, 2, 3) if number != BROKEN[0] and (number, row) != (BROKEN[1], 2)
    }


def test_a_file_that_cannot_be_opened_does_not_lose_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(FILES):
        write_lines(tmp_path / "data" / f"{number:04}.jsonl", [make_trace(number)])
    open_file = dataset_plan.open_file

    def refuse(root: str, path: str) -> Any:
        if path.endswith("0007.jsonl"):
            raise PermissionError(13, "Permission denied", path)
        return open_file(root, path)

    monkeypatch.setattr(dataset_plan, "open_file", refuse)
    monkeypatch.setattr("proctor.sources.datasets.cells.open_file", refuse)
    summary, _ = evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "out")
    (error,) = read_errors(tmp_path / "out")
    assert summary.traces == FILES - 1 and error["file"].endswith("0007.jsonl") and "Permission denied" in error["reason"]


def test_only_partitions_with_changed_files_are_decided_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data, suite = write_files(tmp_path), write_suite(tmp_path)
    first, tasks = evaluate(suite, [data], tmp_path / "out")
    for place in ("data", str(data)):
        assert evaluate(suite, [place], tmp_path / "out", resume=True)[1] == 0
    assert open_batch(tmp_path / "out").cases == first.cases
    # New files, in the middle as well, join no earlier partition.
    for number in range(20):
        write_lines(data / "day=2026-10-01" / f"{number:04}-more.jsonl", [make_trace(number)])
    grown, more = evaluate(suite, [data], tmp_path / "out")
    assert more <= 20 // (FILES // 6) + 1 and grown.traces == first.traces + 20 and grown.partitions == tasks + more
    # A changed file is decided again, with the others of its partition.
    write_lines(data / "day=2026-10-01" / "0004.jsonl", [make_trace(1)])
    changed, again = evaluate(suite, [data], tmp_path / "out")
    assert again <= 2 and changed.traces == grown.traces - 2
    (data / "day=2026-10-01" / "0004.jsonl").unlink()
    assert evaluate(suite, [data], tmp_path / "out")[0].traces == changed.traces - 1
    rows = [(row["file"], row["row"], row["case"]) for row in read_results(tmp_path / "out")]
    assert len(set(rows)) == len(rows)


def test_a_batch_with_a_partition_per_file_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, suite = write_files(tmp_path), write_suite(tmp_path)
    with monkeypatch.context() as patched:
        leave_apart(patched)
        first, _ = evaluate(suite, [data], tmp_path / "out")
    again, tasks = evaluate(suite, [data], tmp_path / "out")
    assert (tasks, again.partitions, again.cases) == (0, FILES, first.cases)


def test_a_file_that_changes_after_the_plan_is_left_for_the_next_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, suite = write_files(tmp_path), write_suite(tmp_path)
    changed = data / "day=2026-10-01" / "0004.jsonl"

    def merge_and_change(*arguments: Any) -> Any:
        found = merge_small_files(*arguments)
        write_lines(changed, [make_trace(1)])
        return found

    with monkeypatch.context() as patched:
        patched.setattr(plan_module, "merge_small_files", merge_and_change)
        summary, _ = evaluate(suite, [data], tmp_path / "out")
    (failure,) = summary.failures
    assert failure.startswith(f"{changed}: it has changed") and summary.committed == summary.partitions - 1
    summary, tasks = evaluate(suite, [data], tmp_path / "out", resume=True)
    assert summary.is_complete and tasks <= 2 and summary.traces == 3 * FILES - 6


def test_a_changed_case_is_decided_alone(tmp_path: Path) -> None:
    data = write_files(tmp_path)
    evaluate(write_suite(tmp_path), [data], tmp_path / "out")
    evaluate(write_suite(tmp_path, word="nowhere"), [data], tmp_path / "out")
    evaluate(write_suite(tmp_path, word="nowhere"), [data], tmp_path / "fresh")
    assert read_results(tmp_path / "out") == read_results(tmp_path / "fresh")


def test_a_limit_and_a_sample_are_those_of_single_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, suite = write_files(tmp_path), write_suite(tmp_path)
    wanted: list[dict[str, Any]] = [{"limit": 250}, {"sample": 0.3}]
    found: list[list[list[str]]] = []
    for patch in (lambda _: None, leave_apart):
        with monkeypatch.context() as patched:
            patch(patched)
            for number, options in enumerate(wanted):
                evaluate(suite, [data], tmp_path / f"{len(found)}-{number}", **options)
        found.append([sort_rows(read_results(tmp_path / f"{len(found)}-{number}")) for number in range(2)])
    assert found[0] == found[1] and found[0][0] and found[0][1]


def test_judged_traces_are_found_in_their_files(tmp_path: Path) -> None:
    for number in range(FILES):
        write: Callable[..., Path] = write_lines if number % 2 else write_parquet
        write(tmp_path / "data" / f"{number:04}{'.jsonl' if number % 2 else '.parquet'}", [make_trace(number)])
    options = BatchOptions(places=(str(tmp_path / "data"),), output=tmp_path / "out", judging=JudgeBounds(sample=60))
    suite = load_suite(write_suite(tmp_path, text=test_judging.SUITE))
    summary = run_batch(suite, options, InlineExecutor(), open_judge=lambda memory: ScriptedJudge(test_judging.say))
    judged = [row for file in (tmp_path / "out" / "judged").glob("*.parquet") for row in pq.ParquetFile(file).read().to_pylist()]
    assert summary.is_complete and summary.partitions < FILES / 2 and len(judged) == 60
    for row in judged:
        assert Path(row["file"]).stem == f"{int(row['trace'][1:]):04}" and row["row"] == 1


def test_spans_of_small_files_are_gathered_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = write_requests("langchain-0-oi")
    for number in range(FILES):
        text = json.dumps(requests[number % len(requests)]).replace('"traceId": "', f'"traceId": "{number // len(requests):02}')
        write_lines(tmp_path / "data" / f"{number:04}.jsonl", [text])
    write_lines(tmp_path / "data" / "0005-broken.jsonl", ["{"])
    suite = write_suite(tmp_path, text=SPAN_SUITE)
    merged, tasks = evaluate(suite, [tmp_path / "data"], tmp_path / "merged")
    with monkeypatch.context() as patched:
        leave_apart(patched)
        apart, single = evaluate(suite, [tmp_path / "data"], tmp_path / "apart")
    assert tasks < single / 2 and merged.cases == apart.cases and merged.traces == apart.traces > 1
    assert sort_rows(read_results(tmp_path / "merged")) == sort_rows(read_results(tmp_path / "apart"))
    assert sort_rows(read_errors(tmp_path / "merged")) == sort_rows(read_errors(tmp_path / "apart"))
    assert evaluate(suite, [tmp_path / "data"], tmp_path / "merged", resume=True)[1] == 0


def test_a_dry_run_counts_merged_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_suite(tmp_path)
    write_files(tmp_path)
    done = proctor("batch", "suite.yaml", "data", "--output", "out", "--dry-run", "-j", "2")
    assert done.code == 0 and f"{FILES} files" in done.out and f"merged from {FILES} small files" in done.out


def test_a_large_file_is_not_merged(tmp_path: Path) -> None:
    for number in range(100):
        write_lines(tmp_path / f"{number:04}.jsonl", [make_trace(1)] * (200 if number == 50 else 1))
    merged = merge_small_files(planned := plan_partitions(list_files([str(tmp_path)]), partition_bytes=10_000), 10_000)
    large = [part for part in merged if part.file.name.endswith("0050.jsonl")]
    assert len(large) > 1 and not any(part.parts for part in large)
    assert {part for one in merged for part in one.list_parts()} == set(planned)
