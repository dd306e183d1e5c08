"""Reports say who judged, how far the score lay from the threshold, and how many agreed."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.model.case import Assertion, Case
from proctor.model.result import CaseResult, RunResult
from proctor.model.verdict import Verdict
from proctor.report.findings import finding_lines
from proctor.report.html_comparisons import told
from proctor.report.judge_words import judge_words, reply_words
from proctor.report.junit import render_junit
from proctor.report.markdown import render_markdown
from proctor.report.terminal import TerminalReport

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
        ("fail", {"models": "m", "judge": 7, "samples": {"passed": True}, "threshold": True}, ""),
        ("fail", {}, ""),
    ],
)
def test_a_judged_verdict_is_told_in_one_line(outcome: Any, details: dict[str, Any], words: str) -> None:
    found = judge_words(Verdict(outcome, 0.5, "why", None, details))
    assert found == words.replace("0.5,", "0.50,").replace("0.9,", "0.90,")


def test_a_judge_whose_reason_names_it_is_not_named_twice() -> None:
    silent = Verdict("error", 0.0, 'judge "m" is down', "judge_unreachable", {"judge": "m", "models": ["m"], "samples": [NONE]})
    assert judge_words(silent) == "" and finding_lines(silent) == []


def test_a_reply_that_could_not_be_read_is_shown() -> None:
    details = {"judge": "m", "samples": [{"model": "m", "code": "judge_not_json"}], "replies": ["I think this is great!"]}
    assert reply_words(Verdict("error", 0.0, "no JSON", "judge_not_json", details)) == '"I think this is great!"'
    assert reply_words(Verdict("fail", 0.0, "curt", None, details)) == ""


def test_every_report_says_who_judged_and_by_which_measure() -> None:
    run, words = run_of(FAILED), "m · score 0.79, passes from 0.8"
    report = TerminalReport(colour=False)
    report.add(run.cases[0])
    assert f"      judge     {words}\n" in report.finish(run)
    assert words in render_markdown(run) and words in render_junit(run)
    assert {"about": "judge", "remark": words} in told(FAILED).rows


def test_a_title_that_is_a_sentence_is_joined_without_its_full_stop() -> None:
    run = run_of(FAILED)
    for text in (render_markdown(run), render_junit(run)):
        assert "judged · The answer is friendly: It is curt." in text and ".:" not in text
