"""Data that a trace lost: attributes and events beyond an SDK's limit, and values that were truncated.

SDKs keep 128 attributes and events of a span and count the rest; a limit on the length of values truncates each of them silently. JSON that
breaks off is truncated, and so may be a text of the same length. If none breaks off, two different texts of one round length, with no value
longer, show the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from proctor.evidence.otlp.spans import Span, SpanEvent
from proctor.evidence.traces.step import SpanTree
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, decode_embedded
from proctor.model.show import show

_BEGINNINGS = ('{"', "[{", '["', "[[{", '[["', "{\n", "[\n")
_ENDS = ("}", "]")
_SHORTEST_LIMIT = 64
"""Characters: limits on values are rarely shorter, and shorter texts that are not JSON are usually complete."""


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
    losses = _find_losses(spans, tree)
    torn = {loss.span_id for loss in losses if loss.key is not None and not loss.is_text}
    if not torn:
        return tree, losses
    # A truncated value must not be taken for a complete one.
    whole = [
        span
        if span.id not in torn
        else msgspec.structs.replace(
            span,
            attributes=_without_broken(span.attributes),
            events=tuple(SpanEvent(event.name, _without_broken(event.attributes)) for event in span.events),
        )
        for span in spans
    ]
    return SpanTree(whole), losses


def _find_losses(spans: Sequence[Span], tree: SpanTree) -> list[Loss]:
    found = [
        Loss(span.id, f"{span.dropped} attributes or events of the span {show(span.name)} were dropped") for span in spans if span.dropped
    ]
    texts = [
        text
        for step in tree.steps
        if (get_texts := step.shape.texts) is not None
        for text in get_texts(step.attributes)
        if len(text) >= _SHORTEST_LIMIT
    ]
    events = [(span, event.attributes) for span in spans if span.events for event in span.events]
    values = (value for _, attributes in events for value in attributes.values())
    texts += [value for value in values if isinstance(value, str) and len(value) >= _SHORTEST_LIMIT] if events else ()
    if not texts:
        return found
    torn = {text for text in texts if text[0] in "[{" and text.startswith(_BEGINNINGS) and _is_broken(text)}
    # Only the longest values can have reached a limit.
    longest, cut = max(map(len, texts)), set[str]()
    if any(len(text) == longest for text in torn) if torn else longest % 10 == 0 or longest % 64 in (0, 63):
        cut = {text for text in texts if len(text) == longest and not text.startswith(_BEGINNINGS)}
        cut = cut if torn or len(cut) > 1 else set()
    holders = [*((step.span, step.attributes) for step in tree.steps), *events] if torn or cut else ()
    for span, attributes in holders:
        for key, text in attributes.items():
            if isinstance(text, str) and (text in torn or text in cut):
                how = "breaks off" if text in torn else "is truncated"
                what = f"{show(key)} of the span {show(span.name)} {how} after {len(text)} characters"
                found.append(Loss(span.id, what, key, text in cut))
    return found


def _without_broken(attributes: dict[str, Json]) -> dict[str, Json]:
    return {
        key: value
        for key, value in attributes.items()
        if not (isinstance(value, str) and len(value) >= _SHORTEST_LIMIT and value.startswith(_BEGINNINGS) and _is_broken(value))
    }


def _is_broken(text: str) -> bool:
    """Return whether a text that begins like JSON is invalid; counting brackets is many times as fast as parsing."""
    if text.endswith(_ENDS) and text.count("{") == text.count("}") and text.count("[") == text.count("]"):
        return False
    return decode_embedded(text) is MISSING
