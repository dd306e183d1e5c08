"""Claims about the order of tool calls as a whole.

The same counting rules as `tool_calls`. Four readings of "these tools": the whole list exactly, an ordered subsequence,
all of them in any order, and any one of them. `tool_pairing` compares arguments as well.

A claim that compares expected calls with the actual ones as a whole, arguments included.

The same counting rules as `tool_calls`. Expected calls are paired with actual ones, and the verdict reports what is missing, extra,
mismatched and out of order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.calls import (
    call_path,
    call_paths,
    decide_in_words,
    describe_tools,
    fail_calls,
    find_existing_tools,
    find_indexes_of,
    list_names,
    list_recorded_calls,
    over_calls,
    record_differences,
    require_name,
    require_names,
    resolve_name,
)
from proctor.errors import SpecError
from proctor.model.evidence import Evidence, Json, ToolCall
from proctor.model.show import show
from proctor.model.verdict import Verdict, defer_verdict, failed, passed

if TYPE_CHECKING:
    from proctor.matchers.calls import Pairing, ToolCallMatch


class ToolsExactly(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tools called are exactly these, in this order, and nothing else; or exactly one of several such lists."""

    names: tuple[str, ...] = ()
    """The whole list of calls, by name."""
    any_of: tuple[tuple[str, ...], ...] = ()
    """Several allowed lists, instead of `names`."""
    server_prefix: bool = False
    """As in `tool_called`."""


class ToolsInOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """These tools were called in this order; other calls may lie between, a repeated name needs its own call."""

    names: tuple[str, ...]
    """The names in order."""
    server_prefix: bool = False
    """As in `tool_called`."""


class ToolsCalled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every one of these tools was called, in any order."""

    names: tuple[str, ...]
    """The names; a repeated name asks for no more than one call."""


class AnyToolCalled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """At least one of these tools was called."""

    names: tuple[str, ...]
    """The names; with none listed the claim fails."""


class FirstTool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first tool called was this one."""

    name: str
    """The tool's name."""


@check("tools_exactly", shorthand="names", example="tools_exactly: [lookup_order, refund]", reads=Reads(("tool_calls",), "exact"))
def tools_exactly(spec: ToolsExactly) -> Decide:
    """The tools called are exactly these, in this order, and nothing else; or exactly one of several such lists."""
    if spec.names and spec.any_of:
        raise SpecError("give names or any_of, not both", field="any_of")
    allowed = spec.any_of or (spec.names,)
    for number, names in enumerate(allowed):
        require_names(names, f"any_of.{number}" if spec.any_of else "names")
    wanted = " or ".join(show(list(names)) for names in allowed)
    ok = passed(f"the tools called are exactly {wanted}")

    def decide(evidence: Evidence, calls: Sequence[ToolCall]) -> Verdict:
        known = find_existing_tools(evidence, calls) if spec.server_prefix else None
        for names in allowed:
            resolved = names if known is None else [resolve_name(name, evidence, calls, known) for name in names]
            if len(resolved) == len(calls) and all(call.goes_by(name) for call, name in zip(calls, resolved, strict=True)):
                return ok
        at, why = _find_first_difference(allowed[0], calls)
        suffix = f"; {why}" if len(allowed) == 1 else ""
        details = {"expected": [list(names) for names in allowed], "tools_called": list_names(calls)}
        pointers = call_paths(evidence, (at,)) if at < len(calls) else ()
        return failed(f"expected exactly {wanted}; {describe_tools(calls)}{suffix}", details=details, pointers=pointers)

    return over_calls(decide)


def _find_first_difference(names: Sequence[str], calls: Sequence[ToolCall]) -> tuple[int, str]:
    for index, (name, call) in enumerate(zip(names, calls, strict=False)):
        if not call.goes_by(name):
            return index, f"call {index} is {show(call.name)} instead of {show(name)}"
    if len(calls) > len(names):
        return len(names), f"call {len(names)}, {show(calls[len(names)].name)}, is one too many"
    if len(names) > len(calls):
        return len(calls), f"{show(names[len(calls)])} is missing at the end"
    return 0, "the names differ"


