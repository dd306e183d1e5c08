"""The how-to page: its files are written, its pytest commands are run, and they print what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

# Loaded here to stay: a session in this process forgets the modules it loaded, and blocking calls keep a thread of their own.
import proctor.evals.test_agent  # noqa: F401
from tests.pytest_plugin.test_plugin import Session, session

pytest_plugins = ["pytester"]
__all__ = ["session"]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "use-pytest.md"
_FILE = re.compile(r"<!-- file: (?P<name>\S+) -->\n```\w+\n(?P<body>.*?)```", re.DOTALL)
_RUN = re.compile(r"```sh\npytest (?P<arguments>.*?)\n```\n\n```text\n(?P<shown>.*?)```", re.DOTALL)


def test_the_project_on_the_page_runs_as_shown(pytester: pytest.Pytester, session: Session) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for file in _FILE.finditer(text):
        (pytester.path / file["name"]).write_text(file["body"], encoding="utf-8")
    runs = list(_RUN.finditer(text))
    assert len(runs) == 2
    for run in runs:
        printed = re.sub(r"[ =]*(\d+ (?:passed|failed) in \S+)[ =]*", r"\1", "\n".join(session(*run["arguments"].split()).outlines))
        pattern = ".*".join(re.escape(part) for part in run["shown"].strip().split("..."))
        assert re.search(pattern, printed, re.DOTALL), f"{run['arguments']} printed:\n{printed}"


def test_the_python_test_on_the_page_is_ten_lines() -> None:
    bodies = {file["name"]: file["body"] for file in _FILE.finditer(PAGE.read_text(encoding="utf-8"))}
    assert len([line for line in bodies["test_desk.py"].splitlines() if line]) <= 10
