"""Questions about tool calls for test code, with plain answers.

The nine validators of MCPJam's SDK under Python names, in the same positional order. Each returns true or false and has a twin
that returns a verdict with the reason: `match_tool_calls` and `explain_tool_calls`. `evaluate_tool_calls` pairs expected with
actual calls and reports what is missing, extra, out of order or called with other arguments.

* Names compare exactly. Where names are expected, calls are read by their names.
* A call is our `ToolCall`, or a mapping with `toolName`, `name` or `tool`, and `arguments`, `args` or `input` (JSON text is
  read), by itself or under `function` as OpenAI writes it. Missing or null arguments count as `{}`.
* Claims about arguments hold when one single call satisfies them. Equality is deep: lists are ordered, `1` equals `1.0`, a
  boolean never equals a number, NaN equals nothing. *Partial* is shallow: nested values compare whole.
* Text or null where a list belongs is a `TypeError`; an option with a value it cannot have is a `ValueError`.
* `match_tool_argument_with` refuses an awaitable answer, which would always count as true; `match_tool_argument_with_async`
  awaits it.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import ParamSpec, cast

from proctor.expressions.text_form import NO_SCOPE
from proctor.matchers.call_arguments import ArgumentMatch, build_argument_rule
from proctor.matchers.calls import ArgumentMismatch, MatchOptions, OutOfOrder, Pairing, ToolCallMatch, check_options
from proctor.model.evidence import Json, ToolCall
from proctor.model.json_values import MISSING, Missing, decode_embedded, equal
from proctor.model.show import kind_of, nearest, show
from proctor.model.verdict import Verdict, failed, passed

__all__ = [
    "ArgumentMismatch",
    "OutOfOrder",
    "ToolCallMatch",
    "evaluate_tool_calls",
    "explain_any_tool_call",
    "explain_no_tool_calls",
    "explain_tool_argument",
    "explain_tool_argument_with",
    "explain_tool_argument_with_async",
    "explain_tool_call_count",
    "explain_tool_call_with_args",
    "explain_tool_call_with_partial_args",
    "explain_tool_calls",
    "explain_tool_calls_subset",
    "match_any_tool_call",
    "match_no_tool_calls",
    "match_tool_argument",
    "match_tool_argument_with",
    "match_tool_argument_with_async",
    "match_tool_call_count",
    "match_tool_call_with_args",
    "match_tool_call_with_partial_args",
    "match_tool_calls",
    "match_tool_calls_subset",
]

CallLike = ToolCall | Mapping[str, Json]
Predicate = Callable[[Json], object]

_NAME_KEYS = ("toolName", "name", "tool", "tool_name")
_ARGUMENT_KEYS = ("arguments", "args", "input")


P = ParamSpec("P")


def _answer_plainly(explain: Callable[P, Verdict]) -> Callable[P, bool]:
    """Return the twin of an explanation that only answers true or false."""

    @functools.wraps(explain)
    def match(*arguments: P.args, **named: P.kwargs) -> bool:
        return explain(*arguments, **named).passed

    match.__name__ = match.__qualname__ = explain.__name__.replace("explain", "match")
    return match


def explain_tool_calls(expected: Iterable[str | CallLike], actual: Iterable[str | CallLike]) -> Verdict:
    """Decide whether the tools called are exactly these, in this order."""
    wanted, found = _read_names(expected, "expected"), _read_names(actual, "actual")
    for index, (one, other) in enumerate(zip(wanted, found, strict=False)):
        if not equal(one, other):
            return failed(f"expected {show(wanted)}, found {show(found)}: number {index} is {show(other)} instead of {show(one)}")
    if len(wanted) != len(found):
        return failed(f"expected {len(wanted)} calls {show(wanted)}, found {len(found)} {show(found)}")
    return passed(f"the tools called are exactly {show(wanted)}")


def explain_tool_calls_subset(expected: Iterable[str | CallLike], actual: Iterable[str | CallLike]) -> Verdict:
    """Decide whether every one of these tools was called, in any order; a repeated name asks for no more than one call."""
    wanted, found = _read_names(expected, "expected"), _read_names(actual, "actual")
    absent = [name for name in wanted if not _contains(found, name)]
    if absent:
        return failed(f"expected all of {show(wanted)}, missing {show(absent)}; found {show(found)}", details={"missing": absent})
    return passed(f"all of {show(wanted)} were called")


def explain_any_tool_call(expected: Iterable[str | CallLike], actual: Iterable[str | CallLike]) -> Verdict:
    """Decide whether at least one of these tools was called; it fails when none is listed."""
    wanted, found = _read_names(expected, "expected"), _read_names(actual, "actual")
    for name in wanted:
        if _contains(found, name):
            return passed(f"{show(name)} was called")
    return failed(f"expected at least one of {show(wanted)}, found {show(found)}")


def explain_tool_call_count(tool_name: str, actual: Iterable[str | CallLike], count: float) -> Verdict:
    """Decide whether the tool was called exactly so many times."""
    name = _read_tool_name(tool_name)
    found = sum(equal(other, name) for other in _read_names(actual, "actual"))
    if equal(count, found):
        return passed(f"{show(name)} was called {found} times")
    return failed(f"expected {show(count)} calls of {show(name)}, found {found}")


def explain_no_tool_calls(actual: Iterable[str | CallLike]) -> Verdict:
    """Decide whether no tool was called."""
    found = _read_names(actual, "actual")
    return failed(f"expected no tool call, found {show(found)}") if found else passed("no tool was called")


def explain_tool_call_with_args(tool_name: str, expected_args: Mapping[str, Json] | None, tool_calls: Iterable[CallLike]) -> Verdict:
    """Decide whether some call of the tool has exactly these arguments."""
    return _explain_some_call(tool_name, _read_arguments(expected_args), "exact", tool_calls)


def explain_tool_call_with_partial_args(
    tool_name: str, expected_args: Mapping[str, Json] | None, tool_calls: Iterable[CallLike]
) -> Verdict:
    """Decide whether some single call of the tool has all these arguments; it may have others."""
    return _explain_some_call(tool_name, _read_arguments(expected_args), "partial", tool_calls)


def explain_tool_argument(tool_name: str, arg_name: str, expected_value: Json, tool_calls: Iterable[CallLike]) -> Verdict:
    """Decide whether some call of the tool has this argument with this value; no dotted paths."""
    return _explain_some_call(tool_name, {arg_name: expected_value}, "partial", tool_calls)


def explain_tool_argument_with(tool_name: str, arg_name: str, predicate: Predicate, tool_calls: Iterable[CallLike]) -> Verdict:
    """Decide whether the predicate is truthy for this argument of some call of the tool; its exceptions come through."""

    def test(value: Json) -> object:
        answer = predicate(value)
        if isinstance(answer, Awaitable):
            # A coroutine that is never awaited would warn when it is collected.
            if isinstance(answer, Coroutine):
                answer.close()
            raise TypeError("the predicate returned an awaitable, which always counts as true; use match_tool_argument_with_async")
        return answer

    values = _list_values(tool_name, arg_name, predicate, tool_calls)
    return _explain_predicate(tool_name, arg_name, values, next((value for value in values if test(value)), MISSING))


async def match_tool_argument_with_async(
    tool_name: str, arg_name: str, predicate: Callable[[Json], Awaitable[object] | object], tool_calls: Iterable[CallLike]
) -> bool:
    """Decide `match_tool_argument_with` for a predicate that may be asynchronous, and await what it returns."""
    return (await explain_tool_argument_with_async(tool_name, arg_name, predicate, tool_calls)).passed


async def explain_tool_argument_with_async(
    tool_name: str, arg_name: str, predicate: Callable[[Json], Awaitable[object] | object], tool_calls: Iterable[CallLike]
) -> Verdict:
    """Decide `match_tool_argument_with_async` and say why."""
    values = _list_values(tool_name, arg_name, predicate, tool_calls)
    for value in values:
        answer = predicate(value)
        if isinstance(answer, Awaitable):
            answer = cast(object, await answer)
        if answer:
            return _explain_predicate(tool_name, arg_name, values, value)
    return _explain_predicate(tool_name, arg_name, values, MISSING)


match_tool_calls = _answer_plainly(explain_tool_calls)
match_tool_calls_subset = _answer_plainly(explain_tool_calls_subset)
match_any_tool_call = _answer_plainly(explain_any_tool_call)
match_tool_call_count = _answer_plainly(explain_tool_call_count)
match_no_tool_calls = _answer_plainly(explain_no_tool_calls)
match_tool_call_with_args = _answer_plainly(explain_tool_call_with_args)
match_tool_call_with_partial_args = _answer_plainly(explain_tool_call_with_partial_args)
match_tool_argument = _answer_plainly(explain_tool_argument)
match_tool_argument_with = _answer_plainly(explain_tool_argument_with)


_OPTION_NAMES = {
    "order": "order",
    "tool_call_order": "order",
    "toolCallOrder": "order",
    "arguments": "arguments",
    "argument_matching": "arguments",
    "argumentMatching": "arguments",
    "max_extra": "max_extra",
    "max_extra_tool_calls": "max_extra",
    "maxExtraToolCalls": "max_extra",
    "negative": "negative",
    "is_negative_test": "negative",
    "isNegativeTest": "negative",
    "allow_extra_tool_calls": "allow_extra",
    "allowExtraToolCalls": "allow_extra",
    "positive_only": "positive_only",
}
"""Every spelling of an option: ours, the original's in our letters, and the original's own."""


def evaluate_tool_calls(
    expected: Iterable[CallLike | str], actual: Iterable[CallLike | str], options: Mapping[str, object] | None = None, **more: object
) -> ToolCallMatch:
    """Pair expected with actual calls.

    Options, as keywords or in a mapping: `tool_call_order` (`ignore`, `strict`, `superset`), `argument_matching` (`partial`, where
    words such as `any` and `number` stand for a type, `exact`, `ignore`), `max_extra_tool_calls` (none: any number),
    `allow_extra_tool_calls` (false: none), `is_negative_test` (no call at all), `positive_only` (some call must be made). In
    `ignore` order a valid assignment is found whenever there is one.
    """
    chosen = read_options({**(options or {}), **more})
    return Pairing(_read_calls(expected, "expected"), chosen).match(_read_calls(actual, "actual"))


def read_options(given: Mapping[str, object]) -> MatchOptions:
    """Return the options of `evaluate_tool_calls` in any of their spellings. Raises `TypeError` or `ValueError`."""
    read: dict[str, object] = {}
    for spelling, value in given.items():
        name = _OPTION_NAMES.get(spelling)
        if name is None:
            close = nearest(spelling, _OPTION_NAMES)
            raise TypeError(f"unknown option {spelling!r}" + (f"; nearest: {close[0]!r}" if close else ""))
        if name in read:
            raise TypeError(f"option {spelling!r} is given twice under different names")
        read[name] = value
    for name in ("negative", "positive_only", "allow_extra"):
        if not isinstance(read.get(name, False), bool):
            raise ValueError(f"{name}: expected true or false, found {show(read[name])}")
    # The limit wins over the older switch, also when it is given as null.
    allow_extra = read.pop("allow_extra", True)
    limit = read.get("max_extra", None if allow_extra else 0)
    read["max_extra"] = int(limit) if isinstance(limit, float) and limit.is_integer() else limit
    chosen = MatchOptions(**cast("dict[str, Json]", read))
    fault = check_options(chosen)
    if fault is not None:
        raise ValueError(fault[1])
    return chosen


def _read_list(values: object, what: str) -> list[object]:
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise TypeError(f"{what}: expected a list, found {kind_of(values)}")
    return list(cast("Iterable[object]", values))


def _read_names(values: object, what: str) -> list[object]:
    return [_name_of(value, what) if isinstance(value, (ToolCall, Mapping)) else value for value in _read_list(values, what)]


def _read_tool_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"tool_name: expected text, found {kind_of(name)}")
    return name


def _find_function(call: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return what OpenAI puts under `function` of a call; else the call itself."""
    function = call.get("function")
    return cast("Mapping[str, Json]", function) if isinstance(function, Mapping) else call


