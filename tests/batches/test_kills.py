"""Deaths at random moments in one batch, of workers and of drivers, then `--resume`: each trace once.

Four of them, or `PROCTOR_BATCH_DEATHS`: ten in `make torture`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.batches.batch_world import make_trace, read_results, write_lines, write_parquet, write_suite
from tests.batches.span_world import SPAN_SUITE, write_requests

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

DEATHS = int(os.environ.get("PROCTOR_BATCH_DEATHS", "4"))
FILES = 2 * DEATHS
"""Enough to read that a batch is still at work when the last of them comes."""


def list_children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        # A thread may have ended by now.
        with contextlib.suppress(OSError):
            found += [int(child) for child in task.read_text().split()]
    return found


def kill_again_and_again(command: list[str], folder: Path, chance: random.Random) -> list[str]:
    """Kill workers and drivers of one batch, `DEATHS` of them in all."""
    killed: list[str] = []
    while len(killed) < DEATHS:
        driver = subprocess.Popen([*command, "--resume"], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # On a busy machine a driver is long without workers, and not only drivers are to die.
        while "worker" not in killed and driver.poll() is None and not list_children(driver.pid):
            time.sleep(0.02)
        for _ in range(chance.randrange(1, 4)):
            time.sleep(chance.uniform(0.2, 1.2) if "worker" in killed else chance.uniform(0.0, 0.3))
            workers = list_children(driver.pid)
            if workers and len(killed) < DEATHS - 1:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chance.choice(workers), signal.SIGKILL)
                    killed.append("worker")
        if driver.poll() is None:
            driver.send_signal(signal.SIGKILL)
            killed.append("driver")
        elif not (folder / "out" / "manifest.json").read_text().count('"finished": false'):
            # It is done: running it again must not change anything.
            killed.append("nobody")
        driver.wait()
    return killed


@pytest.mark.in_turn
@pytest.mark.parametrize("seed", [1])
def test_kills_during_a_batch_lose_and_repeat_nothing(seed: int, tmp_path: Path) -> None:
    for number in range(FILES):
        write_parquet(tmp_path / "data" / f"{number:02}.parquet", [make_trace(row) for row in range(10_000)], group=5_000)
    write_suite(tmp_path)
    command = [sys.executable, "-m", "proctor", "batch", "suite.yaml", "data", "--output", "out", "-j", "2", "--quiet"]
    killed = kill_again_and_again(command, tmp_path, random.Random(seed))
    assert {"worker", "driver"} <= set(killed)
    done = subprocess.run([*command, "--resume", "--format", "json"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["traces"] == FILES * 10_000
    found = Counter((row["file"], row["row"], row["case"]) for row in read_results(tmp_path / "out"))
    assert len(found) == FILES * 20_000 and set(found.values()) == {1}
    assert not list((tmp_path / "out" / "results").glob(".*"))


@pytest.mark.in_turn
def test_kills_while_gathering_spans_lose_and_repeat_nothing(tmp_path: Path) -> None:
    requests = write_requests("langchain-0-oi")
    ids = {
        span["traceId"]
        for request in requests
        for group in request["resourceSpans"]
        for scope in group["scopeSpans"]
        for span in scope["spans"]
    }
    for number in range(6 * DEATHS):
        texts = [json.dumps(request) for request in requests]
        for id in ids:
            texts = [text.replace(id, f"{number:04x}{id[4:]}") for text in texts]
        write_lines(tmp_path / "data" / f"{number:02}.jsonl", texts)
    write_suite(tmp_path, text=SPAN_SUITE)
    command = [sys.executable, "-m", "proctor", "batch", "suite.yaml", "data", "--output", "out", "-j", "2", "--quiet"]
    kill_again_and_again(command, tmp_path, random.Random(2))
    done = subprocess.run([*command, "--resume"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    found = Counter((row["trace"], row["case"]) for row in read_results(tmp_path / "out"))
    assert len(found) == 6 * DEATHS * len(ids) * 2 and set(found.values()) == {1}
