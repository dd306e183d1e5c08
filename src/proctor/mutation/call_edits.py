"""Edits the calls of evidence at every place where they are recorded: for the run, in its turns and in its nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from proctor.checks.shared.calls import list_recorded_calls
from proctor.model.evidence import Evidence, Node, ToolCall

Edit = Callable[[list[ToolCall]], list[ToolCall]]
"""Returns the calls of a run with a change; it may return the same call objects in another order."""


def list_calls(evidence: Evidence) -> tuple[ToolCall, ...]:
    """Return the calls of a run: its own, else those of its turns, else those of its nodes."""
    if evidence.tool_calls is None and evidence.turns and any(turn.tool_calls for turn in evidence.turns):
        return tuple(call for turn in evidence.turns for call in turn.tool_calls or ())
    return list_recorded_calls(evidence) or ()


def list_steps(evidence: Evidence) -> tuple[Node, ...]:
    """Return the steps of a workflow that ran; none for a trace, whose nodes are its spans."""
    is_trace = evidence.account is not None and evidence.account.reader.startswith("otlp")
    return () if is_trace else tuple(node for node in evidence.nodes or () if node.ran())


def edit_calls(evidence: Evidence, edit: Edit) -> Evidence:
    """Return the evidence with the same edit in each of its call lists (run, turns, nodes), unless a list is incomplete."""
    count = len(list_calls(evidence))
    changes: dict[str, object] = {}
    if evidence.tool_calls is not None:
        changes["tool_calls"] = tuple(edit(list(evidence.tool_calls)))
    if evidence.turns is not None:
        parts = _edit_parts([turn.tool_calls or () for turn in evidence.turns], edit, count)
        if parts is not None:
            turns = zip(evidence.turns, parts, strict=True)
            changes["turns"] = tuple(msgspec.structs.replace(turn, tool_calls=calls) for turn, calls in turns)
    if evidence.nodes is not None:
        parts = _edit_parts([node.tool_calls for node in evidence.nodes], edit, count)
        if parts is not None:
            nodes = zip(evidence.nodes, parts, strict=True)
            changes["nodes"] = tuple(msgspec.structs.replace(node, tool_calls=calls) for node, calls in nodes)
    return msgspec.structs.replace(evidence, **changes)


def _edit_parts(parts: Sequence[tuple[ToolCall, ...]], edit: Edit, count: int) -> list[tuple[ToolCall, ...]] | None:
    """Return the edited calls of each part; None if the parts do not record all calls of the run."""
    before = [call for part in parts for call in part]
    if len(before) != count or not parts:
        return None
    owners = [at for at, part in enumerate(parts) for _ in part]
    edited = edit(before)
    if len(edited) != len(before):
        # A call stays in its part; a new one belongs to the part of the call before it.
        known = {id(call): at for call, at in zip(before, owners, strict=True)}
        first, owners = min(owners, default=len(parts) - 1), []
        for call in edited:
            owners.append(known.get(id(call), owners[-1] if owners else first))
    after: list[list[ToolCall]] = [[] for _ in parts]
    for call, at in zip(edited, owners, strict=True):
        after[at].append(call)
    return [tuple(calls) for calls in after]
