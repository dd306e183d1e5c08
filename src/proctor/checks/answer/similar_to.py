"""Claims that the answer is worded much like a text.

Three measures, each from 0 to 1. `edit_distance`: 1 minus the Levenshtein distance in characters divided by the length of the longer text;
case and white space count; equal to `Levenshtein.normalized_similarity` of `rapidfuzz`. `token_f1`: precision and recall of the words,
their order ignored, equal to `f1_score` of `dspy`: decomposed (Unicode's NFD), then normalised as the evaluation script of SQuAD 1.1 does
it (lower case, ASCII punctuation and the English articles a, an, the removed). `rouge_l`: the F measure of the longest common subsequence
of words, equal to `rougeL` of Google's `rouge-score` without stemming; words there are runs of the letters a to z and digits, so a text in
another script has none.

`most_edits` replaces the share: it is the maximum Levenshtein distance, in characters.

All three compare wording, not meaning: "not refunded" is close to "refunded", and a good paraphrase is far away. To compare meaning, use a
judge. With several texts, the most similar one counts. A text without words under the measure is rejected. Edit distance and ROUGE-L cost
the product of both lengths; texts far beyond twenty thousand characters or words on both sides end in `error`, code `too_much_work`.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Final, Literal, TypeVar

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.answer import POINTER, over_text
from proctor.errors import SpecError
from proctor.model.json_values import is_finite
from proctor.model.show import show
from proctor.model.verdict import Verdict, failed, passed
from proctor.work import spend

Measure = Literal["edit_distance", "token_f1", "rouge_l"]
T = TypeVar("T", bound=Hashable)

_STEPS_OF_AN_ELEMENT: Final = 2
_PLACES_PER_STEP: Final = 512
"""The number of positions of the shorter sequence that one step covers; a step then takes about 0.3 microseconds."""
_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)
_ARTICLES: Final = re.compile(r"\b(?:a|an|the)\b")
_ROUGE_TOKENS: Final = re.compile("[a-z0-9]+")


def measure_edit_distance(expected: str, actual: str) -> float:
    """Return 1 minus the Levenshtein distance over the length of the longer text; two empty texts are equal."""
    longest = max(len(expected), len(actual))
    return 1.0 if longest == 0 else 1.0 - count_edits(expected, actual) / longest


def measure_token_f1(expected: str, actual: str) -> float:
    """Return the F1 of shared words as SQuAD 1.1 and `f1_score` of dspy count them; a text without words scores 0."""
    wanted, found = split_squad_words(expected), split_squad_words(actual)
    spend(len(wanted) + len(found))
    return _compute_f1((Counter(wanted) & Counter(found)).total(), len(wanted), len(found))


def measure_rouge_l(expected: str, actual: str) -> float:
    """Return the F measure of the longest common subsequence of words, without stemming; a text without words scores 0."""
    wanted, found = split_rouge_words(expected), split_rouge_words(actual)
    return _compute_f1(count_common(wanted, found), len(wanted), len(found))


MEASURES: Final[dict[Measure, Callable[[str, str], float]]] = {
    "edit_distance": measure_edit_distance,
    "token_f1": measure_token_f1,
    "rouge_l": measure_rouge_l,
}


def split_squad_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without ASCII punctuation and without English articles.

    Texts are decomposed first (NFD), as in `f1_score` of dspy, so that the encoding of accents does not matter.
    """
    return _ARTICLES.sub(" ", unicodedata.normalize("NFD", text).lower().translate(_PUNCTUATION)).split()


def split_rouge_words(text: str) -> list[str]:
    """Return the runs of letters a to z and digits in lower case."""
    return _ROUGE_TOKENS.findall(text.lower())


def count_edits(one: str, other: str) -> int:
    """Return the Levenshtein distance: the fewest characters to insert, delete or replace."""
    # Common ends need no edit; removing them makes nearly equal texts short.
    start, end = _count_common_ends(one, other)
    short, long = sorted((one[start : len(one) - end], other[start : len(other) - end]), key=len)
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
        matches = open_places & masks.get(element, 0)
        open_places = ((open_places + matches) | (open_places - matches)) & full
    return len(short) - open_places.bit_count()


