"""The contribution of a partition to the summary: counts, and the most common reasons with samples. Two sketches can be merged.

The size of a sketch depends on the number of cases and of different reasons, both of which are bounded, and not on the number of traces.
So a driver can merge a hundred thousand partitions in the memory of one sketch.

A slice has the results of traces that share a value (a day, a model, a tier): counts by case, and amounts in buckets. A table has the
largest slices, and counts the others together. Its capacity depends only on the number of cases.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from proctor.decide.other_input import OtherInputs
from proctor.model.batch import TracePlace
from proctor.model.result import CaseResult
from proctor.report.words.findings import find_shape

# The space-saving algorithm: the most frequent entries in a table of bounded size, with a known error; tables can be merged.


class Counted(Protocol):
    """An entry of a table; `merge` adds everything of another entry of the same key except `missed`."""

    count: int
    missed: int

    def merge(self, other: Any) -> None:  # noqa: D102 - see the class
        ...


Item = TypeVar("Item", bound=Counted)


class Heaviest(msgspec.Struct, Generic[Item], kw_only=True, omit_defaults=True):
    """A table of entries by their keys."""

    items: dict[str, Item] = {}
    most_missed: int = msgspec.field(default=0, name="floor")
    """The maximum count of a key that is not in the table; 0 if all keys are, and every count is exact."""
    others: int = 0
    """The sum of the removed entries."""

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
        """Add all entries of another table, which is consumed."""
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
"""The table that every batch has."""
MOST_SLICES = 500
MOST_DAYS = 4_000
_LEAST_SLICES = 20
_MOST_ENTRIES = 20_000
"""About how many counts of cases a table holds."""
_MOST_DAY_ENTRIES = 400_000
"""The same for the days: a trend with missing months would be misleading."""
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
    """How long traces took, how many tokens they used and what they cost, as buckets of `scoring/amounts.py`."""

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
    """The results of the traces of one slice."""

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
        """Take over the results of these cases from an earlier evaluation of the same traces, and their amounts."""
        self.cases |= {case: counts for case, counts in other.cases.items() if case in carried}
        self.amounts.costs = other.amounts.costs


class SliceTable(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All traces, by the values they share."""

    most: int
    """How many slices stay if there are too many."""
    held: Heaviest[SliceSketch] = msgspec.field(default_factory=Heaviest[SliceSketch])
    """Slices by their values as JSON."""
    others: SliceSketch = msgspec.field(default_factory=SliceSketch)
    """Traces in no slice."""

    def find(self, values: Values) -> SliceSketch:
        """Return the slice of some values."""
        values = tuple(None if value is None else value[:_LONGEST_VALUE] for value in values)
        key = _encode(values).decode()
        return self.held.items.get(key) or self.held.add(key, SliceSketch(values=values))

    def cut(self) -> bool:
        """Merge the lightest slices if there are too many; returns whether there were."""
        lightest = self.held.cut(self.most)
        for entry in lightest:
            self.others.merge(entry)
        return bool(lightest)

    def merge(self, other: SliceTable) -> None:
        """Add other traces."""
        self.held.merge(other.held)
        self.others.merge(other.others)
        self.cut()

    def can_carry(self, most: int) -> bool:
        """Return whether an evaluation with this capacity has the same slices as this table."""
        return self.most == most or (len(self.held.items) <= 2 * most and not self.held.most_missed)

    def take_cases(self, other: SliceTable, carried: Container[str]) -> None:
        """Take over the results of these cases from an earlier evaluation of the same traces."""
        for key, one in other.held.items.items():
            self.held.items.setdefault(key, SliceSketch(values=one.values)).take_cases(one, carried)
        self.others.take_cases(other.others, carried)

    def iterate(self) -> Iterator[SliceSketch]:
        """Return the slices, and the traces in no slice."""
        yield from self.held.items.values()
        if self.others.count:
            yield self.others


def _add_counts(counts: dict[Key, int], more: dict[Key, int]) -> None:
    for key, number in more.items():
        counts[key] = counts.get(key, 0) + number


MOST_REASONS = 200
"""Shapes of reasons that are counted for one case; the rarer ones are counted together."""
SAMPLES = 3
"""Traces that are named for a reason."""
_LONGEST_REASON = 300


