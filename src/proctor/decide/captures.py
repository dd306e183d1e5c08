"""Values read out of the final text by regular expression (MCPLab's `extract`).

First match only, no flags. The value is the group named `value`, else group 1, else the whole match; a group that took no part
counts as absent. No match, or a pattern that cannot be read, gives null. A captured text that JavaScript would read as a number
or boolean becomes one; anything else stays as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from proctor.errors import CheckFault, SpecError
from proctor.model.case import Capture
from proctor.model.evidence import Evidence, Json
from proctor.patterns.engine import Pattern, compile_pattern

# StrNumericLiteral of ECMAScript; `007` is decimal there.
_DECIMAL = re.compile(r"[+-]?(?:Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")
_PREFIXED = re.compile(r"0(?:[xX][0-9a-fA-F]+|[bB][01]+|[oO][0-7]+)")


def prepare_captures(captures: Sequence[Capture]) -> Callable[[Evidence], dict[str, Json]]:
    """The function that reads all captures of a case out of evidence."""
    prepared = [(capture.name, _compiled(capture.pattern)) for capture in captures]

    def read(evidence: Evidence) -> dict[str, Json]:
        return {name: _value(pattern, evidence.text or "") for name, pattern in prepared}

    return read


def _compiled(source: str) -> Pattern | None:
    try:
        return compile_pattern(source)
    except SpecError:
        return None


def _value(pattern: Pattern | None, text: str) -> Json:
    if pattern is None:
        return None
    try:
        match = pattern.search(text)
    except CheckFault:
        return None
    if match is None:
        return None
    first = match.groups[0] if match.groups else None
    for candidate in (match.named.get("value"), first):
        if candidate is not None:
            return coerce(candidate)
    return coerce(match.text)


def coerce(text: str) -> Json:
    """A captured text as the value JavaScript would take it for."""
    trimmed = text.strip()
    if trimmed in ("true", "false"):
        return trimmed == "true"
    if _PREFIXED.fullmatch(trimmed):
        return int(trimmed, 0)
    if _DECIMAL.fullmatch(trimmed):
        if "Infinity" in trimmed:
            return None  # JSON has no infinity; the original writes null
        number = float(trimmed)
        if number in (float("inf"), float("-inf")):
            return None
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    return text