def _mark_places(elements: Sequence[T], partners: int) -> dict[T, int]:
    """Return the positions of every element as bits; counts the steps of comparing with `partners` others."""
    spend(len(elements) + partners * (_STEPS_OF_AN_ELEMENT + len(elements) // _PLACES_PER_STEP))
    masks: dict[T, int] = {}
    for place, element in enumerate(elements):
        masks[element] = masks.get(element, 0) | 1 << place
    return masks


def _count_common_ends(one: Sequence[object], other: Sequence[object]) -> tuple[int, int]:
    """Return how many elements both begin with, and how many of the rest both end with."""
    least = min(len(one), len(other))
    start = next((at for at in range(least) if one[at] != other[at]), least)
    end = next((at for at in range(least - start) if one[-1 - at] != other[-1 - at]), least - start)
    return start, end


def _compute_f1(shared: int, wanted: int, found: int) -> float:
    # Also if a text has no words, which would be a division by zero below.
    if shared == 0:
        return 0.0
    precision, recall = shared / found, shared / wanted
    return 2 * precision * recall / (precision + recall)


class SimilarTo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer is worded much like a text, or like one of several."""

    text: tuple[str, ...]
    """The text to compare with; of several the most similar counts."""
    at_least: float | None = None
    """The least similarity that passes, above 0 and up to 1."""
    measure: Measure = "edit_distance"
    """`edit_distance` (characters), `token_f1` (words in any order) or `rouge_l` (words in order)."""
    most_edits: int | None = None
    """Instead of `at_least`: how many characters may be put in, taken out or replaced."""


@check(
    "similar_to",
    example="similar_to: {text: Your order has been shipped., at_least: 0.8, measure: token_f1}",
    reads=Reads(("answer",), "exact", "fail"),
    product=True,
)
def similar_to(spec: SimilarTo) -> Decide:
    """The answer is worded much like a text, or like one of several."""
    if (spec.at_least is None) == (spec.most_edits is None):
        raise SpecError("expected `at_least` or `most_edits`, one of the two", field="at_least")
    if not spec.text:
        raise SpecError("no text given", field="text")
    for index, text in enumerate(spec.text):
        if spec.measure == "token_f1" and not split_squad_words(text):
            raise SpecError(f"{show(text)} has only articles and punctuation, so nothing can be similar to it", field=f"text.{index}")
        if spec.measure == "rouge_l" and not split_rouge_words(text):
            raise SpecError(
                f"{show(text)} has no words that ROUGE-L knows: the letters a to z and digits",
                field=f"text.{index}",
                hint="take `token_f1`",
            )
    if spec.at_least is None:
        return _decide_edits(spec, spec.most_edits or 0)
    require_share(least := spec.at_least)
    measure = MEASURES[spec.measure]
    name = spec.measure.replace("_", " ")

    def decide(answer: str) -> Verdict:
        best, closest = 0.0, spec.text[0]
        for text in spec.text:
            found = measure(text, answer)
            if found > best:
                best, closest = found, text
        reason = f"a similarity ({name}) of at least {least:g} to {show(closest)}"
        details = {"similarity": best, "measure": spec.measure, "at_least": least}
        # Rounded, so that a similarity of 0.8 except for the last bit is 0.8.
        if best >= least - 1e-12:
            return passed(f"expected {reason}, found {best:.4f}", score=best, details=details, pointers=POINTER)
        return failed(f"expected {reason}, found {best:.4f}: {show(answer)}", score=best, details=details, pointers=POINTER)

    return over_text(decide)


def _decide_edits(spec: SimilarTo, most: int) -> Decide:
    if spec.measure != "edit_distance":
        raise SpecError(f"`most_edits` counts characters; the measure {spec.measure} has none", field="most_edits")
    if most < 0:
        raise SpecError(f"expected a number of at least 0, found {most}", field="most_edits")

    def decide(answer: str) -> Verdict:
        edits, closest = min((count_edits(text, answer), text) for text in spec.text)
        reason = f"expected at most {most:,} edits to {show(closest)}, found {edits:,}"
        details = {"edits": edits, "most_edits": most}
        if edits <= most:
            return passed(reason, details=details, pointers=POINTER)
        return failed(f"{reason}: {show(answer)}", details=details, pointers=POINTER)

    return over_text(decide)


def require_share(share: float, field: str = "at_least") -> None:
    """Reject a minimum similarity that every answer reaches or none can reach."""
    if not (is_finite(share) and 0 < share <= 1):
        raise SpecError(f"expected a number above 0 and up to 1, found {show(share)}", field=field)
