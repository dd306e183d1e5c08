"""An endless custom check is an error at every entry point, the next check is decided, and Ctrl-C still works."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import proctor
from proctor.cli.main import run
from proctor.errors import InputError

CHECKS = '''"""Checks, one of which never ends."""
import os
import time

import proctor


@proctor.check
def never_ends(evidence: proctor.Evidence):
    """Loops while there is a text."""
    if "PIPE" in os.environ:
        os.write(int(os.environ["PIPE"]), b"looping")
    while evidence.text:
        pass
    return True


@proctor.check
def sleeps(evidence: proctor.Evidence):
    """Sleeps for ever."""
    time.sleep(10_000 if evidence.text else 0)
    return True


@proctor.check
def catches_everything(evidence: proctor.Evidence):
    """Takes being ended for an answer."""
    try:
        while evidence.text:
            pass
    except BaseException:
        return True
    return True


@proctor.check
def says_hello(evidence: proctor.Evidence):
    """The answer greets."""
    return "hello" in evidence.text
'''
NAMES = ("never_ends", "sleeps", "catches_everything")
CASES = [{"id": name, "input": "hi", "expect": [name, "says_hello"]} for name in NAMES]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checks.py").write_text(CHECKS, encoding="utf-8")
    (tmp_path / "endless_agent.py").write_text("def answer(message):\n    return 'hello'\n", encoding="utf-8")
    (tmp_path / "suite.yaml").write_text(json.dumps({"proctor": 1, "name": "Endless", "cases": CASES}), encoding="utf-8")
    (tmp_path / "evidence.jsonl").write_text(
        "".join(json.dumps({"case": name, "text": "hello"}) + "\n" for name in NAMES), encoding="utf-8"
    )
    set_limit(tmp_path, 0.1)
    return tmp_path


def set_limit(folder: Path, seconds: float) -> None:
    (folder / "proctor.yaml").write_text(f"checks: {{files: checks.py, timeout_s: {seconds}}}\n", encoding="utf-8")


def assert_stopped(result: dict[str, Any]) -> None:
    assert [case["id"] for case in result["cases"]] == list(NAMES)
    for case in result["cases"]:
        stopped, greets = case["assertions"]
        assert (stopped["outcome"], stopped["code"]) == ("error", "check_timeout"), stopped
        assert stopped["reason"].startswith(f"the check {case['id']!r} did not end within 0.1 s")
        assert "checks.py:" in stopped["reason"] and "`timeout_s` under `checks:` in proctor.yaml" in stopped["reason"]
        assert greets["outcome"] == "pass"
        assert case["outcome"] == "error"


@pytest.mark.parametrize(
    "command",
    [("check", "suite.yaml", "evidence.jsonl"), ("run", "suite.yaml", "--target", "endless_agent:answer", "--quiet")],
    ids=["check", "run"],
)
def test_an_endless_check_is_an_error_and_the_next_is_decided(
    desk: Path, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--format", "json"]) == 1
    assert_stopped(json.loads(capsys.readouterr().out))
    if command[0] == "run":
        assert run(["recheck", "latest", "--format", "json"]) == 1
        assert_stopped(json.loads(capsys.readouterr().out))


def test_the_limit_holds_in_threads_and_event_loops(desk: Path) -> None:
    def check() -> proctor.RunResult:
        return proctor.check("suite.yaml", [{"case": name, "text": "hello"} for name in NAMES])

    found: list[proctor.RunResult] = []
    thread = threading.Thread(target=lambda: found.append(check()))
    thread.start()
    thread.join()
    found.append(asyncio.run(proctor.check_async("suite.yaml", [{"case": name, "text": "hello"} for name in NAMES])))
    for result in found:
        codes = [[verdict.code for verdict in case.verdicts] for case in result.cases]
        assert codes == [["check_timeout", None]] * 3


def test_the_limit_holds_for_functions_passed_from_python(desk: Path) -> None:
    def loops(evidence: proctor.Evidence) -> bool:
        while evidence.text:
            pass
        return True

    suite = proctor.parse_suite("proctor: 1\ncases: [{id: a, expect: [loops]}]", checks=[loops])
    (case,) = proctor.check(suite, {"text": "x"}).cases
    assert case.verdicts[0].code == "check_timeout"
    assert f"{__file__}:" in case.verdicts[0].reason


def test_other_timers_and_handlers_are_restored(desk: Path) -> None:
    rang: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: rang.append(number))
    interrupts = signal.getsignal(signal.SIGINT)
    signal.setitimer(signal.ITIMER_REAL, 300)
    try:
        proctor.check("suite.yaml", {"case": "never_ends", "text": "hello"})
        assert 200 < signal.getitimer(signal.ITIMER_REAL)[0] < 300
        assert signal.getsignal(signal.SIGINT) is interrupts
        signal.raise_signal(signal.SIGALRM)
        assert rang == [signal.SIGALRM]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        (("check", "suite.yaml", "evidence.jsonl"), 10_000),
        # The event loop of a run notices it when the check ends.
        (("run", "suite.yaml", "-k", "never_ends", "--target", "endless_agent:answer"), 1),
    ],
    ids=["check", "run"],
)
def test_ctrl_c_ends_the_command(desk: Path, command: tuple[str, ...], seconds: int) -> None:
    set_limit(desk, seconds)
    read, write = os.pipe()
    environment = {**os.environ, "PIPE": str(write)}
    with subprocess.Popen(
        [sys.executable, "-m", "proctor", *command], env=environment, pass_fds=[write], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        os.close(write)
        assert os.read(read, 7) == b"looping"
        os.close(read)
        child.send_signal(signal.SIGINT)
        out, errors = child.communicate()
    assert child.returncode == 2, (out, errors)
    if command[0] == "run":
        (folder,) = (desk / ".proctor/runs").iterdir()
        assert json.loads((folder / "ended.json").read_text())["ended"] == "interrupted"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("checks: {files: checks.py, timeout_s: 0}", "checks.timeout_s: expected seconds above 0"),
        ("checks: {files: checks.py, timeout_s: soon}", "checks.timeout_s: expected a number"),
        ("checks: {files: checks.py, timeout: 3}", "timeout_s"),
        ("checks: {files: checks.txt}", "expected a Python file"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(desk: Path, text: str, message: str) -> None:
    (desk / "proctor.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        proctor.load_suite("suite.yaml")
