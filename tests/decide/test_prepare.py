from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

import proctor
from proctor.checks.registry import Registry, check, read_entry
from proctor.decide import cost
from proctor.decide.prepare import PreparedCase, PreparedSuite, decide_guarded
from proctor.errors import CheckFault, EvidenceError, InputError
from proctor.model.case import Assertion, Capture, Case, Skip
from proctor.model.cost import PriceList
from proctor.model.evidence import Evidence, EvidenceTurn
from proctor.model.verdict import Verdict, failed, missing, passed
from tests.builders import call, evidence


class ExactText(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The text is exactly this."""

    text: str


@check("exact_text", shorthand="text")
def exact_text(spec: ExactText, evidence: Evidence) -> Verdict:
    """The text is exactly this."""
    if evidence.text is None:
        return missing("text")
    if evidence.text == "boom":
        raise ZeroDivisionError("boom")
    if evidence.text == "fault":
        raise CheckFault("regex_timeout", "the pattern ran out of time")
    return passed("yes") if evidence.text == spec.text else failed(f"expected {spec.text}, found {evidence.text}")


REGISTRY = Registry([read_entry(exact_text)])


def claim(text: str, **more: Any) -> Assertion:
    return Assertion(check="exact_text", spec=ExactText(text=text), **more)


def decide(case: Case, given: Evidence) -> proctor.CaseResult:
    return PreparedCase(case, REGISTRY).decide(given, clock=lambda: "2026-11-15T09:00:00Z")


def outcomes(result: proctor.CaseResult) -> list[str]:
    return [verdict.outcome for verdict in result.verdicts]


def test_a_failed_dependency_skips_its_dependents_and_theirs() -> None:
    case = Case(
        id="c",
        assertions=(
            claim("hi", depends_on=("b",)),
            claim("no", id="a"),
            claim("hi", id="b", depends_on=("a",)),
            claim("hi"),
        ),
    )
    result = decide(case, evidence("hi"))
    assert outcomes(result) == ["skip", "fail", "skip", "pass"]
    assert result.outcome == "fail"
    assert result.verdicts[0].code == result.verdicts[2].code == "dependency_failed"
    assert "'b' did not pass" in result.verdicts[0].reason


def test_a_dependency_later_in_the_file_is_decided_first() -> None:
    case = Case(id="c", assertions=(claim("hi", depends_on=("later",)), claim("hi", id="later")))
    assert outcomes(decide(case, evidence("hi"))) == ["pass", "pass"]


@pytest.mark.parametrize(("when_missing", "outcome"), [("fail", "fail"), ("error", "error"), ("skip", "skip")])
def test_missing_evidence_follows_when_missing(when_missing: Any, outcome: str) -> None:
    result = decide(Case(id="c", assertions=(claim("hi", when_missing=when_missing),)), evidence(None))
    assert outcomes(result) == [outcome]
    assert result.verdicts[0].code == "missing_evidence"


def test_a_bug_in_one_check_is_that_assertions_error_and_nothing_else() -> None:
    case = Case(id="c", assertions=(claim("boom"), claim("boom")))
    result = decide(case, evidence("boom"))
    assert outcomes(result) == ["error", "error"]
    assert result.verdicts[0].code == "internal_error"
    assert "ZeroDivisionError" in result.verdicts[0].details["traceback"]


def test_a_fault_keeps_its_code() -> None:
    result = decide(Case(id="c", assertions=(claim("x"),)), evidence("fault"))
    assert (result.outcome, result.verdicts[0].code) == ("error", "regex_timeout")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CheckFault("x", "y"), "x"),
        (EvidenceError("y", code="z"), "z"),
        (InputError("y"), "unusable_spec"),
        (RecursionError(), "too_deep"),
        (ValueError("y"), "internal_error"),
    ],
)
def test_every_exception_becomes_an_error_with_a_code(error: Exception, code: str) -> None:
    def broken(_: Evidence) -> Verdict:
        raise error

    verdict = decide_guarded(broken, Evidence())
    assert (verdict.outcome, verdict.code) == ("error", code)


def test_an_assertion_of_a_turn_sees_only_that_turn() -> None:
    given = Evidence(text="second", turns=(EvidenceTurn(text="first"), EvidenceTurn(text="second")))
    case = Case(id="c", assertions=(claim("first", turn=0), claim("second", turn=1), claim("second"), claim("third", turn=2)))
    result = decide(case, given)
    assert outcomes(result) == ["pass", "pass", "pass", "fail"]
    assert result.verdicts[3].code == "missing_evidence"
    assert "turn 3" in result.verdicts[3].reason


def test_evidence_without_turns_is_its_own_first_turn() -> None:
    assert outcomes(decide(Case(id="c", assertions=(claim("hi", turn=0),)), evidence("hi"))) == ["pass"]


@pytest.mark.parametrize(
    ("cases", "parts"),
    [
        ("[]", ()),
        ("[{id: a, expect: [{response_contains: x}]}]", ("answer",)),
        ("[{id: a, expect: [{response_contains: x}, {no_tools_called: {}}]}]", ("answer", "tool_calls")),
        ("[{id: a, expect: [{response_contains: x}]}, {id: b, expect: [{node_called: x}]}]", ("answer", "nodes", "tool_calls")),
        ("[{id: a, expect: [{node_called: x}]}, {id: b, expect: [{response_contains: x}]}]", ("answer", "nodes", "tool_calls")),
        ("[{id: a, expect: [{judged: x}]}, {id: b, expect: [{response_contains: x}]}]", None),
        ("[{id: a, extract: {days: 'in (.+) days'}, expect: [{response_contains: x}]}]", None),
        ("[{id: a, turns: [{input: x, expect: [{response_contains: x}]}]}]", None),
    ],
)
def test_the_parts_of_the_evidence_that_a_suite_reads(cases: str, parts: Sequence[str] | None) -> None:
    suite = proctor.parse_suite(f"proctor: 1\ncases: {cases}")
    assert PreparedSuite(suite).parts == (None if parts is None else frozenset(parts))
    priced = PreparedSuite(msgspec.structs.replace(suite, prices=PriceList()))
    assert priced.parts is None or not suite.cases


def test_a_skipped_case_is_not_decided() -> None:
    case = Case(id="c", skip=Skip(code="unsupported_step", reason="it clicks"), assertions=(claim("hi"),))
    result = decide(case, evidence("no"))
    assert (result.outcome, result.code, outcomes(result)) == ("skip", "unsupported_step", ["skip"])


def test_captures_are_read_and_never_change_the_outcome() -> None:
    case = Case(
        id="c",
        assertions=(claim("total: 9.5"),),
        captures=(
            Capture(name="total", pattern=r"total: (?<value>[0-9.]+)"),
            Capture(name="none", pattern="zzz"),
            Capture(name="bad", pattern="["),
        ),
    )
    result = decide(case, evidence("total: 9.5"))
    assert (result.outcome, result.extracted) == ("pass", {"total": 9.5, "none": None, "bad": None})


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=20), st.lists(st.text(max_size=5), max_size=4))
def test_a_verdict_repeats_exactly(text: str, wanted: list[str]) -> None:
    prepared = PreparedCase(Case(id="c", assertions=tuple(claim(entry) for entry in wanted)), REGISTRY)
    assert prepared.decide(evidence(text)) == prepared.decide(evidence(text))


CLOCKED = """
proctor: 1
context: {CITY: Paris}
cases:
  - id: c
    timezone: Europe/Berlin
    expect:
      - tool_called: {name: book, arguments: {city: {$expr: CITY}, day: {$date: {$expr: TODAY()}}}}
"""


def book(city: str, day: str) -> proctor.ToolCall:
    return call("book", {"city": city, "day": day})


def test_the_case_fixes_its_variables_whatever_the_trace_claims() -> None:
    suite = proctor.parse_suite(CLOCKED)
    given = evidence("ok", book("Rome", "2026-11-15"), now="2026-11-15T09:00:00Z", context={"CITY": "Rome"})
    assert proctor.check(suite, given).outcome == "fail"


def test_the_clock_is_the_flag_before_the_evidence_before_the_wall() -> None:
    suite = proctor.parse_suite(CLOCKED)
    given = evidence("ok", book("Paris", "2026-11-16"), now="2026-11-15T23:30:00Z")
    own = proctor.check(suite, given)
    assert own.outcome == "pass", "half past eleven in UTC is the next day in Berlin"
    assert own.cases[0].now is None
    assert proctor.check(suite, given, now="2026-11-10T09:00:00Z").outcome == "fail"
    unclocked = proctor.check(suite, evidence("ok", book("Paris", "1999-01-01")))
    assert unclocked.cases[0].now is not None, "the wall clock that was used is named in the result"


@pytest.mark.parametrize("case", [Case(id="c", skip=Skip(code="unsupported_step", reason="it clicks")), Case(id="c")])
def test_a_skipped_case_is_not_priced(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def price(*_: object) -> Evidence:
        raise AssertionError("the price of a skipped case is nothing that anybody asks for")

    monkeypatch.setattr(cost, "with_agent_cost", price)
    prepared = PreparedCase(case, Registry(), prices=PriceList())
    with pytest.raises(StopIteration) as ended:
        next(prepared.deliberate(Evidence(no_run="a file")))
    assert ended.value.value.outcome == "skip" and ended.value.value.cost is None


def test_several_pieces_of_evidence_are_checked_and_unanswered_cases_are_skipped() -> None:
    suite = proctor.parse_suite("{proctor: 1, cases: [{id: a, expect: [response_contains: hi]}, {id: b, expect: [response_contains: hi]}]}")
    result = proctor.check(suite, [{"case": "a", "text": "hi"}, {"case": "a", "text": "no"}, {"case": "x", "text": "hi"}])
    assert [(case.id, case.outcome, case.code) for case in result.cases] == [
        ("a", "pass", None),
        ("a", "fail", None),
        ("b", "skip", "no_evidence"),
    ]
    assert result.counts == {"pass": 1, "fail": 1, "error": 0, "skip": 1}
    assert result.unmatched_evidence[0]["case"] == "x"
    assert result.outcome == "fail"
    assert result.score == 0.5


async def _checked(suite: proctor.Suite) -> str:
    return (await proctor.check_async(suite, {"text": "hi"})).outcome


def test_the_async_form_gives_the_same_answer() -> None:
    import asyncio

    suite = proctor.parse_suite("{proctor: 1, cases: [{id: a, expect: [response_contains: hi]}]}")
    assert asyncio.run(_checked(suite)) == "pass"


INPUT_CLAIMS = """\
proctor: 1
cases:
  - id: a
    input: refund me
    expect:
      - {that: "input == 'refund me'"}
      - {turns_within: 1}
      - {judged: {criteria: polite, show_prompt: true}}
      - {tone: friendly}
      - answers_the_question
      - {goal_reached: The customer has a refund.}
"""


@pytest.mark.parametrize("recorded", [{}, {"input": "where is my money"}, {"text": "Done."}, {"input": "refund me", "text": "Done."}])
def test_claims_are_decided_on_the_same_evidence_with_and_without_a_judge(recorded: dict[str, Any]) -> None:
    suite = proctor.parse_suite(INPUT_CLAIMS)
    alone = proctor.check(suite, recorded).cases[0]
    judged = proctor.check(suite, recorded, judge=lambda question: True).cases[0]
    assert alone.verdicts[:2] == judged.verdicts[:2]
    assert alone.verdicts[0].passed == (recorded.get("input") == "refund me"), "the case's own input proves nothing"
    assert [verdict.code == "missing_evidence" for verdict in alone.verdicts] == [
        verdict.code == "missing_evidence" for verdict in judged.verdicts
    ]


@pytest.mark.parametrize(("recorded", "shown"), [(None, "refund me"), ("where is my money", "where is my money")])
def test_a_judge_is_shown_the_input_of_the_case_if_the_evidence_recorded_none(recorded: str | None, shown: str) -> None:
    questions: list[Any] = []
    given = {"text": "Done."} if recorded is None else {"text": "Done.", "input": recorded}
    result = proctor.check(proctor.parse_suite(INPUT_CLAIMS), given, judge=lambda question: bool(questions.append(question)) or True)
    prompt, request, question = (questions[0].material.context, questions[1].material.context, questions[2].material.context)
    assert (prompt["scenario_prompt"], request["request"], question["question"]) == (shown, shown, shown)
    assert questions[3].material.subject == [{"user": shown, "agent": "Done."}]
    account = result.cases[0].account
    assert account is not None and (account.parts["input"].status == "recorded") == (recorded is not None)


def test_a_judge_of_a_later_turn_is_not_shown_the_input_of_the_case() -> None:
    questions: list[Any] = []
    suite = proctor.parse_suite("proctor: 1\ncases: [{id: a, input: hello, expect: [tone: friendly]}]\n")
    later = msgspec.structs.replace(suite.cases[0].assertions[0], turn=1)
    suite = msgspec.structs.replace(suite, cases=(msgspec.structs.replace(suite.cases[0], assertions=(later,)),))
    given = {"turns": [{"input": "hello", "text": "1"}, {"text": "2"}]}
    proctor.check(suite, given, judge=lambda question: bool(questions.append(question)) or True)
    assert questions[0].material.context == {}


@pytest.mark.parametrize(("text", "has_account"), [(None, True), ("other", False), ("yes", False)])
def test_a_case_with_a_coded_verdict_has_the_account_of_plain_evidence(text: str | None, has_account: bool) -> None:
    assertion = Assertion(check="exact_text", spec=ExactText(text="yes"))
    result = PreparedCase(Case(id="a", assertions=(assertion,)), REGISTRY).decide(Evidence(text=text))
    assert (result.account is not None) == has_account and (result.verdicts[0].code is not None) == has_account
