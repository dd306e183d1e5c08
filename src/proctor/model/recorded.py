"""Which fields of evidence were recorded: the one table by which custom checks and conditions read evidence.

`None` in evidence mostly means unknown. `read_recorded` returns `Unrecorded` for such a field, and for a part that a reader marked as
unknown (`Account.unknown`).
"""

from __future__ import annotations

import functools

import msgspec

from proctor.model.account import PART_NAMES, PLAIN_READERS, Account, Part
from proctor.model.evidence import Cost, Evidence, EvidenceTurn, Json, Node, Render, State, StateRequest, ToolCall, Usage
from proctor.model.show import show


class Unrecorded(msgspec.Struct, frozen=True):
    """Replaces a value that was not recorded."""

    why: str
    """The reason: `tool calls not recorded in this evidence`."""


_OF_A_RUN = {
    "input": "the input",
    "text": "the answer's text",
    "body": "the answer's body",
    "tool_calls": "tool calls",
    "nodes": "nodes",
    "http_status": "HTTP status",
    "duration_ms": "response time",
    "usage": "token usage",
}
_WORDS: dict[type, dict[str, str]] = {
    Evidence: {
        **_OF_A_RUN,
        "turns": "turns",
        "context": "variables",
        "available_tools": "the tools that exist",
        "renders": "renders of widgets",
        "now": "a clock",
        "timezone": "a time zone",
        "state": "end state",
        "model": "the name of the model",
        "cost": "the cost",
    },
    EvidenceTurn: _OF_A_RUN,
    ToolCall: {"arguments": "arguments of a tool call", "result": "the result of a tool call", "duration_ms": "the time of a tool call"},
    Node: {
        "input": "the input of a node",
        "output": "the output of a node",
        "parameters": "the parameters of a node",
        "duration_ms": "the time of a node",
        "usage": "token usage of a node",
    },
    Usage: {"input_tokens": "input tokens", "output_tokens": "output tokens", "total_tokens": "tokens in all"},
    Cost: {"agent": "the cost of the agent", "judge": "the cost of the judge"},
    State: {name: f"end state ({name})" for name in State.__struct_fields__},
    Render: {"elapsed_ms": "the time of a render"},
}
"""Fields in which `None` means *not recorded*, with their names in sentences. In other fields it is a value: a call without an error."""

_PARTS: dict[type, dict[str, Part]] = {
    Evidence: {
        "input": "input",
        "text": "answer",
        "body": "answer",
        "tool_calls": "tool_calls",
        "nodes": "nodes",
        "usage": "usage",
        "turns": "turns",
        "state": "state",
    },
    EvidenceTurn: {"input": "input", "text": "answer", "body": "answer", "tool_calls": "tool_calls", "nodes": "nodes", "usage": "usage"},
    ToolCall: {"arguments": "tool_arguments", "result": "tool_results", "error": "tool_results", "error_kind": "tool_results"},
    Node: {"tool_calls": "tool_calls", "usage": "usage"},
}
"""The part of the account for each field."""


def read_recorded(owner: msgspec.Struct, field: str, account: Account | None) -> Json | Unrecorded:
    """Return a field of evidence or of something inside it, or `Unrecorded` if it is unknown."""
    kind = _find_kind(type(owner))
    part = _PARTS.get(kind, {}).get(field)
    if part is not None and account is not None and part in account.unknown:
        return Unrecorded(f"{PART_NAMES[part]} unknown: {account.unknown[part]}")
    if isinstance(owner, StateRequest) and field in owner.cut:
        return Unrecorded(f"the {field} of {owner.method} {show(owner.path, 60)[1:-1]} was not stored whole")
    value: Json = getattr(owner, field)
    if value is None:
        value = _find_elsewhere(owner, field)
    if value is None and isinstance(owner, ToolCall) and field in ("error", "error_kind") and not records_outcome(owner, account):
        return Unrecorded(f"how {show(owner.name, 60)} ended (neither result nor error) not recorded in this evidence")
    words = _WORDS.get(kind, {}).get(field)
    if value is not None or words is None:
        return value
    # A failed call has no result, and that is known.
    if isinstance(owner, ToolCall) and field == "result" and owner.failed():
        return None
    return Unrecorded(f"{words} not recorded in this evidence")


def records_outcome(call: ToolCall, account: Account | None) -> bool:
    """Return whether the outcome of a call is known: in plain evidence it is unknown without a result and an error.

    Readers of other formats list unknown outcomes in their account.
    """
    if call.error is not None or call.result is not None:
        return True
    return account is not None and account.reader.partition(" and ")[0] not in PLAIN_READERS


@functools.cache
def _find_kind(kind: type) -> type:
    """Return the evidence type in the tables: readers have subclasses of their own."""
    return next((base for base in kind.__mro__ if base in _WORDS), kind)


def _find_elsewhere(owner: msgspec.Struct, field: str) -> Json:
    """Return the value from another field: calls nested in nodes, a total that is a sum."""
    if field == "tool_calls" and isinstance(owner, (Evidence, EvidenceTurn)) and owner.nodes is not None:
        return tuple(call for node in owner.nodes for call in node.tool_calls)
    if field == "total_tokens" and isinstance(owner, Usage) and owner.input_tokens is not None and owner.output_tokens is not None:
        return owner.total()
    return None
