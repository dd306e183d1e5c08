"""A claim about the text of the final answer by regular expression.

ECMAScript, searched anywhere in the untrimmed text, always under the limits of `patterns`. This is not in `text.py`, because the pattern
engine is slow to load.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.answer import POINTER, decide_always, fail_text_claim, over_text, quote_around
from proctor.errors import CheckFault, SpecError
from proctor.model.evidence import Evidence
from proctor.model.show import show
from proctor.model.verdict import TextRange, Verdict, failed, passed
from proctor.patterns.engine import Pattern, compile_pattern
from proctor.patterns.faults import PatternError, measure_utf16_length

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
    # A refused pattern and a text that is too long have no range: they were not searched.
    refused = spec.refuse_nested_quantifiers and _NESTED_QUANTIFIER.search(spec.pattern)
    text = evidence.text or ""
    too_long = spec.max_length is not None and measure_utf16_length(text) > spec.max_length
    found = None if refused or too_long else _prepare_pattern(spec).search(text)
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
        reason = f"the pattern {show(spec.pattern)} is refused: a group that ends in a quantifier is itself repeated"
        return decide_always(failed(reason, code="pattern_refused"))
    try:
        pattern = _prepare_pattern(spec)
    except PatternError as error:
        if spec.on_invalid == "error":
            raise
        return decide_always(failed(f"Invalid regex: {error.message}", code="invalid_pattern"))
    good = passed(f"the answer {'matches' if spec.should_match else 'does not match'} {_show_pattern(pattern)}", pointers=POINTER)

    def decide(text: str) -> Verdict:
        if spec.max_length is not None and measure_utf16_length(text) > spec.max_length:
            reason = f"expected an answer of at most {spec.max_length} characters to search, found {measure_utf16_length(text)}"
            return failed(reason, pointers=POINTER)
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

    return over_text(decide)


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
