"""Tells what was done inside of tools from what the agent itself did, where only the spans of a run show both.

A tool may run an agent of its own, whose spans lie below the span of the tool. What a framework returns of the outer agent knows nothing of
them: that is no contradiction.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.evidence.otlp.spans import Span
from proctor.evidence.shared.pair_calls import pair_calls
from proctor.evidence.traces.build import build_evidence
from proctor.evidence.traces.tree import SpanTree
from proctor.model.evidence import Evidence, ToolCall, Usage

_TOOL = frozenset(("tool",))
_WORK = frozenset(("agent", "model", "tool"))


class InnerWork(msgspec.Struct, frozen=True, kw_only=True):
    """What was done inside of tools."""

    calls: tuple[ToolCall, ...] = ()
    """Those calls of the evidence that were made inside of another one."""
    outer_usage: Usage | None = None
    """The tokens of everything that was done outside of tools."""


def find_inner_work(spans: Sequence[Span], evidence: Evidence) -> InnerWork | None:
    """Return what was done inside of tools, of the evidence that these spans are; None where nothing was."""
    tree = SpanTree(spans)
    inside = [span for span in tree.spans if tree.find_nearest(span, _TOOL) is not None]
    if not any(tree.find_kind(span) in _WORK for span in inside):
        return None
    hidden = {span.id for span in inside}
    # What the framework and MCP tell of one call lies inside of each other as well, so calls are compared and not spans.
    outer = build_evidence([span for span in spans if span.id not in hidden])
    pairs = pair_calls(evidence.tool_calls or (), outer.tool_calls or ())
    inner = tuple(pair.first for pair in pairs if pair.first is not None and pair.second is None)
    return InnerWork(calls=inner, outer_usage=outer.usage)
