"""The text in the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from hypothesis import given, settings

from proctor.model.case import Case, Scoring
from proctor.model.evidence import Source
from proctor.model.result import CaseResult, CaseSummary, RunResult
from proctor.model.verdict import Verdict, errored, failed, passed
from proctor.report.builders.run import RunReport
from proctor.report.document.terminal import write_terminal
from proctor.report.words.findings import write_findings
from proctor.report.words.style import count_columns
from tests.report import samples
from tests.report.golden import assert_golden
from tests.report.strategies import runs

COLOURS = re.compile("\x1b\\[[0-9;]*m")


def rendered(run: RunResult, *, colour: bool = False, width: int = 100, most_failures: int = 20) -> str:
    report = RunReport("terminal", most_failures=most_failures)
    for result in run.cases:
        report.add(result)
    return write_terminal(report.finish(run), colour=colour, width=width)


def streamed(results: Iterable[CaseResult], run: RunResult) -> str:
    report = RunReport("terminal")
    for result in results:
        report.add(result)
    return write_terminal(report.finish(run))


@pytest.mark.parametrize(
    ("name", "run", "options"),
    [
        ("troubled.txt", samples.troubled_run(), {}),
        ("troubled_narrow.txt", samples.troubled_run(), {"width": 60}),
        ("troubled_colour.txt", samples.troubled_run(), {"colour": True}),
        ("calm.txt", samples.calm_run(), {}),
        ("skipped.txt", samples.run_of(samples.skipped_case()), {}),
        ("empty.txt", samples.run_of(), {}),
    ],
)
def test_the_text_matches_the_golden_file(name: str, run: RunResult, options: dict[str, int]) -> None:
    assert_golden(name, rendered(run, **options))


def test_the_text_of_a_stream_is_that_of_the_whole_run() -> None:
    whole = samples.troubled_run()
    bare = RunResult(
        suite_name=whole.suite_name,
        suite_path=whole.suite_path,
        outcome=whole.outcome,
        score=whole.score,
        counts=whole.counts,
        summary=whole.summary,
        warnings=whole.warnings,
        unmatched_evidence=whole.unmatched_evidence,
    )
    assert streamed(whole.cases, bare) == rendered(whole)


def test_a_run_whose_results_were_never_added_is_read_from_the_run_itself() -> None:
    run = samples.troubled_run()
    assert write_terminal(RunReport("terminal").finish(run)) == rendered(run)


def test_only_the_first_failures_are_stored_of_a_hundred_thousand() -> None:
    case = Case(id="many", assertions=(samples.claim("holds"),), tags={"test_dimension": "load"})
    report = RunReport("terminal", most_failures=7)
    verdicts = (failed("expected 1, found 2"),)
    for line in range(100_000):
        report.add(CaseResult(case, "error" if line == 99_999 else "fail", 0.0, verdicts, Source(file="big.jsonl", line=line + 1)))
    assert report.held == 7
    counts = {"pass": 0, "fail": 99_999, "error": 1, "skip": 0}
    summary = (CaseSummary(id="many", name="", outcome="fail", runs=100_000, counts=counts),)
    text = write_terminal(report.finish(RunResult(suite_name="s", outcome="fail", score=0.0, counts=counts, summary=summary)))
    assert text.count("FAIL  many\n") == 7
    assert "not shown here: 99,992 failed, 1 error;" in text
    assert "big.jsonl:7\n" in text and "big.jsonl:8\n" not in text
    assert "0 of 100,000 passed" in text
    assert text.endswith("✗ FAIL  99,999 failed, 1 error  ·  score 0.00 of what was decided\n")


def _make_fault(name: str, reason: str, attempt: int = 0) -> CaseResult:
    return CaseResult(Case(id=name), "error", None, (), code="target_failed", reason=reason, attempt=attempt)


def test_faults_beyond_the_limit_are_counted_as_not_shown() -> None:
    results = [_make_fault("first", "down"), _make_fault("second", "gone")]
    results += [_make_fault(f"third-{number}", "lost") for number in range(50)] + [_make_fault("again", "down")]
    text = rendered(samples.run_of(*results), most_failures=2)
    assert "the same once more: again" in text and "lost" not in text
    assert "not shown here: 50 errors;" in text


def test_attempts_at_one_case_with_one_fault_are_no_others() -> None:
    results = [_make_fault("first", "down"), *(_make_fault("second", "down", attempt) for attempt in range(3))]
    assert "the same 3 times more: second\n" in rendered(samples.run_of(*results))
    many = [_make_fault(f"case-{number}", "down") for number in range(12)]
    assert "the same 11 times more: case-1, case-2" in rendered(samples.run_of(*many))
    assert "case-10 and others\n" in rendered(samples.run_of(*many))


def test_passes_skips_and_remarks_are_stored_up_to_a_limit() -> None:
    report = RunReport("terminal")
    for _ in range(1000):
        report.add(samples.advised_case())
        report.add(samples.skipped_case())
    assert report.held < 100


def test_values_of_a_tag_are_bounded_and_the_rest_counted_together() -> None:
    results = [CaseResult(Case(id=f"c{n}", tags={"test_dimension": f"dimension {n}"}), "pass", 1.0, ()) for n in range(50)]
    text = rendered(samples.run_of(*results))
    assert "dimension 19 " in text and "dimension 20" not in text
    assert "(others)" in text and "30 of 30 passed" in text


def test_more_than_thirty_passes_are_only_counted() -> None:
    results = [samples.passing_case(f"case-{n}", "") for n in range(31)]
    text = rendered(samples.run_of(*results))
    assert "case-3" not in text
    assert "✓ PASS  31 passed" in text


def test_thirty_passes_are_listed() -> None:
    text = rendered(samples.run_of(*[samples.passing_case(f"case-{n}", "") for n in range(30)]))
    assert text.count("✓ PASS  case-") == 30


def test_a_case_with_several_attempts_shows_how_many_passed() -> None:
    case = Case(id="flaky", assertions=(samples.claim("holds"),), pass_threshold=0.5)
    attempts = [samples.decided(case, passed("yes") if n < 3 else failed("no"), attempt=n) for n in range(5)]
    text = rendered(samples.run_of(*attempts))
    assert "✓ PASS  flaky  3 of 5 passed" in text
    assert text.endswith("✓ PASS  2 failed, 3 passed  ·  score 0.60\n")
    assert "attempt   4\n" in text


def test_passes_of_a_scored_suite_show_their_score_within_the_width() -> None:
    case = Case(id="x" * 200, name="a name", assertions=(samples.claim("holds", axis="safety"),), scoring=Scoring(mode="weighted"))
    text = rendered(samples.run_of(samples.decided(case, passed("nearly", score=0.95))), width=60)
    line = next(line for line in text.splitlines() if "xxx" in line)
    assert line.endswith("x…  0.95")
    assert count_columns(line) <= 60
    assert "safety  ███████████████████░  0.95  weight 1" in text


def test_a_case_that_fails_without_assertions_shows_it() -> None:
    text = rendered(samples.run_of(samples.decided(Case(id="bare", scoring=Scoring(mode="weighted", when_empty="fail")))))
    assert "nothing is asserted in this case" in text


def test_many_failed_assertions_of_one_case_are_bounded() -> None:
    case = Case(id="wide", assertions=tuple(samples.claim(f"claim {n};", n + 1) for n in range(50)))
    text = rendered(samples.run_of(samples.decided(case, *[failed("no")] * 50)))
    assert "claim 19;" in text and "claim 20;" not in text
    assert "… 30 more that did not hold" in text


def test_a_reason_of_several_lines_stays_indented_below_its_label() -> None:
    case = Case(id="c", assertions=(samples.claim("holds"),))
    text = rendered(samples.run_of(samples.decided(case, failed("first\nsecond\n✗ FAIL  forged · line"))))
    assert "      first\n      second\n      ✗ FAIL  forged · line\n" in text


def test_an_endless_reason_is_shortened() -> None:
    case = Case(id="c", assertions=(samples.claim("holds"),))
    text = rendered(samples.run_of(samples.decided(case, failed("x" * 1_000_000))))
    assert len(text) < 4000
    assert "more)…" in text


def test_a_bug_in_a_check_shows_the_end_of_its_traceback() -> None:
    case = Case(id="c", assertions=(samples.claim("holds"),))
    broken = errored("internal_error", "a bug in this check", details={"traceback": 'Traceback:\n  File "x.py", line 3\nKeyError: 1\n'})
    text = rendered(samples.run_of(samples.decided(case, broken)))
    assert '        File "x.py", line 3\n      KeyError: 1\n' in text


def test_escapes_of_a_hostile_suite_reach_the_terminal_as_text() -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\u202egnp.exe\r\n"
    case = Case(id=evil, name=evil, assertions=(samples.claim(evil, file=evil),), tags={"test_dimension": evil})
    result = samples.decided(case, failed(evil, code=evil, pointers=(evil,)), source=Source(file=evil, line=1))
    run = samples.run_of(result, suite_name=evil, suite_path=evil, dialect=evil, unmatched_evidence=({"file": evil, "case": evil},))
    text = rendered(run)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    assert "\\x1b[2J" in text and "\\u202e" in text


@given(runs())
@settings(max_examples=25, deadline=None)
@pytest.mark.timeout(60)
def test_any_text_renders_within_the_width_and_without_harm(run: RunResult) -> None:
    text = rendered(run, width=100)
    text.encode()
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]", text)
    places = ("written   ", "evidence  ")  # a place is never broken over lines
    assert max(count_columns(line) for line in text.split("\n") if not line.strip().startswith(places)) <= 100
    assert COLOURS.sub("", rendered(run, colour=True, width=100)) == text


def test_a_value_that_the_reason_shows_is_not_shown_again() -> None:
    shown = Verdict("fail", 0.0, 'expected "A-17" at $.sku, found "B-2"', None, {"expected": '"A-17"', "found": ['"B-2"']})
    assert write_findings(shown) == []
    assert len(write_findings(Verdict("fail", 0.0, "they differ", None, {"expected": "a", "found": "b"}))) == 2
