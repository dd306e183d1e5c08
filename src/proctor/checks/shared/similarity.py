"""How similar two texts are, from 0 to 1: three published measures, computed exactly.

Edit distance and longest common subsequence are computed bit-parallel, a whole column of the table in one integer: texts of twenty thousand
characters take a fraction of a second. Steps are counted, since the cost is the product of both lengths.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Final, Literal, TypeVar

from proctor.work import spend

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
