"""The validators beyond the truth tables: what they accept, what they refuse, and the messages of the twins."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import proctor
from proctor import validators
from proctor.model.evidence import ToolCall
from proctor.validators import (
    ToolCallMatch,
    evaluate_tool_calls,
    explain_tool_argument,
    explain_tool_argument_with,
    explain_tool_call_with_args,
    explain_tool_call_with_partial_args,
    explain_tool_calls,
    match_any_tool_call,
    match_tool_argument,
    match_tool_argument_with,
    match_tool_argument_with_async,
    match_tool_call_count,
    match_tool_call_with_args,
    match_tool_call_with_partial_args,
    match_tool_calls,
    match_tool_calls_subset,
)
from tests.builders import call

SPELLINGS: list[Any] = [
    ToolCall(name="add", arguments={"a": 1}),
    {"toolName": "add", "arguments": {"a": 1}},
    {"name": "add", "arguments": {"a": 1}},
    {"tool": "add", "args": {"a": 1}},
    {"name": "add", "input": {"a": 1}},
    {"name": "add", "arguments": '{"a": 1}'},
    {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
]


@pytest.mark.parametrize("entry", SPELLINGS)
def test_a_call_is_read_in_every_spelling(entry: Any) -> None:
    assert match_tool_call_with_args("add", {"a": 1}, [entry])
    assert match_tool_argument("add", "a", 1, [entry])
    assert match_tool_calls(["add"], [entry])
    assert evaluate_tool_calls([entry], [entry], argument_matching="exact").passed


@pytest.mark.parametrize(
    ("name", "ours"), [("matchToolCalls", "match_tool_calls"), ("judgeScorer", "judge_scorer"), ("HostRunner", "TestAgent")]
)
def test_a_name_as_the_sdk_spells_it_leads_to_ours(name: str, ours: str) -> None:
    with pytest.raises(AttributeError, match=f"the name here is '{ours}'"):
        getattr(proctor, name)
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        proctor.nonsense  # pyright: ignore[reportAttributeAccessIssue]  # noqa: B018


def test_arguments_go_by_keyword_too() -> None:
    calls = [call("add", {"a": 1})]
    assert match_tool_calls(expected=["add"], actual=calls)
    assert match_tool_call_count(tool_name="add", actual=calls, count=1)
    assert match_tool_call_with_partial_args(tool_name="add", expected_args={"a": 1}, tool_calls=calls)
    assert match_tool_argument(tool_name="add", arg_name="a", expected_value=1, tool_calls=calls)
    assert match_tool_argument_with(tool_name="add", arg_name="a", predicate=lambda value: value == 1, tool_calls=calls)
    assert evaluate_tool_calls(expected=calls, actual=calls).passed


def test_any_iterable_is_a_list() -> None:
    assert match_tool_calls_subset({"a"}, (name for name in ("b", "a")))


@pytest.mark.parametrize("wrong", [None, "add", b"add", {"name": "add"}, 5])
def test_other_types_than_lists_are_refused(wrong: Any) -> None:
    for question in (
        lambda: match_tool_calls(wrong, []),
        lambda: match_tool_calls([], wrong),
        lambda: match_any_tool_call(["a"], wrong),
        lambda: match_tool_call_with_args("add", {}, wrong),
        lambda: match_tool_argument_with("add", "a", bool, wrong),
        lambda: evaluate_tool_calls([], wrong),
    ):
        with pytest.raises(TypeError, match="expected a list"):
            question()


def test_other_mistakes_are_type_errors_that_say_what_was_expected() -> None:
    nameless: Any = [{"arguments": {}}]
    numbers: Any = [5]
    wrong: Any = 5
    for question, words in (
        (lambda: match_tool_call_with_args("t", {}, nameless), "needs its name"),
        (lambda: match_tool_call_with_args("t", {}, numbers), "expected calls"),
        (lambda: match_tool_call_with_args(wrong, {}, []), "tool_name: expected text"),
        (lambda: match_tool_call_with_args("t", wrong, []), "expected_args: expected an object"),
        (lambda: match_tool_argument_with("t", "a", wrong, []), "predicate: expected a function"),
        (lambda: evaluate_tool_calls([], [], tool_call_ordr="strict"), "nearest: 'tool_call_order'"),
        (lambda: evaluate_tool_calls([], [], order="strict", tool_call_order="strict"), "given twice"),
    ):
        with pytest.raises(TypeError, match=words):
            question()


def test_an_option_value_that_cannot_be_is_a_value_error() -> None:
    for options in ({"order": "stict"}, {"max_extra": True}, {"negative": "yes"}, {"negative": True, "positive_only": True}):
        with pytest.raises(ValueError):
            evaluate_tool_calls([], [], options)


def test_a_whole_number_written_as_a_float_is_a_limit() -> None:
    assert not evaluate_tool_calls([], ["a"], max_extra_tool_calls=0.0).passed


def test_options_are_known_under_all_their_names() -> None:
    for options in ({"order": "strict"}, {"tool_call_order": "strict"}, {"toolCallOrder": "strict"}):
        assert not evaluate_tool_calls(["a", "b"], ["b", "a"], options).passed


def test_pairing_names_both_sides_of_a_mismatch() -> None:
    found = evaluate_tool_calls([call("a", {"x": 1})], [call("a", {"x": 2})])
    assert isinstance(found, ToolCallMatch)
    [mismatch] = found.argument_mismatches
    assert (mismatch.tool_name, mismatch.expected_args, mismatch.actual_args) == ("a", {"x": 1}, {"x": 2})
    with pytest.raises(AttributeError):
        found.passed = True  # type: ignore[misc]  # frozen is what is tested


def test_a_refused_coroutine_leaves_no_warning() -> None:
    async def predicate(value: Any) -> bool:
        return True

    with pytest.raises(TypeError, match="match_tool_argument_with_async"):
        match_tool_argument_with("t", "a", predicate, [call("t", {"a": 1})])


def test_the_async_form_takes_plain_predicates_too() -> None:
    calls = [call("t", {"a": 1}), call("t", {"a": 5})]

    async def large(value: Any) -> bool:
        await asyncio.sleep(0)
        return value > 3

    assert asyncio.run(match_tool_argument_with_async("t", "a", large, calls))
    assert asyncio.run(match_tool_argument_with_async("t", "a", lambda value: value > 3, calls))
    assert not asyncio.run(match_tool_argument_with_async("t", "a", lambda value: value > 9, calls))


def test_the_predicate_is_called_once_per_call_until_it_holds() -> None:
    received: list[Any] = []

    def predicate(value: Any) -> bool:
        received.append(value)
        return value == 2

    assert match_tool_argument_with("t", "a", predicate, [call("t", {"a": 1}), call("t", {}), call("t", {"a": 2}), call("t", {"a": 3})])
    assert received == [1, 2]


def test_the_twin_names_the_closest_call() -> None:
    calls = [call("t", {"a": 9, "b": 9}), call("t", {"a": 1, "b": 3})]
    verdict = explain_tool_call_with_partial_args("t", {"a": 1, "b": 2}, calls)
    assert "closest: $[1].arguments.b is different: expected 2, found 3" in verdict.reason
    assert verdict.pointers == ("$[1].arguments.b",)


def test_the_twins_say_what_was_expected_and_found() -> None:
    assert 'number 1 is "c" instead of "b"' in explain_tool_calls(["a", "b"], ["a", "c"]).reason
    assert "never called" in explain_tool_call_with_args("t", {}, []).reason
    assert "exactly" in explain_tool_call_with_args("t", {"a": 1}, [call("t", {"a": 1, "b": 2})]).reason
    assert "is missing" in explain_tool_argument("t", "a", 1, [call("t")]).reason
    assert "there is none" in explain_tool_argument_with("t", "a", bool, [call("t")]).reason
    assert "it was false for [0]" in explain_tool_argument_with("t", "a", bool, [call("t", {"a": 0})]).reason


def test_every_validator_has_a_twin_that_explains() -> None:
    names = [name for name in validators.__all__ if name.startswith("match_")]
    assert len(names) == 10
    for name in names:
        assert name.replace("match_", "explain_", 1) in validators.__all__


def test_a_number_of_thousands_of_digits_is_compared_and_reported() -> None:
    assert match_tool_argument("t", "a", 10**5000, [{"name": "t", "arguments": {"a": 10**5000}}])
    verdict = explain_tool_argument("t", "a", 10**5000, [{"name": "t", "arguments": {"a": 1}}])
    assert not verdict.passed and "too long to be written" in verdict.reason
