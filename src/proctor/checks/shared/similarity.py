"""How similar two texts are, by three published measures, and which pieces of them differ.

What both begin and end with is left out first. The rest is aligned if that is cheap; if it is large on both sides, all of it differs.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final, Literal, TypeVar

from proctor.checks.shared.ranges import Span
from proctor.work import spend

# --- how similar two texts are, from 0 to 1: three published measures, computed exactly

Measure = Literal["edit_distance", "token_f1", "rouge_l"]
T = TypeVar("T", bound=Hashable)

_STEPS_OF_AN_ELEMENT: Final = 2
_PLACES_PER_STEP: Final = 512
"""How many places of the shorter sequence one step covers, measured: a step then takes about 0.3 microseconds."""
_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)
_ARTICLES: Final = re.compile(r"\b(?:a|an|the)\b")
_ROUGE_TOKENS: Final = re.compile("[a-z0-9]+")


def measure_edit_distance(expected: str, actual: str) -> float:
    """Return 1 less the Levenshtein distance over the length of the longer text; two empty texts are equal."""
    longest = max(len(expected), len(actual))
    return 1.0 if longest == 0 else 1.0 - count_edits(expected, actual) / longest


def measure_token_f1(expected: str, actual: str) -> float:
    """Return the F1 of shared words as SQuAD 1.1 and `f1_score` of dspy count them; a text without words shares none."""
    wanted, found = split_squad_words(expected), split_squad_words(actual)
    spend(len(wanted) + len(found))
    return _compute_f1((Counter(wanted) & Counter(found)).total(), len(wanted), len(found))


def measure_rouge_l(expected: str, actual: str) -> float:
    """Return the F of the longest common subsequence of words, without stemming; a text without words has none."""
    wanted, found = split_rouge_words(expected), split_rouge_words(actual)
    return _compute_f1(count_common(wanted, found), len(wanted), len(found))


MEASURES: Final[dict[Measure, Callable[[str, str], float]]] = {
    "edit_distance": measure_edit_distance,
    "token_f1": measure_token_f1,
    "rouge_l": measure_rouge_l,
}


def split_squad_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without ASCII punctuation and without English articles.

    Texts are decomposed first (NFD), as `f1_score` of dspy does it: what looks alike is alike, however its accents are encoded.
    """
    return _ARTICLES.sub(" ", unicodedata.normalize("NFD", text).lower().translate(_PUNCTUATION)).split()


def split_rouge_words(text: str) -> list[str]:
    """Return the runs of the letters a to z and digits in lower case."""
    return _ROUGE_TOKENS.findall(text.lower())


def count_edits(one: str, other: str) -> int:
    """Return the Levenshtein distance: the fewest characters to insert, delete or replace."""
    # Common ends need no edit, and texts that are nearly equal become short by this.
    short, long = _trim_common_ends(one, other)
    if not short:
        return len(long)
    masks = _mark_places(short, len(long))
    full = (1 << len(short)) - 1
    last = 1 << (len(short) - 1)
    rises, falls, edits = full, 0, len(short)
    # Hyyrö's form of Myers' algorithm: bit i is set if the table rises or falls by one from row i to row i + 1.
    for character in long:
        here = masks.get(character, 0) | falls
        diagonal = ((((here & rises) + rises) ^ rises) | here) & full
        right_rises = falls | (full & ~(diagonal | rises))
        right_falls = diagonal & rises
        edits += 1 if right_rises & last else -1 if right_falls & last else 0
        right_rises = (right_rises << 1) | 1
        rises = ((right_falls << 1) | ~(diagonal | right_rises)) & full
        falls = right_rises & diagonal
    return edits


def count_common(one: Sequence[T], other: Sequence[T]) -> int:
    """Return the length of the longest common subsequence."""
    short, long = (one, other) if len(one) <= len(other) else (other, one)
    if not short:
        return 0
    masks = _mark_places(short, len(long))
    full = (1 << len(short)) - 1
    open_places = full
    for element in long:
        met = open_places & masks.get(element, 0)
        open_places = ((open_places + met) | (open_places - met)) & full
    return len(short) - open_places.bit_count()


def _mark_places(elements: Sequence[T], partners: int) -> dict[T, int]:
    """Return the positions of every element as bits; counts the steps of comparing with `partners` others."""
    spend(len(elements) + partners * (_STEPS_OF_AN_ELEMENT + len(elements) // _PLACES_PER_STEP))
    masks: dict[T, int] = {}
    for place, element in enumerate(elements):
        masks[element] = masks.get(element, 0) | 1 << place
    return masks


def _trim_common_ends(one: str, other: str) -> tuple[str, str]:
    """Return the shorter and the longer text without what they begin and end with in common."""
    short, long = (one, other) if len(one) <= len(other) else (other, one)
    if short == long:
        return "", ""
    start = 0
    while start < len(short) and short[start] == long[start]:
        start += 1
    end = 0
    while end < len(short) - start and short[-1 - end] == long[-1 - end]:
        end += 1
    return short[start : len(short) - end], long[start : len(long) - end]


def _compute_f1(shared: int, wanted: int, found: int) -> float:
    # Also where a text has no words, by whose number would be divided below.
    if shared == 0:
        return 0.0
    precision, recall = shared / found, shared / wanted
    return 2 * precision * recall / (precision + recall)


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
