"""Output files: what remains if the disk is full, the path is no plain file, or the user presses Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.cli.show import output as output_module
from proctor.model.evidence import Evidence, Source
from proctor.sources.records import Record
from tests.integration.running import proctor

SUITE = "{proctor: 1, name: s, cases: [{id: c, expect: [response_contains: hi]}]}"
GOOD = b'{"case": "c", "text": "hi"}\n'


@pytest.fixture
def given(tmp_path: Path) -> tuple[Path, Path]:
    suite, runs = tmp_path / "suite.yaml", tmp_path / "runs.jsonl"
    suite.write_text(SUITE)
    runs.write_bytes(GOOD * 3)
    return suite, runs


def test_a_link_keeps_pointing_to_the_file_that_is_written(given: tuple[Path, Path], tmp_path: Path) -> None:
    real, link = tmp_path / "real.txt", tmp_path / "link.txt"
    real.write_text("old")
    link.symlink_to(real)
    assert proctor("check", *given, "--output", link).code == 0
    assert link.is_symlink()
    assert "3 passed" in real.read_text()


def test_a_pipe_given_as_output_stays_a_pipe(given: tuple[Path, Path], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    assert proctor("check", *given, "--output", pipe).code == 0
    reader.join(timeout=5)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert "3 passed" in read[0]


def test_a_folder_or_a_missing_folder_as_output_is_exit_4_and_leaves_nothing(given: tuple[Path, Path], tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    for place in (tmp_path, tmp_path / "none" / "report.txt"):
        done = proctor("check", *given, "--output", place)
        assert (done.code, f"cannot write '{place}'" in done.err) == (4, True), done
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.in_turn
@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no device that is always full")
@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "{suite}", "{runs}"],
        ["check", "{suite}", "{runs}", "--format", "jsonl"],
        ["describe", "checks"],
        ["validate", "{suite}.no"],
    ],
)
@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.timeout(60)
def test_a_full_disk_is_reported_with_exit_4(given: tuple[Path, Path], arguments: list[str], buffered: str) -> None:
    suite, runs = given
    command = [sys.executable, "-m", "proctor", *(word.format(suite=suite, runs=runs) for word in arguments)]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": buffered}, timeout=30, check=False
        )
    assert done.returncode == 4
    assert b"cannot write to standard output: No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr and b"bug" not in done.stderr and b"Exception ignored" not in done.stderr


def test_a_disk_that_fills_up_while_a_file_is_written_leaves_the_old_file(
    given: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    report = tmp_path / "report.txt"
    report.write_text("old")
    monkeypatch.setattr(output_module.os, "replace", full)
    done = proctor("check", *given, "--output", report)
    assert (done.code, report.read_text(), list(tmp_path.glob(".*.part"))) == (4, "old", [])


def interrupted_after(count: int) -> Iterator[Record]:
    for number in range(1, count + 1):
        yield Record(Evidence(case="c", text="hi"), Source("runs.jsonl", number))
    raise KeyboardInterrupt


@pytest.mark.parametrize("format", ["terminal", "json", "jsonl", "junit", "markdown"])
def test_ctrl_c_exits_with_2_and_keeps_finished_results(
    given: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    monkeypatch.setattr("proctor.cli.commands.check.read_records", lambda *_, **__: interrupted_after(7))
    report = tmp_path / "report"
    done = proctor("check", *given, "--format", format, "--output", report)
    assert (done.code, done.err.splitlines()[-1]) == (2, "interrupted")
    text = report.read_text()
    if format == "json":
        document = json.loads(text)
        assert (document["counts"]["pass"], document["warnings"][0]["code"]) == (7, "interrupted")
    elif format == "jsonl":
        assert [json.loads(line)["evidence"]["line"] for line in text.splitlines()] == list(range(1, 8))
    elif format == "junit":
        assert text.count("<testcase") == 7 + 1, "and one error for what was not read"
    else:
        assert "7" in text and "interrupted" in text


def test_a_slow_writer_sees_each_record_decided_before_the_next(given: tuple[Path, Path]) -> None:
    command = [sys.executable, "-m", "proctor", "check", str(given[0]), "-", "--format", "jsonl"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        watchdog = threading.Timer(5, process.kill)
        watchdog.start()
        try:
            # Two lines are needed to see that it is JSONL at all.
            for _ in range(2):
                process.stdin.write(GOOD)
            process.stdin.flush()
            seen = [process.stdout.readline(), process.stdout.readline()]
            for _ in range(2):
                process.stdin.write(GOOD)
                process.stdin.flush()
                seen.append(process.stdout.readline())
            assert [json.loads(line)["evidence"]["line"] for line in seen] == [1, 2, 3, 4]
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=5) == 2
        finally:
            watchdog.cancel()
            process.kill()


def test_a_long_line_costs_time_in_proportion_to_its_length(given: tuple[Path, Path]) -> None:
    suite, runs = given
    with runs.open("wb") as file:
        file.write(GOOD)
        file.truncate(70 * 2**20)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + GOOD)
    started = time.monotonic()
    done = proctor("check", suite, runs, "--format", "jsonl")
    assert [json.loads(line)["outcome"] for line in done.out.splitlines()] == ["pass", "error", "pass"]
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(("redirection", "word"), [(">&-", "output"), ("<&-", "input")])
def test_a_closed_stream_is_reported_with_exit_4(given: tuple[Path, Path], redirection: str, word: str) -> None:
    command = f"'{sys.executable}' -m proctor check '{given[0]}' - {redirection}"
    done = subprocess.run(["sh", "-c", command], input=GOOD if word == "output" else None, capture_output=True, timeout=30, check=False)
    assert done.returncode == 4, done.stderr
    assert f"standard {word}: it is closed".encode() in done.stderr and b"Traceback" not in done.stderr


def test_problems_are_printed_where_the_terminal_knows_only_ascii(tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text("proctor: 1\nn\u00e4me: x\ncases: []\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "proctor", "validate", str(path)],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, "näme".encode() in done.stdout) == (4, True), done.stderr
