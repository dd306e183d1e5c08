"""A claim that compares expected calls with the actual ones as a whole, arguments included.

The same counting rules as `tool_calls`. Expected calls are paired with actual ones, and the verdict reports what is missing, extra,
mismatched and out of order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.calls import (
    MISSING_CALLS,
    call_path,
    call_paths,
    describe_tools,
    list_names,
    list_recorded_calls,
    record_differences,
    require_name,
)
from proctor.checks.shared.missing_evidence import Reads
from proctor.errors import SpecError
from proctor.matchers.calls import MatchOptions, Pairing, ToolCallMatch, check_options
from proctor.model.evidence import Evidence, Json, ToolCall
from proctor.model.show import show
from proctor.model.verdict import TextRange, Verdict, failed, passed


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


def _locate(spec: ToolCallsMatch, evidence: Evidence) -> Iterator[TextRange]:
    return _prepare(spec).iterate_ranges(list_recorded_calls(evidence) or (), lambda index: f"{call_path(evidence, index)}.arguments")


@check(
    "tool_calls_match",
    shorthand="calls",
    example="tool_calls_match: {calls: [{name: search, arguments: {q: string}}], order: strict}",
    reads=_declare_reads,
    product=True,
    locate=_locate,
)
def tool_calls_match(spec: ToolCallsMatch) -> Decide:
    """Expected calls pair up with the actual ones; reports missing, extra, mismatched and out-of-order calls."""
    for index, expected in enumerate(spec.calls):
        require_name(expected.name, f"calls.{index}.name")
    if spec.negative and spec.calls:
        raise SpecError("a negative claim expects no call at all: leave calls out", field="calls")
    pairing = _prepare(spec)
    ok = passed("no tool was called" if spec.negative else "every expected call was made")

    def decide(evidence: Evidence) -> Verdict:
        calls = list_recorded_calls(evidence)
        if calls is None:
            return MISSING_CALLS
        match = pairing.match(calls)
        return ok if match.passed else _fail_unpaired(spec, pairing, match, evidence, calls)

    return decide


def _prepare(spec: ToolCallsMatch) -> Pairing:
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
        reasons.append("missing " + ", ".join(_show_call(call) for call in match.missing[:5]))
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


def _show_call(call: ToolCall) -> str:
    return f"{call.name} with {show(call.arguments)}" if call.arguments else call.name


def _record_call(call: ToolCall) -> Json:
    return {"name": call.name, "arguments": call.arguments}
