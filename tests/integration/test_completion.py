"""Completion as a shell asks for it: a real bash runs the script that is printed."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from proctor.cli.main import COMMANDS
from proctor.cli.parser import collect_parser
from tests.integration.running import proctor


def complete(script: Path, *words: str, folder: Path) -> list[str]:
    """Return what bash offers for the last word."""
    line = " ".join(f"'{word}'" for word in words)
    asks = f'source "{script}"; COMP_WORDS=(proctor {line}); COMP_CWORD={len(words)}; _proctor; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "--norc", "-c", asks], capture_output=True, text=True, check=True, cwd=folder)
    assert not done.stderr
    return done.stdout.split()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    done = proctor("completion", "bash")
    assert done.code == 0
    path = tmp_path / "completion.bash"
    path.write_text(done.out)
    return path


@pytest.mark.parametrize(
    ("words", "offered"),
    (
        (("ru",), ["run"]),
        (("comp",), ["compare", "completion"]),
        (("run", "--last"), ["--last-failed"]),
        (("run", "--format", "j"), ["json", "jsonl", "junit"]),
        (("compare", "lat"), ["latest"]),
        (("baseline", "un"), ["unset"]),
        (("keys", "create", "--kind", "org"), ["organization"]),
        (("run", "sui"), ["suite.yaml"]),
        (("run", "suite.yaml", "--record", "sui"), ["suite.yaml"]),
        (("nonsense", "x"), []),
    ),
    ids=" ".join,
)
def test_bash_offers_matching_words(script: Path, tmp_path: Path, words: tuple[str, ...], offered: list[str]) -> None:
    (tmp_path / "suite.yaml").touch()
    assert sorted(complete(script, *words, folder=tmp_path)) == offered


def test_every_option_of_every_command_is_offered(script: Path, tmp_path: Path) -> None:
    assert {command.name for command in COMMANDS} <= set(complete(script, "", folder=tmp_path))
    for command in ("run", "check", "compare", "serve"):
        known = {name for action in collect_parser(command)._actions for name in action.option_strings}
        assert known <= set(complete(script, command, "-", folder=tmp_path))


@pytest.mark.parametrize("shell", ("zsh", "fish"))
def test_other_shells_know_the_same_words(shell: str) -> None:
    text = proctor("completion", shell).out
    assert all(f"{command.name}" in text for command in COMMANDS)
    assert ("-l last-failed" if shell == "fish" else "--last-failed") in text and "jsonl" in text
    assert all(shlex.split(line) for line in text.splitlines() if line and not line.startswith("#"))


def test_an_unknown_shell_is_refused_with_the_known_ones() -> None:
    done = proctor("completion", "bsh")
    assert done.code == 4 and "bash" in done.err
