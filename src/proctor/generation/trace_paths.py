"""Reduces a run to its path: which tools were called, in which order, and which steps of a workflow ran.

A failed call that was tried again is left out. Adjacent calls of tools that only read have no order and count once. A call that failed for
good is marked.
"""

from __future__ import annotations

from typing import NamedTuple

from proctor.model.evidence import Evidence
from proctor.mutation.call_edits import list_calls, list_steps
from proctor.mutation.tool_effects import Effect, find_effect

FAILED = "\0"
"""Follows the name of a tool whose last call failed, and of a step that failed."""


class TracePath(NamedTuple):
    """The path of a run, as a key of its group."""

    steps: tuple[str, ...]
    turns: int
    nodes: tuple[str, ...] = ()
    """The steps of a workflow that ran, sorted."""


class EffectNames(NamedTuple):
    """Tools whose effect the user declares."""

    reads: frozenset[str] = frozenset()
    changes: frozenset[str] = frozenset()

    def find(self, name: str) -> Effect:
        """Return the declared effect of a tool, else the effect that its name suggests."""
        if name in self.reads:
            return "reads"
        return "changes" if name in self.changes else find_effect(name)


def reduce_trace(evidence: Evidence, effects: EffectNames) -> TracePath:
    """Return the path of a run."""
    steps: list[str] = []
    reads: set[str] = set()
    calls = list_calls(evidence)
    for at, call in enumerate(calls):
        failed = call.failed()
        # Retried at once: only the last attempt counts.
        if failed and at + 1 < len(calls) and calls[at + 1].name == call.name:
            continue
        step = call.name + (FAILED if failed else "")
        if effects.find(call.name) == "reads":
            reads.add(step)
            continue
        steps += [*sorted(reads), step]
        reads = set()
    nodes = {node.name + (FAILED if node.status == "error" else "") for node in list_steps(evidence)}
    return TracePath((*steps, *sorted(reads)), max(1, len(evidence.turns or ())), tuple(sorted(nodes)))
