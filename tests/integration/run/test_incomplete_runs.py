"""Incomplete runs: every command reports how much is there, and none treats them as complete."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import proctor as package
from proctor.actions.workspace.run_history import open_run
from proctor.store.files.run_files import RunFiles
from tests.integration.running import Done, proctor

SUITE = """\
proctor: 1
name: Endings
cases:
  - {id: first, input: one, expect: [response_contains: you sent]}
  - {id: second, input: two, expect: [response_contains: you sent]}
  - {id: third, input: three, expect: [response_contains: you sent]}
"""
AGENT = "def answer(message):\n    return f'you sent {message}'\n"
INCOMPLETE = 2


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ending_agent.py").write_text(AGENT)
    (tmp_path / "proctor.yaml").write_text('targets: {agent: {type: callable, function: "ending_agent:answer"}}\n')
    (tmp_path / "suite.yaml").write_text(SUITE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def interrupt_run(place: Path, *, finished: int, repeat: int = 1) -> str:
    """Leave a run of which only the first `finished` results are on disk, as after a kill; return its id."""
    assert proctor("run", "suite.yaml", "-n", repeat, "-j", "1", "--quiet").code == 0
    folder = RunFiles(place / ".proctor").open("latest").folder
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "results.jsonl").write_text("".join(lines[:finished]))
    (folder / "ended.json").unlink()
    return folder.name


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("show", "latest"), "incomplete: 2 of 3 attempts, 2 of 3 cases; the run did not finish"),
        (("show", "latest", "--format", "markdown"), "**incomplete: 2 of 3 attempts, 2 of 3 cases; the run did not finish**"),
        (("show", "latest", "--format", "html"), "incomplete: 2 of 3 attempts, 2 of 3 cases; the run did not finish"),
        (
            ("show", "latest", "--format", "junit"),
            '<error message="the only attempt is missing: the run did not finish" type="incomplete">',
        ),
        (("show", "latest", "--format", "jsonl"), "incomplete: 2 of 3 attempts"),
        (("show", "latest", "--evidence"), "incomplete: 2 of 3 attempts"),
        (("report", "latest"), "incomplete: 2 of 3 attempts"),
        (("report", "latest", "--format", "otlp"), "incomplete: 2 of 3 attempts"),
        (("recheck", "latest"), "incomplete: 2 of 3 attempts"),
        (("recheck", "latest", "--suite", "suite.yaml"), "incomplete: 2 of 3 attempts"),
        (("compare", "latest", "latest"), "INCOMPLETE: the candidate has 2 of 3 attempts, 2 of 3 cases"),
        (("compare", "latest", "latest", "--format", "markdown"), "**INCOMPLETE: the base has 2 of 3 attempts, 2 of 3 cases**"),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, tuple) else "",
)
def test_an_interrupted_run_is_reported_incomplete_and_never_passes(place: Path, command: tuple[str, ...], words: str) -> None:
    interrupt_run(place, finished=2)
    done = proctor(*command)
    assert done.code == INCOMPLETE, done
    assert words in done.out + done.err, done


def test_junit_of_an_incomplete_run_fails_and_counts_missing_results(place: Path) -> None:
    interrupt_run(place, finished=1, repeat=2)
    tree = ET.fromstring(proctor("show", "latest", "--format", "junit").out)
    assert (tree.get("tests"), tree.get("errors"), tree.get("failures")) == ("4", "3", "0")
    missing = {case.get("name"): case.find("error").get("message") for case in tree.iter("testcase") if case.find("error") is not None}  # type: ignore[union-attr]
    assert missing == {
        "first [missing attempts]": "1 of 2 attempts are missing: the run did not finish",
        "second [missing attempts]": "2 of 2 attempts are missing: the run did not finish",
        "third [missing attempts]": "2 of 2 attempts are missing: the run did not finish",
    }


def test_json_of_an_incomplete_run_has_both_counts(place: Path) -> None:
    interrupt_run(place, finished=4, repeat=2)
    document = json.loads(proctor("show", "latest", "--format", "json").out)
    assert document["outcome"] == "error" and document["counts"]["pass"] == 4
    assert document["incomplete"] == {
        "ended": "not_ended",
        "attempts_finished": 4,
        "attempts_planned": 6,
        "cases_finished": 1,
        "cases_planned": 3,
        "missing": [
            {"id": "second", "attempts_finished": 1, "attempts_planned": 2},
            {"id": "third", "attempts_finished": 1, "attempts_planned": 2},
        ],
    }
    compared = json.loads(proctor("compare", "latest", "latest", "--format", "json").out)
    assert compared["candidate_incomplete"]["missing"] == ["second", "third"]


def test_a_selection_is_complete_if_its_results_are_there(place: Path) -> None:
    interrupt_run(place, finished=2)
    assert proctor("show", "latest", "-k", "first").code == 0
    done = proctor("show", "latest", "-k", "third")
    assert done.code == INCOMPLETE and "incomplete: 0 of 1 attempt, 0 of 1 case" in done.out, done


def test_a_failure_stays_a_failure_in_an_incomplete_run(place: Path) -> None:
    (place / "suite.yaml").write_text(SUITE.replace("two, expect: [response_contains: you sent]", "two, expect: [response_contains: no]"))
    assert proctor("run", "suite.yaml", "-j", "1", "--max-failures", "1", "--quiet").code == INCOMPLETE
    document = json.loads(proctor("show", "latest", "--format", "json").out)
    assert document["outcome"] == "fail" and document["incomplete"]["ended"] == "budget"


def test_a_crash_after_the_last_result_leaves_a_complete_run(place: Path) -> None:
    interrupt_run(place, finished=3)
    assert proctor("show", "latest").code == 0
    assert json.loads(proctor("show", "latest", "--format", "json").out)["incomplete"] is None


def test_a_run_is_resumed_with_its_own_number_of_repeats(place: Path) -> None:
    interrupt_run(place, finished=4, repeat=2)
    done = proctor("run", "suite.yaml", "--resume", "latest", "--format", "json", "--quiet")
    assert done.code == 0 and json.loads(done.out)["counts"]["pass"] == 6, done
    refused = proctor("run", "suite.yaml", "--resume", "latest", "-n", "3")
    assert refused.code == 4 and "was started with 2 repeats, not 3" in refused.err


def test_an_incomplete_run_does_not_pass_in_python(place: Path) -> None:
    run = interrupt_run(place, finished=2)
    result, _ = open_run(place / ".proctor", run)
    assert not result.passed and result.incomplete is not None
    assert isinstance(result, package.RunResult)
    assert [each.case.id for each in result.incomplete.missing] == ["third"]


def test_a_broken_header_affects_only_its_line_of_the_list(place: Path) -> None:
    first = interrupt_run(place, finished=2)
    assert proctor("run", "suite.yaml", "--quiet").code == 0
    latest = RunFiles(place / ".proctor").open("latest").folder
    (latest / "run.json").write_text('{"run_id": 7')
    listed = proctor("list")
    assert listed.code == 0, listed
    broken, part = listed.out.splitlines()
    assert broken.startswith(f"{latest.name}  broken: ") and "broken header" in broken
    assert part.startswith(f"{first}  Endings") and "[incomplete: 2 of 3 attempts, not ended]" in part
    rows = json.loads(proctor("list", "--format", "json").out)
    assert [(row["run_id"], row["header"] is None, row["planned"]) for row in rows] == [(latest.name, True, None), (first, False, 3)]


def test_a_header_that_is_a_folder_affects_only_its_line_of_the_list(place: Path) -> None:
    assert proctor("run", "suite.yaml", "--quiet").code == 0
    (place / ".proctor" / "runs" / "20260101-000002-folder" / "run.json").mkdir(parents=True)
    listed = proctor("list")
    assert listed.code == 0 and any(line.startswith("20260101-000002-folder  broken: ") for line in listed.out.splitlines()), listed


@pytest.mark.parametrize("number", ["1_0", "٣", " 5", "1e3", "9" * 30])
def test_numbers_of_flags_are_plain_digits(place: Path, number: str) -> None:
    done = proctor("run", "suite.yaml", "-n", number)
    assert done.code == 4 and "expected a whole number" in done.err, done


@pytest.mark.parametrize("lost", ["results.jsonl", "suite.yaml"])
def test_other_broken_files_affect_only_their_line(place: Path, lost: str) -> None:
    broken = interrupt_run(place, finished=2)
    (place / ".proctor" / "runs" / broken / lost).write_text("{nonsense\n")
    assert proctor("run", "suite.yaml", "--quiet").code == 0
    listed = proctor("list")
    assert listed.code == 0 and len(listed.out.splitlines()) == 2, listed


def test_an_interrupted_check_is_red_in_junit(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = interrupted_check(place, monkeypatch)
    tree = ET.fromstring(done.out)
    assert done.code == INCOMPLETE and tree.get("errors") == "1"
    assert "incomplete: 1 result, total unknown; the run was interrupted" in done.out


def interrupted_check(place: Path, monkeypatch: pytest.MonkeyPatch) -> Done:
    import proctor.cli.commands.check as command

    def stopped(*arguments: object, **options: object) -> object:
        yield next(iter(real(*arguments, **options)))  # type: ignore[arg-type]
        raise KeyboardInterrupt

    real = command.read_records
    monkeypatch.setattr(command, "read_records", stopped)
    (place / "evidence.jsonl").write_text('{"case": "first", "text": "you sent"}\n{"case": "second", "text": "you sent"}\n')
    return proctor("check", "suite.yaml", "evidence.jsonl", "--format", "junit")
