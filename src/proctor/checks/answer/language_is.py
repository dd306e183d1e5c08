"""Claims about the language of the answer.

Decided by `py3langid`, a naive Bayes model over byte sequences that knows 140 languages by their ISO 639 codes; it needs the extra: `pip
install 'proctor-evals[language]'`. The model assigns every language a probability. The claim passes if the named languages together have at
least 0.7, and fails if they have less than 0.05 or another language alone has 0.7. Anything in between is an `error`, code
`language_unclear`. An answer with fewer than 20 letters (a letter of Chinese, Japanese or Korean counts as three) is `error`, code
`too_short_to_tell`.

The first 20,000 characters are read, fenced code blocks left out. Close relatives (Danish and Norwegian, Bulgarian and Macedonian,
Indonesian and Malay) are often mixed up or unclear: name both. A mixture counts as the prevailing language, or is unclear.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Final

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.answer import CODE_BLOCK, POINTER, over_text
from proctor.errors import MissingExtra, SpecError
from proctor.model.show import nearest, show
from proctor.model.verdict import Verdict, errored, failed, passed

LEAST_LETTERS: Final = 20
SURE: Final = 0.7
"""A language with at least this share is the language."""
RULED_OUT: Final = 0.05
"""A language with a smaller share is ruled out."""
MOST_READ: Final = 20_000
"""The maximum number of characters read from an answer."""
_DENSE: Final = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")


class LanguageIs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer is written in a language, or in one of several."""

    language: tuple[str, ...]
    """ISO 639 codes such as `en`, `de` or `pt`; one of them must be the language."""


@check(
    "language_is",
    shorthand="language",
    example="language_is: de",
    reads=Reads(("answer",), "exact", "fail"),
)
def language_is(spec: LanguageIs) -> Decide:
    """The answer is written in a language, or in one of several."""
    if not spec.language:
        raise SpecError("no language given", field="language")
    identifier = _load_identifier()
    known: list[str] = identifier.labels
    for index, code in enumerate(spec.language):
        if code not in known:
            raise SpecError(
                f"unknown language {show(code)}",
                field=f"language.{index}",
                nearest=nearest(code, known),
                hint=f"the codes are {', '.join(sorted(known))}",
            )
    wanted = " or ".join(spec.language)

    def decide(answer: str) -> Verdict:
        text = CODE_BLOCK.sub("", answer[:MOST_READ])
        letters = count_letters(text)
        if letters < LEAST_LETTERS:
            return errored("too_short_to_tell", f"too short to detect a language: {letters} letters, {LEAST_LETTERS} needed: {show(text)}")
        shares: list[tuple[str, float]] = identifier.rank(text)
        share = sum(each for code, each in shares if code in spec.language)
        other, most = next((code, each) for code, each in shares if code not in spec.language)
        details = {"share": round(share, 4), "languages": {code: round(each, 4) for code, each in shares[:3]}}
        if share >= SURE:
            return passed(f"the answer is in {wanted}", details=details, pointers=POINTER)
        if share < RULED_OUT or most >= SURE:
            return failed(f"expected an answer in {wanted}, found {other}: {show(answer)}", details=details, pointers=POINTER)
        found_shares = ", ".join(f"{code} {each:.2f}" for code, each in shares[:3])
        return errored("language_unclear", f"language unclear: {found_shares}; {show(answer)}", details=details)

    return over_text(decide)


def count_letters(text: str) -> int:
    """Return the number of letters in a text; letters that stand for a syllable or a word count three times."""
    return sum(map(str.isalpha, text)) + 2 * len(_DENSE.findall(text))


@functools.cache
def _load_identifier() -> Any:
    try:
        # Optional, and slow to load because it includes a model.
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise MissingExtra("`language_is`", "language") from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