@check("tools_in_order", shorthand="names", example="tools_in_order: [lookup_order, refund]", reads=Reads(("tool_calls",), "presence"))
def tools_in_order(spec: ToolsInOrder) -> Decide:
    """These tools were called in this order; other calls may lie between, a repeated name needs its own call."""
    require_names(spec.names)
    names = spec.names
    count = len(names)
    ok = passed(f"{' -> '.join(names)} were called in this order" if names else "no tools are listed")

    @over_calls
    def careful(evidence: Evidence, calls: Sequence[ToolCall]) -> Verdict:
        known = find_existing_tools(evidence, calls) if spec.server_prefix else None
        wanted = names if known is None else [resolve_name(name, evidence, calls, known) for name in names]
        found = _find_in_order(wanted, calls)
        if len(found) == count:
            return ok
        return defer_verdict(lambda: _fail_not_in_order(wanted, found, evidence, calls))

    if not names or spec.server_prefix:
        return careful

    # The hot path ignores aliases; a greedy search from the left finds a subsequence. The text of a failure is built when it is read.
    def decide(evidence: Evidence) -> Verdict:
        calls = evidence.tool_calls
        if calls is None:
            return careful(evidence)
        at = 0
        wanted = names[0]
        for call in calls:
            if call.name == wanted:
                at += 1
                if at == count:
                    return ok
                wanted = names[at]
        # Aliases can only turn a failure into a pass, so they are examined only here.
        for call in calls:
            if call.aliases:
                return careful(evidence)
        # No lambda: a variable that it uses would be slower in the loops above.
        return defer_verdict(partial(decide_in_words, careful, evidence))

    return decide


def _find_in_order(names: Sequence[str], calls: Sequence[ToolCall]) -> list[int]:
    """Return the positions of the names in order, up to the first that is missing."""
    found: list[int] = []
    for index, call in enumerate(calls):
        if len(found) < len(names) and call.goes_by(names[len(found)]):
            found.append(index)
    return found


def _fail_not_in_order(wanted: Sequence[str], found: Sequence[int], evidence: Evidence, calls: Sequence[ToolCall]) -> Verdict:
    stuck = wanted[len(found)]
    anywhere = find_indexes_of(calls, stuck)
    if anywhere:
        why = f"no call of {show(stuck)} after {call_path(evidence, found[-1])}" if found else f"{show(stuck)} out of place"
    else:
        why = f"{show(stuck)} was never called"
    reason = f"expected the order {' -> '.join(wanted)}; {why},"
    return fail_calls(reason, evidence, calls, anywhere, expected=list(wanted), reached=len(found), stuck_at=stuck)


@check("tools_called", shorthand="names", example="tools_called: [lookup_order, send_mail]", reads=Reads(("tool_calls",), "presence"))
def tools_called(spec: ToolsCalled) -> Decide:
    """Every one of these tools was called, in any order."""
    require_names(spec.names)
    ok = passed(f"all of {show(list(spec.names))} were called")

    def decide(evidence: Evidence, calls: Sequence[ToolCall]) -> Verdict:
        known = {name for call in calls for name in (call.name, *call.aliases)}
        absent = [name for name in spec.names if name not in known]
        if not absent:
            return ok
        reason = f"expected all of {show(list(spec.names))}; {', '.join(show(name) for name in absent)} never called,"
        return fail_calls(reason, evidence, calls, missing=absent)

    return over_calls(decide)


@check("any_tool_called", shorthand="names", example="any_tool_called: [search, browse]", reads=Reads(("tool_calls",), "presence"))
def any_tool_called(spec: AnyToolCalled) -> Decide:
    """At least one of these tools was called."""
    require_names(spec.names)
    names = frozenset(spec.names)
    ok = passed(f"one of {show(list(spec.names))} was called")

    def decide(evidence: Evidence, calls: Sequence[ToolCall]) -> Verdict:
        for call in calls:
            if call.name in names or (call.aliases and not names.isdisjoint(call.aliases)):
                return ok
        if not names:
            return failed("expected one of a list of tools, but the list is empty")
        return fail_calls(f"expected at least one of {show(list(spec.names))};", evidence, calls)

    return over_calls(decide)


@check("first_tool", shorthand="name", example="first_tool: lookup_order", reads=Reads(("tool_calls",), "exact"))
def first_tool(spec: FirstTool) -> Decide:
    """The first tool called was this one."""
    require_name(spec.name)
    ok = passed(f"the first tool called was {show(spec.name)}")

    def decide(evidence: Evidence, calls: Sequence[ToolCall]) -> Verdict:
        if calls and calls[0].goes_by(spec.name):
            return ok
        return fail_calls(f"expected the first tool to be {show(spec.name)};", evidence, calls, range(min(1, len(calls))))

    return over_calls(decide)


class ExpectedCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call to expect."""

    name: str
    """The tool's name."""
    arguments: dict[str, Json] = {}
    """The expected arguments, compared as configured by the claim."""


class ToolCallsMatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Expected calls pair up with the actual ones; reports missing, extra, mismatched and out-of-order calls."""

    calls: tuple[ExpectedCall, ...] = ()
    """The calls to expect."""
    order: Literal["ignore", "strict", "superset"] = "ignore"
    """`ignore`: any order; `strict`: position by position; `superset`: in order, others may lie between."""
    arguments: Literal["partial", "exact", "ignore"] = "partial"
    """How arguments are compared; in `partial` a word such as `any` or `number` means a type."""
    max_extra: int | None = None
    """How many further calls are allowed; left out: any number."""
    negative: bool = False
    """Inverts the claim: no tool may be called at all."""
    positive_only: bool = False
    """Some tool must be called, even where no call is listed."""


def _declare_reads(spec: ToolCallsMatch) -> Reads:
    if spec.negative:
        return Reads(("tool_calls",), "absence")
    # Positions and the number of extra calls depend on all calls; without such a limit further calls do not matter.
    free = spec.order != "strict" and spec.max_extra is None and bool(spec.calls)
    return Reads(("tool_calls",) if spec.arguments == "ignore" else ("tool_calls", "tool_arguments"), "presence" if free else "exact")


@check(
    "tool_calls_match",
    shorthand="calls",
    example="tool_calls_match: {calls: [{name: search, arguments: {q: string}}], order: strict}",
    reads=_declare_reads,
    product=True,
    locate=lambda spec, evidence: _prepare(spec).iterate_ranges(
        list_recorded_calls(evidence) or (), lambda index: f"{call_path(evidence, index)}.arguments"
    ),
)
def tool_calls_match(spec: ToolCallsMatch) -> Decide:
    """Expected calls pair up with the actual ones; reports missing, extra, mismatched and out-of-order calls."""
    for index, expected in enumerate(spec.calls):
        require_name(expected.name, f"calls.{index}.name")
    if spec.negative and spec.calls:
        raise SpecError("a negative claim expects no call at all: leave calls out", field="calls")
    pairing = _prepare(spec)
    ok = passed("no tool was called" if spec.negative else "every expected call was made")

    def decide(evidence: Evidence, calls: Sequence[ToolCall]) -> Verdict:
        match = pairing.match(calls)
        return ok if match.passed else _fail_unpaired(spec, pairing, match, evidence, calls)

    return over_calls(decide)


def _prepare(spec: ToolCallsMatch) -> Pairing:
    from proctor.matchers.calls import MatchOptions, Pairing, check_options  # the other checks compare only names

    options = MatchOptions(
        order=spec.order, arguments=spec.arguments, max_extra=spec.max_extra, negative=spec.negative, positive_only=spec.positive_only
    )
    fault = check_options(options)
    if fault is not None:
        raise SpecError(fault[1], field=fault[0])
    return Pairing([ToolCall(name=call.name, arguments=call.arguments) for call in spec.calls], options)


def _fail_unpaired(spec: ToolCallsMatch, pairing: Pairing, match: ToolCallMatch, evidence: Evidence, calls: Sequence[ToolCall]) -> Verdict:
    if spec.negative:
        return failed(
            f"expected no tool call at all; {describe_tools(calls)}",
            details={"extra": list_names(calls)},
            pointers=call_paths(evidence, range(len(calls))),
        )
    reasons: list[str] = []
    pointers: list[str] = []
    mismatches: list[Json] = []
    for entry in match.argument_mismatches:
        path = call_path(evidence, entry.actual_index)
        differences = pairing.list_differences(entry, f"{path}.arguments")
        reasons.append(f"{entry.tool_name} with other arguments: " + "; ".join(difference.sentence for difference in differences[:4]))
        pointers.extend(difference.path for difference in differences)
        mismatches.append(
            {
                "tool": entry.tool_name,
                "expected": entry.expected_args,
                "actual": entry.actual_args,
                "differences": record_differences(differences),
            }
        )
    for late in match.out_of_order:
        reasons.append(f"{late.tool_name} out of order: expected as number {late.expected_index}, made as number {late.actual_index}")
        pointers.append(call_path(evidence, late.actual_index))
    if match.missing:
        missing = (f"{call.name} with {show(call.arguments)}" if call.arguments else call.name for call in match.missing[:5])
        reasons.append(f"missing {', '.join(missing)}")
    if spec.max_extra is not None and len(match.extra) > spec.max_extra:
        reasons.append(f"{len(match.extra)} extra calls, {spec.max_extra} allowed: {', '.join(call.name for call in match.extra[:5])}")
    if not reasons:
        reasons.append("expected some tool call; no tool was called")
    return failed(
        "; ".join(reasons[:8]),
        details={
            "missing": [_record_call(call) for call in match.missing],
            "extra": [_record_call(call) for call in match.extra[:100]],
            "out_of_order": [
                {"tool": late.tool_name, "expected_index": late.expected_index, "actual_index": late.actual_index}
                for late in match.out_of_order
            ],
            "argument_mismatches": mismatches,
        },
        pointers=tuple(pointers[:100]),
    )


def _record_call(call: ToolCall) -> Json:
    return {"name": call.name, "arguments": call.arguments}
