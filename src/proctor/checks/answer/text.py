"""Claims about the text of the final answer.

The text is used unchanged and untrimmed. Case folding is lower-casing of both sides, without locale and without Unicode normalisation.
Evidence without a text is undecided: `missing_evidence`.

A claim about the text of the final answer by regular expression.

ECMAScript, searched anywhere in the untrimmed text, always under the limits of `patterns`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.answer import AROUND, NO_TEXT, POINTER, fail_text_claim, quote_around
from proctor.checks.shared.places import locate_text
from proctor.errors import CheckFault, SpecError
from proctor.model.evidence import Evidence
from proctor.model.show import explain_alike, show
from proctor.model.verdict import TextRange, Verdict, defer_verdict, failed, passed
from proctor.patterns.engine import Pattern, compile_pattern
from proctor.patterns.faults import PatternError, measure_utf16_length


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


def _locate(spec: ResponseContains | ResponseNotContains, evidence: Evidence) -> Iterator[TextRange]:
    return locate_text("$.text", evidence.text, spec.text, ignore_case=spec.ignore_case)


def _locate_start(spec: ResponseStartsWith, evidence: Evidence) -> Iterator[TextRange]:
    return locate_text("$.text", evidence.text, spec.text, ignore_case=spec.ignore_case, at="start")


def _locate_end(spec: ResponseEndsWith, evidence: Evidence) -> Iterator[TextRange]:
    return locate_text("$.text", evidence.text, spec.text, ignore_case=spec.ignore_case, at="end")


def _locate_whole(spec: ResponseEquals, evidence: Evidence) -> Iterator[TextRange]:
    return locate_text("$.text", evidence.text, spec.text, ignore_case=spec.ignore_case, at="whole")


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
        return defer_verdict(lambda: fail_text_claim(f"contain {show(spec.text)}", spec.text, text, _explain_near_miss(spec.text, text)))

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


_INLINE_FLAGS: Final = re.compile(r"\(\?[imsx]+\)")
_NESTED_QUANTIFIER: Final = re.compile(r"[+*}]\??\)[+*{]")


class ResponseMatches(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer matches a regular expression, or must not."""

    pattern: str
    """An ECMAScript pattern, searched anywhere."""
    flags: str = ""
    """ECMAScript flags: any of `i`, `m`, `s`, `u`."""
    should_match: bool = True
    """False inverts the claim."""
    drop_inline_flags: bool = False
    """Remove one leading group such as `(?i)` before reading the pattern."""
    on_invalid: Literal["error", "fail"] = "error"
    """Whether a pattern that cannot be read is an error of the suite or a failed check."""
    refuse_nested_quantifiers: bool = False
    """Fail closed on a quantified group that ends in a quantifier, as `(a+)+` does."""
    max_length: int | None = None
    """Fail closed on an answer of more UTF-16 units than this."""


_ENDS: Final = ("$", "(?!", "\\b", "\\B")
"""Characters of a pattern that depends on the end of the text or on what does not follow."""
_LITERAL: Final = re.compile(r"\\[^bB]|\[(?:\\.|[^\]\\])*(?:\]|\\?\Z)", re.DOTALL)
"""An escaped character or a character class, in which a `$` is literal; an unclosed class extends to the end, so that many are not
rescanned.
"""


def _declare_reads(spec: ResponseMatches) -> Reads:
    # In a truncated answer `$` would match at the cut, so such a match proves nothing, wanted or forbidden.
    signs = _LITERAL.sub("", spec.pattern)
    if any(sign in signs for sign in _ENDS):
        return Reads(("answer",), "exact", "fail" if spec.should_match else "error")
    return Reads(("answer",), "presence" if spec.should_match else "absence")


def _locate_text_pattern(spec: ResponseMatches, evidence: Evidence) -> Iterator[TextRange]:
    refused = spec.refuse_nested_quantifiers and _NESTED_QUANTIFIER.search(spec.pattern)
    text = evidence.text
    if text is None or refused or (spec.max_length is not None and measure_utf16_length(text) > spec.max_length):
        return
    found = _prepare_pattern(spec).search(text)
    if found is not None:
        yield TextRange("$.text", found.start, found.end)


@check(
    "response_matches",
    shorthand="pattern",
    example="response_matches: {pattern: 'order #[0-9]+', flags: i}",
    reads=_declare_reads,
    locate=_locate_text_pattern,
)
def response_matches(spec: ResponseMatches) -> Decide:
    """The answer matches a regular expression, or must not."""
    # Judged by appearance, as in MCPJam, instead of by our own proof: MCPJam's suites expect these to fail.
    if spec.refuse_nested_quantifiers and _NESTED_QUANTIFIER.search(spec.pattern):
        return _decide_always(
            failed(
                f"the pattern {show(spec.pattern)} is refused: a group that ends in a quantifier is itself repeated",
                code="pattern_refused",
            )
        )
    try:
        pattern = _prepare_pattern(spec)
    except PatternError as error:
        if spec.on_invalid == "error":
            raise
        return _decide_always(failed(f"Invalid regex: {error.message}", code="invalid_pattern"))
    good = passed(f"the answer {'matches' if spec.should_match else 'does not match'} {_show_pattern(pattern)}", pointers=POINTER)

    def decide(evidence: Evidence) -> Verdict:
        text = evidence.text
        if text is None:
            return NO_TEXT
        if spec.max_length is not None and measure_utf16_length(text) > spec.max_length:
            return failed(
                f"expected an answer of at most {spec.max_length} characters to search, found {measure_utf16_length(text)}",
                pointers=POINTER,
            )
        found = pattern.search(text)
        if (found is not None) == spec.should_match:
            return good
        if found is None:
            return fail_text_claim(f"match {_show_pattern(pattern)}", spec.pattern, text, _suggest_flag(pattern, text))
        return failed(
            f"expected the answer not to match {_show_pattern(pattern)}, found {show(found.text)} at character {found.start + 1}: "
            f"{quote_around(text, found.start, found.end)}",
            details={"position": found.start, "matched": show(found.text)},
            pointers=POINTER,
        )

    return decide


def _prepare_pattern(spec: ResponseMatches) -> Pattern:
    dropped = _INLINE_FLAGS.match(spec.pattern) if spec.drop_inline_flags else None
    if dropped is None:
        return compile_pattern(spec.pattern, spec.flags)
    try:
        return compile_pattern(spec.pattern[dropped.end() :], spec.flags)
    except PatternError as error:
        offset = None if error.offset is None else error.offset + dropped.end()
        raise PatternError(error.message, offset=offset, hint=error.hint) from None


def _show_pattern(pattern: Pattern) -> str:
    return f"/{show(pattern.source)[1:-1]}/{pattern.flags}"


def _suggest_flag(pattern: Pattern, text: str) -> str | None:
    """Return whether the pattern matches without case; only used for cheap patterns."""
    if "i" in pattern.flags or len(text) > pattern.fast_limit:
        return None
    try:
        relaxed = compile_pattern(pattern.source, pattern.flags + "i")
        return "it would match with the flag `i`" if len(text) <= relaxed.fast_limit and relaxed.search(text) is not None else None
    # This was only for a hint; the verdict does not depend on it.
    except (CheckFault, SpecError):
        return None


def _decide_always(verdict: Verdict) -> Decide:
    def decide(evidence: Evidence) -> Verdict:
        return verdict

    return decide
