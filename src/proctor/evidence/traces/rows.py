"""The spans of a trace as the rows of a tree, in the order in which they are read: each before what is below it, the earlier one first.

Whatever the spans say of their parents, every span is one row: one whose parent is not there is a root, and of parents in a circle the
first is. A row knows how many are below it, so that whoever shows a part of the tree can step over the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from proctor.evidence.otlp.merging import merge_tree_span
from proctor.evidence.otlp.spans import Span, TreeSpan
from proctor.evidence.traces.kind import find_kind


class SpanRow(msgspec.Struct, frozen=True, gc=False):
    """One span in its tree, without what it carries."""

    id: str
    name: str
    kind: str | None
    depth: int
    parent: int
    """The position of the row above; -1: none."""
    below: int
    """How many rows below it, all levels."""
    start_ns: int
    end_ns: int
    failed: bool
    message: str | None = None

    @property
    def took_ms(self) -> float | None:
        """How long it took; None where that was not recorded."""
        return (self.end_ns - self.start_ns) / 1e6 if self.start_ns and self.end_ns >= self.start_ns else None


def take_for_tree(span: Span) -> TreeSpan:
    """Return of a span what its tree needs."""
    return TreeSpan(**{name: getattr(span, name) for name in TreeSpan.__struct_fields__})


def merge_tree_spans(batches: Iterable[Iterable[TreeSpan]]) -> list[TreeSpan]:
    """Merge the spans of several requests as `merge_spans` does, trace after trace."""
    traces: dict[str, dict[str, TreeSpan]] = {}
    for batch in batches:
        for span in batch:
            known = traces.get(span.trace_id)
            if known is None:
                known = traces[span.trace_id] = {}
            before = known.setdefault(span.id, span)
            if before is not span:
                known[span.id] = merge_tree_span(before, span)
    return [span for spans in traces.values() for span in spans.values()]


def list_span_rows(spans: Sequence[TreeSpan]) -> list[SpanRow]:
    """Return the rows of a tree of spans."""
    known = {span.id: number for number, span in enumerate(spans)}
    children: dict[int, list[int]] = {}
    roots: list[int] = []
    # The earlier one first, those without a time last: in this order everything finds its place among its neighbours.
    order = sorted(range(len(spans)), key=[span.start_ns or 2**64 for span in spans].__getitem__)
    for number in order:
        above = spans[number].parent_id
        parent = None if above is None else known.get(above)
        if parent is None or parent == number:
            roots.append(number)
        elif parent in children:
            children[parent].append(number)
        else:
            children[parent] = [number]
    walk = _Walk(spans, children)
    for number in roots:
        walk.visit(number)
    if walk.has_unseen():
        # From whatever nobody has come by, which hangs in a circle.
        for number in order:
            walk.visit(number)
    return walk.list_rows()


class _Walk:
    """Goes through a tree without recursion: traces are nested as deep as somebody likes."""

    def __init__(self, spans: Sequence[TreeSpan], children: dict[int, list[int]]) -> None:
        self._spans = spans
        self._children = children
        self._seen = bytearray(len(spans))
        self._found: list[tuple[int, int, int]] = []
        """Span, depth, and the position of the row above."""

    def has_unseen(self) -> bool:
        return len(self._found) < len(self._spans)

    def visit(self, root: int) -> None:
        seen, found, children = self._seen, self._found, self._children
        waiting = [(root, 0, -1)]
        while waiting:
            row = waiting.pop()
            number, depth, _ = row
            if seen[number]:
                continue
            seen[number] = 1
            below = children.get(number)
            if below is not None:
                here = len(found)
                # In reverse, since the last one in is taken out first.
                waiting += [(child, depth + 1, here) for child in reversed(below)]
            found.append(row)

    def list_rows(self) -> list[SpanRow]:
        below = [0] * len(self._found)
        # From the back: all that is below a row stands behind it, so that its count is whole when it is added.
        for place in range(len(self._found) - 1, -1, -1):
            above = self._found[place][2]
            if above >= 0:
                below[above] += below[place] + 1
        rows: list[SpanRow] = []
        for (number, depth, above), under in zip(self._found, below, strict=True):
            span = self._spans[number]
            rows.append(
                SpanRow(span.id, span.name, find_kind(span), depth, above, under, span.start_ns, span.end_ns, span.failed, span.message)
            )
        return rows
