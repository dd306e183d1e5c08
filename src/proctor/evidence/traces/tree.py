"""The spans of one trace in order, who is below whom, and what each of them is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from proctor.evidence.otlp.spans import Span, is_event_only
from proctor.evidence.traces.message_reader import MessageCache
from proctor.evidence.traces.model_span import Step, only_begins
from proctor.evidence.traces.token_usage import read_span_usage
from proctor.evidence.traces.values import find_input_text, read_output
from proctor.model.evidence import Usage

_get_start = attrgetter("start_ns")
_FEW_LEVELS = 6
"""Levels above a span that are climbed anew each time somebody asks; beyond them the way is remembered."""


class SpanTree:
    """One trace. Spans count in order of their start, or as listed when any has no time.

    The root is the first span without a parent in the trace. A root that only marks the beginning is left out, and those below it are
    the roots.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        # Log records may tell of spans that were sampled away; they have no place in the tree.
        spans = [span for span in spans if not span.events or not is_event_only(span)]
        # Before a root is left out: those below it have a parent that came with the trace.
        known = {span.id for span in spans}
        spans = [span for span in spans if span.parent_id is not None or not only_begins(span)] or spans
        # One span without a time would sort to the front; then the order of the list is the better guess.
        self.spans = sorted(spans, key=_get_start) if all(map(_get_start, spans)) else list(spans)
        self.hearings = MessageCache()
        self.steps = {span.id: Step(span, self.hearings) for span in self.spans}
        self._by_kind: dict[str | None, list[Span]] = {}
        for span in self.spans:
            self._by_kind.setdefault(self.steps[span.id].kind, []).append(span)
        self.children: dict[str, list[Span]] = {}
        self.roots: list[Span] = []
        for span in self.spans:
            if span.parent_id is None or span.parent_id not in self.steps:
                self.roots.append(span)
            else:
                self.children.setdefault(span.parent_id, []).append(span)
        self.orphans = [span for span in self.roots if span.parent_id is not None and span.parent_id not in known]
        """Those of the roots that name a parent which did not come with the trace."""
        # Parents in a circle leave no root; the first span then stands for it.
        self.root = self.roots[0] if self.roots else (self.spans[0] if self.spans else None)
        # What somebody has asked for: finding it costs more than remembering it.
        self._inputs: dict[str, str | None] = {}
        self._outputs: dict[str, tuple[str | None, bool]] = {}
        self._usages: dict[str, Usage | None] = {}
        self._holders: dict[str, Span | None] = {}
        self._above: dict[tuple[str, frozenset[str]], Span | None] = {}

    def find_kind(self, span: Span) -> str | None:
        """Return what a span is."""
        return self.steps[span.id].kind

    def list_kind(self, *kinds: str) -> list[Span]:
        """Return the spans of these kinds, in order."""
        if len(kinds) == 1:
            return list(self._by_kind.get(kinds[0], ()))
        return [span for span in self.spans if self.steps[span.id].kind in kinds]

    def find_usage(self, span: Span) -> Usage | None:
        """Return the tokens a span itself reports."""
        if span.id not in self._usages:
            self._usages[span.id] = read_span_usage(span)
        return self._usages[span.id]

    def find_input_text(self, span: Span) -> str | None:
        """Return what was asked, where a span says it in words."""
        if span.id not in self._inputs:
            self._inputs[span.id] = find_input_text(span, self.hearings)
        return self._inputs[span.id]

    def find_output_text(self, span: Span) -> str | None:
        """Return the answer a span carries, in words."""
        return self._read_output(span)[0]

    def gives_words(self, span: Span) -> bool:
        """Return whether words or messages are all that a span gave back."""
        return self._read_output(span)[1]

    def _read_output(self, span: Span) -> tuple[str | None, bool]:
        if span.id not in self._outputs:
            self._outputs[span.id] = read_output(span, self.hearings)
        return self._outputs[span.id]

    def find_nearest(self, span: Span, kinds: frozenset[str]) -> Span | None:
        """Return the nearest span above that is of one of these kinds."""
        # Without any bookkeeping as far as nearly all spans are nested; a fifteenth of the time.
        at: Span | None = span
        for _ in range(_FEW_LEVELS):
            above = self.steps.get(at.parent_id or "")
            if above is None:
                return None
            if above.kind in kinds:
                return above.span
            at = above.span
        # Remembered for all on the way: what is nested deep would otherwise be climbed again and again.
        passed: list[str] = []
        found: Span | None = None
        # The parents of a broken trace may form a circle.
        seen: set[str] = set()
        at = span
        while at is not None and at.id not in seen:
            seen.add(at.id)
            known = (at.id, kinds)
            if known in self._above:
                found = self._above[known]
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
        """Yield the spans above that are of one of these kinds, from the inside out."""
        # Each once, and never the span itself: the parents of a broken trace may form a circle.
        seen = {span.id}
        above = self.find_nearest(span, kinds)
        while above is not None and above.id not in seen:
            seen.add(above.id)
            yield above
            above = self.find_nearest(above, kinds)

    def find_holder(self, span: Span) -> Span | None:
        """Return the nearest step above that is not a tool."""
        passed: list[str] = []
        seen: set[str] = set()
        found: Span | None = None
        at = span
        while at.id not in seen:
            if at.id in self._holders:
                found = self._holders[at.id]
                break
            seen.add(at.id)
            passed.append(at.id)
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
