"""Code of others that ends the program decides nothing: no command is green because of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from proctor.cli.exit_codes import Exit
from proctor.cli.main import run
from tests.integration.running import proctor


@pytest.mark.parametrize("code", ["0", "", "2", "'no key'"])
@pytest.mark.parametrize("command", ["run suite.yaml", "try hi"])
def test_a_module_that_exits_on_import_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, code: str) -> None:
    (tmp_path / "ends_at_import.py").write_text(f"import sys\nsys.exit({code})\n", encoding="utf-8")
    (tmp_path / "suite.yaml").write_text("proctor: 1\ncases: [{id: a, input: hi, expect: response_not_empty}]\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    done = proctor(*command.split(), "--target", "ends_at_import:answer")
    assert done.code == 4 and "importing 'ends_at_import' raised SystemExit" in done.err and "if __name__ ==" in done.err, done


@pytest.mark.parametrize(("given", "wanted"), [(0, Exit.INTERRUPTED), (None, Exit.INTERRUPTED), ("no key", Exit.INTERRUPTED), (3, 3)])
def test_an_unexpected_exit_is_never_a_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: object, wanted: int
) -> None:
    def end(arguments: list[str]) -> int:
        raise SystemExit(given)

    monkeypatch.setattr("proctor.cli.main._dispatch", end)
    assert run(["run"]) == wanted
    assert f"ended the program (SystemExit: {given}) before it was done" in capsys.readouterr().err


@pytest.mark.parametrize(("code", "wanted"), [(0, Exit.INTERRUPTED), (7, 7)])
def test_an_agent_that_ends_the_process_has_not_passed(tmp_path: Path, code: int, wanted: int) -> None:
    (tmp_path / "leaves.py").write_text(f"import os\ndef answer(message):\n    os._exit({code})\n", encoding="utf-8")
    (tmp_path / "suite.yaml").write_text("proctor: 1\ncases: [{id: a, input: hi, expect: response_not_empty}]\n", encoding="utf-8")
    command = [sys.executable, "-m", "proctor", "run", "suite.yaml", "--target", "leaves:answer"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == wanted, done
    assert ("ended the program (os._exit: 0) before it was done" in done.stderr) == (code == 0), done


def test_a_forked_child_may_exit_by_itself(tmp_path: Path) -> None:
    (tmp_path / "forks.py").write_text(
        "import os\ndef answer(message):\n    child = os.fork()\n    if not child:\n        os._exit(0)\n"
        "    return f'it ended with {os.waitpid(child, 0)[1]}'\n",
        encoding="utf-8",
    )
    (tmp_path / "suite.yaml").write_text(
        "proctor: 1\ncases: [{id: a, input: hi, expect: [{response_contains: it ended with 0}]}]\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "proctor", "run", "suite.yaml", "--target", "forks:answer"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0 and "os._exit" not in done.stderr, done


def test_help_and_usage_errors_keep_their_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "--help"]) == 0 and "usage: proctor run" in capsys.readouterr().out
    assert run(["run", "--bogus"]) == 4
    assert run(["judge", "calibrate", "--help"]) == 0
