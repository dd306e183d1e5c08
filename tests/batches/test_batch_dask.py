"""The engine `dask`: the same rows as `local`, and a clear word where workers or the scheduler are gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import proctor
from proctor.batches.run import BatchOptions, EngineOptions, open_executor, run_batch
from proctor.errors import InputError, MissingExtra
from proctor.processes import dask_executor
from proctor.processes.dask_executor import DaskExecutor, TlsFiles
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
def test_a_client_that_is_handed_over_gives_the_rows_of_local(client: Any, tmp_path: Path) -> None:
    suite = write_suite(tmp_path)
    for number in range(4):
        write_parquet(tmp_path / "data" / f"{number}.parquet", [make_trace(row) for row in range(50)])
    write_lines(tmp_path / "data" / "z.jsonl", [make_trace(row) for row in range(30)] + ["{"])
    evaluate(suite, [tmp_path / "data"], tmp_path / "inline", partition_bytes=1_000)
    options = BatchOptions(places=(str(tmp_path / "data"),), output=tmp_path / "dask", partition_bytes=1_000)
    with open_executor("dask", EngineOptions(client=client)) as executor:
        summary = run_batch(proctor.load_suite(suite), options, executor)
        assert summary.is_complete and summary.errors == 1
    assert sort_rows(tmp_path / "dask") == sort_rows(tmp_path / "inline")
    again = proctor.batch(suite, tmp_path / "data", output=tmp_path / "dask", engine=client)
    assert again.evaluated == 0 and again.cases == summary.cases
    assert client.status == "running", "whoever hands a client over closes it"


@needs_dask
def test_spans_are_gathered_and_decided_on_a_cluster(client: Any, tmp_path: Path) -> None:
    from tests.batches.span_world import SPAN_SUITE, write_requests

    suite = write_suite(tmp_path, text=SPAN_SUITE)
    requests = write_requests("langchain-0-oi")
    for number in range(3):
        write_lines(tmp_path / "data" / f"{number}.jsonl", requests[number::3])
    evaluate(suite, [tmp_path / "data"], tmp_path / "inline", partition_bytes=20_000)
    options = BatchOptions(places=(str(tmp_path / "data"),), output=tmp_path / "dask", partition_bytes=20_000)
    with open_executor("dask", EngineOptions(client=client)) as executor:
        assert run_batch(proctor.load_suite(suite), options, executor).is_complete
    assert sort_rows(tmp_path / "dask") == sort_rows(tmp_path / "inline")


@needs_dask
def test_a_worker_that_stops_says_why(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(tmp_path / "data" / "a.parquet", [make_trace(1)])
    with pytest.raises(InputError, match=r"has proctor 0\.0\.1; this is"):
        monkeypatch.setattr("proctor.processes.dask_work.__version__", "0.0.1")
        proctor.batch(write_suite(tmp_path), tmp_path / "data", output=tmp_path / "out", engine=client)


def test_without_the_extra_the_engine_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    write_parquet(tmp_path / "data" / "a.parquet", [make_trace(1)])
    with pytest.raises(MissingExtra, match=r"proctor\[dask\]"):
        proctor.batch(write_suite(tmp_path), tmp_path / "data", output=tmp_path / "out", engine="dask")


def test_a_scheduler_is_for_dask_and_its_files_belong_together(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="for the engine dask"), open_executor("local", EngineOptions(scheduler="tcp://x:1")):
        pass
    write_suite(tmp_path)
    command = [sys.executable, "-m", "proctor", "batch", "suite.yaml", "data", "--output", "out", "--engine", "dask"]
    for flags, told in (
        (["--tls-ca", "ca.pem"], "belong together"),
        (["--tls-ca", "a", "--tls-cert", "b", "--tls-key", "c"], "no file at 'a'"),
    ):
        done = subprocess.run([*command, *flags], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 4 and told in done.stderr, done.stderr


@needs_dask
def test_nobody_at_the_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_executor, "CONNECTED_WITHIN_S", 1)
    with (
        pytest.raises(InputError, match=r"no Dask scheduler could be reached at tcp://127\.0\.0\.1:9"),
        DaskExecutor(scheduler="tcp://127.0.0.1:9"),
    ):
        pass


# --- real processes ---------------------------------------------------------------------------------------------------------


def start(folder: Path, log: str, *command: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(proctor.__file__).parents[1]),
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "20",
    }
    with (folder / f"{log}.log").open("wb") as file:
        return subprocess.Popen([sys.executable, "-m", *command], cwd=folder, env=environment, stderr=file, stdout=file)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A scheduler and two workers with TLS, each a process of its own."""
    # In a process of its own: what a test imported is forgotten after it, and these classes must not be there twice.
    code = (
        "import distributed; made = distributed.Security.temporary(); "
        "[open(name, 'w').write(text) for name, text in "
        "(('ca.pem', made.tls_ca_file), ('cert.pem', made.tls_scheduler_cert), ('key.pem', made.tls_scheduler_key))]"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    tls = ["--tls-ca-file", "ca.pem", "--tls-cert", "cert.pem", "--tls-key", "key.pem"]
    file = tmp_path / "scheduler.json"
    nodes = {
        "scheduler": start(
            tmp_path,
            "scheduler",
            "distributed.cli.dask_scheduler",
            "--scheduler-file",
            str(file),
            "--protocol",
            "tls",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--no-dashboard",
            *tls,
        )
    }
    while not file.exists() or not file.read_text().strip():
        time.sleep(0.05)
    import json

    address = json.loads(file.read_text())["address"]
    worker = ["distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard", "--death-timeout", "30", *tls]
    for number in range(2):
        nodes[f"worker-{number}"] = start(tmp_path, f"w{number}", *worker, "--local-directory", str(tmp_path / f"dir{number}"))
    files = TlsFiles(ca=str(tmp_path / "ca.pem"), certificate=str(tmp_path / "cert.pem"), key=str(tmp_path / "key.pem"))
    yield {"address": address, "tls": files, "nodes": nodes}
    for process in nodes.values():
        process.terminate()
    for process in nodes.values():
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def list_worker_processes(nannies: list[int]) -> list[int]:
    """The processes that do the work: children of the nannies."""
    found: list[int] = []
    for nanny in nannies:
        for task in Path(f"/proc/{nanny}/task").glob("*/children"):
            found += [int(pid) for pid in task.read_text().split()]
    return [
        pid
        for pid in found
        if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        and b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


@needs_dask
@pytest.mark.live
def test_workers_of_a_cluster_with_tls_are_killed_and_every_trace_comes_once(cluster: dict[str, Any], tmp_path: Path) -> None:
    for number in range(8):
        write_parquet(tmp_path / "data" / f"{number}.parquet", [make_trace(row) for row in range(2000)], group=500)
    options = BatchOptions(places=(str(tmp_path / "data"),), output=tmp_path / "out", partition_bytes=1)
    nannies = [process.pid for name, process in cluster["nodes"].items() if name.startswith("worker")]
    killed: list[int] = []
    done = threading.Event()

    def kill_now_and_then() -> None:
        # A worker that dies while it starts takes its nanny with it.
        while not list((tmp_path / "out" / "results").glob("part-*")) and not done.is_set():
            time.sleep(0.05)
        while not done.is_set() and len(killed) < 2:
            for pid in list_worker_processes(nannies)[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            done.wait(6)

    with open_executor("dask", EngineOptions(scheduler=cluster["address"], tls=cluster["tls"])) as executor:
        killer = threading.Thread(target=kill_now_and_then)
        killer.start()
        summary = run_batch(proctor.load_suite(write_suite(tmp_path)), options, executor)
        done.set()
        killer.join()
    assert killed and summary.traces == 16_000, summary.failures
    found = Counter((row["file"], row["row"], row["case"]) for row in read_results(tmp_path / "out"))
    assert len(found) == 32_000 and set(found.values()) == {1}


@needs_dask
@pytest.mark.live
def test_a_scheduler_that_goes_away_is_told_and_the_batch_goes_on_without_it(cluster: dict[str, Any], tmp_path: Path) -> None:
    for number in range(6):
        write_parquet(tmp_path / "data" / f"{number}.parquet", [make_trace(row) for row in range(4000)], group=500)
    write_suite(tmp_path)
    files = cluster["tls"]
    command = [sys.executable, "-m", "proctor", "batch", "suite.yaml", "data", "--output", "out", "--quiet", "--engine", "dask"]
    tls = ["--scheduler", cluster["address"], "--tls-ca", files.ca, "--tls-cert", files.certificate, "--tls-key", files.key]
    environment = {**os.environ, "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s"}
    driver = subprocess.Popen([*command, *tls], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    while driver.poll() is None and not list((tmp_path / "out" / "results").glob("part-*")):
        time.sleep(0.05)
    cluster["nodes"]["scheduler"].kill()
    _, told = driver.communicate(timeout=90)
    assert driver.returncode != 0 and "scheduler" in told and "--resume" in told, told
    local = [sys.executable, "-m", "proctor", "batch", "suite.yaml", "data", "--output", "out", "--quiet", "--resume"]
    done = subprocess.run(local, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    found = Counter((row["file"], row["row"], row["case"]) for row in read_results(tmp_path / "out"))
    assert len(found) == 48_000 and set(found.values()) == {1}
