"""Where settings come from: `[tool.proctor]` in `pyproject.toml`, and `.env` next to the workspace file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from proctor.actions.workspace.run_history import find_database_home
from tests.integration.running import proctor

AGENT = "def answer(message):\n    return f'you sent {message}'\n\ndef other(message):\n    return 'no'\n"
SUITE = {"proctor": 1, "name": "Placed", "cases": [{"id": "a", "input": "a", "expect": [{"response_contains": "you sent"}]}]}
TABLE = """\
[project]
name = "shop"

[tool.proctor]
default_target = "agent"

[tool.proctor.targets.agent]
type = "callable"
function = "agent:answer"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "suite.yaml").write_text(json.dumps(SUITE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "agent", raising=False)
    return tmp_path


def test_a_project_describes_its_agent_in_pyproject(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "pyproject.toml").write_text(TABLE)
    (place / "below").mkdir()
    monkeypatch.chdir(place / "below")
    done = proctor("run", "../suite.yaml")
    assert done.code == 0, done.err
    assert (place / ".proctor" / "runs").is_dir(), "stored next to the file"


def test_proctor_yaml_wins_and_the_ignored_table_is_reported(place: Path) -> None:
    (place / "pyproject.toml").write_text(TABLE)
    (place / "proctor.yaml").write_text('targets: {agent: {type: callable, function: "agent:other"}}\n')
    done = proctor("run", "suite.yaml")
    assert done.code == 1 and "the table [tool.proctor] in pyproject.toml next to it is ignored" in done.err


@pytest.mark.parametrize(
    ("table", "message"),
    (
        ("[tool.proctor]\ntarget = 1\n", "unknown key 'target'"),
        ('[tool.proctor]\ndefault_target = "x"\n', "there is no target 'x'"),
        ("[tool.proctor]\ntrust = 3\n", "trust"),
        ("[tool.proctor]\ntargets = \n", "is no TOML"),
    ),
)
def test_table_errors_are_reported_with_their_file(place: Path, table: str, message: str) -> None:
    (place / "pyproject.toml").write_text(table)
    done = proctor("run", "suite.yaml")
    assert done.code == 4 and message in done.err and "pyproject.toml" in done.err


@pytest.mark.parametrize("text", ("[tool.other]\n", "broken [", '[project]\ndependencies = ["proctor"]\n'))
def test_a_project_without_the_table_is_no_workspace(place: Path, text: str) -> None:
    (place / "pyproject.toml").write_text(text)
    done = proctor("run", "suite.yaml")
    assert done.code == 4 and "target" in done.err and "TOML" not in done.err


HTTP = "targets: {agent: {type: http, url: 'http://127.0.0.1:9/${PLACE}'}}\n"


def test_dotenv_variables_are_used_reported_and_never_override(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "proctor.yaml").write_text(HTTP)
    done = proctor("run", "suite.yaml", "--retries", "0")
    assert done.code == 4 and "PLACE" in done.err
    (place / ".env").write_text("PLACE=from-file\nOTHER=x\n")
    done = proctor("run", "suite.yaml", "--retries", "0")
    assert done.code == 1 and f"taken from {place / '.env'}; what the environment has counts more" in done.err
    monkeypatch.setenv("PLACE", "set")
    monkeypatch.setenv("OTHER", "set")
    assert "taken from" not in proctor("run", "suite.yaml", "--retries", "0").err
    assert "taken from" not in proctor("run", "suite.yaml", "--retries", "0", "--quiet").err


def test_a_dotenv_file_outside_the_working_folder_is_ignored(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "proctor.yaml").write_text(HTTP)
    (place / ".env").write_text("PLACE=from-file\n")
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "proctor.yaml").write_text("{}\n")
    monkeypatch.chdir(elsewhere)
    done = proctor("run", "../suite.yaml", "--home", place / ".proctor", "--target", "agent", "--retries", "0")
    assert done.code == 4 and "taken from" not in done.err
    assert (
        "taken from" in proctor("run", "../suite.yaml", "--home", place / ".proctor", "--target", "agent", "--trust", "--retries", "0").err
    )


# --- --home -----------------------------------------------------------------------------------------------------------


def test_home_is_the_folder_of_the_workspace_file(place: Path) -> None:
    (place / "proctor.yaml").write_text('targets: {agent: {type: callable, function: "agent:other"}}\n')
    (place / "shop").mkdir()
    (place / "shop" / "agent.py").write_text(AGENT)
    (place / "shop" / "proctor.yaml").write_text('targets: {agent: {type: callable, function: "agent:answer"}}\n')
    done = proctor("run", "suite.yaml", "--home", "shop")
    assert done.code == 0, done.err
    assert (place / "shop" / ".proctor" / "runs").is_dir() and not (place / ".proctor").exists()
    for home in ("shop", "shop/.proctor"):
        assert len(json.loads(proctor("list", "--home", home, "--format", "json").out)) == 1


def test_home_without_a_workspace_file_ignores_its_parent(place: Path) -> None:
    (place / "proctor.yaml").write_text('targets: {agent: {type: callable, function: "agent:answer"}}\n')
    (place / "empty").mkdir()
    done = proctor("run", "suite.yaml", "--home", "empty")
    assert done.code == 4 and "target" in done.err


def test_a_home_with_runs_is_used_unchanged(place: Path) -> None:
    (place / "home").mkdir()
    (place / "home" / "agent.py").write_text(AGENT)
    (place / "home" / "proctor.yaml").write_text('targets: {agent: {type: callable, function: "agent:answer"}}\n')
    proctor("run", "suite.yaml", "--home", "home")
    (place / "home" / ".proctor" / "runs").rename(place / "home" / "runs")
    (place / "home" / ".proctor").rename(place / "elsewhere")
    assert proctor("run", "suite.yaml", "--home", "home").code == 0
    assert len(list((place / "home" / "runs").iterdir())) == 2 and not (place / "home" / ".proctor").exists()


def test_a_database_stays_in_the_home_that_was_named(place: Path) -> None:
    (place / "shop" / ".proctor").mkdir(parents=True)
    assert find_database_home("shop") == Path("shop")
    (place / "shop" / ".proctor" / "proctor.db").touch()
    assert find_database_home("shop") == Path("shop/.proctor")
    (place / "shop" / "proctor.db").touch()
    assert find_database_home("shop") == Path("shop")
