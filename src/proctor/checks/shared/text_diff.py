"""Which pieces of a text differ from the text it is compared with: those outside of the longest common subsequence of pieces.

What both begin and end with is left out first. What remains is aligned where that is cheap; where it is large on both sides, all of it
counts as differing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from proctor.checks.shared.ranges import Span
from proctor.checks.shared.similarity import Measure, split_rouge_words, split_squad_words
from proctor.work import spend

_PIECES: Final = re.compile(r"\w+|\s+|[^\w\s]")
_WORDS: Final = re.compile(r"\S+")
_MOST_CELLS: Final = 1_000_000
"""Pairs of pieces that are compared at most."""

Piece = tuple[str, Span]
"""A piece in its normalised form, and its position."""


def find_differing(expected: str, actual: str, measure: Measure) -> Iterator[Span]:
    """Yield the pieces of `actual` that differ from `expected`: runs of words, blanks and signs, or for the other measures words."""
    spend((len(expected) + len(actual)) // 4 + 1)
    if measure == "token_f1":
        yield from _find_surplus(expected, actual)
        return
    split = _split_characters if measure == "edit_distance" else _split_rouge
    wanted, found = split(expected), split(actual)
    start, end = _count_common_ends(wanted, found)
    middle = found[start : len(found) - end]
    differing = _list_unaligned([form for form, _ in wanted[start : len(wanted) - end]], [form for form, _ in middle])
    yield from _join(actual, [middle[at][1] for at in differing], gapless=measure == "edit_distance")


def _split_characters(text: str) -> list[Piece]:
    return [(found[0], found.span()) for found in _PIECES.finditer(text)]


def _split_rouge(text: str) -> list[Piece]:
    # Blank by blank, since lower-casing may change the number of characters.
    return _split_words(text, split_rouge_words)


def _split_words(text: str, split: Callable[[str], list[str]]) -> list[Piece]:
    """Return the words that a measure uses, each with the run of characters between blanks that contains it."""
    return [(word, found.span()) for found in _WORDS.finditer(text) for word in split(found[0])]


def _find_surplus(expected: str, actual: str) -> Iterator[Span]:
    """Yield the words that the answer has and the expected text has not, or not so often."""
    left = Counter(split_squad_words(expected))
    surplus: list[Span] = []
    for word, span in _split_words(actual, split_squad_words):
        if left[word] > 0:
            left[word] -= 1
        else:
            surplus.append(span)
    yield from _join(actual, surplus, gapless=False)


def _count_common_ends(wanted: Sequence[Piece], found: Sequence[Piece]) -> tuple[int, int]:
    """Return how many pieces both begin with, and how many of the others both end with."""
    least = min(len(wanted), len(found))
    start = 0
    while start < least and wanted[start][0] == found[start][0]:
        start += 1
    end = 0
    while end < least - start and wanted[-1 - end][0] == found[-1 - end][0]:
        end += 1
    return start, end


def _list_unaligned(wanted: Sequence[str], found: Sequence[str]) -> list[int]:
    """Return the positions in `found` outside of a longest common subsequence."""
    if not wanted or len(wanted) * len(found) > _MOST_CELLS:
        return list(range(len(found)))
    spend(len(wanted) * len(found) // 2)
    # `rows[i][j]` is the length for what follows `found[i]` and `wanted[j]`.
    rows = [[0] * (len(wanted) + 1)]
    for form in reversed(found):
        below = rows[-1]
        row = [0] * (len(wanted) + 1)
        for at in range(len(wanted) - 1, -1, -1):
            row[at] = below[at + 1] + 1 if wanted[at] == form else max(below[at], row[at + 1])
        rows.append(row)
    rows.reverse()
    unaligned: list[int] = []
    at = 0
    for position, form in enumerate(found):
        while at < len(wanted) and wanted[at] != form and rows[position][at + 1] == rows[position][at]:
            at += 1
        if at < len(wanted) and wanted[at] == form:
            at += 1
        else:
            unaligned.append(position)
    return unaligned


def _join(text: str, spans: Sequence[Span], *, gapless: bool) -> Iterator[Span]:
    """Yield spans, those as one between which there are only blanks (`gapless`: nothing at all)."""
    begin, stop = -1, -1
    for start, end in spans:
        if begin >= 0 and (start <= stop or (not gapless and text[stop:start].isspace())):
            stop = max(stop, end)
            continue
        if begin >= 0:
            yield begin, stop
        begin, stop = start, end
    if begin >= 0:
        yield begin, stop