def _name_of(value: ToolCall | Mapping[str, Json], what: str) -> str:
    if isinstance(value, ToolCall):
        return value.name
    value = _find_function(value)
    name = next((value[key] for key in _NAME_KEYS if key in value), None)
    if not isinstance(name, str):
        raise TypeError(f"{what}: a call needs its name as text under {', '.join(_NAME_KEYS[:3])}")
    return name


def _read_calls(values: object, what: str) -> list[ToolCall]:
    return [_call(value, what) for value in _read_list(values, what)]


def _call(value: object, what: str) -> ToolCall:
    if isinstance(value, ToolCall):
        return value
    if isinstance(value, str) and what != "tool_calls":
        return ToolCall(name=value)
    if not isinstance(value, Mapping):
        raise TypeError(f"{what}: expected calls, found {kind_of(value)}")
    mapping = _find_function(cast("Mapping[str, Json]", value))
    arguments: Json = next((mapping[key] for key in _ARGUMENT_KEYS if key in mapping), None)
    if isinstance(arguments, str):
        # Text that is no JSON object stays text.
        read = decode_embedded(arguments)
        arguments = read if isinstance(read, dict) else arguments
    elif arguments is None:
        arguments = {}
    elif isinstance(arguments, Mapping):
        arguments = dict(cast("Mapping[str, Json]", arguments))
    return ToolCall(name=_name_of(mapping, what), arguments=arguments)


