"""The spans of one trace as a tree of steps, and the data that the trace lost.

SDKs keep 128 attributes and events of a span and count the rest; a limit on the length of values truncates each of them silently. JSON that
breaks off is truncated, and so may be a text of the same length. If none breaks off, two different texts of one round length, with no value
longer, show the limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec

from proctor.evidence.otlp.spans import Span, SpanEvent, is_event_only
from proctor.evidence.traces.message_reader import MessageCache
from proctor.evidence.traces.step import Step
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, decode_embedded
from proctor.model.show import show

_get_start = attrgetter("start_ns")
_PLACEHOLDER = "[Object]"
"""The placeholder that Flowise writes on a root that it ends at once."""
_AGENT_NAME = re.compile(r"agent|assistant|\bbot\b|chat ?bot|copilot", re.IGNORECASE)
_BEGINNINGS = ('{"', "[{", '["', "[[{", '[["', "{\n", "[\n")
_ENDS = ("}", "]")
_SHORTEST_LIMIT = 64
"""Characters: limits on values are rarely shorter, and shorter texts that are not JSON are usually complete."""


class SpanTree:
    """One trace. Steps are in order of their start, or as listed if any has no time; the first without a parent is the root."""

    def __init__(self, spans: Sequence[Span]) -> None:
        # Log records may refer to spans that were sampled out; they are not in the tree.
        listed = [span for span in spans if not (span.events and is_event_only(span))]
        # A root that only marks the beginning is left out, and its children are roots.
        spans = [span for span in listed if span.parent_id is not None or span.attributes.get("output.value") != _PLACEHOLDER] or listed
        spans = sorted(spans, key=_get_start) if all(map(_get_start, spans)) else spans
        cache = MessageCache()
        self.by_id = by_id = {span.id: Step(span, cache) for span in spans}
        self.steps = list(by_id.values())
        hidden = {span.id for span in listed} - by_id.keys() if len(listed) > len(spans) else ()
        self.roots: list[Step] = []
        self.orphans: list[Step] = []
        """Roots whose parent is missing from the trace."""
        for step in self.steps:
            parent_id = step.span.parent_id
            if parent_id in by_id:
                step.parent = parent = by_id[parent_id]
                parent.children.append(step)
                continue
            self.roots.append(step)
            if parent_id is not None and parent_id not in hidden:
                self.orphans.append(step)
        for root in self.roots:
            # A root without a kind is an agent if its name is like an agent's or it has an input or output, and it runs tools.
            if root.kind in (None, "step") and (
                root.names["input_value"] or root.names["output_value"] or _AGENT_NAME.search(root.span.name)
            ):
                root.kind = "agent" if any(step.kind == "tool" for step in root.list_below()) else root.kind
        if _place_below(self.roots) < len(self.steps):
            # Parents in a circle: the first of them is a root.
            for step in self.steps:
                if step.parent is not None and not step.depth:
                    step.parent.children.remove(step)
                    step.parent = None
                    self.roots.append(step)
                    _place_below([step])
        self.root = self.roots[0] if self.roots else None
        self._by_kind: dict[str | None, list[Step]] = {}
        for step in self.steps:
            self._by_kind.setdefault(step.kind, []).append(step)
        self.kinds = self._by_kind.keys()

    def list_kind(self, kind: str) -> list[Step]:
        """Return the steps of a kind, in order."""
        return self._by_kind.get(kind, [])

    def has_kind(self, kinds: Iterable[str]) -> bool:
        """Return whether there is a step of one of these kinds."""
        return not self.kinds.isdisjoint(kinds)


def _place_below(roots: Sequence[Step]) -> int:
    """Set the ancestors of the steps below these, and return the number of steps reached."""
    reached = list(roots)
    for step in reached:  # The list grows while it is read.
        if step.children:
            above = {**step.above, step.kind: step}
            holder = step.holder if step.kind == "tool" else step
            for child in step.children:
                child.above, child.holder, child.depth = above, holder, step.depth + 1
            reached += step.children
    return len(reached)


class Loss(NamedTuple):
    """Data that a span has lost."""

    span_id: str
    what: str
    key: str | None = None
    """The attribute that is truncated; None if attributes or events were dropped."""
    is_text: bool = False


def read_tree(spans: Sequence[Span]) -> tuple[SpanTree, list[Loss]]:
    """Return the tree of a trace without truncated values, and the data that its spans lost to SDK limits."""
    tree = SpanTree(spans)
    losses = [
        Loss(span.id, f"{span.dropped} attributes or events of the span {show(span.name)} were dropped") for span in spans if span.dropped
    ]
    events = [(span, event.attributes) for span in spans if span.events for event in span.events]
    texts = [
        text
        for step in tree.steps
        if (get_texts := step.shape.texts) is not None
        for text in get_texts(step.attributes)
        if len(text) >= _SHORTEST_LIMIT
    ]
    if events:
        texts += [text for _, fields in events for text in fields.values() if isinstance(text, str) and len(text) >= _SHORTEST_LIMIT]
    torn = {text for text in texts if text[0] in "[{" and _is_torn(text)}
    # Only the longest values can have reached a limit.
    longest, cut = max(map(len, texts), default=0), set[str]()
    if any(len(text) == longest for text in torn) if torn else longest % 10 == 0 or longest % 64 in (0, 63):
        cut = {text for text in texts if len(text) == longest and not text.startswith(_BEGINNINGS)}
    if not torn and len(cut) < 2:
        return tree, losses
    for span, attributes in [*((step.span, step.attributes) for step in tree.steps), *events]:
        for key, text in attributes.items():
            if isinstance(text, str) and (text in torn or text in cut):
                how = "breaks off" if text in torn else "is truncated"
                what = f"{show(key)} of the span {show(span.name)} {how} after {len(text)} characters"
                losses.append(Loss(span.id, what, key, text in cut))
    # A truncated value must not be taken for a complete one.
    return SpanTree([_without_torn(span) for span in spans]) if torn else tree, losses


def _without_torn(span: Span) -> Span:
    def keep(attributes: dict[str, Json]) -> dict[str, Json]:
        return {key: value for key, value in attributes.items() if not (isinstance(value, str) and _is_torn(value))}

    events = tuple(SpanEvent(event.name, keep(event.attributes)) for event in span.events)
    return msgspec.structs.replace(span, attributes=keep(span.attributes), events=events)


def _is_torn(text: str) -> bool:
    """Return whether a long text begins like JSON and is invalid; counting brackets is many times as fast as parsing."""
    if len(text) < _SHORTEST_LIMIT or not text.startswith(_BEGINNINGS):
        return False
    if text.endswith(_ENDS) and text.count("{") == text.count("}") and text.count("[") == text.count("]"):
        return False
    return decode_embedded(text) is MISSING
