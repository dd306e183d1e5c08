"""A batch before and after deciding: planning, resuming, footers and their index, names of slices, locks."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proctor.batches import output_store
from proctor.batches.compare import compare_batches
from proctor.batches.run import open_batch
from proctor.errors import InputError
from proctor.sources.datasets.files import list_files
from proctor.sources.datasets.plan import plan_partitions
from tests.batches.batch_world import evaluate, make_trace, read_errors, write_lines, write_parquet, write_suite
from tests.batches.slow_store import use_slow_store

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore")]
FILES = int(os.environ.get("PROCTOR_BATCH_FILES", "200"))
"""Parquet files that are planned at 20 ms for a request; 10,000 have to take less than a minute."""


def test_a_data_set_is_the_same_by_any_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    suite = write_suite(tmp_path)
    write_parquet(tmp_path / "data" / "a.parquet", [make_trace(number) for number in range(40)])
    write_lines(tmp_path / "data" / "b.jsonl", [make_trace(number) for number in range(40)])
    first, _ = evaluate(suite, ["data"], tmp_path / "out", partition_bytes=1_000)
    assert first.evaluated > 2
    for place in (tmp_path / "data", f"file://{tmp_path}/data", "./data/"):
        again, tasks = evaluate(suite, [place], tmp_path / "out", resume=True)
        assert (tasks, again.evaluated, again.cases) == (0, 0, first.cases)


def test_footers_are_read_at_once_and_summed_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = write_suite(tmp_path)
    write_parquet(tmp_path / "data" / "a.parquet", [make_trace(number) for number in range(600)])
    write_lines(tmp_path / "data" / "b.jsonl", ["{"] * 5)
    store = use_slow_store(monkeypatch, tmp_path, 0.0)
    first, _ = evaluate(suite, [tmp_path / "data"], "s3://out", partition_bytes=1)  # pyright: ignore[reportArgumentType]
    assert first.partitions == 70 and first.errors == 5
    store.requests = 0
    assert open_batch("s3://out") == msgspec.structs.replace(first, evaluated=0)
    assert store.requests < 15, "a stored index, and not a footer for each partition"
    store.requests = 0
    assert compare_batches("s3://out", "s3://out").comparison.newly_failing == ()
    assert store.requests < 25
    # Without the index the footers are read, several at once.
    (tmp_path / "out" / "index.json").unlink()
    store.latency_s, started = 0.02, time.monotonic()
    assert open_batch("s3://out").cases == first.cases
    assert store.requests > 130 and time.monotonic() - started < 0.5 * 0.02 * 130
    # A data set that has grown adds its new footers to the index.
    store.latency_s = 0.0
    evaluate(suite, [tmp_path / "data"], "s3://out", partition_bytes=1)  # pyright: ignore[reportArgumentType]
    write_parquet(tmp_path / "data" / "c.parquet", [make_trace(1)])
    store.requests = 0
    grown, tasks = evaluate(suite, [tmp_path / "data"], "s3://out")  # pyright: ignore[reportArgumentType]
    assert tasks == 1 and grown.traces == 601 and store.requests < 80


def test_a_result_that_changed_is_not_taken_from_the_index(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [make_trace(number) for number in range(40)])
    first, _ = evaluate(write_suite(tmp_path), [tmp_path / "a.parquet"], tmp_path / "out", partition_bytes=1)
    damaged = next((tmp_path / "out" / "results").glob("*.parquet"))
    damaged.write_bytes(b"damaged")
    assert open_batch(tmp_path / "out").committed == first.partitions - 1
    again, tasks = evaluate(write_suite(tmp_path), [tmp_path / "a.parquet"], tmp_path / "out")
    assert (tasks, again.cases) == (1, first.cases)


def test_planning_many_files_takes_as_long_as_a_few_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(tmp_path / "data" / "0.parquet", [make_trace(1)])
    text = (tmp_path / "data" / "0.parquet").read_bytes()
    for number in range(1, FILES):
        (tmp_path / "data" / f"{number}.parquet").write_bytes(text)
    store = use_slow_store(monkeypatch, tmp_path, 0.02)
    started, used = time.monotonic(), time.process_time()
    planned = plan_partitions(list_files(["s3://data"]))
    took, used = time.monotonic() - started, time.process_time() - used
    print(f"{FILES:,} files planned in {took:.1f} s, {used:.1f} s of CPU, {store.requests:,} requests of 20 ms")
    assert len(planned) == FILES and store.requests >= 2 * FILES
    assert took < max(2.0, 60 * FILES / 10_000)


def test_rows_of_a_file_without_the_column_are_counted(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data" / "a.parquet", [make_trace(number) for number in range(10)])
    pq.write_table(pa.table({"other": [1] * 25}), tmp_path / "data" / "b.parquet")
    summary, _ = evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "out", column="record")
    assert (summary.records, summary.traces, summary.errors, summary.unread) == (35, 10, 1, 25)
    assert [row["rows"] for row in read_errors(tmp_path / "out")] == [25]


@pytest.mark.parametrize(("name", "nearest"), [("agnet", "agent"), ("modle", "model"), ("regoin", "region"), ("teir", "tier")])
def test_a_misspelt_slice_fails_at_the_start(name: str, nearest: str, tmp_path: Path) -> None:
    place = tmp_path / "data" / "region=eu"
    write_lines(place / "a.jsonl", [{**make_trace(number), "agent": "shop", "metadata": {"tier": "gold"}} for number in range(5)])
    write_parquet(place / "b.parquet", [make_trace(number) for number in range(5)])
    with pytest.raises(InputError, match=f"--by '{name}'.*nearest: '{nearest}'"):
        evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "out", by=((name,),))
    assert not (tmp_path / "out" / "manifest.json").exists()
    evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "out", by=((nearest,), (f"metadata.{name}",)))


def test_the_lock_of_an_object_store_is_renewed_for_as_long_as_it_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_store, "RENEWED_S", 0.05)
    monkeypatch.setattr(output_store, "STALE_S", 0.6)
    use_slow_store(monkeypatch, tmp_path, 0.0)
    store = output_store.open_output("s3://out")
    with store.lock():
        seen = {store.read(".lock")}
        with pytest.raises(InputError, match="another batch is at work"), output_store.open_output("s3://out").lock():
            pytest.fail("two batches at work in one folder")
        seen.add(store.read(".lock"))
    assert len(seen) == 2 and store.read(".lock") is None
