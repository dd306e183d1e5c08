"""Runs built by hand, as the reports get them: one of each kind of trouble."""

from __future__ import annotations

from typing import Any

from proctor.checks.run.unsupported import Unsupported
from proctor.model.case import Assertion, Case, Scoring
from proctor.model.evidence import Source
from proctor.model.problem import Origin, Problem
from proctor.model.result import CaseResult, RunResult
from proctor.model.verdict import Verdict, errored, failed, missing, passed, skipped
from proctor.scoring.metrics import Tally
from proctor.scoring.score import score_case


def claim(label: str, line: int = 1, *, file: str | None = "suites/refund.yaml", check: str = "tool_called", **more: Any) -> Assertion:
    """An assertion written at a line."""
    origin = Origin(file=file, line=line, column=7, path=f"$.cases[0].expect[{line}]") if file else Origin()
    return Assertion(check=check, spec=Unsupported(reason="a sample"), label=label, origin=origin, **more)


def decided(case: Case, *verdicts: Verdict, **more: Any) -> CaseResult:
    """A case with these verdicts, scored as the engine would."""
    score = score_case(case.assertions, verdicts, case.scoring)
    return CaseResult(case, score.outcome, score.score, verdicts, verdict=score.verdict, axes=score.axes, **more)


def run_of(*results: CaseResult, **more: Any) -> RunResult:
    """A run over these results."""
    tally = Tally()
    for result in results:
        tally.add(result)
    given: dict[str, Any] = {"suite_name": "refunds", "suite_path": "suites/refund.yaml", "dialect": "native", "run_id": "run-1"}
    return RunResult(
        **{**given, **more},
        outcome=tally.decide_outcome(),
        score=tally.score,
        counts=tally.counts,
        cases=results,
        summary=tuple(tally.list_summaries()),
    )


def failing_conversation() -> CaseResult:
    """A conversation of two turns in which several things go wrong."""
    case = Case(
        id="refund-twice",
        name="The customer was charged twice",
        tags={"test_dimension": "refunds"},
        assertions=(
            claim("the order is looked up with its number", 14, id="lookup"),
            claim("the reply names the amount", 19, turn=1, check="response_contains"),
            claim("only these tools are called, in this order", 23, check="tool_calls_match"),
            claim("a confirmation is sent", 29, depends_on=("lookup",)),
            claim("answered within two seconds", 33, check="responded_within"),
            claim("the tone is friendly", 36, advisory=True, check="response_matches"),
        ),
    )
    return decided(
        case,
        failed("arguments of lookup_order: expected id 17, found id 71", pointers=("$.tool_calls[0].arguments.id",)),
        failed(
            'expected text containing "9.00 EUR", found "I am sorry to hear that. Your refund is on its way and will reach your account '
            'within five working days; is there anything else?"',
            pointers=("$.turns[1].text",),
        ),
        failed(
            "the calls do not fit: 1 missing, 1 extra, 1 with other arguments",
            details={
                "missing": [{"name": "notify", "arguments": {"channel": "mail", "to": "ann@example.org"}}],
                "extra": [{"name": "search", "arguments": {}}],
                "argument_mismatches": [{"tool_name": "refund", "expected_args": {"eur": 9}, "actual_args": {"eur": 90}}],
                "out_of_order": [],
            },
            pointers=tuple(f"$.tool_calls[{index}]" for index in range(5)),
        ),
        skipped("dependency_failed", "skipped: 'lookup' did not pass (fail)"),
        passed("took 812 ms"),
        failed("expected text matching /sorry|apolog/i, found nothing like it"),
        source=Source(file="traces/support.jsonl", line=3),
    )


