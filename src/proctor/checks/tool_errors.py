"""Claims about tool calls that failed.

A call failed when it carries an error: one the protocol raised (`protocol-error`) or one the tool reported in its result
(`content-error`).
"""

from __future__ import annotations

import msgspec

from proctor.checks._calls import MISSING_CALLS, call_path, recorded_calls
from proctor.checks.caution import Reads
from proctor.checks.registry import Decide, check
from proctor.model.evidence import Evidence, Json, ToolCall
from proctor.model.show import show
from proctor.model.verdict import Verdict, failed, passed

_OK = passed("no tool call ended in an error")


class NoToolErrors(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """No tool call ended in an error."""


@check("no_tool_errors", example="no_tool_errors: {}", reads=Reads(("tool_calls", "tool_results"), "absence"))
def no_tool_errors(spec: NoToolErrors) -> Decide:
    """No tool call ended in an error."""
    return _decide


def _decide(evidence: Evidence) -> Verdict:
    calls = recorded_calls(evidence)
    if calls is None:
        return MISSING_CALLS
    broken = [index for index, call in enumerate(calls) if call.failed()]
    if not broken:
        return _OK
    told = "; ".join(f"{calls[index].name} at {call_path(evidence, index)}: {_error_shown(calls[index])}" for index in broken[:3])
    more = f"; and {len(broken) - 3} more" if len(broken) > 3 else ""
    return failed(
        f"expected no tool call to fail; {len(broken)} of {len(calls)} failed: {told}{more}",
        details={"failed": [_broken_json(calls[index]) for index in broken[:100]]},
        pointers=tuple(f"{call_path(evidence, index)}.error" for index in broken[:100]),
    )


def _error_shown(call: ToolCall) -> str:
    kind = call.failure_kind()
    return f"{kind}, {show(call.failure())}" if kind else show(call.failure())


def _broken_json(call: ToolCall) -> Json:
    return {"tool": call.name, "kind": call.failure_kind(), "error": call.failure()}
