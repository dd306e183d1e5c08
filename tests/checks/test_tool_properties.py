"""Properties of the tool checks that hold for any evidence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.checks.registry import default_registry
from proctor.checks.tools.tool_calls import ToolCalled, ToolNotCalled
from proctor.checks.tools.tool_order import ToolsCalled, ToolsInOrder
from proctor.model.evidence import Evidence, ToolCall
from proctor.model.verdict import Verdict
from tests.builders import call

NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([1.0, 0.0, -0.0, float("nan")])
    | st.sampled_from(["", "x", "any", "*"])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["k", "l"]), inner, max_size=2), max_leaves=3
)
ARGUMENTS = st.dictionaries(st.sampled_from(["x", "y"]), VALUES, max_size=2)
CALLS = st.lists(st.builds(call, NAMES, ARGUMENTS), max_size=5).map(tuple)
MATCH = st.sampled_from(["partial", "exact", "ignore"])
READ = st.sampled_from(["matchers", "placeholders", "literal"])


def decide(check: str, spec: msgspec.Struct, calls: tuple[ToolCall, ...]) -> Verdict:
    return default_registry().prepare(check, spec)(Evidence(tool_calls=calls))


@settings(max_examples=150, deadline=None)
@given(CALLS, NAMES, ARGUMENTS | st.none(), MATCH, READ, st.integers(0, 5), ARGUMENTS)
@pytest.mark.timeout(60)
def test_an_unrelated_call_never_changes_tool_called(
    calls: tuple[ToolCall, ...], name: str, arguments: Any, match: Any, values: Any, at: int, others: Any
) -> None:
    spec = ToolCalled(name=name, arguments=arguments, match=match, values=values)
    more = (*calls[:at], call("unrelated", others), *calls[at:])
    assert decide("tool_called", spec, calls).outcome == decide("tool_called", spec, more).outcome


@settings(max_examples=150, deadline=None)
@given(CALLS, NAMES, ARGUMENTS | st.none(), MATCH, READ)
@pytest.mark.timeout(60)
def test_called_and_not_called_never_agree(calls: tuple[ToolCall, ...], name: str, arguments: Any, match: Any, values: Any) -> None:
    called = decide("tool_called", ToolCalled(name=name, arguments=arguments, match=match, values=values), calls)
    not_called = decide("tool_not_called", ToolNotCalled(name=name, arguments=arguments, match=match, values=values), calls)
    assert {called.outcome, not_called.outcome} == {"pass", "fail"}


@settings(max_examples=150, deadline=None)
@given(CALLS, NAMES, ARGUMENTS, READ)
@pytest.mark.timeout(60)
def test_the_quick_way_and_the_careful_way_agree(calls: tuple[ToolCall, ...], name: str, arguments: Any, values: Any) -> None:
    quick = ToolCalled(name=name, arguments=arguments, values=values)
    # A bound that cannot be reached forces the careful way.
    careful = ToolCalled(name=name, arguments=arguments, values=values, at_most=100)
    assert decide("tool_called", quick, calls).outcome == decide("tool_called", careful, calls).outcome


@settings(max_examples=100, deadline=None)
@given(CALLS, st.lists(NAMES, max_size=4), st.randoms(use_true_random=False))
def test_all_called_ignores_order(calls: tuple[ToolCall, ...], names: list[str], random: Any) -> None:
    spec = ToolsCalled(names=tuple(names))
    shuffled = list(calls)
    random.shuffle(shuffled)
    assert decide("tools_called", spec, calls).outcome == decide("tools_called", spec, tuple(shuffled)).outcome


@settings(max_examples=100, deadline=None)
@given(CALLS, st.data())
@pytest.mark.timeout(60)
def test_any_subsequence_of_the_calls_is_in_order(calls: tuple[ToolCall, ...], data: st.DataObject) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=len(calls), max_size=len(calls)))
    names = tuple(entry.name for entry, keep in zip(calls, flags, strict=True) if keep)
    assert decide("tools_in_order", ToolsInOrder(names=names), calls).passed


@settings(max_examples=100, deadline=None)
@given(CALLS, NAMES, ARGUMENTS, READ)
def test_a_verdict_repeats_exactly(calls: tuple[ToolCall, ...], name: str, arguments: Any, values: Any) -> None:
    spec = ToolCalled(name=name, arguments=arguments, values=values)
    assert decide("tool_called", spec, calls) == decide("tool_called", spec, calls)
