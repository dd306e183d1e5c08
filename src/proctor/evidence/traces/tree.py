"""The spans of one trace in order, their parents and children, and the kind of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, KeysView, Sequence
from operator import attrgetter

from proctor.evidence.otlp.spans import Span, is_event_only
from proctor.evidence.traces.message_reader import MessageCache
from proctor.evidence.traces.model_span import Step
from proctor.evidence.traces.token_usage import read_span_usage
from proctor.evidence.traces.values import find_input_text, read_output
from proctor.model.evidence import Usage

_get_start = attrgetter("start_ns")
_FEW_LEVELS = 6
"""Levels above a span that are searched each time; the way beyond them is remembered."""
_PLACEHOLDER = "[Object]"
"""What Flowise writes in place of an answer on a root that it ends at once."""
_AGENT_NAME = re.compile(r"agent|assistant|\bbot\b|chat ?bot|copilot", re.IGNORECASE)


class SpanTree:
    """One trace. Spans are in order of their start, or as listed if any has no time.

    The root is the first span without a parent in the trace. A root that only marks the beginning is left out, and its children are roots.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        # Log records may refer to spans that were sampled away; they have no place in the tree.
        spans = [span for span in spans if not (span.events and is_event_only(span))]
        known = {span.id for span in spans}
        spans = [span for span in spans if span.parent_id is not None or span.attributes.get("output.value") != _PLACEHOLDER] or spans
        self.spans = sorted(spans, key=_get_start) if all(map(_get_start, spans)) else spans
        self.hearings = MessageCache()
        self.steps = {span.id: Step(span, self.hearings) for span in self.spans}
        self.children: dict[str, list[Span]] = {}
        self.roots: list[Span] = []
        for span in self.spans:
            if span.parent_id is None or span.parent_id not in self.steps:
                self.roots.append(span)
            else:
                self.children.setdefault(span.parent_id, []).append(span)
        self.orphans = [span for span in self.roots if span.parent_id is not None and span.parent_id not in known]
        """Roots whose parent is missing from the trace."""
        # Parents in a circle leave no root; then the first span is taken.
        self.root = self.roots[0] if self.roots else (self.spans[0] if self.spans else None)
        for span in self.roots:
            if self.steps[span.id].kind is None and self._is_written_by_hand(span):
                self.steps[span.id].kind = "agent"
        self._by_kind: dict[str | None, list[Span]] = {}
        for step in self.steps.values():
            self._by_kind.setdefault(step.kind, []).append(step.span)
        self._inputs: dict[str, str | None] = {}
        self._outputs: dict[str, tuple[str | None, bool]] = {}
        self._usages: dict[str, Usage | None] = {}
        self._holders: dict[str, Span | None] = {}
        self._above: dict[tuple[str, frozenset[str]], Span | None] = {}

    def _is_written_by_hand(self, root: Span) -> bool:
        """Return whether a root without a kind is an agent: it is named like one or has an input or output, and runs tools."""
        names = self.steps[root.id].shape.names
        if not (names["input_value"] or names["output_value"] or _AGENT_NAME.search(root.name)):
            return False
        return any(self.steps[id].kind == "tool" for id in self.list_ids_below([root]))

    def find_kind(self, span: Span) -> str | None:
        """Return the kind of a span."""
        return self.steps[span.id].kind

    def list_kind(self, *kinds: str) -> list[Span]:
        """Return the spans of these kinds, in order."""
        if len(kinds) == 1:
            return self._by_kind.get(kinds[0], [])
        return [span for span in self.spans if self.steps[span.id].kind in kinds]

    @property
    def kinds(self) -> KeysView[str | None]:
        """The kinds of all spans."""
        return self._by_kind.keys()

    def has_kind(self, kinds: Iterable[str]) -> bool:
        """Return whether there is a span of one of these kinds."""
        return not self._by_kind.keys().isdisjoint(kinds)

    def find_usage(self, span: Span) -> Usage | None:
        """Return the tokens that a span itself reports."""
        if span.id not in self._usages:
            self._usages[span.id] = read_span_usage(span, self.steps[span.id].shape)
        return self._usages[span.id]

    def find_input_text(self, span: Span) -> str | None:
        """Return the input of a span as text."""
        if span.id not in self._inputs:
            self._inputs[span.id] = find_input_text(span, self.steps[span.id].shape, self.hearings)
        return self._inputs[span.id]

    def find_output_text(self, span: Span) -> str | None:
        """Return the output of a span as text."""
        return self._read_output(span)[0]

    def has_text(self, span: Span) -> bool:
        """Return whether text or messages are all that a span returned."""
        return self._read_output(span)[1]

    def _read_output(self, span: Span) -> tuple[str | None, bool]:
        if span.id not in self._outputs:
            self._outputs[span.id] = read_output(span, self.steps[span.id].shape, self.hearings)
        return self._outputs[span.id]

    def find_nearest(self, span: Span, kinds: frozenset[str]) -> Span | None:
        """Return the nearest span above that has one of these kinds."""
        at: Span | None = span
        for _ in range(_FEW_LEVELS):
            above = self.steps.get(at.parent_id) if at.parent_id is not None else None
            if above is None:
                return None
            if above.kind in kinds:
                return above.span
            at = above.span
        # Remembered for all spans on the way: deeply nested ones would otherwise be climbed again and again.
        passed: list[str] = []
        found: Span | None = None
        seen: set[str] = set()  # The parents of a broken trace may form a circle.
        at = span
        while at is not None and at.id not in seen:
            seen.add(at.id)
            if (at.id, kinds) in self._above:
                found = self._above[at.id, kinds]
                break
            passed.append(at.id)
            parent = self.steps.get(at.parent_id or "")
            at = parent.span if parent is not None else None
            if at is not None and self.steps[at.id].kind in kinds:
                found = at
                break
        self._above.update(dict.fromkeys(((id, kinds) for id in passed), found))
        return found

    def iterate_above(self, span: Span, kinds: frozenset[str]) -> Iterator[Span]:
        """Yield the spans above that have one of these kinds, from the inside out."""
        seen = {span.id}
        above = self.find_nearest(span, kinds)
        while above is not None and above.id not in seen:
            seen.add(above.id)
            yield above
            above = self.find_nearest(above, kinds)

    def find_holder(self, span: Span) -> Span | None:
        """Return the nearest step above that is not a tool."""
        passed: dict[str, None] = {}
        found: Span | None = None
        at = span
        while at.id not in passed:
            if at.id in self._holders:
                found = self._holders[at.id]
                break
            passed[at.id] = None
            parent = self.steps.get(at.parent_id or "")
            if parent is None or parent.kind != "tool":
                found = parent.span if parent is not None else None
                break
            at = parent.span
        self._holders.update(dict.fromkeys(passed, found))
        return found

    def list_ids_below(self, spans: Iterable[Span]) -> set[str]:
        """Return the ids of all spans that have one of these above them."""
        found: set[str] = set()
        waiting = list(spans)
        while waiting:
            for child in self.children.get(waiting.pop().id, ()):
                if child.id not in found:
                    found.add(child.id)
                    waiting.append(child)
        return found
