"""The fast and the full decision agree, also when several threads use the fast one."""

from __future__ import annotations

import itertools
import sys
from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

import proctor
from proctor.checks.registry import Decide
from proctor.decide.prepare import PreparedSuite
from proctor.decide.quick import make_quick_decision
from proctor.model.case import Case
from proctor.model.evidence import Evidence, Source
from proctor.model.result import CaseResult
from proctor.model.verdict import Verdict
from tests.builders import call, evidence

CLAIMS = (
    "tool_called: search",
    "tool_called: {name: search, arguments: {q: shoes}}",
    "tool_not_called: refund",
    "tools_in_order: [search, pay]",
    "tools_exactly: [search]",
    "tool_called: {name: pay, at_most: 1}",
    "no_tools_called",
    "response_contains: done",
    "response_not_contains: sorry",
    "response_matches: 'do+ne'",
    "responded_within: 100",
    "tokens_within: {total: 10}",
)
texts = st.sampled_from([None, "", "done", "DONE, sorry", "dooone", '{"a": 1}'])
calls = st.sampled_from([call("search", {"q": "shoes"}), call("search", {"q": 1}), call("pay"), call("refund", {}), call("Search")])
pieces = st.builds(
    lambda text, made, more: evidence(text, **more) if made is None else evidence(text, *made, **more),
    texts,
    st.none() | st.lists(calls, max_size=4),
    st.sampled_from([{}, {"duration_ms": 50}, {"duration_ms": 500}, {"error": "it broke off"}]),
)


def suite_of(claims: list[str]) -> proctor.Suite:
    lines = "".join(f"      - {claim}\n" for claim in claims)
    return proctor.parse_suite(f"proctor: 1\ncases:\n  - id: one\n    expect:\n{lines}")


def as_fields(result: CaseResult) -> tuple[object, ...]:
    verdicts = tuple(msgspec.to_builtins(verdict.with_words()) for verdict in result.verdicts)
    return result.case.id, result.outcome, result.score, verdicts, result.source, result.attempt, result.code, result.reason


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(CLAIMS), min_size=1, max_size=6, unique=True), st.lists(pieces, min_size=1, max_size=6))
@pytest.mark.timeout(60)
def test_the_quick_road_and_the_careful_one_agree_on_everything(claims: list[str], seen: list[Evidence]) -> None:
    prepared = PreparedSuite(suite_of(claims))
    quick, careful = prepared.decides[0], prepared.cases[0].decide
    for piece in [*seen, *reversed(seen)]:
        assert as_fields(quick(piece, None, 2, None)) == as_fields(careful(piece, None, 2, None))


@pytest.mark.parametrize("claims", [["tool_called: search"], ["tool_called: search", "tool_not_called: refund"], list(CLAIMS[:5])])
def test_these_claims_take_the_quick_road(claims: list[str]) -> None:
    prepared = PreparedSuite(suite_of(claims))
    assert prepared.decides[0] != prepared.cases[0].decide


def test_a_remembered_result_has_the_source_and_attempt_of_its_record() -> None:
    decide = PreparedSuite(suite_of(["response_contains: done"])).decides[0]
    places = list(itertools.product([None, Source(id="a"), Source(id="b")], [0, 1]))
    # Neighbours differ in both, in the source only, and in the attempt only.
    for source, attempt in [*places, *reversed(places), *places[::2], *places[1::2]]:
        result = decide(evidence("done"), source, attempt, None)
        assert (result.outcome, result.source, result.attempt) == ("pass", source, attempt)


def test_no_thread_returns_the_verdicts_of_another() -> None:
    """Two texts with different verdicts, so that the cached one changes constantly while other threads read it."""
    verdicts = {(part, text): Verdict("pass", 1.0, f"{part} {text}") for part in range(3) for text in "ab"}

    def careful(*_: object) -> CaseResult:
        raise AssertionError("nothing here needs care")

    def check(part: int) -> Decide:
        return lambda piece: verdicts[part, str(piece.text)]

    decide = make_quick_decision(Case(id="one"), [check(part) for part in range(3)], careful)
    pieces = {text: evidence(text) for text in "ab"}
    sources = {text: Source(id=text) for text in "ab"}

    def mixed_up(text: str) -> list[str]:
        wrong: list[str] = []
        for _ in range(3000):
            result = decide(pieces[text], sources[text], 0, None)
            found = [verdict.reason for verdict in result.verdicts]
            if found != [f"{part} {text}" for part in range(3)] or result.source is not sources[text]:
                wrong.append(f"{text}: {found} from {result.source}")
        return wrong

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert [wrong for part in pool.map(mixed_up, "abababab") for wrong in part] == []
    finally:
        sys.setswitchinterval(before)


def test_results_remembered_during_a_decision_do_not_change_it() -> None:
    """The second check lets another piece of evidence be decided and remembered before it answers."""
    verdicts = {(part, text): Verdict("pass", 1.0, f"{part} {text}") for part in range(3) for text in "ab"}
    others: list[Evidence] = []

    def interrupted(piece: Evidence) -> Verdict:
        while others:
            decide(others.pop(), None, 0, None)
        return verdicts[1, str(piece.text)]

    checks: list[Decide] = [lambda piece: verdicts[0, str(piece.text)], interrupted, lambda piece: verdicts[2, str(piece.text)]]
    decide = make_quick_decision(Case(id="one"), checks, lambda *_: pytest.fail("nothing here needs care"))
    for text, other in ("ab", "ab", "ba", "bb", "ab"):
        decide(evidence(text), None, 0, None)
        others.append(evidence(other))
        assert [verdict.reason for verdict in decide(evidence(text), None, 0, None).verdicts] == [f"{part} {text}" for part in range(3)]


def test_no_check_runs_twice_on_one_evidence() -> None:
    executed: list[int] = []
    constant = Verdict("pass", 1.0, "always")

    def count(number: int, piece: Evidence) -> Verdict:
        executed.append(number)
        return constant if piece.text == "fine" else Verdict("fail", 0.0, "not fine") if number == 1 else constant

    decide = make_quick_decision(
        Case(id="one"), tuple(lambda piece, n=n: count(n, piece) for n in range(3)), lambda *_: pytest.fail("careful")
    )
    for text in ("fine", "fine", "bad", "fine", "bad"):
        executed.clear()
        assert decide(evidence(text), None, 0, None).outcome == ("pass" if text == "fine" else "fail")
        assert executed == [0, 1, 2]
