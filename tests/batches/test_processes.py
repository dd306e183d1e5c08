"""Batches on real processes: workers that are killed, a driver that is killed, and the command line."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import proctor
from proctor.batches.run import BatchOptions, run_batch
from proctor.processes.executor import LocalExecutor
from tests.batches.batch_world import make_trace, read_results, write_lines, write_parquet, write_suite

pytestmark = pytest.mark.timeout(60)


def count_traces(output: Path) -> Counter[tuple[str, int, str]]:
    return Counter((row["file"], row["row"], row["case"]) for row in read_results(output))


def write_data(folder: Path, files: int, rows: int) -> Path:
    for number in range(files):
        write_parquet(folder / "data" / f"{number:02}.parquet", [make_trace(row) for row in range(rows)], group=500)
    return folder / "data"


@pytest.mark.in_turn
def test_killed_workers_are_replaced_and_every_trace_is_decided_once(tmp_path: Path) -> None:
    data = write_data(tmp_path, 6, 1000)
    executor = LocalExecutor(2, tries=50)
    chance = random.Random(3)
    killed = 0

    def kill_now_and_then() -> None:
        nonlocal killed
        while killed < 5:
            time.sleep(chance.uniform(0.05, 0.5))
            for pid in executor.list_processes()[:1]:
                os.kill(pid, signal.SIGKILL)
                killed += 1

    threading.Thread(target=kill_now_and_then, daemon=True).start()
    options = BatchOptions(places=(str(data),), output=tmp_path / "out", partition_bytes=1)
    summary = run_batch(proctor.load_suite(write_suite(tmp_path)), options, executor)
    assert summary.is_complete and summary.traces == 6000
    found = count_traces(tmp_path / "out")
    assert len(found) == 12_000 and set(found.values()) == {1}
    assert killed and not list((tmp_path / "out" / "results").glob(".*"))


@pytest.mark.in_turn
def test_a_driver_that_is_killed_is_resumed_and_its_workers_are_gone(tmp_path: Path) -> None:
    data = write_data(tmp_path, 4, 3000)
    write_suite(tmp_path)
    command = [sys.executable, "-m", "proctor", "batch", "suite.yaml", str(data), "--output", "out", "-j", "2", "--quiet"]
    for delay, number in ((0.8, signal.SIGKILL), (1.3, signal.SIGKILL), (1.5, signal.SIGINT)):
        driver = subprocess.Popen([*command, "--resume"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(delay)
        driver.send_signal(number)
        _, errors = driver.communicate()
    # Interrupted before Python ran a line of ours, before it had begun, while it was at work, or when it was done already.
    assert driver.returncode in (-signal.SIGINT, 1, 2), errors
    done = subprocess.run([*command, "--resume", "--format", "json"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["committed"] == json.loads(done.stdout)["partitions"]
    found = count_traces(tmp_path / "out")
    assert len(found) == 24_000 and set(found.values()) == {1}


@pytest.mark.in_turn
def test_a_partition_that_ends_every_process_has_failed_and_the_others_have_not(tmp_path: Path) -> None:
    (tmp_path / "proctor.yaml").write_text("checks: [own.py]\n")
    (tmp_path / "own.py").write_text(
        "import os\nimport proctor\n\n\n@proctor.check\ndef survives(evidence):\n    if 'kill' in evidence.text:\n"
        "        os.kill(os.getpid(), 9)\n    return True\n"
    )
    (tmp_path / "suite.yaml").write_text("proctor: 1\nname: Own\ncases:\n  - id: a\n    expect: [survives]\n")
    write_lines(tmp_path / "data" / "a.jsonl", [{"text": "fine"}])
    write_lines(tmp_path / "data" / "b.jsonl", [{"text": "kill"}])
    command = [sys.executable, "-m", "proctor", "batch", "suite.yaml", "data", "--output", "out", "-j", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "INCOMPLETE: 1 of 2 partitions" in done.stdout and "every process that took it ended" in done.stdout
    assert [row["outcome"] for row in read_results(tmp_path / "out")] == ["pass"]


def test_the_command_shows_progress_figures_and_the_way_to_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_suite(tmp_path)
    write_parquet(tmp_path / "data" / "a.parquet", [make_trace(number) for number in range(25)])
    seen: list[int] = []
    summary = proctor.batch(
        tmp_path / "suite.yaml",
        tmp_path / "data",
        output=tmp_path / "out",
        workers=1,
        on_progress=lambda progress: seen.append(progress.done),
    )
    assert seen == [0, 1] and summary.traces == 25
    proctor.batch(tmp_path / "suite.yaml", tmp_path / "data", output=tmp_path / "again", workers=1, on_progress="bar")
    shown = capsys.readouterr().err
    assert "1/1 partitions" in shown and "5 failed" in shown and shown.endswith("\r\x1b[2K")
    done = subprocess.run([sys.executable, "-m", "proctor", "batch", "show", "out"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Shop · 1 partition · ") and "25 traces, 50 results: 5 failed, 45 passed\n" in done.stdout
    assert re.search("refund +80.0 % +20 of 25, 60.9 % to 91.1 %", done.stdout), done.stdout
    assert "5 times" in done.stdout and f"t0({tmp_path}/data/a.parquet,row1)" in "".join(done.stdout.split())
