"""`--fail-on`: a run that fails for more than its assertions, or only for what is new."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.integration.running import Done, proctor

AGENT = """\
import os, itertools
calls = itertools.count()

def answer(message):
    if message in os.environ.get("AGENT_RAISES", "").split():
        raise RuntimeError("not there")
    if message in os.environ.get("AGENT_FAILS", "").split():
        return "no idea"
    if message in os.environ.get("AGENT_FLAKY", "").split() and next(calls) % 2:
        return "no idea"
    return f"you sent {message}"
"""
CASES = ["a", "b", "c"]


def write_suite(path: Path, cases: list[str], **more: object) -> None:
    written = [{"id": case, "input": case, "expect": [{"response_contains": "you sent"}], **more} for case in cases]
    path.write_text(json.dumps({"proctor": 1, "name": "Gated", "cases": written}))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "proctor.yaml").write_text('targets: {agent: {type: callable, function: "agent:answer"}}\n')
    write_suite(tmp_path / "suite.yaml", CASES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "agent", raising=False)
    return tmp_path


def run(*flags: str, fails: str = "") -> Done:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENT_FAILS", fails)
        return proctor("run", "suite.yaml", "--quiet", *flags)


def check(place: Path, answers: dict[str, str], *flags: str) -> Done:
    lines = [json.dumps({"case": case, "text": answer}) for case, answer in answers.items()]
    (place / "evidence.jsonl").write_text("\n".join(lines) + "\n")
    return proctor("check", "suite.yaml", "evidence.jsonl", "--quiet", *flags)


GOOD, BAD = "you sent it", "no idea"


@pytest.mark.parametrize(
    ("before", "after", "flags", "code", "message"),
    (
        ("", "b", "new-failure", 1, "failed on new-failure: 1 case passed in"),
        ("b", "b", "new-failure", 0, "1 case that fails: b; let through"),
        ("b", "b c", "new-failure", 1, "and does not now: c"),
        ("b", "", "new-failure", 0, ""),
        ("", "", "new-failure,regression", 0, ""),
        ("b", "b", "regression", 0, "1 case that fails: b; let through"),
        ("b", "b c", "regression", 1, "too little data to decide"),
        ("b c", "b c", "new-failure", 0, "2 cases that fail: b, c; let through"),
        ("b", "b", "regression,new-failure", 0, "let through"),
        ("", "a b c", "regression,new-failure", 1, "failed on new-failure: 3 cases"),
    ),
)
def test_a_run_is_compared_with_the_baseline(place: Path, before: str, after: str, flags: str, code: int, message: str) -> None:
    run(fails=before)
    proctor("baseline", "set", "latest")
    done = run("--fail-on", flags, fails=after)
    assert done.code == code and message in done.err, done
    answers = {case: BAD if case in after.split() else GOOD for case in CASES}
    checked = check(place, answers, *(word for flag in flags.split(",") for word in ("--fail-on", flag)))
    assert checked.code == code and message in checked.err, checked
    run(fails=after)
    compared = proctor("compare", "baseline", "latest", "--fail-on", flags)
    assert compared.code == code and (message in compared.err or "let through" in message), compared


@pytest.mark.parametrize(
    ("flag", "message"), (("flaky", "is about one run: give it to `proctor run`"), ("regresion", "nearest: regression"))
)
def test_compare_refuses_a_reason_that_two_runs_cannot_show(place: Path, flag: str, message: str) -> None:
    run("--name", "before")
    done = proctor("compare", "before", "latest", "--fail-on", flag)
    assert done.code == 4 and message in done.err, done


def test_compare_accepts_a_run_without_common_cases(place: Path) -> None:
    run("--name", "before")
    write_suite(place / "suite.yaml", ["x", "y"])
    run(fails="x")
    done = proctor("compare", "before", "latest", "--fail-on", "regression")
    assert done.code == 4 and "no decided case in common" in done.err, done


def test_a_significant_regression_fails_and_a_ruled_out_one_passes(place: Path) -> None:
    run("-n", "40", fails="b")
    proctor("baseline", "set", "latest")
    assert run("-n", "40", "--fail-on", "regression", fails="b").code == 0
    done = run("-n", "40", "--fail-on", "regression", fails="a b")
    assert done.code == 1 and "failed on regression: against" in done.err
    done = proctor("compare", "baseline", "latest", "--fail-on", "regression")
    assert done.code == 1 and "failed on regression: against" in done.err


def test_a_case_that_passed_in_part_and_in_no_attempt_now_is_a_new_failure(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_FLAKY", "b")
    run("-n", "4", "-j", "1", "--name", "before")
    done = run("-n", "4", "--fail-on", "new-failure", "--against", "before", fails="b")
    message = "and does not now: b"
    assert done.code == 1 and message in done.err, done
    compared = proctor("compare", "before", "latest", "--fail-on", "new-failure")
    assert compared.code == 1 and message in compared.err, compared


@pytest.mark.parametrize("reason", ("regression", "new-failure", "new-failure,regression,missing"))
def test_a_run_compared_with_itself_does_not_fail(place: Path, reason: str) -> None:
    run("--name", "before", fails="b")
    assert proctor("compare", "before", "before", "--fail-on", reason).code == 0


def test_vanished_cases_fail_with_fail_on_missing(place: Path) -> None:
    run("--name", "before")
    run("-k", "id=a")
    assert proctor("compare", "before", "latest", "--fail-on", "regression").code == 0
    done = proctor("compare", "before", "latest", "--fail-on", "regression,missing")
    assert done.code == 1 and "failed on missing: 2 cases were decided in" in done.err and "are not now: b, c" in done.err, done
    again = run("-k", "id=a", "--fail-on", "new-failure,missing", "--against", "before")
    assert again.code == 1 and "are not now: b, c" in again.err, again
    assert run("--fail-on", "new-failure,missing", "--against", "before").code == 0


def test_compare_and_run_agree_on_missing_evidence(place: Path) -> None:
    write_suite(place / "suite.yaml", ["a"], expect=[{"response_contains": "you"}, {"tokens_within": {"total": 5}, "when_missing": "skip"}])
    run("--name", "before")
    message = "lacks evidence that it needs: a"
    assert message in run("--fail-on", "missing").err
    done = proctor("compare", "before", "latest", "--fail-on", "missing")
    assert done.code == 1 and message in done.err, done


def test_a_case_that_is_new_and_fails_is_a_new_failure(place: Path) -> None:
    run(fails="b")
    proctor("baseline", "set", "latest")
    write_suite(place / "suite.yaml", [*CASES, "d"])
    done = run("--fail-on", "new-failure", fails="b d")
    assert done.code == 1 and "fails and was not decided in" in done.err and ": d" in done.err


@pytest.mark.parametrize("command", ("run", "check"))
def test_a_missing_baseline_is_reported_before_anything_runs(place: Path, command: str) -> None:
    done = run("--fail-on", "new-failure") if command == "run" else check(place, {}, "--fail-on", "new-failure")
    assert done.code == 4 and "there is no baseline of the suite 'Gated' yet; `proctor baseline set RUN` chooses one" in done.err
    assert not (place / ".proctor").exists()


def test_a_run_is_compared_with_another_by_name(place: Path) -> None:
    run("--name", "before", fails="b")
    assert run("--fail-on", "new-failure", "--against", "before", fails="b").code == 0
    assert run("--fail-on", "new-failure", "--against", "before", fails="a").code == 1
    assert run("--against", "before").code == 4


def test_a_run_with_nothing_in_common_is_no_baseline(place: Path) -> None:
    run()
    proctor("baseline", "set", "latest")
    write_suite(place / "suite.yaml", ["x", "y"])
    done = run("--fail-on", "new-failure")
    assert done.code == 4 and "no decided case in common" in done.err


def test_a_flaky_case_fails_also_where_the_pass_rate_is_reached(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_FLAKY", "b")
    done = run("-n", "4", "-j", "1", "--min-pass-rate", "0.5", "--fail-on", "flaky")
    assert done.code == 1 and "failed on flaky: 1 case passed and failed: b" in done.err
    assert run("-n", "4", "-j", "1", "--min-pass-rate", "0.5").code == 0


@pytest.mark.parametrize(
    ("raises", "fails", "flags", "code", "message"),
    (
        ("", "", "0.9", 0, "pass rate 100.0 % (3 of 3 attempts), at least 90.0 %: reached"),
        ("", "c", "0.6", 0, "pass rate 66.7 % (2 of 3 attempts), at least 60.0 %: reached"),
        ("", "c", "0.7", 1, "pass rate 66.7 % (2 of 3 attempts), at least 70.0 %: not reached"),
        ("", "a b c", "0", 0, "pass rate 0.0 % (0 of 3 attempts), at least 0.0 %: reached"),
        ("c", "", "0.5", 1, "1 attempt ended in an error and was not examined, so there is no pass rate; --allow-errors"),
        ("c", "", "0.5 --allow-errors", 0, "pass rate 66.7 % (2 of 3 attempts, 1 of them an error), at least 50.0 %: reached"),
        ("c", "", "0.7 --allow-errors", 1, "66.7 % (2 of 3 attempts, 1 of them an error), at least 70.0 %: not reached"),
        ("a b c", "", "0", 1, "3 attempts ended in an error and were not examined"),
        ("a b c", "", "0 --allow-errors", 1, "nothing was examined, so there is no pass rate"),
    ),
)
def test_a_pass_rate_is_reported_and_accepts_errors_only_on_request(
    place: Path, monkeypatch: pytest.MonkeyPatch, raises: str, fails: str, flags: str, code: int, message: str
) -> None:
    monkeypatch.setenv("AGENT_RAISES", raises)
    done = run("--min-pass-rate", *flags.split(), fails=fails)
    assert done.code == code and message in done.err, done


def test_errors_are_allowed_only_with_a_pass_rate(place: Path) -> None:
    done = run("--allow-errors")
    assert done.code == 4 and "--allow-errors requires --min-pass-rate" in done.err


def test_a_skipped_case_and_missing_evidence_fail_on_request(place: Path) -> None:
    answers = {"a": GOOD, "b": GOOD}
    assert check(place, answers).code == 0
    done = check(place, answers, "--fail-on", "skipped")
    assert done.code == 1 and "failed on skipped: 1 case was skipped: c" in done.err
    done = check(place, answers, "--fail-on", "missing")
    assert done.code == 1 and "failed on missing: 1 case" in done.err
    assert check(place, {**answers, "c": GOOD}, "--fail-on", "skipped,missing").code == 0


def test_evidence_without_the_part_a_claim_needs_is_missing(place: Path) -> None:
    write_suite(place / "suite.yaml", ["a"], expect=[{"response_contains": "you"}, {"tokens_within": {"total": 5}, "when_missing": "skip"}])
    assert check(place, {"a": GOOD}).code == 0
    done = check(place, {"a": GOOD}, "--fail-on", "missing")
    assert done.code == 1 and "lacks evidence that it needs: a" in done.err


def test_known_failures_are_not_let_through_below_the_pass_rate(place: Path) -> None:
    run(fails="b")
    proctor("baseline", "set", "latest")
    assert run("--fail-on", "new-failure", "--min-pass-rate", "0.9", fails="b").code == 1


def test_an_unknown_reason_is_refused_with_the_nearest(place: Path) -> None:
    done = run("--fail-on", "new-failures")
    assert done.code == 4 and "nearest: new-failure" in done.err


@pytest.mark.parametrize("format", ["terminal", "markdown", "junit", "json", "html"])
@pytest.mark.parametrize("gate", ["rate", "baseline"])
def test_a_passing_gate_is_green_with_a_reason(place: Path, monkeypatch: pytest.MonkeyPatch, gate: str, format: str) -> None:
    run(fails="b")
    proctor("baseline", "set", "latest")
    flags = ("--min-pass-rate", "0.6") if gate == "rate" else ("--fail-on", "new-failure")
    why = "66.7 % (2 of 3 attempts), at least 60.0 %: reached" if gate == "rate" else "1 case that fails: b; let through"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    done = run(*flags, "--format", format, "--summary", str(place / "summary.md"), fails="b")
    assert (done.code, why in done.out, "::error" in done.err, "::warning" in done.err) == (0, True, False, True), done
    summary = (place / "summary.md").read_text()
    assert summary.startswith("## ✅ Gated: 1 failed, 2 passed") and why in summary.replace("\\", "")
    last = done.out.rstrip().splitlines()[-1]
    if format == "terminal":
        assert last.startswith("✓ PASS  1 failed, 2 passed")
    if format == "junit":
        assert (
            'failures="0" errors="0" time="0" skipped="1"' in done.out and "<failure" not in done.out and "fail, let through: " in done.out
        )
    if format == "json":
        assert (json.loads(done.out)["outcome"], json.loads(done.out)["let_through"].count(why)) == ("fail", 1)
    red = run(*flags, "--format", format, fails="a b")
    assert red.code == 1 and "let_through" not in red.out and "::error" in red.err
    if gate == "baseline":
        checked = check(place, {case: BAD if case == "b" else GOOD for case in CASES}, *flags, "--format", format)
        assert (checked.code, why in checked.out) == (0, True), checked


def test_several_runs_are_each_compared_with_the_first(place: Path) -> None:
    for name, fails in (("one", ""), ("two", "b"), ("three", "b c")):
        run("-n", "12", "--name", name, fails=fails)
    done = proctor("compare", "one", "two", "three", "--format", "json", "--fail-on", "new-failure")
    found = json.loads(done.out)["comparisons"]
    assert done.code == 1 and [len(each["found"]["comparison"]["newly_failing"]) for each in found] == [1, 2]
    assert all(each["adjusted_p"] >= each["found"]["comparison"]["p_value"] for each in found)
    for format in ("terminal", "markdown"):
        shown = proctor("compare", "one", "two", "three", "--format", format)
        assert shown.code == 0 and shown.out.count("among 2 comparisons (Holm)") == 2
    assert proctor("compare", "one", "two", "three", "--format", "html").code == 4


def test_the_text_of_a_run_with_repeats_has_how_likely_several_attempts_all_pass(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_FLAKY", "b")
    for format in ("terminal", "markdown"):
        monkeypatch.delitem(sys.modules, "agent", raising=False)
        assert "pass^2 72.2 %" in run("-n", "4", "--format", format).out


def test_commands_that_show_a_run_default_to_the_latest(place: Path) -> None:
    run(fails="a")
    run(fails="b")
    assert "FAIL  b" in proctor("show").out and "FAIL  b" in proctor("recheck").out
    assert proctor("report", "--format", "markdown").code == 0 and "`b`" in (place / "report.md").read_text()
