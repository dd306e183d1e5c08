"""Batches with the protocols of Azure and Google, served by local emulators: data, gathered spans and results."""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.fs
import pyarrow.parquet as pq
import pytest

import proctor
from proctor.batches.run import open_batch
from proctor.errors import InputError
from proctor.sources.datasets.files import open_store
from tests.batches.batch_world import evaluate, read_results, write_suite
from tests.batches.make_span_tables import find_port
from tests.batches.span_world import SPAN_SUITE, read_recording, write_span_row
from tests.batches.spans.test_spans import RECORDING, write_table
from tests.foreign import install_from_index, install_from_npm
from tests.platforms.install import platforms_folder

pytestmark = [pytest.mark.platform, pytest.mark.timeout(600)]
# The account of every Azurite and its key, which is public: both are in its documentation.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextmanager
def serve(command: list[Any], port: int) -> Iterator[None]:
    server = subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
                break
            except urllib.error.HTTPError:
                break
            except OSError:
                time.sleep(0.2)
        yield
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    program = install_from_npm(platforms_folder() / "azurite", "azurite@3.35.0") / ".bin" / "azurite-blob"
    port = find_port()
    options = ["--silent", "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--blobPort", port]
    with serve([program, *options], port):
        address = f"az://bucket/NAME?account={ACCOUNT}&endpoint_override=127.0.0.1:{port}&scheme=http"
        open_store(address)[0].create_dir("bucket")
        yield address


@pytest.fixture
def google() -> Iterator[str]:
    program = install_from_index(platforms_folder() / "gcs", "gcp-storage-emulator==2026.7.19") / "gcp-storage-emulator"
    port = find_port()
    with serve([program, "start", "--host=127.0.0.1", f"--port={port}", "--in-memory", "--default-bucket=bucket"], port):
        yield f"gs://anonymous@bucket/NAME?endpoint_override=127.0.0.1:{port}&scheme=http&retry_limit_seconds=20"


@pytest.mark.parametrize("store", ["azure", "google"])
def test_data_spans_and_results_are_on_an_object_store(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    address: str = request.getfixturevalue(store)
    place, output = address.replace("NAME", "data"), address.replace("NAME", "out")
    files = open_store(place)[0]
    rows = [write_span_row(span) for span in read_recording(RECORDING)]

    def upload(file: Path, path: str) -> None:
        with files.open_output_stream(f"bucket/{path}") as stream:
            stream.write(file.read_bytes())

    for number in range(3):
        upload(write_table(tmp_path / "data" / f"{number}.parquet", rows[number::3]), f"data/day={number}/a.parquet")
    suite = write_suite(tmp_path, text=SPAN_SUITE)
    summary = proctor.batch(suite, place, output=output, workers=2)
    evaluate(suite, [tmp_path / "data"], tmp_path / "local")
    found: list[dict[str, Any]] = []
    listed = [one.path for one in files.get_file_info(pyarrow.fs.FileSelector("bucket/out", recursive=True)) if one.is_file]
    for path in (path for path in listed if "/results/" in path):
        with files.open_input_file(path) as file:
            found += pq.ParquetFile(file).read().to_pylist()
    assert summary.is_complete and not summary.errors and summarise(found) == summarise(read_results(tmp_path / "local"))
    assert open_batch(output).cases == summary.cases and not [path for path in listed if ".lock" in path or "/spans/" in path]
    assert proctor.batch(suite, place, output=output, workers=1).evaluated == 0
    upload(write_table(tmp_path / "new.parquet", rows[:3]), "data/day=9/a.parquet")
    assert proctor.batch(suite, place, output=output, workers=1).evaluated == summary.evaluated
    with pytest.raises(InputError, match="is no output of a batch"):
        proctor.batch(suite, place, output=place)
    with pytest.raises(InputError, match="nothing is there"):
        proctor.batch(suite, address.replace("NAME", "nothing"), output=address.replace("NAME", "other"))


def summarise(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["trace"], row["case"], row["outcome"], str(row["verdicts"])) for row in rows)
