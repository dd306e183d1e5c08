"""Counts over a stream of results: outcomes per tag value, means per axis, endings of simulated users.

Memory is bounded: beyond a number of distinct values, the rest is counted together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from proctor.model.evidence import Json, UserEnd, UserEnding
from proctor.model.result import AxisScore, CaseResult
from proctor.model.show import show
from proctor.report.words.wording import GROUPING_TAGS, count_noun

MOST_VALUES = 20
"""Values of one tag with their own row."""
OTHERS = "(others)"
_DEFAULT_AXIS = "__default__"


class TagCounts(msgspec.Struct, frozen=True):
    """Outcomes of the cases with one tag value."""

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
            # A value listed twice counts once.
            for value in dict.fromkeys(_list_texts(tags[tag])):
                key = value if value in values or len(values) < MOST_VALUES else OTHERS
                counts = values.setdefault(key, {})
                counts[result.outcome] = counts.get(result.outcome, 0) + 1

    def iterate_tables(self) -> Iterator[tuple[str, list[TagCounts]]]:
        """Yield every tag with its rows in order of appearance."""
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
    """The weighted mean per axis over all cases."""

    def __init__(self) -> None:
        self._sums: dict[str, list[float]] = {}

    def add(self, result: CaseResult) -> None:
        """Count the axes of one result."""
        for name, axis in (result.axes or {}).items():
            key = name if name in self._sums or len(self._sums) < MOST_VALUES else OTHERS
            sums = self._sums.setdefault(key, [0.0, 0.0])
            sums[0] += axis.score * axis.weight
            sums[1] += axis.weight

    def score_axes(self) -> dict[str, AxisScore]:
        """Return mean and weight per axis, in order of appearance."""
        return {name: AxisScore(total / weight if weight else 0.0, weight) for name, (total, weight) in self._sums.items()}

    def is_worth_showing(self) -> bool:
        """Return whether an author named an axis; a single unnamed one repeats the score."""
        return has_named_axes(self._sums)


def has_named_axes(axes: Iterable[str]) -> bool:
    """Return whether an axis is named."""
    return any(name != _DEFAULT_AXIS for name in axes)


def name_axis(name: str) -> str:
    """Return the display name of an axis."""
    return "overall" if name == _DEFAULT_AXIS else name_value(name)


def name_value(value: str) -> str:
    """Return the display name of a value."""
    return "(others)" if value == OTHERS else value


_ENDS: tuple[UserEnd | None, ...] = ("done", "gave_up", "turn_limit", None)


def describe_user(ending: UserEnding) -> str:
    """Return how a conversation ended: `script · gave up after 3 turns · the script has nothing more to say`."""
    took = ending.usage.total() if ending.usage is not None else None
    parts = [
        ending.played_by,
        f"{_name_end(ending.ended)} after {count_noun(ending.turns, 'turn')}",
        ending.reason,
        "" if took is None else count_noun(took, "token"),
    ]
    return " · ".join(part for part in parts if part)


def _name_end(end: str | None) -> str:
    return "turn limit reached" if end == "turn_limit" else (end or "broke_off").replace("_", " ")


class UserTally:
    """How the conversations of a run ended."""

    def __init__(self) -> None:
        self._ends: Counter[str | None] = Counter()
        self._tokens = 0

    def add(self, result: CaseResult) -> None:
        """Count one result, if it had a simulated user."""
        user = result.simulated_user
        if user is not None:
            self._ends[user.ended] += 1
            self._tokens += (user.usage.total() if user.usage is not None else None) or 0

    def describe(self) -> str:
        """Return the counts in one line; empty without simulated users."""
        if not self._ends:
            return ""
        ends = ", ".join(f"{self._ends[end]:,} {_name_end(end)}" for end in _ENDS if self._ends[end])
        tokens = f"; their model used {count_noun(self._tokens, 'token')}" if self._tokens else ""
        return f"{count_noun(self._ends.total(), 'simulated user')}: {ends}" + tokens
