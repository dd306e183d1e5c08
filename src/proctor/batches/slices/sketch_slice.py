"""What traces that have something in common came to (a day, a model, a tier): counts by case, and amounts in buckets. Two sketches merge.

A table of slices is bounded: the heaviest are held, the others are counted together. How many it holds depends on the number of cases
alone, so that its size never grows with the traces.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, Generic, Protocol, TypeVar

import msgspec

# The most frequent entries of a table with a bounded size: the space-saving algorithm in steps, with a known error, mergeable.


class Counted(Protocol):
    """An entry of a table; `merge` adds everything of another entry of the same key except `missed`."""

    count: int
    missed: int

    def merge(self, other: Any) -> None:  # noqa: D102 - above
        ...


Item = TypeVar("Item", bound=Counted)


class Heaviest(msgspec.Struct, Generic[Item], kw_only=True, omit_defaults=True):
    """A table of entries by their keys."""

    items: dict[str, Item] = {}
    most_missed: int = msgspec.field(default=0, name="floor")
    """The most that a key may have which is not held; 0 where all are held and every count is exact."""
    others: int = 0
    """The sum of what was cut off."""

    def add(self, key: str, item: Item) -> Item:
        """Add an entry, which becomes part of the table; returns the entry of its key."""
        known = self.items.get(key)
        if known is None:
            item.missed += self.most_missed
            known = self.items[key] = item
        else:
            known.missed += item.missed
            known.merge(item)
        return known

    def merge(self, other: Heaviest[Item]) -> None:
        """Add all entries of another table, which is used up."""
        if other.most_missed:
            for key, item in self.items.items():
                item.missed += other.most_missed if key not in other.items else 0
        for key, item in other.items.items():
            self.add(key, item)
        self.most_missed += other.most_missed
        self.others += other.others

    def cut(self, most: int) -> list[Item]:
        """Remove and return the lightest entries of a table that has more than twice as many as `most`."""
        if len(self.items) <= 2 * most:
            return []
        # Sorting is stable: the same stream is always cut in the same way, so that two evaluations agree.
        ranked = sorted(self.items.items(), key=lambda entry: -(entry[1].count + entry[1].missed))
        self.items = dict(ranked[:most])
        lightest = [item for _, item in ranked[most:]]
        self.most_missed = max(self.most_missed, *(item.count + item.missed for item in lightest))
        self.others += sum(item.count for item in lightest)
        return lightest


TREND = ("day",)
"""The slices of every batch."""
MOST_SLICES = 500
MOST_DAYS = 4_000
_LEAST_SLICES = 20
_MOST_ENTRIES = 20_000
"""About how many counts of cases a table holds."""
_MOST_DAY_ENTRIES = 400_000
"""The same for the days: a trend that lacks months is worse than none."""
_LONGEST_VALUE = 120
Values = tuple[str | None, ...]
Key = TypeVar("Key", int, str)
_encode = msgspec.json.Encoder().encode


def count_most_slices(cases: int, names: str = "") -> int:
    """Return how many slices the table of these names may have in a suite of this many cases."""
    if names == ",".join(TREND):
        return max(_LEAST_SLICES, min(MOST_DAYS, _MOST_DAY_ENTRIES // max(1, cases)))
    return max(_LEAST_SLICES, min(MOST_SLICES, _MOST_ENTRIES // max(1, cases)))


class CostSketch(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What traces cost in one currency."""

    total: float = 0.0
    buckets: dict[int, int] = {}


class Amounts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How long traces took, how many tokens they used and what they cost, as buckets of `amount_sketch.py`."""

    durations: dict[int, int] = {}
    tokens: dict[int, int] = {}
    costs: dict[str, CostSketch] = {}
    """By currency."""

    def merge(self, other: Amounts) -> None:
        """Add the amounts of other traces."""
        _add_counts(self.durations, other.durations)
        _add_counts(self.tokens, other.tokens)
        for currency, cost in other.costs.items():
            known = self.costs.setdefault(currency, CostSketch())
            known.total += cost.total
            _add_counts(known.buckets, cost.buckets)


class SliceSketch(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the traces of one slice came to."""

    values: Values = ()
    """Their common values, in the order of the names; None for a missing one."""
    count: int = 0
    """Traces."""
    missed: int = 0
    """How many more there may be, which are counted among the others."""
    amounts: Amounts = msgspec.field(default_factory=Amounts)
    cases: dict[str, dict[str, int]] = {}
    """Traces by outcome, for each case."""

    def merge(self, other: SliceSketch) -> None:
        """Add other traces of the same slice."""
        self.count += other.count
        self.amounts.merge(other.amounts)
        for case, counts in other.cases.items():
            _add_counts(self.cases.setdefault(case, {}), counts)

    def take_cases(self, other: SliceSketch, carried: Container[str]) -> None:
        """Take over what these cases came to in an earlier evaluation of the same traces, and what these cost."""
        self.cases |= {case: counts for case, counts in other.cases.items() if case in carried}
        self.amounts.costs = other.amounts.costs


class SliceTable(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All traces, by what they have in common."""

    most: int
    """How many slices stay where there are too many."""
    held: Heaviest[SliceSketch] = msgspec.field(default_factory=Heaviest[SliceSketch])
    """By their values as JSON."""
    others: SliceSketch = msgspec.field(default_factory=SliceSketch)
    """Everything that is in none of them."""

    def find(self, values: Values) -> SliceSketch:
        """Return the slice of some values."""
        values = tuple(None if value is None else value[:_LONGEST_VALUE] for value in values)
        key = _encode(values).decode()
        return self.held.items.get(key) or self.held.add(key, SliceSketch(values=values))

    def cut(self) -> bool:
        """Count the lightest slices together where there are too many; returns whether that was so."""
        lightest = self.held.cut(self.most)
        for one in lightest:
            self.others.merge(one)
        return bool(lightest)

    def merge(self, other: SliceTable) -> None:
        """Add other traces."""
        self.held.merge(other.held)
        self.others.merge(other.others)
        self.cut()

    def can_carry(self, most: int) -> bool:
        """Return whether an evaluation that holds this many slices has the same ones as this table."""
        return self.most == most or (len(self.held.items) <= 2 * most and not self.held.most_missed)

    def take_cases(self, other: SliceTable, carried: Container[str]) -> None:
        """Take over what these cases came to in an earlier evaluation of the same traces."""
        for key, one in other.held.items.items():
            self.held.items.setdefault(key, SliceSketch(values=one.values)).take_cases(one, carried)
        self.others.take_cases(other.others, carried)

    def iterate(self) -> Iterator[SliceSketch]:
        """Return the slices, and what is in none."""
        yield from self.held.items.values()
        if self.others.count:
            yield self.others


def _add_counts(counts: dict[Key, int], more: dict[Key, int]) -> None:
    for key, number in more.items():
        counts[key] = counts.get(key, 0) + number
