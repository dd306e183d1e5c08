"""Pairing of expected with actual calls: cases that a table cannot list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import CheckFault
from proctor.expressions.text_form import NO_SCOPE
from proctor.matchers.call_arguments import build_argument_rule, is_same_javascript_scalar
from proctor.matchers.calls import MatchOptions, Pairing, ToolCallMatch
from proctor.matchers.mismatch import find_difference
from proctor.model.evidence import ToolCall
from proctor.model.json_values import equal, is_same_scalar
from tests.builders import call

VALUES = st.sampled_from([1, 2, "any", "number", "string", "x", None, [1], {"k": 1}])
CALLS = st.lists(st.builds(call, st.sampled_from(["a", "b"]), st.dictionaries(st.sampled_from(["x", "y"]), VALUES, max_size=2)), max_size=5)
ORDERS = st.sampled_from(["ignore", "strict", "superset"])
MODES = st.sampled_from(["partial", "exact", "ignore"])


def match(expected: list[ToolCall], actual: list[ToolCall], **options: Any) -> ToolCallMatch:
    return Pairing(expected, MatchOptions(**options)).match(actual)


def greedy_pairs(expected: list[ToolCall], actual: list[ToolCall]) -> int:
    """How many pairs the original finds: each expected call takes the first free one that fits."""
    free = list(actual)
    pairs = 0
    for wanted in expected:
        rule = build_argument_rule(wanted.arguments, values="placeholders")
        for candidate in free:
            if candidate.name == wanted.name and (rule is None or rule.fits(candidate.arguments, NO_SCOPE)):
                free.remove(candidate)
                pairs += 1
                break
    return pairs


def best_pairs(expected: list[ToolCall], actual: list[ToolCall]) -> int:
    """The most pairs there are, by trying everything."""
    if not expected:
        return 0
    rule = build_argument_rule(expected[0].arguments, values="placeholders")
    best = best_pairs(expected[1:], actual)
    for at, candidate in enumerate(actual):
        if candidate.name == expected[0].name and (rule is None or rule.fits(candidate.arguments, NO_SCOPE)):
            best = max(best, 1 + best_pairs(expected[1:], actual[:at] + actual[at + 1 :]))
    return best


@settings(max_examples=150, deadline=None)
@given(CALLS, CALLS)
@pytest.mark.timeout(60)
def test_as_many_pairs_as_possible_and_never_fewer_than_greedy(expected: list[ToolCall], actual: list[ToolCall]) -> None:
    found = match(expected, actual)
    paired = len(expected) - len(found.missing) - len(found.argument_mismatches)
    assert paired == best_pairs(expected, actual) >= greedy_pairs(expected, actual)


@settings(max_examples=150, deadline=None)
@given(CALLS, CALLS, ORDERS, MODES)
@pytest.mark.timeout(60)
def test_every_call_is_accounted_for_once(expected: list[ToolCall], actual: list[ToolCall], order: Any, mode: Any) -> None:
    found = match(expected, actual, order=order, arguments=mode)
    pairs = len(expected) - len(found.missing) - len(found.argument_mismatches)
    assert pairs == len(actual) - len(found.extra) - len(found.argument_mismatches)
    assert found.passed is (pairs == len(expected))
    for late in found.out_of_order:
        assert expected[late.expected_index] in found.missing and actual[late.actual_index] in found.extra


@settings(max_examples=100, deadline=None)
@given(CALLS, CALLS, st.randoms(use_true_random=False))
def test_ignore_order_ignores_order(expected: list[ToolCall], actual: list[ToolCall], random: Any) -> None:
    shuffled = list(actual)
    random.shuffle(shuffled)
    assert match(expected, actual).passed is match(expected, shuffled).passed


@settings(max_examples=100, deadline=None)
@given(CALLS, MODES)
def test_calls_without_placeholders_match_themselves_in_every_order(calls: list[ToolCall], mode: Any) -> None:
    plain = [entry for entry in calls if not {"any", "number", "string"} & {str(value) for value in entry.arguments.values()}]
    for order in ("ignore", "strict", "superset"):
        assert match(plain, plain, order=order, arguments=mode, max_extra=0).passed


def test_both_of_two_swapped_calls_are_out_of_order_although_another_is_missing() -> None:
    found = match([call("z"), call("a"), call("b")], [call("b"), call("a")], order="superset")
    assert [(late.tool_name, late.expected_index, late.actual_index) for late in found.out_of_order] == [("a", 1, 1), ("b", 2, 0)]


def test_a_call_pairs_under_any_of_its_names() -> None:
    assert match([call("Order Tool")], [call("lookup", aliases=("Order Tool",))]).passed


def test_null_and_missing_arguments_are_empty() -> None:
    assert match([ToolCall(name="a", arguments=None)], [ToolCall(name="a", arguments=None)], arguments="exact").passed


def test_comparing_too_many_calls_is_a_fault_and_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.matchers.calls.MOST_COMPARISONS", 1000)
    expected = [call("a", {"x": number}) for number in range(100)]
    actual = [call("a", {"x": -1 - number}) for number in range(100)]
    with pytest.raises(CheckFault) as caught:
        match(expected, actual)
    assert caught.value.code == "too_much_work"


def cyclic(last: Any) -> list[Any]:
    """A list of a value and twice itself."""
    values: list[Any] = [last]
    values += [values, {"again": values}]
    return values


def shared(last: Any) -> list[Any]:
    """A small value that would take more than a lifetime to write out."""
    values: list[Any] = [last]
    for _ in range(200):
        values = [values, values]
    return values


@pytest.mark.parametrize("made", [cyclic, shared])
def test_a_value_that_contains_itself_is_compared_and_not_a_hang(made: Callable[[Any], Any]) -> None:
    for same in (is_same_javascript_scalar, is_same_scalar):
        assert equal(made(1), made(1), same=same)
        assert not equal(made(1), made(2), same=same)
    assert find_difference(made(1), made(1)) is None
    found = find_difference(made(1), made(2))
    assert found is not None and found.why


def test_cycles_of_different_lengths_that_read_alike_are_equal() -> None:
    one: list[Any] = []
    one.append(one)
    two: list[Any] = [[]]
    two[0].append(two)
    assert equal(one, two)
    assert not equal(one, [[[[]]]])


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (float("nan"), None, True),
        (float("inf"), float("-inf"), True),
        (-0.0, 0, True),
        (1, 1.0, True),
        (1, True, False),
        (0, None, False),
        (2**53 + 1, float(2**53), False),
        ("1", 1, False),
        ([1, {"a": [float("nan")]}], [1.0, {"a": [None]}], True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ([1], [1, 2], False),
        ({}, [], False),
    ],
)
def test_equality_of_json_texts(a: Any, b: Any, same: bool) -> None:
    assert equal(a, b, same=is_same_javascript_scalar) is same and equal(b, a, same=is_same_javascript_scalar) is same
