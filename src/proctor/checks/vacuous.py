"""Finds claims that always pass or always fail, usually because a value was left empty or a bound is 0 by mistake."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, cast

import msgspec

from proctor.model.case import Scoring

if TYPE_CHECKING:
    from proctor.checks.systems.effects import RequestMade
    from proctor.checks.tools.tool_calls import ToolCalled
    from proctor.checks.tools.tool_order import ToolCallsMatch

_NOT_EMPTY = "response_not_empty: {}` requires one"
_ALWAYS = {
    "tools_called": ("names", "lists no tool, so it holds whatever is called", "no_tools_called: {}` claims that nothing is called"),
    "tools_in_order": ("names", "lists no tool, so it holds whatever is called", "tools_exactly: []` claims that nothing is called"),
    "tool_calls_match": ("calls", "lists no call, so it holds whatever is called", "no_tools_called: {}` claims that nothing is called"),
    "response_contains": ("text", "looks for an empty text, which every answer contains", _NOT_EMPTY),
    "response_starts_with": ("text", "looks for an empty text, with which every answer starts", _NOT_EMPTY),
    "response_ends_with": ("text", "looks for an empty text, with which every answer ends", _NOT_EMPTY),
    "response_matches": ("pattern", "has an empty pattern, which is found in every answer", _NOT_EMPTY),
}
_NEVER = {
    "any_tool_called": ("names", "lists no tool, so it never holds"),
    "response_not_contains": ("text", "forbids an empty text, which every answer contains, so it never holds"),
}


class Vacuous(msgspec.Struct, frozen=True):
    """Which field has no effect, and why."""

    field: str
    why: str
    hint: str | None = None


def find_vacuous(check: str, spec: msgspec.Struct) -> Vacuous | None:
    """Return the empty field of a claim whose outcome is known in advance, or None."""
    # By name: importing the classes would load their checks for every suite.
    kind = type(spec).__name__
    if kind == "ToolCallsMatch":
        pairing = cast("ToolCallsMatch", spec)
        if pairing.negative or pairing.positive_only or pairing.max_extra is not None:
            return None
    if getattr(spec, "threshold", None) == 0 and _is_judged(spec):
        why = f"{check} passes from a score of 0 on, which every answer has"
        return Vacuous("threshold", why, "leave it out, or give a number above 0")
    if kind == "ToolCalled" and _has_no_bound(called := cast("ToolCalled", spec)) and not called.forbidden_arguments:
        return Vacuous("at_least", f"{check} with at_least: 0 holds whatever is called", "`tool_not_called: NAME` claims that it is not")
    if kind == "RequestMade" and _has_no_bound(made := cast("RequestMade", spec)) and not made.then:
        return Vacuous("at_least", f"{check} with at_least: 0 holds for any request", "`request_not_made: {...}` claims that it is not")
    always, never = _ALWAYS.get(check), _NEVER.get(check)
    if always is not None and _is_empty(spec, always[0]):
        return Vacuous(always[0], f"{check} {always[1]}", f"`{always[2]}")
    if never is not None and _is_empty(spec, never[0]):
        return Vacuous(never[0], f"{check} {never[1]}")
    return None


def find_vacuous_scoring(scoring: Scoring, given: Container[str]) -> Vacuous | None:
    """Return the fault of thresholds that have no effect, or None; `given` are the keys that were written."""
    if scoring.mode != "weighted":
        ignored = next((key for key in ("pass_at", "partial_above") if key in given), None)
        hint = "add `mode: weighted`, or leave it out"
        return None if ignored is None else Vacuous(ignored, f"{ignored} has no effect if one failed check fails the case", hint)
    if scoring.pass_at == 0:
        return Vacuous("pass_at", "pass_at: 0 lets a case pass whatever its checks find", "give a number above 0")
    return None


def _has_no_bound(spec: ToolCalled | RequestMade) -> bool:
    return spec.at_least == 0 and spec.at_most is None


def _is_judged(spec: msgspec.Struct) -> bool:
    from proctor.checks.judged.semantic import Judged  # imports all judged checks, which few suites use

    return isinstance(spec, Judged)


def _is_empty(spec: msgspec.Struct, field: str) -> bool:
    value = getattr(spec, field, None)
    return isinstance(value, (str, tuple)) and not value
