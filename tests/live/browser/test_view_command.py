"""`proctor view` itself: it starts, prints its address, serves, follows a run that is being written, and ends with Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import msgspec
import pytest

from proctor.model.run import RunEntry, RunHeader
from tests.pages.world import GOOD, SUITE, decide_all

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


class Viewing:
    """One `proctor view` in a process of its own."""

    def __init__(self, place: Path, *words: str) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PROCTOR_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "proctor", "view", "--no-open", *words],
            cwd=place,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.first_line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/\S*[^;\s]", self.first_line)
        assert found is not None, (self.first_line, self.process.stderr and self.process.stderr.read())
        self.address = found[0]

    def read(self, more: str = "") -> str:
        with urlopen(self.address + more, timeout=30) as answer:
            return answer.read().decode()

    def wait_for(self, holds: Callable[[str], bool], more: str = "") -> str:
        end = time.monotonic() + 60
        while not holds(text := self.read(more)):
            assert time.monotonic() < end, text
            time.sleep(0.1)
        return text

    def interrupt(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


@contextlib.contextmanager
def viewing(place: Path, *words: str) -> Iterator[Viewing]:
    opened = Viewing(place, *words)
    try:
        yield opened
    finally:
        if opened.process.poll() is None:
            opened.process.kill()
            opened.process.communicate()


def begin_run(home: Path, planned: int) -> Path:
    folder = home / ".proctor" / "runs" / "20261116-090000-a"
    folder.mkdir(parents=True)
    header = RunHeader(run_id=folder.name, started_at="2026-11-16T09:00:00Z", suite_name="shop", target="app", planned=planned)
    (folder / "run.json").write_bytes(msgspec.json.encode(header))
    (folder / "suite.yaml").write_text(SUITE, encoding="utf-8")
    (folder / "results.jsonl").touch()
    return folder


def append(folder: Path, entry: RunEntry) -> None:
    with (folder / "results.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(entry) + b"\n")


def test_a_run_is_followed_while_it_is_written_until_the_command_is_interrupted(tmp_path: Path) -> None:
    entries = decide_all(GOOD)
    folder = begin_run(tmp_path, len(entries))
    with viewing(tmp_path, folder.name) as viewed:
        assert viewed.address.endswith(f"/ui/p/local/runs/{folder.name}") and "Ctrl-C ends it" in viewed.first_line
        for number, entry in enumerate(entries):
            append(folder, entry)
            case = entry.case
            viewed.wait_for(lambda text, case=case: case in text)
            assert case in viewed.read(f"/r/{number}")
        (folder / "ended.json").write_text(json.dumps({"ended": "completed"}), encoding="utf-8")
        viewed.wait_for(lambda text: f"{len(entries)}</b>" in text and "passed" in text)
        code, errors = viewed.interrupt()
        assert "Traceback" not in errors and code in (0, 2)


def test_evidence_is_shown_and_followed(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    (traces / "one.jsonl").write_text(json.dumps({"case": "a", "text": "well, hello"}) + "\n", encoding="utf-8")
    (tmp_path / "suite.yaml").write_text("proctor: 1\nname: s\ncases: [{id: a, expect: [response_contains: hello]}]\n", encoding="utf-8")
    with viewing(tmp_path, "traces", "--suite", "suite.yaml") as viewed:
        assert "traces on http" in viewed.first_line
        assert "<mark" in viewed.read("/r/0")
        with (traces / "one.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"case": "a", "text": "good bye"}) + "\n")
        viewed.wait_for(lambda text: "/r/1" in text)
        assert "good bye" in viewed.read("/r/1")
        code, errors = viewed.interrupt()
        assert "Traceback" not in errors and code in (0, 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [(["nothing-here"], "nothing-here"), (["empty"], "nothing to read in"), (["--suite", "s.yaml"], "name a file or folder")],
)
def test_unshowable_arguments_are_a_usage_error(tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "empty").mkdir()
    ended = subprocess.run(
        [sys.executable, "-m", "proctor", "view", "--no-open", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 4 and message in ended.stderr and "Traceback" not in ended.stderr
