"""Claims about the text of the final answer.

The text is used unchanged and untrimmed. Case folding is lower-casing of both sides, without locale and without Unicode normalisation.
Evidence without a text is undecided: `missing_evidence`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar, Literal

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.answer import AROUND, NO_TEXT, POINTER, fail_text_claim, over_text, quote_around
from proctor.model.evidence import Evidence
from proctor.model.json_values import JAVASCRIPT_BLANKS
from proctor.model.show import explain_alike, show
from proctor.model.verdict import TextRange, Verdict, defer_verdict, failed, passed


class TextClaim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A text that is compared with the answer."""

    # Where in the answer it must be.
    at: ClassVar[Literal["anywhere", "start", "end", "whole"]] = "anywhere"
    text: str
    """The text to compare with."""
    ignore_case: bool = True
    """Whether upper and lower case are the same."""

    def fold(self, text: str) -> str:
        """Return a text in the form in which it is compared."""
        return text.lower() if self.ignore_case else text


class ResponseContains(TextClaim, frozen=True, kw_only=True, omit_defaults=True):
    """The answer contains a text."""


class ResponseNotContains(TextClaim, frozen=True, kw_only=True, omit_defaults=True):
    """The answer does not contain a text."""


class ResponseStartsWith(TextClaim, frozen=True, kw_only=True, omit_defaults=True):
    """The answer begins with a text."""

    at = "start"


class ResponseEndsWith(TextClaim, frozen=True, kw_only=True, omit_defaults=True):
    """The answer ends with a text."""

    at = "end"


class ResponseEquals(TextClaim, frozen=True, kw_only=True, omit_defaults=True):
    """The answer is exactly a text, nothing trimmed."""

    at = "whole"


class ResponseNotEmpty(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer is more than white space."""


def _locate(spec: TextClaim, evidence: Evidence) -> Iterator[TextRange]:
    from proctor.checks.shared.places import locate_text  # only reports with highlights need it

    return locate_text("$.text", evidence.text, spec.text, ignore_case=spec.ignore_case, at=spec.at)


@check(
    "response_contains",
    shorthand="text",
    example="response_contains: refund processed",
    reads=Reads(("answer",), "presence"),
    locate=_locate,
)
def response_contains(spec: ResponseContains) -> Decide:
    """The answer contains a text."""
    needle, folds = spec.fold(spec.text), spec.ignore_case
    good = passed(f"the answer contains {show(spec.text)}", pointers=POINTER)

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
    needle = spec.fold(spec.text)
    good = passed(f"the answer does not contain {show(spec.text)}", pointers=POINTER)

    def decide(evidence: Evidence) -> Verdict:
        text = evidence.text
        if text is None:
            return NO_TEXT
        searched = spec.fold(text)
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


def _decide_place(
    spec: TextClaim, claim: tuple[str, str], holds: Callable[[str, str], bool], explain: Callable[[str], tuple[str, str | None]]
) -> Decide:
    """Return a decision where the text is; `claim` has its verb in both forms, and `explain` gives the part to show and a hint."""
    wanted = spec.fold(spec.text)
    good = passed(f"the answer {claim[0]} {show(spec.text)}", pointers=POINTER)

    def decide(text: str) -> Verdict:
        return good if holds(spec.fold(text), wanted) else fail_text_claim(f"{claim[1]} {show(spec.text)}", spec.text, *explain(text))

    return over_text(decide)


@check(
    "response_starts_with",
    shorthand="text",
    example="response_starts_with: Dear customer",
    reads=Reads(("answer",), "presence"),
    locate=_locate,
)
def response_starts_with(spec: ResponseStartsWith) -> Decide:
    """The answer begins with a text."""

    def explain(text: str) -> tuple[str, str | None]:
        begins = text.lstrip().lower().startswith(spec.text.lower())
        return text[: len(spec.text) + AROUND], "it does after white space" if begins else None

    return _decide_place(spec, ("begins with", "begin with"), str.startswith, explain)


@check(
    "response_ends_with",
    shorthand="text",
    example="response_ends_with: '?'",
    reads=Reads(("answer",), "exact", "fail"),
    locate=_locate,
)
def response_ends_with(spec: ResponseEndsWith) -> Decide:
    """The answer ends with a text."""

    def explain(text: str) -> tuple[str, str | None]:
        ends = text.rstrip().lower().endswith(spec.text.lower())
        return text[-len(spec.text) - AROUND :], "it does before white space" if ends else None

    return _decide_place(spec, ("ends with", "end with"), str.endswith, explain)


@check(
    "response_equals",
    shorthand="text",
    example="response_equals: {text: 'OK', ignore_case: false}",
    reads=Reads(("answer",), "exact", "fail"),
    locate=_locate,
)
def response_equals(spec: ResponseEquals) -> Decide:
    """The answer is exactly a text, nothing trimmed."""

    def explain(text: str) -> tuple[str, str | None]:
        if text.strip().lower() == spec.text.strip().lower():
            return text, "only white space around it differs"
        return text, explain_alike(spec.fold(spec.text), spec.fold(text))

    return _decide_place(spec, ("is", "be"), operator.eq, explain)


@check("response_not_empty", example="response_not_empty: {}", reads=Reads(("answer",), "presence"))
def response_not_empty(spec: ResponseNotEmpty) -> Decide:
    """The answer is more than white space."""
    good = passed("the answer is not empty", pointers=POINTER)
    return over_text(
        lambda text: good if text.strip(JAVASCRIPT_BLANKS) else failed(f"expected an answer, found {show(text)}", pointers=POINTER)
    )


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
