"""Claims about tool calls that failed.

A call failed when it carries an error: one the protocol raised (`protocol-error`) or one the tool reported in its result
(`content-error`). In plain evidence, the outcome of a call without result, error or success flag is unknown. Readers of other formats
list unknown outcomes in their account.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.calls import MISSING_CALLS, call_path, list_recorded_calls
from proctor.checks.shared.missing_evidence import Reads
from proctor.model.evidence import Evidence, Json, ToolCall
from proctor.model.recorded import records_outcome
from proctor.model.show import count_rest, show
from proctor.model.verdict import Verdict, failed, missing, passed

_OK = passed("no tool call ended in an error")


class NoToolErrors(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """No tool call ended in an error."""

    silent_calls: Literal["missing", "succeeded"] = "missing"
    """A call without result and error: `missing` evidence, or `succeeded` (as in MCPJam)."""


@check("no_tool_errors", example="no_tool_errors: {}", reads=Reads(("tool_calls", "tool_results"), "absence", own_tools=True))
def no_tool_errors(spec: NoToolErrors) -> Decide:
    """No call of a tool that the agent ran ended in an error; tools of a model's provider count where they were recorded."""
    silent_succeed = spec.silent_calls == "succeeded"
    return lambda evidence: _decide(evidence, silent_succeed)


def _decide(evidence: Evidence, silent_succeed: bool) -> Verdict:
    calls = list_recorded_calls(evidence)
    if calls is None:
        return MISSING_CALLS
    broken = [index for index, call in enumerate(calls) if call.failed()]
    if not broken:
        return (None if silent_succeed else _fail_unknown_outcome(calls, evidence)) or _OK
    reason = "; ".join(f"{calls[index].name} at {call_path(evidence, index)}: {_show_error(calls[index])}" for index in broken[:3])
    more = count_rest(len(broken), 3, "; and")
    return failed(
        f"expected no tool call to fail; {len(broken)} of {len(calls)} failed: {reason}{more}",
        details={"failed": [_record_broken_call(calls[index]) for index in broken[:100]]},
        pointers=tuple(f"{call_path(evidence, index)}.error" for index in broken[:100]),
    )


def _fail_unknown_outcome(calls: Sequence[ToolCall], evidence: Evidence) -> Verdict | None:
    """Return the verdict for a call of plain evidence without an outcome, or None if each has one."""
    for index, call in enumerate(calls):
        if not records_outcome(call, evidence.account):
            return missing(f"how {show(call.name, 60)} at {call_path(evidence, index)} ended (neither result nor error)")
    return None


def _show_error(call: ToolCall) -> str:
    kind = call.failure_kind()
    return f"{kind}, {show(call.failure())}" if kind else show(call.failure())


def _record_broken_call(call: ToolCall) -> Json:
    return {"tool": call.name, "kind": call.failure_kind(), "error": call.failure()}
