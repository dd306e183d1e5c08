"""The spans of a trace as the rows of a tree: parents before children, earlier spans first.

Every span is one row: one whose parent is missing is a root, and of parents in a circle the first is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from proctor.evidence.otlp.spans import Span, TreeSpan, merge_by_trace, merge_tree_span
from proctor.evidence.traces.kind import find_kind


class SpanRow(msgspec.Struct, frozen=True, gc=False):
    """One span in its tree, without its attributes."""

    id: str
    name: str
    kind: str | None
    depth: int
    parent: int
    """The index of the parent row; -1 for a root."""
    below: int
    """The number of descendant rows, so that a reader can skip them."""
    start_ns: int
    end_ns: int
    failed: bool
    message: str | None = None

    @property
    def took_ms(self) -> float | None:
        """The duration; None if it was not recorded."""
        return (self.end_ns - self.start_ns) / 1e6 if self.start_ns and self.end_ns >= self.start_ns else None


def take_for_tree(span: Span) -> TreeSpan:
    """Return the fields of a span that its tree needs."""
    return TreeSpan(**{name: getattr(span, name) for name in TreeSpan.__struct_fields__})


def merge_tree_spans(batches: Iterable[Iterable[TreeSpan]]) -> list[TreeSpan]:
    """Merge the spans of several requests as `merge_spans` does, trace after trace."""
    return [span for spans in merge_by_trace(batches, merge_tree_span).values() for span in spans]


def list_span_rows(spans: Sequence[TreeSpan]) -> list[SpanRow]:
    """Return the rows of a tree of spans."""
    known = {span.id: number for number, span in enumerate(spans)}
    children: dict[int, list[int]] = {}
    roots: list[int] = []
    # The earlier one first, those without a time last.
    order = sorted(range(len(spans)), key=[span.start_ns or 2**64 for span in spans].__getitem__)
    for number in order:
        parent = known.get(spans[number].parent_id or "", number)
        (roots if parent == number else children.setdefault(parent, [])).append(number)
    visited = bytearray(len(spans))
    placed: list[tuple[int, int, int]] = []
    """Span, depth, and the index of the parent row."""
    # After the roots every span again: spans that were not reached are in a cycle.
    for root in (*roots, *order):
        waiting = [(root, 0, -1)]
        while waiting:
            number, depth, above = waiting.pop()
            if visited[number]:
                continue
            visited[number] = 1
            # In reverse, because the last one added is taken first.
            waiting += [(child, depth + 1, len(placed)) for child in reversed(children.get(number, ()))]
            placed.append((number, depth, above))
    below = [0] * len(placed)
    # From the back: all descendants come after a row, so its count is complete when it is added.
    for place in range(len(placed) - 1, -1, -1):
        if placed[place][2] >= 0:
            below[placed[place][2]] += below[place] + 1
    rows: list[SpanRow] = []
    for (number, depth, above), under in zip(placed, below, strict=True):
        span = spans[number]
        kind = find_kind(span.name, span.attributes)
        rows.append(SpanRow(span.id, span.name, kind, depth, above, under, span.start_ns, span.end_ns, span.failed, span.message))
    return rows