def weighted_case() -> CaseResult:
    """A scored case with axes and partly passing fields."""
    fields = [
        {"path": "status", "expected": "booked", "actual": "booked", "passed": True},
        {"path": "participant.0.actor.display", "expected": "Dr. Rivera", "actual": "Dr. Riviera", "passed": False},
        {"path": "start", "expected": "2026-04-21T09:00:00Z", "actual": None, "passed": False},
    ]
    case = Case(
        id="book-visit",
        name="A visit is booked with the right doctor",
        tags={"test_dimension": "scheduling"},
        scoring=Scoring(mode="weighted"),
        assertions=(
            claim("The appointment is in the record", 8, file="suites/clinic.json", check="fhir_resource", weight=2.0, axis="correctness"),
            claim("The caller is told the time", 21, file="suites/clinic.json", check="voice_said", axis="communication", required=True),
            claim("Nothing else was changed", 30, file="suites/clinic.json", check="fhir_resource", axis="safety"),
        ),
    )
    return decided(
        case,
        failed("1 of 3 fields hold", score=1 / 3, details={"field_results": fields}, pointers=("$.state.fhir.resources[4]",)),
        failed(
            "1 of 2 phrases hold",
            score=0.5,
            details={
                "phrase_results": [
                    {"phrase": "nine o'clock", "found": False, "turn": None},
                    {"phrase": "Dr. Rivera", "found": True, "turn": 4},
                ]
            },
        ),
        passed("no other resource differs"),
        source=Source(file="evidence/visit", id="tr_01H"),
    )


def errored_case() -> CaseResult:
    """A case whose pattern ran out of time and whose status was not recorded."""
    case = Case(
        id="slow-pattern",
        tags={"test_dimension": "refunds"},
        assertions=(claim("", 41, check="response_matches"), claim("", 44, check="http_status", id="status_ok", when_missing="error")),
    )
    unrecorded = missing("HTTP status")
    return decided(
        case,
        errored("regex_timeout", "the pattern /(a+)+$/ did not finish within 1 second on a text of 40,000 characters"),
        Verdict("error", 0.0, unrecorded.reason, unrecorded.code),
        source=Source(file="traces/support.jsonl", line=9),
        now="2026-11-15T09:00:00Z",
    )


def skipped_case(case_id: str = "refund-late", name: str = "Refund after the deadline") -> CaseResult:
    """A case that no evidence answers."""
    reason = "no evidence answers this case"
    return CaseResult(Case(id=case_id, name=name), "skip", None, (), code="no_evidence", reason=reason)


def passing_case(case_id: str = "greeting", name: str = "The agent greets", **more: Any) -> CaseResult:
    """A case in which every claim passes."""
    case = Case(id=case_id, name=name, assertions=(claim("greets", 3),), tags={"test_dimension": "manners"})
    return decided(case, passed("the text contains it"), **more)


def advised_case() -> CaseResult:
    """A case that passes although an advisory assertion fails."""
    case = Case(id="polite", name="Polite", assertions=(claim("greets", 3), claim("says please", 5, advisory=True)))
    return decided(case, passed("yes"), failed('expected text containing "please", found "Give me the number."'))


def unreadable() -> CaseResult:
    """A record that is no evidence at all."""
    return CaseResult(
        Case(id=""),
        "error",
        None,
        (),
        source=Source(file="traces/support.jsonl", line=12),
        code="unreadable_evidence",
        reason="not JSON: expected ':' at column 14",
    )


WARNINGS = (
    Problem(
        message="no assertions: this case decides nothing", level="warning", origin=Origin(file="suites/refund.yaml", line=50, column=3)
    ),
    Problem(message="a warning from nowhere", level="warning"),
)

UNMATCHED = ({"file": "traces/support.jsonl", "line": 21, "case": "refund-twise"}, "a record without any place")


def troubled_run() -> RunResult:
    """One of everything."""
    return run_of(
        passing_case(),
        failing_conversation(),
        weighted_case(),
        errored_case(),
        unreadable(),
        skipped_case(),
        advised_case(),
        passing_case("retry", "Tried three times", attempt=0),
        passing_case("retry", "Tried three times", attempt=1),
        warnings=WARNINGS,
        unmatched_evidence=UNMATCHED,
    )


def calm_run() -> RunResult:
    """Everything passed."""
    return run_of(passing_case(), passing_case("farewell", "The agent says goodbye"), passing_case("silent", ""))
