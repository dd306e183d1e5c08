"""The spans of a trace as the rows of a tree, in the order in which they are read: each before what is below it, the earlier one first.

Whatever the spans say of their parents, every span is one row: one whose parent is not there is a root, and of parents in a circle the
first is. A row knows how many are below it, so that whoever shows a part of the tree can step over the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.evidence.span_kind import find_kind
from proctor.evidence.spans import Span


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


def list_span_rows(spans: Sequence[Span]) -> list[SpanRow]:
    """Return the rows of a tree of spans."""
    known = {span.id: number for number, span in enumerate(spans)}
    children: dict[int, list[int]] = {}
    roots: list[int] = []
    for number, span in enumerate(spans):
        parent = None if span.parent_id is None else known.get(span.parent_id)
        if parent is None or parent == number:
            roots.append(number)
        else:
            children.setdefault(parent, []).append(number)
    order = sorted(range(len(spans)), key=lambda number: (spans[number].start_ns or 2**64, number))
    place = {number: rank for rank, number in enumerate(order)}
    for below in children.values():
        below.sort(key=place.__getitem__)
    # From the roots; then from whatever nobody has come by, which hangs in a circle.
    walk = _Walk(spans, children)
    for number in (*sorted(roots, key=place.__getitem__), *order):
        walk.visit(number)
    return walk.list_rows()


class _Walk:
    """Goes through a tree without recursion: traces are nested as deep as somebody likes."""

    def __init__(self, spans: Sequence[Span], children: dict[int, list[int]]) -> None:
        self._spans = spans
        self._children = children
        self._seen = bytearray(len(spans))
        self._found: list[tuple[int, int, int]] = []
        """Span, depth, and the position of the row above."""

    def visit(self, root: int) -> None:
        waiting = [(root, 0, -1)]
        while waiting:
            number, depth, above = waiting.pop()
            if self._seen[number]:
                continue
            self._seen[number] = 1
            here = len(self._found)
            self._found.append((number, depth, above))
            waiting.extend((child, depth + 1, here) for child in reversed(self._children.get(number, ())))

    def list_rows(self) -> list[SpanRow]:
        below = [0] * len(self._found)
        for place in range(len(self._found) - 1, -1, -1):
            above = self._found[place][2]
            if above >= 0:
                below[above] += below[place] + 1
        rows: list[SpanRow] = []
        for place, (number, depth, above) in enumerate(self._found):
            span = self._spans[number]
            times = (span.start_ns, span.end_ns)
            rows.append(SpanRow(span.id, span.name, find_kind(span), depth, above, below[place], *times, span.failed, span.message))
        return rows
