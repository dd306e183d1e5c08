"""The spans of one trace in order, each with its kind and its place below its parent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from operator import attrgetter

from proctor.evidence.otlp.spans import Span, is_event_only
from proctor.evidence.traces.message_reader import MessageCache
from proctor.evidence.traces.step import Step

_get_start = attrgetter("start_ns")
_PLACEHOLDER = "[Object]"
"""What Flowise writes in place of an answer on a root that it ends at once."""
_AGENT_NAME = re.compile(r"agent|assistant|\bbot\b|chat ?bot|copilot", re.IGNORECASE)


class SpanTree:
    """One trace. Steps are in order of their start, or as listed if any has no time; the first without a parent is the root."""

    def __init__(self, spans: Sequence[Span]) -> None:
        # Log records may refer to spans that were sampled away; they have no place in the tree.
        spans = [span for span in spans if not (span.events and is_event_only(span))]
        known = {span.id for span in spans}
        # A root that only marks the beginning is left out, and its children are roots.
        spans = [span for span in spans if span.parent_id is not None or span.attributes.get("output.value") != _PLACEHOLDER] or spans
        spans = sorted(spans, key=_get_start) if all(map(_get_start, spans)) else spans
        cache = MessageCache()
        self.by_id = {span.id: Step(span, cache) for span in spans}
        self.steps = list(self.by_id.values())
        self.roots: list[Step] = []
        for step in self.steps:
            step.parent = parent = self.by_id.get(step.span.parent_id or "")
            (self.roots if parent is None else parent.children).append(step)
        self.orphans = [step for step in self.roots if step.span.parent_id is not None and step.span.parent_id not in known]
        """Roots whose parent is missing from the trace."""
        for root in self.roots:
            if root.kind is None and _is_written_by_hand(root):
                root.kind = "agent"
        if _place_below(self.roots) < len(self.steps):
            self._open_circles()
        self.root = self.roots[0] if self.roots else None
        self._by_kind: dict[str | None, list[Step]] = {}
        for step in self.steps:
            self._by_kind.setdefault(step.kind, []).append(step)
        self.kinds = self._by_kind.keys()
        """The kinds of all spans."""

    def _open_circles(self) -> None:
        """Make the first span of parents in a circle a root."""
        for step in self.steps:
            if step.parent is not None and not step.depth:
                step.parent.children.remove(step)
                step.parent = None
                self.roots.append(step)
                _place_below([step])

    def list_kind(self, *kinds: str) -> list[Step]:
        """Return the steps of these kinds, in order."""
        if len(kinds) == 1:
            return self._by_kind.get(kinds[0], [])
        return [step for step in self.steps if step.kind in kinds]

    def has_kind(self, kinds: Iterable[str]) -> bool:
        """Return whether there is a step of one of these kinds."""
        return not self.kinds.isdisjoint(kinds)


def _is_written_by_hand(root: Step) -> bool:
    """Return whether a root without a kind is an agent: it is named like one or has an input or output, and runs tools."""
    if not (root.names["input_value"] or root.names["output_value"] or _AGENT_NAME.search(root.span.name)):
        return False
    return any(step.kind == "tool" for step in root.list_below())


def _place_below(roots: Sequence[Step]) -> int:
    """Set what is above the steps below these, and return how many steps were reached."""
    reached = list(roots)
    for step in reached:  # The list grows while it is read.
        if step.children:
            above = {**step.above, step.kind: step}
            holder = step.holder if step.kind == "tool" else step
            for child in step.children:
                child.above, child.holder, child.depth = above, holder, step.depth + 1
            reached += step.children
    return len(reached)
