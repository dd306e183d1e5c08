"""Claims that an English answer is easy to read.

Flesch reading ease is 206.835 - 1.015 * (words / sentences) - 84.6 * (syllables / words): 60 to 70 is plain English, above 90 very easy,
below 30 very hard. The Flesch-Kincaid grade is 0.39 * (words / sentences) + 11.8 * (syllables / words) - 15.59: the school year in the USA
that it takes. A word is a run of the letters a to z, apostrophes and hyphens inside it included; numbers do not count. A sentence ends at
`.`, `!` or `?` before white space or the end, at an empty line, and before an item of a list. Fenced code blocks are left out. Syllables
are counted by rule (groups of vowels, without a silent e), which is wrong for some words; abbreviations with a full stop end a sentence
too early. Expect other tools to differ by some points.

The formulas hold for English prose only. Fewer than 20 words are `error`, code `too_short_to_tell`; a text in which hardly any of the
commonest English words occur is `error`, code `not_english`. Easy to read is not the same as clear, correct or complete.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.answer import CODE_BLOCK, POINTER, over_text
from proctor.errors import SpecError
from proctor.model.json_values import is_finite
from proctor.model.show import show
from proctor.model.verdict import Verdict, errored, failed, passed

LEAST_WORDS: Final = 20
LEAST_COMMON: Final = 0.12
"""The minimum share of the commonest words; it is at least a third in English prose, and nearly zero in other languages."""
_COMMON: Final = frozenset({
    "the", "of", "and", "to", "in", "is", "you", "that", "it", "he", "was", "for", "on", "are", "with", "as", "his", "they", "be",
    "at", "this", "have", "from", "or", "had", "by", "but", "not", "what", "all", "were", "we", "when", "your", "can", "said",
    "there", "an", "each", "which", "she", "do", "how", "their", "if", "will", "up", "other", "about", "out", "many", "then", "them",
    "these", "so", "some", "her", "would", "has", "him", "into", "more",
})  # fmt: skip
_WORD: Final = re.compile(r"[A-Za-z]+(?:['’-][A-Za-z]+)*")
_OTHER_LETTERS: Final = re.compile(r"[^\W\d_A-Za-z]")
_SENTENCE_END: Final = re.compile(r"(?<![.!?])[.!?]++[\"'”’)\]]*+(?=\s|\Z)|\n[ \t]*\n|\n[ \t]*(?=[-*•][ \t]|\d{1,3}[.)][ \t])")
_VOWELS: Final = re.compile("[aeiouy]+")
_SILENT: Final = re.compile("(?:[^aeiouy]e|[^aeioutdy]ed|[^aeiouysxzcgh]es)$")
_SPOKEN_END: Final = re.compile("[^aeiouylrw]le$")


class Readable(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer, in English, is easy enough to read."""

    ease_at_least: float | None = None
    """The least Flesch reading ease that passes; 60 is plain English."""
    grade_at_most: float | None = None
    """The highest Flesch-Kincaid grade that passes; 8 is plain English."""


class Counts(msgspec.Struct, frozen=True):
    """The counts that the formulas use."""

    words: int
    sentences: int
    syllables: int
    common: int
    """How many of the words are among the commonest of English."""
    other_letters: int
    """Letters other than a to z."""

    @property
    def ease(self) -> float:
        """The Flesch reading ease."""
        return 206.835 - 1.015 * (self.words / self.sentences) - 84.6 * (self.syllables / self.words)

    @property
    def grade(self) -> float:
        """The Flesch-Kincaid grade."""
        return 0.39 * (self.words / self.sentences) + 11.8 * (self.syllables / self.words) - 15.59

    def looks_english(self) -> bool:
        """Return whether enough common words occur, and few letters that English does not have."""
        return self.common >= LEAST_COMMON * self.words and self.other_letters <= self.words / 5


@check("readable", shorthand="ease_at_least", example="readable: {ease_at_least: 60}", reads=Reads(("answer",), "exact", "fail"))
def readable(spec: Readable) -> Decide:
    """The answer, in English, is easy enough to read."""
    if spec.ease_at_least is None and spec.grade_at_most is None:
        raise SpecError("give `ease_at_least`, `grade_at_most` or both", field="ease_at_least")
    for field in ("ease_at_least", "grade_at_most"):
        bound = getattr(spec, field)
        if bound is not None and not is_finite(bound):
            raise SpecError(f"expected a number, found {show(bound)}", field=field)

    def decide(text: str) -> Verdict:
        counts = count_text(text)
        if counts.words < LEAST_WORDS:
            return errored("too_short_to_tell", f"too short to measure: {counts.words} English words, {LEAST_WORDS} needed: {show(text)}")
        if not counts.looks_english():
            return errored("not_english", f"the formulas are for English only, found {show(text)}")
        reason = f"reading ease {counts.ease:.1f}, grade {counts.grade:.1f}"
        figures = ("ease", "grade", "words", "sentences", "syllables")
        details = {name: getattr(counts, name) for name in figures}
        missed: list[str] = []
        if spec.ease_at_least is not None and counts.ease < spec.ease_at_least:
            missed.append(f"a reading ease of at least {spec.ease_at_least:g}")
        if spec.grade_at_most is not None and counts.grade > spec.grade_at_most:
            missed.append(f"a grade of at most {spec.grade_at_most:g}")
        if missed:
            return failed(f"expected {' and '.join(missed)}, found {reason}", details=details, pointers=POINTER)
        return passed(reason, details=details, pointers=POINTER)

    return over_text(decide)


def count_text(text: str) -> Counts:
    """Return the words, sentences and syllables of a text."""
    prose = CODE_BLOCK.sub("\n\n", text)
    words = [word.lower() for word in _WORD.findall(prose)]
    sentences = sum(1 for part in _SENTENCE_END.split(prose) if _WORD.search(part))
    return Counts(
        words=len(words),
        sentences=max(sentences, 1),
        syllables=sum(map(count_syllables, words)),
        common=sum(word in _COMMON for word in words),
        other_letters=len(_OTHER_LETTERS.findall(prose)),
    )


def count_syllables(word: str) -> int:
    """Return the syllables of an English word in lower case, by rule: at least one for each part between hyphens."""
    return sum(max(1, _count_in_part(part)) for part in re.split("['’-]", word) if len(part) > 2) or 1


def _count_in_part(part: str) -> int:
    silent = _SILENT.search(part) is not None and _SPOKEN_END.search(part) is None
    return len(_VOWELS.findall(part)) - silent
