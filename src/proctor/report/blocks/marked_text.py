"""Text of the evidence with the characters marked that verdicts are about, in pieces that a page only has to draw.

A piece is plain text, or an object: `text`, the numbers of the assertions it belongs to (`of`, from 1), and `kind`: `fail` where one of
them failed, else `pass`. Joined, the pieces are the text that is shown. What is cut out of a long text is counted where it was; what is
marked, with a little on both sides, stays as long as there is room.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec

from proctor.matchers.equal import join_path
from proctor.model.evidence import Json
from proctor.report.words.html_text import MOST_TEXT, lay_out_value, write_clean_block

Piece = str | dict[str, Json]

_BOUNDARY = "\ufdd0"
"""Stands where a mark begins or ends while a text is laid out: a character that Unicode gives to nobody."""
_ESCAPED = re.compile(f"[{_BOUNDARY}\ud800-\udfff]")
_AROUND = 200
"""Characters kept on either side of a mark, where a text is cut."""
_DEEPEST = 60
"""Levels of a value in which marks are looked for."""


class Mark(msgspec.Struct, frozen=True):
    """Characters from `start` to before `end` that assertion `number` is about."""

    start: int
    end: int
    number: int
    fails: bool


Marks = Mapping[str, Sequence[Mark]]
"""Marks by the path of their text."""


def select_marks(marks: Marks, places: Iterable[str]) -> Marks:
    """Return the marks at or below any of these places, by the path from there on."""
    if not marks:
        return {}
    found: dict[str, list[Mark]] = {}
    for place in dict.fromkeys(places):
        for path, here in marks.items():
            if path == place or path.startswith((f"{place}.", f"{place}[")):
                found.setdefault(path[len(place) :], []).extend(here)
    return found


def write_marked_text(text: str, marks: Sequence[Mark], limit: int = MOST_TEXT) -> list[Piece]:
    """Return a text in pieces."""
    text, marks = _cut(text, marks, limit)
    edges = sorted({edge for mark in marks for edge in (mark.start, mark.end)})
    bounds = [0, *edges, len(text)]
    # A boundary that stands in the text itself would split it where no mark is.
    told = write_clean_block(_BOUNDARY.join(text[one:two].replace(_BOUNDARY, "\\ufdd0") for one, two in pairwise(bounds)))
    pieces: list[Piece] = []
    # Lines behind the last one shown are missing, and with them their boundaries: the pieces that are there are the first ones.
    for start, piece in zip(bounds, told.split(_BOUNDARY), strict=False):
        of = [mark for mark in marks if mark.start <= start < mark.end]
        if of and piece:
            numbers: list[Json] = sorted({mark.number for mark in of})
            pieces.append({"text": piece, "of": numbers, "kind": "fail" if any(mark.fails for mark in of) else "pass"})
        elif piece:
            pieces.append(piece)
    return pieces


def write_marked_value(value: Json, marks: Marks, limit: int = MOST_TEXT) -> list[Piece]:
    """Return a value as JSON in pieces; the paths of the marks begin at the value."""
    if isinstance(value, str):
        return write_marked_text(value, marks.get("", ()), limit)
    states: list[Sequence[Mark]] = [()]
    laid_out = lay_out_value(_put_boundaries(msgspec.to_builtins(value, str_keys=True), "", marks, states, 0))
    text, found, at = "", list[Mark](), 0
    parts = laid_out.split(_BOUNDARY)
    if len(parts) != len(states):
        # What lies deeper than marks has a boundary of its own, or so odd a value lost some: it is shown without marks.
        return write_marked_text(lay_out_value(value), (), limit)
    for part, state in zip(parts, states, strict=True):
        found += [Mark(at, at + len(part), mark.number, mark.fails) for mark in state if part]
        at += len(part)
    text = "".join(parts)
    return write_marked_text(text, _join_neighbours(found), limit)


def _join_neighbours(marks: list[Mark]) -> list[Mark]:
    """Return marks of one assertion that touch each other as one."""
    joined: list[Mark] = []
    for mark in marks:
        before = next((one for one in joined if one.number == mark.number and one.end == mark.start), None)
        if before is not None:
            joined.remove(before)
            mark = Mark(before.start, mark.end, mark.number, mark.fails)
        joined.append(mark)
    return joined


def _put_boundaries(value: Json, path: str, marks: Marks, states: list[Sequence[Mark]], depth: int) -> Json:
    """Return the value with a boundary wherever a mark begins or ends; `states` gets the marks that hold behind each, in order."""
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
    return _BOUNDARY.join(_escape_boundary(text[one:two]) for one, two in pairwise([0, *edges, len(text)]))


def _escape_boundary(text: str) -> str:
    # Halves of characters, too: JSON with one of them can be laid out in ASCII alone, and no boundary would be left in it.
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _cut(text: str, marks: Sequence[Mark], limit: int) -> tuple[str, list[Mark]]:
    """Return a text of about `limit` characters with what is marked, and the marks as they stand there."""
    kept = _choose_spans(len(text), marks, limit)
    parts: list[str] = []
    placed: list[Mark] = []
    at, behind = 0, 0
    for start, end in kept:
        gap = f"…({start - behind:,} more)…" if start > behind else ""
        at += len(gap)
        for mark in marks:
            first, last = max(start, mark.start), min(end, mark.end)
            if first < last:
                placed.append(Mark(at + first - start, at + last - start, mark.number, mark.fails))
        parts += (gap, text[start:end])
        at += end - start
        behind = end
    if behind < len(text):
        parts.append(f"…({len(text) - behind:,} more)…")
    return "".join(parts), placed


def _choose_spans(length: int, marks: Sequence[Mark], limit: int) -> list[tuple[int, int]]:
    """Return what of a text is shown: all of a short one; else its two ends and what stands around marks."""
    if length <= limit:
        return [(0, length)]
    room = limit // 2
    wanted = [(0, limit // 3), (length - limit // 6, length)]
    # Those that failed first: the room may not last for all, and these are what somebody looks for.
    for mark in sorted(marks, key=lambda mark: (not mark.fails, mark.start)):
        # Of a mark longer than this its two ends are seen with the text's own.
        start, end = max(0, mark.start - _AROUND), min(length, min(mark.end, mark.start + _AROUND) + _AROUND)
        if any(one <= start and end <= two for one, two in wanted):
            continue
        if end - start > room:
            break
        room -= end - start
        wanted.append((start, end))
    joined: list[tuple[int, int]] = []
    for start, end in sorted(wanted):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