class Reason(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Identical verdicts, counted together."""

    check: str
    outcome: str
    code: str | None = None
    reason: str
    """The reason of the first verdict."""
    count: int = 0
    missed: int = 0
    """The maximum number of further ones that were counted among the others."""
    samples: list[TracePlace] = []

    def merge(self, other: Reason) -> None:
        """Add verdicts with the same reason."""
        self.count += other.count
        self.samples = (self.samples + other.samples)[:SAMPLES]


class CaseSketch(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The results of one case."""

    name: str = ""
    counts: dict[str, int] = {}
    """Traces by outcome."""
    checks: list[dict[str, int]] = []
    """Verdicts by outcome, for each assertion in the order of the suite."""
    labels: list[str] = []
    reasons: Heaviest[Reason] = msgspec.field(default_factory=Heaviest[Reason])
    """By check, outcome, code and shape."""

    def count(self, result: CaseResult, number: int, place: TracePlace | None) -> None:
        """Add traces with this result; `place` is that of a trace that did not pass."""
        _add(self.counts, result.outcome, number)
        if not self.checks:
            self.checks = [{} for _ in result.case.assertions]
            self.labels = [assertion.label or assertion.check for assertion in result.case.assertions]
        for reasons, verdict in zip(self.checks, result.verdicts, strict=False):
            _add(reasons, verdict.outcome, number)
        if place is None:
            return
        if result.reason is not None and not any(verdict.outcome in ("fail", "error") for verdict in result.verdicts):
            self._count_reason("", result.outcome, result.code, result.reason, number, place)
        for label, verdict in zip(self.labels, result.verdicts, strict=False):
            if verdict.outcome in ("fail", "error"):
                self._count_reason(label, verdict.outcome, verdict.code, verdict.reason, number, place)

    def _count_reason(self, check: str, outcome: str, code: str | None, reason: str, number: int, place: TracePlace) -> None:
        self.reasons.add(
            "\0".join((check, outcome, code or "", find_shape(reason[:_LONGEST_REASON]))),
            Reason(check=check, outcome=outcome, code=code, reason=reason[:_LONGEST_REASON], count=number, samples=[place]),
        )
        self.reasons.cut(MOST_REASONS)

    def merge(self, other: CaseSketch) -> None:
        """Add the results of the same case in another sketch."""
        _add_counts(self.counts, other.counts)
        if not self.checks:
            self.name = other.name
            self.checks, self.labels = [{} for _ in other.checks], other.labels
        for mine, theirs in zip(self.checks, other.checks, strict=False):
            _add_counts(mine, theirs)
        self.reasons.merge(other.reasons)
        self.reasons.cut(MOST_REASONS)


class LineNames(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Which names of `--where` occur in JSON lines."""

    lines: int = 0
    """Lines that were examined."""
    missing: list[str] = []
    """Names that no line had."""
    unlike: dict[str, int] = {}
    """For each comparison, how many lines have a value of another type."""

    def merge(self, other: LineNames) -> None:
        """Add the names in other lines."""
        self.lines += other.lines
        _add_counts(self.unlike, other.unlike)
        self.missing = [name for name in self.missing if name in other.missing]


class Sketch(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The results of one or more partitions."""

    records: int = 0
    """Records that were read, valid or not."""
    traces: int = 0
    """Runs that were read."""
    errors: int = 0
    """Rows of `errors`."""
    unread: int = 0
    """Records that these represent: one row may be about a whole row group."""
    left_out: int = 0
    """Rows that `--where` excludes."""
    incomplete: int = 0
    """Traces that may lack spans which could not be read."""
    faults: Heaviest[Reason] = msgspec.field(default_factory=Heaviest[Reason])
    """Why records could not be read, by code and shape."""
    cases: dict[str, CaseSketch] = {}
    tables: dict[str, SliceTable] = {}
    """The traces by day, and by the names of `--by`, joined with commas."""
    other_inputs: OtherInputs = msgspec.field(default_factory=OtherInputs)
    """The traces that were decided although their input differs from the input of their case."""
    names: LineNames | None = None
    """Which names of `--where` the JSON lines have; None for Parquet, which has a schema, and if no line was read."""

    def count(self, result: CaseResult, number: int, place: TracePlace | None) -> None:
        """Add traces with this result."""
        case = result.case
        known = self.cases.get(case.id)
        if known is None:
            known = self.cases[case.id] = CaseSketch(name=case.name)
        known.count(result, number, place)

    def count_fault(self, code: str, reason: str, place: TracePlace, rows: int = 1) -> None:
        """Add one row of `errors`, which represents this many records."""
        self.errors += 1
        self.unread += rows
        shortened = reason[:_LONGEST_REASON]
        self.faults.add(
            f"{code}\0{find_shape(shortened)}", Reason(check="", outcome="error", code=code, reason=shortened, count=1, samples=[place])
        )
        self.faults.cut(MOST_REASONS)

    def merge(self, other: Sketch, cases: int = 1) -> None:
        """Add the counts of other partitions of a suite of this many cases; `other` is consumed."""
        self.records += other.records
        self.traces += other.traces
        self.errors += other.errors
        self.unread += other.unread
        self.left_out += other.left_out
        self.incomplete += other.incomplete
        self.other_inputs.merge(other.other_inputs)
        if other.names is not None:
            if self.names is None:
                # A copy: it is changed when the next one is added.
                self.names = msgspec.structs.replace(other.names, unlike=dict(other.names.unlike))
            else:
                self.names.merge(other.names)
        for names, table in other.tables.items():
            self.tables.setdefault(names, SliceTable(most=count_most_slices(cases, names))).merge(table)
        self.faults.merge(other.faults)
        self.faults.cut(MOST_REASONS)
        for id, case in other.cases.items():
            self.cases.setdefault(id, CaseSketch()).merge(case)

    def take_cases(self, other: Sketch, carried: Container[str]) -> None:
        """Take over the results of these cases from an earlier evaluation of the same records."""
        for id, case in other.cases.items():
            if id in carried:
                self.cases[id] = case
        for names, table in other.tables.items():
            self.tables.setdefault(names, SliceTable(most=table.most)).take_cases(table, carried)


def _add(counts: dict[str, int], outcome: str, number: int) -> None:
    counts[outcome] = counts.get(outcome, 0) + number
