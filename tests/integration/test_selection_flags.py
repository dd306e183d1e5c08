"""Which cases are selected, and when a command stops: `--last-failed`, `-x`, `-v`, `-k`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.integration.running import proctor

AGENT = """\
import os
from pathlib import Path

def answer(message):
    with open(Path(__file__).parent / "inputs.log", "a") as log:
        log.write(message + "\\n")
    if message == "b" and os.environ.get("AGENT_BREAKS"):
        raise RuntimeError("broken")
    return "no idea" if message in os.environ.get("AGENT_FAILS", "").split() else f"you sent {message}"
"""
CASES = ["a", "b", "c", "d"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "proctor.yaml").write_text('targets: {agent: {type: callable, function: "agent:answer"}}\n')
    cases = [{"id": case, "input": case, "expect": [{"response_contains": "you sent"}, {"response_contains": case}]} for case in CASES]
    (tmp_path / "suite.yaml").write_text(json.dumps({"proctor": 1, "name": "Chosen", "cases": cases}))
    (tmp_path / "other.yaml").write_text(json.dumps({"proctor": 1, "name": "Other", "cases": cases[:1]}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "agent", raising=False)
    return tmp_path


def take_inputs(place: Path) -> list[str]:
    path = place / "inputs.log"
    found = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return sorted(found)


def test_only_cases_that_failed_last_run_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_FAILS", "d")
    monkeypatch.setenv("AGENT_BREAKS", "1")
    proctor("run", "suite.yaml", "--quiet")
    take_inputs(place)
    monkeypatch.delenv("AGENT_BREAKS")
    proctor("run", "other.yaml", "--quiet")
    take_inputs(place)
    done = proctor("run", "suite.yaml", "--last-failed")
    assert take_inputs(place) == ["b", "d"] and done.code == 1 and "the 2 cases that failed in" in done.err
    monkeypatch.delenv("AGENT_FAILS")
    assert proctor("run", "suite.yaml", "--last-failed").code == 0 and take_inputs(place) == ["d"]
    done = proctor("run", "suite.yaml", "--last-failed")
    assert done.code == 5 and "nothing selected: nothing failed in" in done.err and take_inputs(place) == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--format", "csv", "--output", "nowhere/results.csv"], "cannot write 'nowhere/results.csv': No such file or directory"),
        (["--output", "."], "cannot write '.': Is a directory"),
        (["--format", "parquet"], "--format parquet is binary: name a file with --output"),
        (["--format", "json", "--pivot", "area"], "--pivot goes with --format terminal"),
        (["--pivot", "area"], "no case has a tag 'area'"),
    ],
)
def test_unshowable_flags_are_refused_before_any_request(place: Path, flags: list[str], message: str) -> None:
    before = sorted(place.iterdir())
    done = proctor("run", "suite.yaml", *flags)
    assert done.code == 4 and message in done.err, done
    assert take_inputs(place) == [] and [path for path in sorted(place.iterdir()) if path.name != "__pycache__"] == before


def test_without_an_earlier_run_nothing_has_failed(place: Path) -> None:
    done = proctor("run", "suite.yaml", "--last-failed")
    assert done.code == 4 and "run it once without --last-failed" in done.err


def test_a_run_stops_at_its_first_failure_and_can_resume(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_FAILS", "b d")
    done = proctor("run", "suite.yaml", "-x", "-j", "1")
    assert done.code == 2 and "stopped at the first failure; go on with --resume" in done.err
    assert take_inputs(place) == ["a", "b"]
    assert proctor("run", "suite.yaml", "--resume", "latest").code == 1 and take_inputs(place) == ["c", "d"]
    monkeypatch.delenv("AGENT_FAILS")
    assert proctor("run", "suite.yaml", "--exitfirst").code == 0


def test_a_limit_reached_too_late_is_reported(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_FAILS", "b")
    done = proctor("run", "suite.yaml", "-x", "-j", "4")
    assert done.code == 1 and take_inputs(place) == CASES
    assert "1 attempt failed, the limit is 1: everything had been started by then" in done.err and "-j 1 starts one case" in done.err
    done = proctor("run", "suite.yaml", "--max-failures", "2", "-j", "1")
    assert "everything had been started" not in done.err


def test_the_short_pytest_flag_means_last_failed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_FAILS", "b d")
    proctor("run", "suite.yaml", "--quiet")
    take_inputs(place)
    done = proctor("run", "suite.yaml", "--lf", "-k", "id=b")
    assert take_inputs(place) == ["b"] and "1 of the 2 cases that failed in" in done.err


def test_last_failures_are_merged_over_partial_runs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_FAILS", "b c")
    proctor("run", "suite.yaml", "--quiet")
    monkeypatch.setenv("AGENT_FAILS", "c")
    assert proctor("run", "suite.yaml", "-k", "id=b").code == 0
    take_inputs(place)
    done = proctor("run", "suite.yaml", "--lf")
    assert take_inputs(place) == ["c"] and "the case that failed in" in done.err and "and the runs before it" in done.err, done
    monkeypatch.setenv("AGENT_FAILS", "a")
    proctor("run", "suite.yaml", "-k", "id=a")
    take_inputs(place)
    proctor("run", "suite.yaml", "--lf")
    assert take_inputs(place) == ["a", "c"]
    monkeypatch.delenv("AGENT_FAILS")
    proctor("run", "suite.yaml", "--lf")
    done = proctor("run", "suite.yaml", "--lf")
    assert done.code == 5 and "nothing failed in" in done.err


def test_a_missing_judge_is_reported_before_the_agent_is_imported(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROCTOR_JUDGE_MODEL", raising=False)
    (place / "agent.py").write_text("raise SystemExit('imported')\n")
    suite = {"proctor": 1, "name": "Judged", "cases": [{"id": "a", "input": "a", "expect": [{"judged": "It is polite."}]}]}
    (place / "suite.yaml").write_text(json.dumps(suite))
    done = proctor("run", "suite.yaml")
    assert done.code == 4 and "judge" in done.err and "imported" not in done.err, done


def test_a_check_stops_at_its_first_failure(place: Path) -> None:
    answers = {"a": "you sent a", "b": "no", "c": "no", "d": "you sent d"}
    (place / "evidence.jsonl").write_text("".join(json.dumps({"case": case, "text": text}) + "\n" for case, text in answers.items()))
    done = proctor("check", "suite.yaml", "evidence.jsonl", "-x", "--format", "jsonl")
    assert done.code == 2 and [json.loads(line)["id"] for line in done.out.splitlines()] == ["a", "b"]
    assert "stopped at the first failure" in done.err


@pytest.mark.parametrize("command", ("run", "check"))
def test_every_assertion_is_shown_as_its_case_ends(place: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("AGENT_FAILS", "a")
    (place / "evidence.jsonl").write_text(json.dumps({"case": "a", "text": "no idea"}) + "\n")
    given = ("evidence.jsonl",) if command == "check" else ()
    done = proctor(command, "suite.yaml", *given, "-k", "id=a", "-v", "--format", "json")
    lines = done.err.splitlines()
    start = lines.index("✗ a")
    assert lines[start + 1].startswith("    ✗ response_contains") and "you sent" in lines[start + 1] and "found" in lines[start + 1]
    assert lines[start + 2].startswith("    ✓ response_contains") and json.loads(done.out)["counts"]["fail"] == 1
