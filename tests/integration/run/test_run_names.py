"""Runs by name, tag, `latest`, `previous` and baseline; and what `compare` reports about two of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from proctor.store.files.run_files import RunFiles
from tests.integration.running import proctor

AGENT = """\
import os

def answer(message):
    if os.environ.get("AGENT_FAILS") and message.endswith(os.environ["AGENT_FAILS"]):
        return "no <b>idea</b>"
    return f"you sent {message}"
"""


def suite_text(name: str, count: int = 4) -> str:
    cases = "\n".join(f"  - {{id: c{number}, input: hello {number}, expect: [response_contains: you sent]}}" for number in range(count))
    return f"proctor: 1\nname: {name}\ncases:\n{cases}\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "proctor.yaml").write_text('targets: {agent: {type: callable, function: "agent:answer"}}\n')
    (tmp_path / "suite.yaml").write_text(suite_text("Named"))
    (tmp_path / "other.yaml").write_text(suite_text("Other"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "agent", raising=False)
    monkeypatch.delenv("AGENT_FAILS", raising=False)
    return tmp_path


def run(*flags: str, suite: str = "suite.yaml") -> str:
    """Run the suite; returns the id of the run."""
    done = proctor("run", suite, "--format", "json", "--quiet", *flags)
    return json.loads(done.out)["run_id"]


def shown(reference: str) -> str:
    return json.loads(proctor("show", reference, "--format", "json").out)["run_id"]


def test_a_run_is_found_by_name_tags_and_position(place: Path) -> None:
    ids = sorted([run("--name", "v1", "--tag", "nightly,slow"), run("--name", "v1"), run("--tag", "nightly")])
    files = RunFiles(place / ".proctor")
    by_name = sorted(id for id in ids if files.open(id).header.name == "v1")
    by_tag = sorted(id for id in ids if "nightly" in files.open(id).header.tags)
    assert shown("latest") == ids[-1] and shown("previous") == ids[-2]
    assert shown("v1") == by_name[-1] and shown("@nightly") == by_tag[-1]
    assert f"v1 is {by_name[-1]}, the newest of 2 runs named so" in proctor("show", "v1").err
    assert proctor("show", "v1", "--quiet").err == ""


@pytest.mark.parametrize("command", (("show",), ("report", "--output", "r.html"), ("recheck",), ("list",)), ids=lambda words: words[0])
def test_every_command_takes_the_same_run_names(place: Path, command: tuple[str, ...]) -> None:
    run("--name", "v1", "--tag", "t")
    assert proctor("baseline", "set", "v1").code == 0
    for word in ("latest", "v1", "@t", "baseline", "main"):
        done = proctor(command[0], word, *command[1:])
        assert done.code == 0, (word, done)
    assert proctor(command[0], "nope", *command[1:]).code == 4


@pytest.mark.parametrize(
    ("word", "message"),
    (
        ("@nigthly", "no run is tagged '@nigthly'; nearest: @nightly"),
        ("v11", "nearest: v1"),
        ("previous", "no run 'previous': there are"),
        ("baseline", "there is no baseline yet; `proctor baseline set RUN` chooses one"),
    ),
)
def test_an_unknown_run_is_reported_with_the_existing_ones(place: Path, word: str, message: str) -> None:
    run("--name", "v1", "--tag", "nightly")
    done = proctor("show", word)
    assert done.code == 4 and message in done.err


@pytest.mark.parametrize(
    ("flags", "message"),
    (
        (("--name", "latest"), "always means another run"),
        (("--name", "@x"), "--tag x"),
        (("--name", "a/b"), "has a slash"),
        (("--name", "x\u202e"), "cannot be seen"),
        (("--name", "20261115-090000-a"), "looks like the id"),
        (("--name", "x" * 101), "at most 100 characters"),
        (("--tag", "two words"), "no single word"),
        (("--resume", "latest", "--name", "x"), "keeps its name"),
    ),
)
def test_an_unusable_run_name_is_refused(place: Path, flags: tuple[str, ...], message: str) -> None:
    done = proctor("run", "suite.yaml", *flags)
    assert done.code == 4 and message in done.err
    assert not (place / ".proctor" / "runs").exists()


def test_the_list_shows_names_tags_notes_and_the_baseline(place: Path) -> None:
    first = run("--name", "v1", "--tag", "nightly", "--note", "before the\nchange")
    proctor("baseline", "set", first)
    run()
    line = next(line for line in proctor("list").out.splitlines() if line.startswith(first))
    assert all(word in line for word in ("(baseline)", "name: v1", "@nightly", "note: before the")), line
    assert len(proctor("list", "@nightly").out.splitlines()) == 1
    listed = {each["run_id"]: each for each in json.loads(proctor("list", "--format", "json").out)}
    assert listed[first]["is_baseline"] and listed[first]["header"]["tags"] == ["nightly"]


def test_the_baseline_is_chosen_for_a_suite_shown_and_forgotten(place: Path) -> None:
    mine, other = run(), run(suite="other.yaml")
    assert proctor("baseline", "show").code == 5
    assert proctor("baseline", "set", mine).code == proctor("baseline", "set", other).code == 0
    assert json.loads(proctor("baseline", "show", "--format", "json").out) == {"Named": mine, "Other": other}
    assert "could be the baseline of any of the suites 'Named', 'Other'" in proctor("show", "baseline").err
    later = run()
    compared = proctor("compare", later)
    assert compared.code == 0 and f"the baseline is {mine}" in compared.err and f"{mine} → {later}" in compared.out
    assert proctor("baseline", "unset", "--suite", "Other").code == 0
    assert json.loads(proctor("baseline", "show", "--format", "json").out) == {"Named": mine}
    assert proctor("baseline", "unset").code == 0 and proctor("baseline", "show").code == 5
    assert proctor("show", mine).code == 0, "the run itself stays"


def test_main_is_the_newest_run_of_that_name_until_a_baseline_is_chosen(place: Path) -> None:
    named = run("--name", "main")
    later = run()
    assert shown("main") == named
    proctor("baseline", "set", later)
    assert shown("main") == later


def test_an_incomplete_run_is_no_baseline(place: Path) -> None:
    done = proctor("run", "suite.yaml", "--max-failures", "1", "--quiet", "-j", "1", "--target", "agent")
    assert done.code == 0
    (RunFiles(place / ".proctor").open("latest").folder / "ended.json").unlink()
    done = proctor("baseline", "set", "latest")
    assert done.code == 4 and "did not finish" in done.err


def test_compare_defaults_to_the_baseline_and_the_latest_run(place: Path) -> None:
    base = run("--name", "before")
    done = proctor("compare")
    assert done.code == 4 and "there is no baseline of the suite 'Named' yet; `proctor baseline set RUN` chooses one" in done.err
    proctor("baseline", "set", "latest")
    latest = run()
    done = proctor("compare")
    ids = sorted((base, latest))
    assert done.code == 0 and f"latest is {ids[-1]}" in done.err and f"the baseline is {base}" in done.err
    assert f"before ({base})" in done.out


@pytest.mark.parametrize("format", ("terminal", "markdown", "html", "json"))
def test_newly_failing_cases_come_first_with_their_reasons(place: Path, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    monkeypatch.setenv("AGENT_FAILS", "1")
    base = run()
    monkeypatch.setenv("AGENT_FAILS", "3")
    candidate = run()
    done = proctor("compare", base, candidate, "--format", format)
    assert done.code == 0
    if format == "json":
        assert json.loads(done.out)["reasons"].keys() == {"c3"}
        return
    text = done.out.lower()
    assert 0 < text.index("newly failing") < text.index("newly passing")
    assert "idea" in done.out and "response_contains" in done.out.replace("\\_", "_")
    if format == "html":
        assert "<b>" not in done.out and "&lt;b&gt;" in done.out and "default-src 'none'" in done.out


@pytest.mark.parametrize("format", ("terminal", "markdown", "html"))
def test_a_regression_is_reported_in_points_without_advice_on_repeats(place: Path, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    monkeypatch.setenv("AGENT_FAILS", "")
    base = run("-n", "20")
    monkeypatch.setenv("AGENT_FAILS", "3")
    candidate = run("-n", "20")
    done = proctor("compare", base, candidate, "--format", format, "--output", "compared")
    assert "wrote compared" in done.err and done.code == 0
    text = (place / "compared").read_text()
    assert "regressed" in text.lower() and "−25 points" in text.replace("\\", "") and "-25.0%" not in text and "with 80 % power" not in text
    assert "ratio" not in text.partition("<style>")[0] + text.partition("</style>")[2]
    if format == "html":
        assert "<span>20/20 → 0/20</span>" in text and "white-space: nowrap" in text


def test_help_names_no_impossible_run(place: Path) -> None:
    for command in ("compare", "show", "report", "recheck", "baseline", "list"):
        assert "20261115" not in proctor(command, "--help").out
