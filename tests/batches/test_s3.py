"""Batches on an object store: data and results over S3, on a real local server."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs
import pyarrow.parquet as pq
import pytest

import proctor
from proctor.batches import output_store
from proctor.batches.run import open_batch
from proctor.errors import InputError
from tests.batches.batch_world import evaluate, make_trace, read_results, write_parquet, write_suite
from tests.integration.judge_server import judge_server

try:
    from moto.server import ThreadedMotoServer
except ImportError:
    ThreadedMotoServer = None

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(180),
    pytest.mark.skipif(ThreadedMotoServer is None, reason="moto[server] is not installed"),
    pytest.mark.filterwarnings("ignore"),
]


class Bucket:
    def __init__(self, host: str) -> None:
        self.files = pyarrow.fs.S3FileSystem(endpoint_override=host, scheme="http", allow_bucket_creation=True, region="us-east-1")
        self.files.create_dir("bucket")
        self._query = f"?endpoint_override={host}&scheme=http&region=us-east-1"

    def name(self, path: str) -> str:
        return f"s3://bucket/{path}{self._query}"

    def upload(self, file: Path, path: str) -> None:
        with self.files.open_output_stream(f"bucket/{path}") as stream:
            stream.write(file.read_bytes())

    def list(self, folder: str) -> list[str]:
        selector = pyarrow.fs.FileSelector(f"bucket/{folder}", recursive=True, allow_not_found=True)
        return [found.path for found in self.files.get_file_info(selector) if found.is_file]

    def read_results(self, output: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for path in self.list(f"{output}/results"):
            with self.files.open_input_file(path) as file:
                rows += pq.ParquetFile(file).read().to_pylist()
        return rows


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    assert ThreadedMotoServer is not None
    for name, value in (("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"), ("AWS_EC2_METADATA_DISABLED", "true")):
        monkeypatch.setenv(name, value)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        # The stored objects belong to the process, not to one of its servers.
        urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/moto-api/reset", method="POST"), timeout=10).close()
        yield Bucket(f"{host}:{port}")
    finally:
        server.stop()


def count_rows(rows: list[dict[str, Any]]) -> Counter[tuple[str, int, str]]:
    return Counter((row["file"], row["row"], row["case"]) for row in rows)


@pytest.mark.in_turn
def test_data_and_results_are_on_an_object_store(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = write_suite(tmp_path)
    for number in range(3):
        file = write_parquet(tmp_path / "data" / f"{number}.parquet", [make_trace(row) for row in range(100)])
        bucket.upload(file, f"data/day={number}/a.parquet")
    place, output = bucket.name("data"), bucket.name("out")
    summary = proctor.batch(suite, place, output=output, workers=2)
    assert summary.is_complete and (summary.traces, summary.evaluated) == (300, 3)
    evaluate(suite, [tmp_path / "data"], tmp_path / "local")
    local = Counter((row["row"], row["case"], row["outcome"]) for row in read_results(tmp_path / "local"))
    assert Counter((row["row"], row["case"], row["outcome"]) for row in bucket.read_results("out")) == local
    assert open_batch(output).cases == summary.cases
    assert not [path for path in bucket.list("out") if ".lock" in path or ".tmp" in path]
    bucket.upload(write_parquet(tmp_path / "new.parquet", [make_trace(1)]), "data/day=9/a.parquet")
    assert proctor.batch(suite, place, output=output, workers=1).evaluated == 1
    # A changed case is decided again; the rows of the others are those that were there.
    changed = proctor.batch(write_suite(tmp_path, "nowhere"), place, output=output, workers=1)
    assert changed.cases[1].rate.passed == 0 and changed.cases[0] == open_batch(output).cases[0]
    with pytest.raises(InputError, match="is no output of a batch"):
        proctor.batch(suite, place, output=bucket.name("data"))


def test_two_batches_on_one_address_refuse_each_other(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_store, "RENEWED_S", 0.2)
    monkeypatch.setattr(output_store, "STALE_S", 1.0)
    store = output_store.open_output(bucket.name("out"))
    with store.lock():
        with pytest.raises(InputError, match="another batch is at work"), output_store.open_output(bucket.name("out")).lock():
            pass
        held = store.read(".lock")
    assert held is not None and store.read(".lock") is None
    # Left by a killed process.
    output_store.write_bytes(store, ".lock", held)
    with store.lock():
        pass


@pytest.mark.in_turn
def test_a_driver_and_its_workers_are_killed_and_every_trace_is_decided_once(bucket: Bucket, tmp_path: Path) -> None:
    write_suite(tmp_path)
    for number in range(6):
        bucket.upload(
            write_parquet(tmp_path / f"{number}.parquet", [make_trace(row) for row in range(2000)], group=500), f"data/{number}.parquet"
        )
    code = (
        "import sys; from proctor.batches import output_store; output_store.STALE_S = 1.0; output_store.RENEWED_S = 0.3; "
        "from proctor.cli import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", code, "batch", "suite.yaml", bucket.name("data"), "--output", bucket.name("out"), "-j", "2", "--quiet"]
    chance = random.Random(7)
    for _ in range(3):
        driver = subprocess.Popen([*command, "--resume"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(2.0, 4.0))
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    done = subprocess.run([*command, "--resume", "--format", "json"], cwd=tmp_path, capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["traces"] == 12_000
    found = count_rows(bucket.read_results("out"))
    assert len(found) == 24_000 and set(found.values()) == {1}


def test_judge_answers_are_cached_for_an_output_address(bucket: Bucket, tmp_path: Path) -> None:
    judged = "proctor: 1\nname: Judged\ncases:\n  - {id: tone, expect: {judged: {criteria: is friendly}}}\n"
    suite = write_suite(tmp_path, text=judged)
    bucket.upload(write_parquet(tmp_path / "a.parquet", [make_trace(row) for row in range(12)]), "data/a.parquet")
    with judge_server() as server:
        model = {"provider": "openai", "model": "stub-1", "base_url": server.url, "api_key": "sk-judge-secret"}
        first = proctor.batch(suite, bucket.name("data"), output=bucket.name("out"), workers=1, judge={"model": model}, judge_sample=5)
        assert first.cases[0].judged is not None and first.cases[0].judged.judged == 5
        assert len(server.requests) == 5 and any(path.endswith(".pack") for path in bucket.list("out/judge"))
        again = proctor.batch(suite, bucket.name("data"), output=bucket.name("out"), workers=1, judge={"model": model}, judge_sample=5)
        assert again.cases[0].judged == first.cases[0].judged and len(server.requests) == 5
