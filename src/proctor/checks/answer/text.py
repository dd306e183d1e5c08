"""Claims about the text of the final answer.

The text is used unchanged and untrimmed. Case folding is lower-casing of both sides, without locale and without Unicode normalisation.
Evidence without a text is undecided: `missing_evidence`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.answer import AROUND, NO_TEXT, POINTER, fail_text_claim, quote_around
from proctor.model.evidence import Evidence
from proctor.model.show import explain_alike, show
from proctor.model.verdict import TextRange, Verdict, defer_verdict, failed, passed


class ResponseContains(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer contains a text."""

    text: str
    """The text to find."""
    ignore_case: bool = True
    """Whether upper and lower case are the same."""


class ResponseNotContains(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer does not contain a text."""

    text: str
    """The text that must not be there."""
    ignore_case: bool = True
    """Whether upper and lower case are the same."""


class ResponseStartsWith(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer begins with a text."""

    text: str
    """How it must begin."""
    ignore_case: bool = True
    """Whether upper and lower case are the same."""


class ResponseEndsWith(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer ends with a text."""

    text: str
    """How it must end."""
    ignore_case: bool = True
    """Whether upper and lower case are the same."""


class ResponseEquals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer is exactly a text, nothing trimmed."""

    text: str
    """What it must be."""
    ignore_case: bool = True
    """Whether upper and lower case are the same."""


class ResponseNotEmpty(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer is more than white space."""


def _locate_text(*given: Any, **options: Any) -> Iterator[TextRange]:
    from proctor.checks.shared.places import locate_text  # only reports with highlights need it

    return locate_text(*given, **options)


def _locate(spec: ResponseContains | ResponseNotContains, evidence: Evidence) -> Iterator[TextRange]:
    return _locate_text("$.text", evidence.text, spec.text, ignore_case=spec.ignore_case)


def _locate_start(spec: ResponseStartsWith, evidence: Evidence) -> Iterator[TextRange]:
    return _locate_text("$.text", evidence.text, spec.text, ignore_case=spec.ignore_case, at="start")


def _locate_end(spec: ResponseEndsWith, evidence: Evidence) -> Iterator[TextRange]:
    return _locate_text("$.text", evidence.text, spec.text, ignore_case=spec.ignore_case, at="end")


def _locate_whole(spec: ResponseEquals, evidence: Evidence) -> Iterator[TextRange]:
    return _locate_text("$.text", evidence.text, spec.text, ignore_case=spec.ignore_case, at="whole")


@check(
    "response_contains",
    shorthand="text",
    example="response_contains: refund processed",
    reads=Reads(("answer",), "presence"),
    locate=_locate,
)
def response_contains(spec: ResponseContains) -> Decide:
    """The answer contains a text."""
    needle = spec.text.lower() if spec.ignore_case else spec.text
    good = passed(f"the answer contains {show(spec.text)}", pointers=POINTER)

    folds = spec.ignore_case

    def decide(evidence: Evidence) -> Verdict:
        text = evidence.text
        if text is None:
            return NO_TEXT
        if needle in (text.lower() if folds else text):
            return good
        return defer_verdict(partial(_fail_not_contained, spec.text, text))

    return decide


@check(
    "response_not_contains",
    shorthand="text",
    example="response_not_contains: internal error",
    reads=Reads(("answer",), "absence"),
    locate=_locate,
)
def response_not_contains(spec: ResponseNotContains) -> Decide:
    """The answer does not contain a text."""
    needle = spec.text.lower() if spec.ignore_case else spec.text
    good = passed(f"the answer does not contain {show(spec.text)}", pointers=POINTER)

    def decide(evidence: Evidence) -> Verdict:
        text = evidence.text
        if text is None:
            return NO_TEXT
        searched = text.lower() if spec.ignore_case else text
        at = searched.find(needle)
        if at < 0:
            return good
        # Lower-casing can change the length (`İ` becomes two characters); then the folded text is quoted.
        shown = text if len(searched) == len(text) else searched
        quote = quote_around(shown, at, at + len(needle))
        return failed(
            f"expected the answer not to contain {show(spec.text)}, found it at character {at + 1}: {quote}",
            details={"position": at},
            pointers=POINTER,
        )

    return decide


@check(
    "response_starts_with",
    shorthand="text",
    example="response_starts_with: Dear customer",
    reads=Reads(("answer",), "presence"),
    locate=_locate_start,
)
def response_starts_with(spec: ResponseStartsWith) -> Decide:
    """The answer begins with a text."""
    wanted = spec.text.lower() if spec.ignore_case else spec.text
    good = passed(f"the answer begins with {show(spec.text)}", pointers=POINTER)

    def decide(evidence: Evidence) -> Verdict:
        text = evidence.text
        if text is None:
            return NO_TEXT
        if (text.lower() if spec.ignore_case else text).startswith(wanted):
            return good
        blanks = "it does after white space" if text.lstrip().lower().startswith(spec.text.lower()) else None
        return fail_text_claim(f"begin with {show(spec.text)}", spec.text, text[: len(spec.text) + AROUND], blanks)

    return decide


@check(
    "response_ends_with",
    shorthand="text",
    example="response_ends_with: '?'",
    reads=Reads(("answer",), "exact", "fail"),
    locate=_locate_end,
)
def response_ends_with(spec: ResponseEndsWith) -> Decide:
    """The answer ends with a text."""
    wanted = spec.text.lower() if spec.ignore_case else spec.text
    good = passed(f"the answer ends with {show(spec.text)}", pointers=POINTER)

    def decide(evidence: Evidence) -> Verdict:
        text = evidence.text
        if text is None:
            return NO_TEXT
        if (text.lower() if spec.ignore_case else text).endswith(wanted):
            return good
        blanks = "it does before white space" if text.rstrip().lower().endswith(spec.text.lower()) else None
        return fail_text_claim(f"end with {show(spec.text)}", spec.text, text[-len(spec.text) - AROUND :], blanks)

    return decide


@check(
    "response_equals",
    shorthand="text",
    example="response_equals: {text: 'OK', ignore_case: false}",
    reads=Reads(("answer",), "exact", "fail"),
    locate=_locate_whole,
)
def response_equals(spec: ResponseEquals) -> Decide:
    """The answer is exactly a text, nothing trimmed."""
    wanted = spec.text.lower() if spec.ignore_case else spec.text
    good = passed(f"the answer is {show(spec.text)}", pointers=POINTER)

    def decide(evidence: Evidence) -> Verdict:
        text = evidence.text
        if text is None:
            return NO_TEXT
        if (text.lower() if spec.ignore_case else text) == wanted:
            return good
        blanks = "only white space around it differs" if text.strip().lower() == spec.text.strip().lower() else None
        alike = explain_alike(wanted, text.lower() if spec.ignore_case else text)
        return fail_text_claim(f"be {show(spec.text)}", spec.text, text, blanks or alike)

    return decide


@check("response_not_empty", example="response_not_empty: {}", reads=Reads(("answer",), "presence"))
def response_not_empty(spec: ResponseNotEmpty) -> Decide:
    """The answer is more than white space."""
    good = passed("the answer is not empty", pointers=POINTER)

    def decide(evidence: Evidence) -> Verdict:
        if evidence.text is None:
            return NO_TEXT
        if evidence.text.strip(BLANKS):
            return good
        return failed(f"expected an answer, found {show(evidence.text)}", pointers=POINTER)

    return decide


# The characters that ECMAScript's `trim` removes. Python's `strip` also removes U+001C to U+001F and U+0085, but not U+FEFF.
BLANKS: Final = (
    "\t\n\v\f\r \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""The white space of JavaScript."""


def _fail_not_contained(needle: str, text: str) -> Verdict:
    return fail_text_claim(f"contain {show(needle)}", needle, text, _explain_near_miss(needle, text))


def _explain_near_miss(needle: str, text: str) -> str | None:
    """Return a cheap explanation why a text is not found although it seems to be present."""
    folded, wanted = text.lower(), needle.lower()
    if wanted in folded:
        return "it is there in other letter case"
    # Only for texts that are quick to split: this merely explains a verdict.
    if len(text) <= 100_000 and wanted.split() and " ".join(wanted.split()) in " ".join(folded.split()):
        return "it is there with other white space"
    if wanted.isascii() or len(folded) > 100_000:
        return None
    from unicodedata import normalize  # hardly any text needs it

    same = normalize("NFC", wanted)
    # It begins at the same word in either form, and the letters of that word are compared as written.
    if same not in normalize("NFC", folded):
        return None
    form = normalize("NFD", wanted) if normalize("NFD", wanted) in folded else same
    return explain_alike(wanted, form) or "it is there in another Unicode form"
