"""Figures over a stream of results: how many passed per tag value, and the mean per axis.

Memory stays bounded however many results pass through: a tag or axis with more distinct values than can be shown keeps the first
ones and counts the rest together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from proctor.model.evidence import Json
from proctor.model.result import AxisScore, CaseResult
from proctor.model.show import show
from proctor.report.words.wording import GROUPING_TAGS

MOST_VALUES = 20
"""Values of one tag that have a row of their own; a tag with an id in it would have one per case."""
OTHERS = "(others)"
_DEFAULT_AXIS = "__default__"


class TagCounts(msgspec.Struct, frozen=True):
    """How the cases with one value of a tag came out."""

    value: str
    counts: Mapping[str, int]


class TagTally:
    """Outcomes per value of the tags that reports group by."""

    def __init__(self) -> None:
        self._tags: dict[str, dict[str, dict[str, int]]] = {}

    def add(self, result: CaseResult) -> None:
        """Count one result under every value of its grouping tags."""
        tags = result.case.tags
        for tag in GROUPING_TAGS:
            if tag not in tags:
                continue
            values = self._tags.setdefault(tag, {})
            # A case that names a value twice counts once.
            for value in dict.fromkeys(_list_texts(tags[tag])):
                key = value if value in values or len(values) < MOST_VALUES else OTHERS
                counts = values.setdefault(key, {})
                counts[result.outcome] = counts.get(result.outcome, 0) + 1

    def iterate_tables(self) -> Iterator[tuple[str, list[TagCounts]]]:
        """Yield every tag that was seen, with its rows in the order of first appearance."""
        for tag, values in self._tags.items():
            yield tag, [TagCounts(value, counts) for value, counts in values.items()]


def _list_texts(value: Json) -> list[str]:
    if value is None:
        return []
    if isinstance(value, (list, tuple)):
        return [_write_text(entry) for entry in value[:MOST_VALUES]]
    return [_write_text(value)]


def _write_text(value: Json) -> str:
    return value if isinstance(value, str) else show(value, 80)


class AxisTally:
    """The weighted mean per axis over all cases: the same as over all their assertions at once."""

    def __init__(self) -> None:
        self._sums: dict[str, list[float]] = {}

    def add(self, result: CaseResult) -> None:
        """Count the axes of one result, where it has any."""
        for name, axis in (result.axes or {}).items():
            key = name if name in self._sums or len(self._sums) < MOST_VALUES else OTHERS
            sums = self._sums.setdefault(key, [0.0, 0.0])
            sums[0] += axis.score * axis.weight
            sums[1] += axis.weight

    def score_axes(self) -> dict[str, AxisScore]:
        """Return the mean and the weight per axis, in the order of first appearance."""
        return {name: AxisScore(total / weight if weight else 0.0, weight) for name, (total, weight) in self._sums.items()}

    def is_worth_showing(self) -> bool:
        """Return whether any axis was named by an author; a single unnamed one repeats the score."""
        return has_named_axes(self._sums)


def has_named_axes(axes: Iterable[str]) -> bool:
    """Return whether there is an axis that somebody named."""
    return any(name != _DEFAULT_AXIS for name in axes)


def name_axis(name: str) -> str:
    """Return what readers call an axis: assertions without one share a bucket with a technical name."""
    return "(no axis)" if name == _DEFAULT_AXIS else name_value(name)


def name_value(value: str) -> str:
    """Return what readers call a value: those without a row of their own have one together."""
    return "(others)" if value == OTHERS else value
