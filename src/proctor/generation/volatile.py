"""Replaces volatile values of generated claims by patterns: ids, dates, tokens. The rules are listed in every file that is written."""

from __future__ import annotations

import re

from proctor.model.evidence import Json

RULES: dict[str, tuple[str, str]] = {
    "uuid": (r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", "a UUID"),
    "moment": (r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?", "a date with a time"),
    "date": (r"\d{4}-\d{2}-\d{2}", "a date"),
    "token": (r"(?:sk|pk|ghp|gho|xox[abp]|eyJ)[-_A-Za-z0-9.]{16,}", "a token"),
    "hash": (r"[0-9a-f]{24,64}", "a long hexadecimal id"),
    "long number": (r"\d{9,}", "a number of nine or more digits"),
}
"""The rules by name: a pattern for the whole value, and what it is."""
_COMPILED = {name: re.compile(pattern) for name, (pattern, _) in RULES.items()}


def find_rule(value: Json) -> str | None:
    """Return the rule that makes a value volatile, if any."""
    text = value if isinstance(value, str) else str(value) if isinstance(value, int) and not isinstance(value, bool) else None
    if text is None or not 8 <= len(text) <= 200:
        return None
    return next((name for name, pattern in _COMPILED.items() if pattern.fullmatch(text)), None)


def make_matcher(rule: str, kind: str) -> Json:
    """Return the matcher that replaces a volatile value of a kind, `text` or `integer`."""
    return {"$regex": f"^{RULES[rule][0]}$"} if kind == "text" else {"$type": "integer"}
