"""Text of the evidence in pieces, with the characters that verdicts refer to marked.

A piece is plain text, or an object: `text`, the numbers of its assertions (`of`, from 1), and `kind`: `fail` if one of them failed, else
`pass`. Joined, the pieces are the text shown. Long texts are cut around marks, with the number of omitted characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec

from proctor.matchers.mismatch import join_path
from proctor.model.evidence import Json
from proctor.report.words.html_text import MOST_TEXT, lay_out_value, write_clean_block

Piece = str | dict[str, Json]

_BOUNDARY = "\ufdd0"
"""Marks a boundary while a text is formatted: a Unicode noncharacter."""
_ESCAPED = re.compile(f"[{_BOUNDARY}\ud800-\udfff]")
_AROUND = 200
"""Characters shown on either side of a mark."""
_DEEPEST = 60
"""Levels of a value that are searched for marks."""


class Mark(msgspec.Struct, frozen=True):
    """Characters from `start` to before `end` that assertion `number` refers to."""

    start: int
    end: int
    number: int
    fails: bool


Marks = Mapping[str, Sequence[Mark]]
"""Marks by the path of their text."""


def select_marks(marks: Marks, places: Iterable[str]) -> Marks:
    """Return the marks at or below these places, relative to them."""
    if not marks:
        return {}
    selected: dict[str, list[Mark]] = {}
    for place in dict.fromkeys(places):
        for path, marks_at_path in marks.items():
            if path == place or path.startswith((f"{place}.", f"{place}[")):
                selected.setdefault(path[len(place) :], []).extend(marks_at_path)
    return selected


def write_marked_text(text: str, marks: Sequence[Mark], limit: int = MOST_TEXT) -> list[Piece]:
    """Return a text in pieces."""
    text, marks = _cut(text, marks, limit)
    edges = sorted({edge for mark in marks for edge in (mark.start, mark.end)})
    bounds = [0, *edges, len(text)]
    # A boundary in the text itself would split it.
    joined = write_clean_block(_BOUNDARY.join(text[low:high].replace(_BOUNDARY, "\\ufdd0") for low, high in pairwise(bounds)))
    pieces: list[Piece] = []
    # Lines that were cut have no boundaries: only the first pieces exist.
    for start, piece in zip(bounds, joined.split(_BOUNDARY), strict=False):
        covering = [mark for mark in marks if mark.start <= start < mark.end]
        if covering and piece:
            numbers: list[Json] = sorted({mark.number for mark in covering})
            pieces.append({"text": piece, "of": numbers, "kind": "fail" if any(mark.fails for mark in covering) else "pass"})
        elif piece:
            pieces.append(piece)
    return pieces


def write_marked_value(value: Json, marks: Marks, limit: int = MOST_TEXT) -> list[Piece]:
    """Return a value as JSON in pieces; the paths of the marks begin at the value."""
    if isinstance(value, str):
        return write_marked_text(value, marks.get("", ()), limit)
    states: list[Sequence[Mark]] = [()]
    laid_out = lay_out_value(_put_boundaries(msgspec.to_builtins(value, str_keys=True), "", marks, states, 0))
    text, leaf_marks, at = "", list[Mark](), 0
    parts = laid_out.split(_BOUNDARY)
    if len(parts) != len(states):
        # Values deeper than marks, or with lost boundaries, are shown without marks.
        return write_marked_text(lay_out_value(value), (), limit)
    for part, state in zip(parts, states, strict=True):
        leaf_marks += [Mark(at, at + len(part), mark.number, mark.fails) for mark in state if part]
        at += len(part)
    text = "".join(parts)
    return write_marked_text(text, _join_neighbours(leaf_marks), limit)


def _join_neighbours(marks: list[Mark]) -> list[Mark]:
    """Return touching marks of one assertion as one."""
    joined: list[Mark] = []
    for mark in marks:
        before = next((joined_mark for joined_mark in joined if joined_mark.number == mark.number and joined_mark.end == mark.start), None)
        if before is not None:
            joined.remove(before)
            mark = Mark(before.start, mark.end, mark.number, mark.fails)
        joined.append(mark)
    return joined


def _put_boundaries(value: Json, path: str, marks: Marks, states: list[Sequence[Mark]], depth: int) -> Json:
    """Return the value with boundaries at marks; `states` gets the marks after each boundary."""
    if isinstance(value, str):
        return _split_leaf(value, marks.get(path, ()), states)
    if depth > _DEEPEST:
        return value
    if isinstance(value, dict):
        return {_escape_boundary(key): _put_boundaries(item, join_path(path, key), marks, states, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_put_boundaries(item, f"{path}[{index}]", marks, states, depth + 1) for index, item in enumerate(value)]
    return value


def _split_leaf(text: str, marks: Sequence[Mark], states: list[Sequence[Mark]]) -> str:
    edges = sorted({edge for mark in marks for edge in (mark.start, mark.end) if 0 <= edge <= len(text)})
    states += [tuple(mark for mark in marks if mark.start <= edge < mark.end) for edge in edges]
    return _BOUNDARY.join(_escape_boundary(text[start:end]) for start, end in pairwise([0, *edges, len(text)]))


def _escape_boundary(text: str) -> str:
    # Lone surrogates too: such JSON is written in ASCII, without boundaries.
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _cut(text: str, marks: Sequence[Mark], limit: int) -> tuple[str, list[Mark]]:
    """Return a text of about `limit` characters around its marks, and the marks at their new positions."""
    spans = _choose_spans(len(text), marks, limit)
    parts: list[str] = []
    placed: list[Mark] = []
    at, shown_to = 0, 0
    for start, end in spans:
        gap = f"…({start - shown_to:,} more)…" if start > shown_to else ""
        at += len(gap)
        for mark in marks:
            first, last = max(start, mark.start), min(end, mark.end)
            if first < last:
                placed.append(Mark(at + first - start, at + last - start, mark.number, mark.fails))
        parts += (gap, text[start:end])
        at += end - start
        shown_to = end
    if shown_to < len(text):
        parts.append(f"…({len(text) - shown_to:,} more)…")
    return "".join(parts), placed


def _choose_spans(length: int, marks: Sequence[Mark], limit: int) -> list[tuple[int, int]]:
    """Return which ranges of a text are shown: all of a short one, else both ends and the marks."""
    if length <= limit:
        return [(0, length)]
    budget = limit // 2
    spans = [(0, limit // 3), (length - limit // 6, length)]
    # Failed ones first: the budget may not suffice for all.
    for mark in sorted(marks, key=lambda mark: (not mark.fails, mark.start)):
        # Of a very long mark only the ends are shown.
        start, end = max(0, mark.start - _AROUND), min(length, min(mark.end, mark.start + _AROUND) + _AROUND)
        if any(span_start <= start and end <= span_end for span_start, span_end in spans):
            continue
        if end - start > budget:
            break
        budget -= end - start
        spans.append((start, end))
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
