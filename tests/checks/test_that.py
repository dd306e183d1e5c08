"""One-line conditions: verdicts, refusals, and agreement with a small independent evaluator."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.checks.registry import default_registry
from proctor.checks.run.that import That
from proctor.decide.prepare import decide_guarded
from proctor.errors import SpecError
from proctor.evidence.reading import read_document
from proctor.expressions.condition import DEEPEST
from proctor.formats.suites import read_suite
from proctor.model.account import Account
from proctor.model.evidence import Evidence, ToolCall
from proctor.model.verdict import Verdict
from tests.tables import rows

TWO_CALLS = {
    "tool_calls": [{"name": "lookup", "arguments": {"id": 17}}, {"name": "refund", "arguments": {"amount": 50, "tags": ["a", "b"]}}]
}


def decide(expression: str, evidence: Evidence) -> Verdict:
    return decide_guarded(default_registry().prepare("that", That(expression=expression)), evidence)


def evidence_of(row: dict[str, Any]) -> Evidence:
    (found,) = read_document(row.get("evidence", TWO_CALLS))
    return msgspec.structs.replace(found, account=Account(unknown=row["unknown"])) if "unknown" in row else found


@rows("checks/cases/that.yaml")
def test_a_condition_is_decided(row: dict[str, Any]) -> None:
    verdict = decide(row["that"], evidence_of(row))
    wanted = row["expect"]
    assert (verdict.outcome, verdict.code) == (wanted["outcome"], wanted.get("code")), verdict.reason
    for part in wanted.get("reason", ()):
        assert part in verdict.reason
    if "at" in wanted:
        assert list(verdict.pointers) == wanted["at"]


@rows("checks/cases/that_spec_errors.yaml")
def test_an_invalid_condition_is_reported_with_its_position(row: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as caught:
        default_registry().prepare("that", That(expression=row["given"]))
    assert row["expect"]["message"] in caught.value.message
    assert caught.value.offset == row["expect"]["offset"]
    assert caught.value.field == "expression"
    if "nearest" in row["expect"]:
        assert row["expect"]["nearest"] in caught.value.nearest


def test_a_suite_shows_the_column_of_an_unknown_name() -> None:
    text = "proctor: 1\ncases:\n  - id: a\n    expect:\n      - that: \"text == 'a' and toolcalls[*].name == 'b'\"\n"
    with pytest.raises(Exception, match=r"5:\d+: unknown name 'toolcalls'") as caught:
        read_suite(text, file="suite.yaml")
    assert "nearest: 'tool_calls'" in str(caught.value)


def test_a_condition_nested_too_deep_is_refused_and_not_run_into() -> None:
    for text in ("(" * 5000 + "text" + ")" * 4000, "not " * 2000 + "text == 'a'", "text in " + "[" * 4000):
        with pytest.raises(SpecError, match=f"more than {DEEPEST} deep"):
            decide(text, Evidence(text="a"))


def test_the_work_of_a_condition_is_bounded() -> None:
    calls = tuple(ToolCall(name=f"t{number}") for number in range(20_000))
    started = time.process_time()
    verdict = decide("all(tool_calls[*].name not in available_tools)", Evidence(tool_calls=calls, available_tools=("x",) * 20_000))
    assert (verdict.outcome, verdict.code) == ("error", "too_much_work")
    assert time.process_time() - started < 10


# A condition as a small tree, written out as text for us and evaluated here by other means: lists of plain dictionaries, and two
# sets of sentences that may hold. A value that has no literal is None.

NAMES = st.sampled_from(["a", "b", "c"])
NUMBERS = st.integers(-2, 3)
CALLS = st.lists(
    st.fixed_dictionaries({"name": NAMES, "arguments": st.dictionaries(st.sampled_from(["n", "m"]), NUMBERS | NAMES)}), max_size=4
)
OPERATORS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
COMPARE = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def leaves() -> st.SearchStrategy[tuple[Any, ...]]:
    member = st.sampled_from(["n", "m"])
    constant = NUMBERS | NAMES
    return st.one_of(
        st.tuples(st.just("body"), member, OPERATORS, constant),
        st.tuples(st.sampled_from(["every", "all", "any"]), member, OPERATORS, constant),
        st.tuples(st.just("len"), OPERATORS, NUMBERS),
        st.tuples(st.just("exists"), member),
    )


TREES = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), inner, inner),
        st.tuples(st.just("not"), inner.filter(lambda tree: not mentions_every(tree))),
    ),
    max_leaves=6,
)


def mentions_every(tree: tuple[Any, ...]) -> bool:
    return tree[0] == "every" or any(isinstance(part, tuple) and mentions_every(part) for part in tree)


def write(tree: tuple[Any, ...]) -> str:
    kind = tree[0]
    if kind in ("and", "or"):
        return f"({write(tree[1])} {kind} {write(tree[2])})"
    if kind == "not":
        return f"not ({write(tree[1])})"
    if kind == "len":
        return f"len(tool_calls) {tree[1]} {tree[2]}"
    if kind == "exists":
        return f"exists(body.{tree[1]})"
    path = f"body.{tree[1]}" if kind == "body" else f"tool_calls[*].arguments.{tree[1]}"
    compared = f"{path} {tree[2]} {tree[3]!r}"
    return f"{kind}({compared})" if kind in ("all", "any") else compared


def relate(left: Any, operator: str, right: Any) -> bool | None:
    if operator not in ("==", "!=") and isinstance(left, str) != isinstance(right, str):
        return None
    return COMPARE[operator](left, right)


def expected(tree: tuple[Any, ...], body: dict[str, Any], calls: list[dict[str, Any]] | None) -> bool | None:
    kind = tree[0]
    if kind in ("and", "or"):
        both = [expected(part, body, calls) for part in tree[1:]]
        decides = kind == "or"
        return decides if decides in both else None if None in both else not decides
    if kind == "not":
        inner = expected(tree[1], body, calls)
        return None if inner is None else not inner
    if kind == "exists":
        return tree[1] in body
    if kind == "body":
        return relate(body[tree[1]], tree[2], tree[3]) if tree[1] in body else None
    if calls is None:
        return None
    if kind == "len":
        return COMPARE[tree[1]](len(calls), tree[2])
    found = [relate(call["arguments"][tree[1]], tree[2], tree[3]) for call in calls if tree[1] in call["arguments"]]
    if kind == "any":
        return True if True in found else None if None in found else False
    if not found and kind == "every":
        return None
    return False if False in found else None if None in found else True


@settings(max_examples=150, deadline=None)
@given(TREES, st.dictionaries(st.sampled_from(["n", "m"]), NUMBERS | NAMES), st.none() | CALLS)
def test_a_condition_agrees_with_an_evaluator_written_another_way(
    tree: tuple[Any, ...], body: dict[str, Any], calls: list[dict[str, Any]] | None
) -> None:
    recorded = None if calls is None else tuple(ToolCall(name=call["name"], arguments=call["arguments"]) for call in calls)
    verdict = decide(write(tree), Evidence(body=body, tool_calls=recorded))
    wanted = expected(tree, body, calls)
    assert (verdict.outcome == "pass") == (wanted is True), f"{write(tree)}: {verdict.reason}"
    if wanted is None:
        assert verdict.code in ("missing_evidence", "no_match", "wrong_type")
    elif wanted is False:
        assert verdict.outcome == "fail" and verdict.code is None


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="text.[]*()<>=!&'\"andornotl 017", max_size=40))
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        decide(text, Evidence(text="a", tool_calls=()))
    except SpecError as error:
        assert error.offset is None or 0 <= error.offset <= len(text)
