"""Values read out of the final text by regular expression (MCPLab's `extract`).

First match only, no flags. The value is the group named `value`, else group 1, else the whole match; a group that took no part
counts as absent. No match, an unreadable pattern or one that takes too long gives null; the result mentions the timeout. A captured text
that JavaScript would read as a number or boolean becomes one, a double beyond 2^53; anything else stays as it was written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import msgspec

from proctor.checks.answer.text import BLANKS
from proctor.errors import CheckFault, SpecError
from proctor.model.case import Capture
from proctor.model.evidence import Evidence, Json
from proctor.patterns.engine import Pattern, compile_pattern

# StrNumericLiteral of ECMAScript; `007` is decimal there.
_DECIMAL = re.compile(r"[+-]?(?:Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")
_PREFIXED = re.compile(r"0(?:[xX][0-9a-fA-F]+|[bB][01]+|[oO][0-7]+)")


class Captured(msgspec.Struct, frozen=True):
    """What was read out of one text."""

    values: dict[str, Json]
    code: str | None = None
    """Of the first fault, where a search had to be given up."""
    reason: str | None = None


def prepare_captures(captures: Sequence[Capture]) -> Callable[[Evidence], Captured]:
    """Return the function that reads all captures of a case out of evidence."""
    prepared = [(capture.name, _compile_pattern(capture.pattern)) for capture in captures]

    def read(evidence: Evidence) -> Captured:
        values: dict[str, Json] = {}
        faults: list[tuple[str, CheckFault]] = []
        for name, pattern in prepared:
            try:
                values[name] = _capture_value(pattern, evidence.text or "")
            except CheckFault as fault:
                # Null, as without a match; the result also mentions a search that was given up.
                values[name] = None
                faults.append((name, fault))
        if not faults:
            return Captured(values)
        reason = "; ".join(f"extract {name!r} could not be read: {fault.message}" for name, fault in faults)
        return Captured(values, faults[0][1].code, reason)

    return read


def _compile_pattern(source: str) -> Pattern | None:
    try:
        return compile_pattern(source)
    except SpecError:
        # MCPLab gives null for a pattern that JavaScript cannot read, and goes on.
        return None


def _capture_value(pattern: Pattern | None, text: str) -> Json:
    if pattern is None:
        return None
    match = pattern.search(text)
    if match is None:
        return None
    first = match.groups[0] if match.groups else None
    for candidate in (match.named.get("value"), first):
        if candidate is not None:
            return coerce_like_javascript(candidate)
    return coerce_like_javascript(match.text)


def coerce_like_javascript(text: str) -> Json:
    """Return a captured text as the value JavaScript would take it for."""
    trimmed = text.strip(BLANKS)
    if trimmed in ("true", "false"):
        return trimmed == "true"
    if _PREFIXED.fullmatch(trimmed):
        return _number(int(trimmed, 0))
    if _DECIMAL.fullmatch(trimmed):
        return _number(float(trimmed))
    return text


def _number(value: float) -> Json:
    """Return a number as JSON can carry it; infinity, which the original writes as null, is null."""
    try:
        double = float(value)
    # Digits in base 16, 8 or 2 make a whole number of any size, also one that no double can hold.
    except OverflowError:
        return None
    if math.isinf(double):
        return None
    return int(double) if double.is_integer() and abs(double) < 2**53 else double
