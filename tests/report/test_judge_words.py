"""Reports show who judged, how far the score was from the threshold, and how many agreed."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.model.case import Assertion, Case
from proctor.model.result import CaseResult, RunResult
from proctor.model.verdict import Verdict
from proctor.report.builders.run import RunReport, render_markdown
from proctor.report.data.junit import render_junit
from proctor.report.document.terminal import write_terminal
from proctor.report.html.case import explain_in_rows
from proctor.report.words.findings import describe_judging, quote_unreadable_reply, write_findings
from proctor.report.words.wording import score_words

YES, NO, NONE = {"model": "m", "passed": True}, {"model": "m", "passed": False}, {"model": "m", "code": "judge_timeout"}
FAILED = Verdict(
    "fail", 0.79, "It is curt.", None, {"judge": "m", "models": ["m"], "samples": [{**NO, "score": 0.79}], "threshold": 0.8}, ("$.text",)
)


def run_of(verdict: Verdict) -> RunResult:
    case = Case(id="late", assertions=(Assertion(check="judged", spec=None, label="judged · The answer is friendly."),))
    result = CaseResult(case=case, outcome=verdict.outcome, score=verdict.score, verdicts=(verdict,))
    return RunResult(suite_name="Parcels", dialect="native", outcome=verdict.outcome, counts={verdict.outcome: 1}, cases=[result])


@pytest.mark.parametrize(
    ("outcome", "details", "words"),
    [
        ("fail", {"judge": "m", "models": ["m"], "samples": [NO]}, "m"),
        ("fail", {"judge": "strict", "models": ["m"], "samples": [NO]}, "strict (m)"),
        ("fail", {"judge": "m", "models": ["m"], "samples": [NO], "threshold": 0.8}, "m · score 0.5, passes from 0.8"),
        ("pass", {"judge": "a", "models": ["a", "b"], "samples": [YES, YES, NO]}, "a, b · 2 yes, 1 no"),
        ("pass", {"judge": "m", "models": ["m"], "samples": [YES, NONE]}, "m · 1 yes, 0 no, 1 without an answer"),
        ("error", {"judge": "m", "models": ["m"], "samples": [NONE, NONE]}, "m · 2 without an answer"),
        ("fail", {"judge": "m", "samples": [NO], "threshold": 0.8, "criterion": {"score": 0.9}}, "m · score 0.9, passes from 0.8"),
        ("error", {"judge": "m", "samples": [YES, NONE], "threshold": 0.8}, "m · passes from 0.8 · 1 yes, 0 no, 1 without an answer"),
        ("fail", {"models": "m", "judge": 7, "samples": {"passed": True}, "threshold": True}, ""),
        ("fail", {}, ""),
    ],
)
def test_a_judged_verdict_is_described_in_one_line(outcome: Any, details: dict[str, Any], words: str) -> None:
    found = describe_judging(Verdict(outcome, 0.5, "why", None, details))
    assert found == words.replace("0.5,", "0.50,").replace("0.9,", "0.90,")


def test_a_judge_whose_reason_names_it_is_not_named_twice() -> None:
    silent = Verdict("error", 0.0, 'judge "m" is down', "judge_unreachable", {"judge": "m", "models": ["m"], "samples": [NONE]})
    assert describe_judging(silent) == "" and write_findings(silent) == []


def test_a_reply_that_could_not_be_read_is_shown() -> None:
    unread = {"model": "m", "code": "judge_not_json", "reply": "I think this is great!"}
    details = {"judge": "m", "samples": [unread], "replies": ["I think this is great!"]}
    assert quote_unreadable_reply(Verdict("error", 0.0, "no JSON", "judge_not_json", details)) == '"I think this is great!"'
    # The reply that could not be read, not the last one: constraints are another request.
    read, unread_rows = [{"samples": [YES]}], [{"samples": [unread]}]
    for parts in ({"samples": [unread], "negative_constraints": read}, {"samples": [YES], "negative_constraints": unread_rows}):
        both = {"judge": "m", "replies": ["I think this is great!", "fine"], **parts}
        assert quote_unreadable_reply(Verdict("error", 0.0, "no JSON", "judge_not_json", both)) == '"I think this is great!"'
    assert quote_unreadable_reply(Verdict("fail", 0.0, "curt", None, details)) == ""


def test_every_report_shows_who_judged_and_by_which_measure() -> None:
    run, words = run_of(FAILED), "m · score 0.79, passes from 0.8"
    report = RunReport("terminal")
    report.add(run.cases[0])
    assert f"      judge     {words}\n" in write_terminal(report.finish(run))
    assert words in render_markdown(run) and words in render_junit(run)
    assert {"about": "judge", "remark": words} in explain_in_rows(FAILED).rows


def test_a_run_in_which_nothing_was_decided_has_no_score() -> None:
    assert score_words(0.0, {"error": 2}) == ""
    assert score_words(0.0, {"error": 2, "fail": 1}) == "score 0.00 of what was decided"
    assert score_words(0.5, {"error": 2}) == "score 0.50 of what was decided"


def test_a_title_that_is_a_sentence_is_joined_without_its_full_stop() -> None:
    run = run_of(FAILED)
    for text in (render_markdown(run), render_junit(run)):
        assert "judged · The answer is friendly: It is curt." in text and ".:" not in text


DEAD = 'the judge "m" could not be reached: connection refused (3 tries)'


def undecided(case: str, *verdicts: Verdict) -> CaseResult:
    assertions = tuple(Assertion(check="judged", spec=None, label=f"claim {number} of {case}") for number in range(len(verdicts)))
    outcomes = {verdict.outcome for verdict in verdicts}
    outcome = "fail" if "fail" in outcomes else "error" if "error" in outcomes else "pass"
    return CaseResult(case=Case(id=case, assertions=assertions), outcome=outcome, score=None, verdicts=verdicts)


def terminal(*results: CaseResult, most_failures: int = 20) -> str:
    report = RunReport("terminal", most_failures=most_failures)
    for result in results:
        report.add(result)
    return write_terminal(report.finish(RunResult(suite_name="Parcels", dialect="native", outcome="error", counts={"error": len(results)})))


def test_an_unreachable_judge_is_reported_once_with_its_checks() -> None:
    dead = Verdict("error", 0.0, DEAD, "judge_unreachable", {"judge": "m", "models": ["m"], "samples": [NONE]})
    text = terminal(
        undecided("a", dead, dead), undecided("b", dead, Verdict("fail", 0.0, "too long")), undecided("c", Verdict("pass", 1.0, ""))
    )
    assert text.count("could not be reached") == 1
    section = text[text.index("Not judged") :]
    assert section.splitlines()[1:3] == [f"  ! {DEAD} [judge_unreachable]", "      3 checks in 2 cases"]
    assert "  ! claim 0 of a [judge_unreachable, see below]\n  ! claim 1 of a [judge_unreachable, see below]\n" in text
    assert "  ! claim 0 of b [judge_unreachable, see below]\n\n" in text
    assert "too long" in text


def test_entries_hidden_for_lack_of_space_are_counted_too() -> None:
    dead = Verdict("error", 0.0, DEAD, "judge_unreachable")
    text = terminal(*(undecided(f"case-{number}", dead, dead) for number in range(30)), most_failures=3)
    assert text.count("could not be reached") == 1 and "    60 checks in 30 cases\n" in text


def test_a_fault_that_happens_once_stays_with_its_claim() -> None:
    dead = Verdict("error", 0.0, DEAD, "judge_unreachable")
    other = Verdict("error", 0.0, "the judge is uncertain: 1 of 2 say yes", "judge_uncertain")
    text = terminal(undecided("a", dead, other))
    assert "Not judged" not in text and f"      {DEAD}\n" in text and "see below" not in text


def test_the_same_words_of_another_check_are_not_taken_for_the_judge() -> None:
    broken = Verdict("error", 0.0, "the pattern took too long", "regex_timeout")
    assert terminal(undecided("a", broken, broken)).count("the pattern took too long") == 2


def test_faults_of_many_kinds_are_bounded() -> None:
    results = [undecided(f"c{number}", *(Verdict("error", 0.0, f"fault {number}", "judge_timeout"),) * 2) for number in range(5000)]
    text = terminal(*results)
    assert text.count("2 checks in 1 case\n") <= 20 and len(text) < 20_000


def test_a_remark_about_the_judge_is_shown_once() -> None:
    dead = Verdict("error", 0.0, DEAD, "judge_unreachable")
    advisory = [
        CaseResult(
            case=Case(id=f"p{number}", assertions=(Assertion(check="judged", spec=None, label="kind", advisory=True),)),
            outcome="pass",
            score=1.0,
            verdicts=(dead,),
        )
        for number in range(3)
    ]
    text = terminal(*advisory)
    assert text.count("could not be reached") == 1 and "3 checks in 3 cases" in text


def test_an_invalid_judge_reply_is_shown_once() -> None:
    details: dict[str, Any] = {"judge": "m", "models": ["m"], "samples": [{**NONE, "reply": "I think it is fine!"}]}
    odd = Verdict("error", 0.0, 'the judge "m" returned invalid JSON', "judge_not_json", details)
    text = terminal(undecided("a", odd, odd), undecided("b", odd))
    assert text.count("I think it is fine!") == 1
    assert text[text.index("Not judged") :].splitlines()[2:4] == ['      replied   "I think it is fine!"', "      3 checks in 2 cases"]
