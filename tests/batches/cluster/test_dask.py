"""The engine `dask`: the same rows as `local`, and a clear error without a scheduler. `test_dask_deaths.py` kills processes."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import proctor
from proctor.batches.run import BatchOptions, open_executor, run_batch
from proctor.errors import InputError, MissingExtra
from proctor.processes import dask_executor
from proctor.processes.dask_executor import DaskExecutor
from tests.batches.batch_world import evaluate, make_trace, read_results, write_lines, write_parquet, write_suite

try:
    import distributed
except ImportError:
    distributed = None

needs_dask = pytest.mark.skipif(distributed is None, reason="the extra dask is not installed")
pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore")]


def sort_rows(output: Path) -> list[dict[str, Any]]:
    return sorted(read_results(output), key=lambda row: (row["file"], row["row"] or 0, row["case"]))


@pytest.fixture
def client() -> Iterator[Any]:
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=2, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as found,
    ):
        yield found


@needs_dask
def test_a_given_client_produces_the_rows_of_local(client: Any, tmp_path: Path) -> None:
    suite = write_suite(tmp_path)
    for number in range(4):
        write_parquet(tmp_path / "data" / f"{number}.parquet", [make_trace(row) for row in range(50)])
    write_lines(tmp_path / "data" / "z.jsonl", [make_trace(row) for row in range(30)] + ["{"])
    evaluate(suite, [tmp_path / "data"], tmp_path / "inline", partition_bytes=1_000)
    options = BatchOptions(places=(str(tmp_path / "data"),), output=tmp_path / "dask", partition_bytes=1_000)
    with open_executor("dask", client=client) as executor:
        summary = run_batch(proctor.load_suite(suite), options, executor)
        assert summary.is_complete and summary.errors == 1
    assert sort_rows(tmp_path / "dask") == sort_rows(tmp_path / "inline")
    again = proctor.batch(suite, tmp_path / "data", output=tmp_path / "dask", engine=client)
    assert again.evaluated == 0 and again.cases == summary.cases
    assert client.status == "running", "the caller closes its client"


@needs_dask
def test_spans_are_gathered_and_decided_on_a_cluster(client: Any, tmp_path: Path) -> None:
    from tests.batches.span_world import SPAN_SUITE, write_requests

    suite = write_suite(tmp_path, text=SPAN_SUITE)
    requests = write_requests("langchain-0-oi")
    for number in range(3):
        write_lines(tmp_path / "data" / f"{number}.jsonl", requests[number::3])
    evaluate(suite, [tmp_path / "data"], tmp_path / "inline", partition_bytes=20_000)
    options = BatchOptions(places=(str(tmp_path / "data"),), output=tmp_path / "dask", partition_bytes=20_000)
    with open_executor("dask", client=client) as executor:
        assert run_batch(proctor.load_suite(suite), options, executor).is_complete
    assert sort_rows(tmp_path / "dask") == sort_rows(tmp_path / "inline")


@needs_dask
def test_a_stopped_worker_reports_the_reason(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(tmp_path / "data" / "a.parquet", [make_trace(1)])
    with pytest.raises(InputError, match=r"has proctor 0\.0\.1; this is"):
        monkeypatch.setattr("proctor.processes.dask_work.__version__", "0.0.1")
        proctor.batch(write_suite(tmp_path), tmp_path / "data", output=tmp_path / "out", engine=client)


@needs_dask
def test_an_unusable_client_is_refused_at_the_start(client: Any, tmp_path: Path) -> None:
    write_parquet(tmp_path / "data" / "a.parquet", [make_trace(1)])
    suite = write_suite(tmp_path)

    def try_engine(engine: object) -> None:
        proctor.batch(suite, tmp_path / "data", output=tmp_path / "out", engine=engine)

    async def try_asynchronous() -> None:
        async with distributed.Client(client.scheduler.address, asynchronous=True) as found:
            try_engine(found)

    with pytest.raises(InputError, match=r"a client of dask\.distributed, found LocalCluster"):
        try_engine(client.cluster)
    with pytest.raises(InputError, match="without asynchronous=True"):
        asyncio.run(try_asynchronous())
    closed = distributed.Client(client.scheduler.address, set_as_default=False)
    closed.close()
    with pytest.raises(InputError, match="that is connected; this one is closed"):
        try_engine(closed)
    assert not (tmp_path / "out").exists()


def test_less_than_one_worker_is_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data" / "a.parquet", [make_trace(1)])
    for workers in (0, -1):
        with pytest.raises(InputError, match=f"workers: expected at least 1, found {workers}"):
            proctor.batch(write_suite(tmp_path), tmp_path / "data", output=tmp_path / "out", workers=workers)


def test_a_missing_extra_is_reported_with_the_install_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    write_parquet(tmp_path / "data" / "a.parquet", [make_trace(1)])
    with pytest.raises(MissingExtra, match=r"proctor-evals\[dask\]"):
        proctor.batch(write_suite(tmp_path), tmp_path / "data", output=tmp_path / "out", engine="dask")


def test_a_scheduler_is_for_dask_and_its_files_belong_together(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="for the engine dask"), open_executor("local", scheduler="tcp://x:1"):
        pass
    write_suite(tmp_path)
    command = [sys.executable, "-m", "proctor", "batch", "suite.yaml", "data", "--output", "out", "--engine", "dask"]
    for flags, message in (
        (["--tls-ca", "ca.pem"], "must be given together"),
        (["--tls-ca", "a", "--tls-cert", "b", "--tls-key", "c"], "no file at 'a'"),
    ):
        done = subprocess.run([*command, *flags], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 4 and message in done.stderr, done.stderr


@needs_dask
def test_an_unreachable_scheduler_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_executor, "CONNECTED_WITHIN_S", 1)
    with (
        pytest.raises(InputError, match=r"no Dask scheduler could be reached at tcp://127\.0\.0\.1:9"),
        DaskExecutor(scheduler="tcp://127.0.0.1:9"),
    ):
        pass


@needs_dask
def test_the_log_of_dask_is_silent_only_while_a_batch_uses_it(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_executor, "CONNECTED_WITHIN_S", 1)
    logger = logging.getLogger("distributed.client")
    level = logger.level
    with DaskExecutor(scheduler=client.scheduler.address):
        assert logger.level == logging.CRITICAL
    assert logger.level == level
    with pytest.raises(InputError, match="no Dask scheduler"), DaskExecutor(scheduler="tcp://127.0.0.1:1"):
        pass
    assert logger.level == level


LOSING_SCHEDULER = """\
import subprocess, sys, time
from proctor.processes.dask_executor import DaskExecutor

command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
scheduler = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
address = next(line.split()[-1] for line in scheduler.stderr if "Scheduler at:" in line)
with DaskExecutor(scheduler=address) as executor:
    client = executor._client
    scheduler.kill()
    while client.status == "running":
        time.sleep(0.05)
    time.sleep(0.3)
"""


@needs_dask
def test_a_client_that_is_closed_while_it_reconnects_logs_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", LOSING_SCHEDULER], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