def _read_arguments(expected: object) -> dict[str, Json]:
    if expected is None:
        return {}
    if not isinstance(expected, Mapping):
        raise TypeError(f"expected_args: expected an object, found {kind_of(expected)}")
    return dict(cast("Mapping[str, Json]", expected))


def _contains(names: Sequence[object], name: object) -> bool:
    return any(equal(name, other) for other in names)


def _explain_some_call(tool_name: str, expected: dict[str, Json], match: ArgumentMatch, tool_calls: Iterable[CallLike]) -> Verdict:
    name = _read_tool_name(tool_name)
    named = [(index, call) for index, call in enumerate(_read_calls(tool_calls, "tool_calls")) if call.goes_by(name)]
    rule = build_argument_rule(expected, match=match, values="literal")
    for _, call in named:
        if rule is None or rule.fits(call.arguments, NO_SCOPE):
            return passed(f"{show(name)} was called with {show(call.arguments)}")
    wanted = f"expected a call of {show(name)} with {'exactly ' if match == 'exact' else ''}{show(expected)}"
    if rule is None or not named:
        return failed(f"{wanted}; it was never called")
    closest = min((rule.list_differences(call.arguments, NO_SCOPE, f"$[{index}].arguments") for index, call in named), key=len)
    return failed(
        f"{wanted}; it was called {len(named)} times, closest: {'; '.join(entry.sentence for entry in closest)}",
        pointers=tuple(entry.path for entry in closest),
    )


def _list_values(tool_name: str, arg_name: str, predicate: object, tool_calls: Iterable[CallLike]) -> list[Json]:
    """Return the values of this argument over all calls of the tool that have it."""
    name = _read_tool_name(tool_name)
    if not callable(predicate):
        raise TypeError(f"predicate: expected a function, found {kind_of(predicate)}")
    calls = [call for call in _read_calls(tool_calls, "tool_calls") if call.goes_by(name)]
    return [call.arguments[arg_name] for call in calls if isinstance(call.arguments, dict) and arg_name in call.arguments]


def _explain_predicate(tool_name: str, arg_name: str, tested: list[Json], fitting: Json | Missing) -> Verdict:
    if fitting is not MISSING:
        return passed(f"the predicate holds for {arg_name} = {show(fitting)} of {show(tool_name)}")
    if not tested:
        return failed(f"expected a call of {show(tool_name)} with the argument {show(arg_name)}; there is none")
    return failed(f"expected the predicate to hold for {arg_name} of {show(tool_name)}; it was false for {show(tested)}")
