"""`--watch`: the watched files, and a change runs the suite again."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.cli.watch import list_watched_files, look_at, wait_for_change

SUITE = {"proctor": 1, "name": "Watched", "cases": [{"id": "a", "input": "a", "expect": [{"response_contains": "you sent"}]}]}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "agent.py").write_text("def answer(message):\n    return f'you sent {message}'\n")
    (tmp_path / "proctor.yaml").write_text('targets: {agent: {type: callable, function: "agent:answer"}}\n')
    (tmp_path / "suite.yaml").write_text(json.dumps(SUITE))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(place: Path) -> set[str]:
    return {path.relative_to(place).as_posix() for path in look_at(list_watched_files(["suite.yaml"], place / ".proctor")) if path.exists()}


def test_suite_settings_module_and_named_files_are_watched(place: Path) -> None:
    (place / "helper.py").touch()
    (place / "checks.py").touch()
    (place / "unrelated.txt").touch()
    assert names(place) == {"suite.yaml", "proctor.yaml", "agent.py", "helper.py", "checks.py"}
    (place / "proctor.yaml").write_text('checks: [extra/mine.py]\ntargets: {agent: {type: callable, function: "shop.bot:answer"}}\n')
    (place / "suite.yaml").write_text("cases: {from: data/cases.csv")
    for name in ("shop/bot/tools.py", "extra/mine.py", "data/cases.csv", "data/other.csv"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).touch()
    found = names(place)
    assert {"shop/bot/tools.py", "extra/mine.py", "data/cases.csv"} <= found and "data/other.csv" not in found


@pytest.mark.parametrize("change", ("write", "create", "remove"))
def test_a_change_is_seen(place: Path, change: str) -> None:
    def look() -> dict[Path, tuple[int, int] | None]:
        return look_at(list_watched_files(["suite.yaml"], place / ".proctor"))

    def alter() -> None:
        if change == "write":
            (place / "agent.py").write_text("def answer(message):\n    return 'no'\n")
        elif change == "create":
            (place / ".env").write_text("A=1\n")
        else:
            (place / "suite.yaml").unlink()

    changed = wait_for_change(look(), look, pause=alter)
    assert [path.name for path in changed] == [{"write": "agent.py", "create": ".env", "remove": "suite.yaml"}[change]]


@pytest.mark.timeout(60)
def test_a_change_runs_the_suite_again_and_ctrl_c_ends(place: Path) -> None:
    command = [sys.executable, "-m", "proctor", "run", "suite.yaml", "--watch"]
    # A shell that runs these tests in the background may make its children ignore Ctrl-C.
    allow = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, preexec_fn=allow) as process:
        try:
            _wait_for_watching(process)
            (place / "agent.py").write_text("def answer(message):\n    return 'no idea'\n")
            lines = _wait_for_watching(process)
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(30) == 1, "the last run failed"
        finally:
            process.kill()
    assert any("changed: agent.py" in line for line in lines) and any("fail  a" in line for line in lines)


def _wait_for_watching(process: subprocess.Popen[str]) -> list[str]:
    """Return the output up to the next wait for a change."""
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if "watching" in line:
            break
    return lines
