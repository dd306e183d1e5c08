"""From scores to verdicts as Verial does: by fixed bounds today, by a threshold of the benchmark in the first generation."""

from __future__ import annotations

import msgspec

from proctor.formats.text.located import Located, Reading
from proctor.model.case import Scoring
from proctor.model.json_values import is_number
from proctor.model.show import show

SCORING = Scoring(mode="weighted", pass_at=0.9, partial_above=0.0, when_empty="fail")
"""Verial's rule: pass from 0.9 on, partial above 0."""


def make_scoring(threshold: float | None) -> Scoring:
    """Return the rule of a benchmark: with a threshold of its own pass from there on, else fail."""
    return SCORING if threshold is None else msgspec.structs.replace(SCORING, pass_at=threshold, partial_above=threshold)


def read_threshold(reading: Reading, node: Located | None) -> float | None:
    """Return the threshold of a benchmark; one that is no share is an error of the file."""
    if node is None or node.value is None:
        return None
    value = node.plain()
    if not is_number(value) or not 0 < value <= 1:
        reading.error(node, f"threshold: expected a number above 0 and at most 1, found {show(value)}", code="wrong_value")
        return None
    return value
