"""Claims that the answer is worded much like a text.

Three measures, each from 0 to 1. `edit_distance`: 1 less the Levenshtein distance in characters over the length of the longer text, every
character as it came, case and white space included; equal to `Levenshtein.normalized_similarity` of `rapidfuzz`. `token_f1`: precision and
recall of the words, their order ignored, equal to `f1_score` of `dspy`: decomposed (Unicode's NFD), then normalised as the evaluation
script of SQuAD 1.1 does it (lower case, ASCII punctuation and the English articles a, an, the removed). `rouge_l`: the F measure of the
longest common subsequence of words, equal to `rougeL` of Google's `rouge-score` without stemming; words there are runs of the letters a to
z and digits, so a text in another script has none.

`most_edits` takes the place of a share: the Levenshtein distance itself, in characters, may be no more than that.

All three compare wording, not meaning: "not refunded" is close to "refunded", and a good paraphrase is far away. For meaning take a judge.
Of several texts the most similar counts. A text that has no words under the measure is refused. Edit distance and ROUGE-L cost the product
of both lengths; texts far beyond twenty thousand characters or words on both sides end in `error`, code `too_much_work`.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.answer import NO_TEXT, POINTER
from proctor.checks.shared.missing_evidence import Reads
from proctor.checks.shared.similarity import MEASURES, Measure, count_edits, find_differing, split_rouge_words, split_squad_words
from proctor.errors import SpecError
from proctor.model.evidence import Evidence
from proctor.model.json_values import is_finite
from proctor.model.show import show
from proctor.model.verdict import TextRange, Verdict, failed, passed


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


def _locate(spec: SimilarTo, evidence: Evidence) -> Iterator[TextRange]:
    """Find what differs from the most similar text, also where it is similar enough."""
    text = evidence.text
    if not text or not spec.text:
        return
    closest = max(spec.text, key=lambda one: MEASURES[spec.measure](one, text))
    for start, end in find_differing(closest, text, spec.measure):
        yield TextRange("$.text", start, end)


@check(
    "similar_to",
    example="similar_to: {text: Your order has been shipped., at_least: 0.8, measure: token_f1}",
    reads=Reads(("answer",), "exact", "fail"),
    product=True,
    locate=_locate,
)
def similar_to(spec: SimilarTo) -> Decide:
    """The answer is worded much like a text, or like one of several."""
    if (spec.at_least is None) == (spec.most_edits is None):
        raise SpecError("expected `at_least` or `most_edits`, one of the two", field="at_least")
    if not spec.text:
        raise SpecError("no text given", field="text")
    for index, text in enumerate(spec.text):
        _require_words(text, spec.measure, index)
    if spec.at_least is None:
        return _count_edits(spec, spec.most_edits or 0)
    require_share(least := spec.at_least)
    measure = MEASURES[spec.measure]
    name = spec.measure.replace("_", " ")

    def decide(evidence: Evidence) -> Verdict:
        if evidence.text is None:
            return NO_TEXT
        best, closest = 0.0, spec.text[0]
        for text in spec.text:
            found = measure(text, evidence.text)
            if found > best:
                best, closest = found, text
        reason = f"a similarity ({name}) of at least {least:g} to {show(closest)}"
        details = {"similarity": best, "measure": spec.measure, "at_least": least}
        # As people reckon: a similarity that is 0.8 but for the last bit is 0.8.
        if best >= least - 1e-12:
            return passed(f"expected {reason}, found {best:.4f}", score=best, details=details, pointers=POINTER)
        return failed(f"expected {reason}, found {best:.4f}: {show(evidence.text)}", score=best, details=details, pointers=POINTER)

    return decide


def _count_edits(spec: SimilarTo, most: int) -> Decide:
    """Return how a bound on the distance itself is decided."""
    if spec.measure != "edit_distance":
        raise SpecError(f"`most_edits` counts characters; the measure {spec.measure} has none", field="most_edits")
    if most < 0:
        raise SpecError(f"expected a number of at least 0, found {most}", field="most_edits")

    def decide(evidence: Evidence) -> Verdict:
        if evidence.text is None:
            return NO_TEXT
        edits, closest = min((count_edits(text, evidence.text), text) for text in spec.text)
        reason = f"expected at most {most:,} edits to {show(closest)}, found {edits:,}"
        details = {"edits": edits, "most_edits": most}
        if edits <= most:
            return passed(reason, details=details, pointers=POINTER)
        return failed(f"{reason}: {show(evidence.text)}", details=details, pointers=POINTER)

    return decide


def require_share(share: float, field: str = "at_least") -> None:
    """Refuse a least similarity that every answer has, or none can have."""
    if not (is_finite(share) and 0 < share <= 1):
        raise SpecError(f"expected a number above 0 and up to 1, found {show(share)}", field=field)


def _require_words(text: str, measure: Measure, index: int) -> None:
    if measure == "token_f1" and not split_squad_words(text):
        raise SpecError(f"{show(text)} has only articles and punctuation, so nothing can be similar to it", field=f"text.{index}")
    if measure == "rouge_l" and not split_rouge_words(text):
        raise SpecError(
            f"{show(text)} has no words that ROUGE-L knows: the letters a to z and digits", field=f"text.{index}", hint="take `token_f1`"
        )
