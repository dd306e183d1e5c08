"""Claims about where values come from: an argument from the input or an earlier result, a value of the answer from a call.

`checks/shared/data_flow.py` has the rules for comparing values.
"""

from __future__ import annotations

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.calls import MISSING_CALLS, call_path, fail_never_called, find_indexes_of, list_recorded_calls, require_name
from proctor.checks.shared.data_flow import (
    find_leaves,
    is_copied,
    is_in_text,
    list_sources,
    list_written,
    read_answer_text,
    read_input_text,
    read_result,
)
from proctor.checks.shared.missing_evidence import Reads
from proctor.errors import SpecError
from proctor.model.evidence import Evidence, Json
from proctor.model.show import show
from proctor.model.verdict import Verdict, failed, missing, passed


class ArgumentCopied(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every call of the tool has the argument, with a value from the input or from an earlier result."""

    tool: str
    """The tool's name."""
    argument: str
    """The argument's name, top level."""
    result_of: str | None = None
    """The earlier tool whose result has the value; left out: the value is in the input."""
    path: str = ""
    """Where in that result: a dot path, `*` for any item of a list; left out: anywhere."""


class AnswerRepeats(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer contains a value of every call of the tool."""

    tool: str
    """The tool's name."""
    argument: str | None = None
    """The argument with the value, top level."""
    path: str | None = None
    """Or where in the result the value is: a dot path."""


def _declare_reads(spec: ArgumentCopied) -> Reads:
    return Reads(("tool_calls", "tool_arguments", "input" if spec.result_of is None else "tool_results"), "exact")


@check(
    "argument_copied",
    example="argument_copied: {tool: refund, argument: amount, result_of: lookup_order, path: total}",
    reads=_declare_reads,
)
def argument_copied(spec: ArgumentCopied) -> Decide:
    """Every call of a tool has an argument whose value is in the input, or in the result of an earlier call."""
    require_name(spec.tool, "tool")
    if spec.path and spec.result_of is None:
        raise SpecError("path is about the result of a tool: give result_of too", field="path")
    source = "the input" if spec.result_of is None else f"an earlier result of {show(spec.result_of)}"
    if spec.path:
        source += f" at {spec.path}"
    ok = passed(f"{spec.argument} of {show(spec.tool)} is from {source}")

    def decide(evidence: Evidence) -> Verdict:
        calls = list_recorded_calls(evidence)
        if calls is None:
            return MISSING_CALLS
        named = find_indexes_of(calls, spec.tool)
        if not named:
            return fail_never_called(spec.tool, f"a call of {show(spec.tool)} with {spec.argument} from {source}", calls)
        if spec.result_of is None and evidence.input is None and not evidence.turns:
            return missing("the input")
        texts = [read_input_text(evidence)] if spec.result_of is None else []
        for index in named:
            place = f"{call_path(evidence, index)}.arguments"
            given = calls[index].arguments
            if not isinstance(given, dict) or spec.argument not in given:
                return failed(f"expected {spec.argument} from {source}; {place} has no {show(spec.argument)}", pointers=(place,))
            values: list[str] = []
            for earlier in calls[:index] if spec.result_of is not None else ():
                if earlier.goes_by(spec.result_of or ""):
                    leaves, found = list_sources(earlier, spec.path)
                    values += leaves
                    texts += found
            if not is_copied(given[spec.argument], values, texts):
                reason = f"expected {spec.argument} of {show(spec.tool)} from {source}; {show(given[spec.argument])} is not there"
                return failed(reason, details={"found": given[spec.argument]}, pointers=(f"{place}.{spec.argument}",))
        return ok

    return decide


@check(
    "answer_repeats",
    example="answer_repeats: {tool: refund, argument: amount}",
    reads=Reads(("tool_calls", "tool_arguments", "tool_results", "answer"), "exact"),
)
def answer_repeats(spec: AnswerRepeats) -> Decide:
    """The answer contains the value of an argument, or of a member of the result, of every call of a tool that succeeded."""
    require_name(spec.tool, "tool")
    if (spec.argument is None) == (spec.path is None):
        raise SpecError("give argument or path", field="argument")
    what = f"{spec.argument if spec.argument is not None else f'{spec.path} of the result'} of {show(spec.tool)}"
    ok = passed(f"the answer repeats {what}")

    def decide(evidence: Evidence) -> Verdict:
        calls = list_recorded_calls(evidence)
        if calls is None:
            return MISSING_CALLS
        named = [index for index in find_indexes_of(calls, spec.tool) if not calls[index].failed()]
        if not named:
            return fail_never_called(spec.tool, f"an answer that repeats {what}", calls)
        if evidence.text is None and evidence.body is None:
            return missing("the answer")
        answer = read_answer_text(evidence)
        for index in named:
            values = _list_values(spec, calls[index].arguments, calls[index].result)
            absent = next((value for value in values if not is_in_text(value, answer)), None)
            if absent is not None or not values:
                found = f"{show(absent)} is not in it" if values else f"{call_path(evidence, index)} has no such value"
                return failed(
                    f"expected the answer to repeat {what}; {found}", pointers=("$.text",) if evidence.text is not None else ("$.body",)
                )
        return ok

    return decide


def _list_values(spec: AnswerRepeats, arguments: Json, result: Json) -> list[str]:
    if spec.argument is None:
        return list(find_leaves(read_result(result), spec.path or ""))
    return list_written(arguments[spec.argument]) if isinstance(arguments, dict) and spec.argument in arguments else []
