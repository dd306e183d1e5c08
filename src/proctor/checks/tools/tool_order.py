"""Claims about the order of tool calls as a whole.

The same counting rules as `tool_calls`. Four readings of "these tools": the whole list exactly, an ordered subsequence,
all of them in any order, and any one of them. `tool_pairing` compares arguments as well.
"""

from collections.abc import Sequence

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.calls import (
    MISSING_CALLS,
    call_path,
    call_paths,
    describe_tools,
    find_existing_tools,
    find_indexes_of,
    list_names,
    list_recorded_calls,
    require_name,
    require_names,
    resolve_name,
)
from proctor.checks.shared.missing_evidence import Reads
from proctor.errors import SpecError
from proctor.model.evidence import Evidence, ToolCall
from proctor.model.show import show
from proctor.model.verdict import Verdict, defer_verdict, failed, passed


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

    def decide(evidence: Evidence) -> Verdict:
        calls = list_recorded_calls(evidence)
        if calls is None:
            return MISSING_CALLS
        known = find_existing_tools(evidence, calls) if spec.server_prefix else None
        for names in allowed:
            resolved = names if known is None else [resolve_name(name, evidence, calls, known) for name in names]
            if len(resolved) == len(calls) and all(call.goes_by(name) for call, name in zip(calls, resolved, strict=True)):
                return ok
        at, why = _find_first_difference(allowed[0], calls)
        suffix = f"; {why}" if len(allowed) == 1 else ""
        return failed(
            f"expected exactly {wanted}; {describe_tools(calls)}{suffix}",
            details={"expected": [list(names) for names in allowed], "tools_called": list_names(calls)},
            pointers=call_paths(evidence, (at,)) if at < len(calls) else (),
        )

    return decide


def _resolve_names(names: Sequence[str], evidence: Evidence, calls: Sequence[ToolCall]) -> list[str]:
    known = find_existing_tools(evidence, calls)
    return [resolve_name(name, evidence, calls, known) for name in names]


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

    def careful(evidence: Evidence) -> Verdict:
        calls = list_recorded_calls(evidence)
        if calls is None:
            return MISSING_CALLS
        wanted = _resolve_names(names, evidence, calls) if spec.server_prefix else names
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
        return defer_verdict(lambda: _fail_not_in_order(names, _find_in_order(names, calls), evidence, calls))

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
    expected = " -> ".join(wanted)
    if anywhere:
        after = f"no call of {show(stuck)} after {call_path(evidence, found[-1])}" if found else f"{show(stuck)} out of place"
        reason = f"expected the order {expected}; {after}, {describe_tools(calls)}"
    else:
        reason = f"expected the order {expected}; {show(stuck)} was never called, {describe_tools(calls)}"
    return failed(
        reason,
        details={"expected": list(wanted), "tools_called": list_names(calls), "reached": len(found), "stuck_at": stuck},
        pointers=call_paths(evidence, anywhere),
    )


@check("tools_called", shorthand="names", example="tools_called: [lookup_order, send_mail]", reads=Reads(("tool_calls",), "presence"))
def tools_called(spec: ToolsCalled) -> Decide:
    """Every one of these tools was called, in any order."""
    require_names(spec.names)
    ok = passed(f"all of {show(list(spec.names))} were called")

    def decide(evidence: Evidence) -> Verdict:
        calls = list_recorded_calls(evidence)
        if calls is None:
            return MISSING_CALLS
        known = {name for call in calls for name in (call.name, *call.aliases)}
        absent = [name for name in spec.names if name not in known]
        if not absent:
            return ok
        return failed(
            f"expected all of {show(list(spec.names))}; {', '.join(show(name) for name in absent)} never called, {describe_tools(calls)}",
            details={"missing": absent, "tools_called": list_names(calls)},
        )

    return decide


@check("any_tool_called", shorthand="names", example="any_tool_called: [search, browse]", reads=Reads(("tool_calls",), "presence"))
def any_tool_called(spec: AnyToolCalled) -> Decide:
    """At least one of these tools was called."""
    require_names(spec.names)
    names = frozenset(spec.names)
    ok = passed(f"one of {show(list(spec.names))} was called")

    def decide(evidence: Evidence) -> Verdict:
        calls = list_recorded_calls(evidence)
        if calls is None:
            return MISSING_CALLS
        for call in calls:
            if call.name in names or (call.aliases and not names.isdisjoint(call.aliases)):
                return ok
        if not names:
            return failed("expected one of a list of tools, but the list is empty")
        return failed(
            f"expected at least one of {show(list(spec.names))}; {describe_tools(calls)}", details={"tools_called": list_names(calls)}
        )

    return decide


@check("first_tool", shorthand="name", example="first_tool: lookup_order", reads=Reads(("tool_calls",), "exact"))
def first_tool(spec: FirstTool) -> Decide:
    """The first tool called was this one."""
    require_name(spec.name)
    ok = passed(f"the first tool called was {show(spec.name)}")

    def decide(evidence: Evidence) -> Verdict:
        calls = list_recorded_calls(evidence)
        if calls is None:
            return MISSING_CALLS
        if calls and calls[0].goes_by(spec.name):
            return ok
        return failed(
            f"expected the first tool to be {show(spec.name)}; {describe_tools(calls)}",
            details={"tools_called": list_names(calls)},
            pointers=call_paths(evidence, range(min(1, len(calls)))),
        )

    return decide
