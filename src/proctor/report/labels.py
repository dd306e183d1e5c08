"""The labels at the left of what is told about a case: `expected`, `found`, `at`; as wide as the widest of them in a language."""

from __future__ import annotations

import functools

from proctor.report.catalogue import Catalogue
from proctor.report.style import count_columns, pad

NAMES = (
    *("missing", "extra", "arguments", "order", "expected", "found", "judge", "replied", "at", "written"),
    *("evidence", "attempt", "score", "clock", "asked", "answered", "called", "tokens", "user"),
)


def name_label(label: str, words: Catalogue) -> str:
    """Return what a label says."""
    return words.say(f"label.{label}")


@functools.cache
def measure_labels(words: Catalogue) -> int:
    """Return how many columns every label takes, with the space after it."""
    return 1 + max(count_columns(name_label(label, words)) for label in NAMES)


def pad_label(label: str, words: Catalogue) -> str:
    """Return a label as wide as all of them."""
    return pad(name_label(label, words), measure_labels(words))
