"""Completion as a shell asks for it: a real bash runs the script that is printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.cli.commands.completion import list_words
from proctor.cli.main import COMMANDS
from proctor.cli.parser import collect_parser
from tests.integration.running import proctor


def complete(script: Path, *words: str, folder: Path) -> list[str]:
    """Return what bash offers for the last word."""
    line = " ".join(f"'{word}'" for word in words)
    asks = f'source "{script}"; COMP_WORDS=(proctor {line}); COMP_CWORD={len(words)}; _proctor; printf "%s\\n" "${{COMPREPLY[@]}}"'
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "--norc", "-c", asks], capture_output=True, text=True, check=True, cwd=folder, env=environment)
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


def test_every_command_is_offered(script: Path, tmp_path: Path) -> None:
    assert {command.name for command in COMMANDS} <= set(complete(script, "", folder=tmp_path))


def test_the_words_are_those_of_the_parser() -> None:
    for command in COMMANDS:
        known = {name for action in collect_parser(command.name)._actions for name in action.option_strings}
        assert set(list_words([command.name, "-"])) == known
    assert list_words(["run", "--format", "js"]) == ["json", "jsonl"] and list_words(["nonsense", ""]) == []


@pytest.mark.parametrize("shell", ("zsh", "fish"))
def test_other_shells_ask_for_the_same_words(shell: str) -> None:
    assert "proctor completion words" in proctor("completion", shell).out


def test_an_unknown_shell_is_refused_with_the_known_ones() -> None:
    done = proctor("completion", "bsh")
    assert done.code == 4 and "bash" in done.err
