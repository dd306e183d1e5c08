"""Counts the traces of one partition by what they have in common: always by day, and by whatever `--by` names.

A name is a key of a folder (`day=2026-10-01`), a column beside the record, `day` (of the clock of the trace), `model` or `case` of the
evidence, or a key of its metadata, whichever is found first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from proctor.batches.slice_sketch import CostSketch, SliceSketch, SliceTable, Values, count_most_slices
from proctor.errors import InputError
from proctor.model.evidence import Cost, Evidence, Json
from proctor.model.result import CaseResult
from proctor.scoring.amount_sketch import count_amounts
from proctor.sources.row_filter import find_member

TREND = ("day",)
"""The slices of every batch."""
MOST_NAMES = 4
"""Names that make one table together."""
MOST_TABLES = 10
_DAY_KEYS = ("day", "date", "dt")
"""What the folders of days are called."""
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")

Grouping = tuple[str, ...]
FindValue = Callable[[Evidence, "tuple[Json, ...] | None"], "str | None"]


def list_groupings(by: Sequence[Grouping]) -> tuple[Grouping, ...]:
    """Return the tables of a batch, each once: by day, then what was asked for."""
    return tuple(dict.fromkeys((TREND, *by)))


def read_groupings(texts: Iterable[str]) -> tuple[Grouping, ...]:
    """Return the tables that `--by model,day` asks for, one for each text. Raises `InputError`."""
    found: list[Grouping] = []
    for text in texts:
        names = tuple(name.strip() for name in text.split(","))
        if not all(names) or len(set(names)) < len(names):
            raise InputError(f"--by {text!r}: expected columns or keys of metadata, each once: model, or model,day for both together")
        if len(names) > MOST_NAMES:
            raise InputError(f"--by {text!r}: expected at most {MOST_NAMES} names")
        found.append(names)
    if len(found) > MOST_TABLES:
        raise InputError(f"--by: expected at most {MOST_TABLES} tables, found {len(found)}")
    return tuple(dict.fromkeys(found))


def list_beside(by: Sequence[Grouping]) -> tuple[str, ...]:
    """Return the names that may be columns beside the record."""
    return tuple(dict.fromkeys(name.removeprefix("metadata.") for names in by for name in names if name != "case"))


class _Gathered:
    """The traces of one slice while they are counted."""

    __slots__ = ("costs", "counts", "durations", "sketch", "tokens", "traces")

    def __init__(self, sketch: SliceSketch) -> None:
        self.sketch = sketch
        self.traces = 0
        self.durations: list[float] = []
        self.tokens: list[float] = []
        self.costs: dict[str, list[float]] = {}
        self.counts: dict[tuple[str, str], int] = {}

    def add(self, evidence: Evidence, results: Sequence[CaseResult], cost: Cost | None) -> None:
        self.traces += 1
        if evidence.duration_ms is not None:
            self.durations.append(evidence.duration_ms)
        usage, counts = evidence.usage, self.counts
        if usage is not None and (usage.input_tokens is not None or usage.output_tokens is not None):
            self.tokens.append((usage.input_tokens or 0) + (usage.output_tokens or 0))
        if cost is not None and (total := cost.total()) is not None:
            self.costs.setdefault(cost.currency, []).append(total)
        for result in results:
            key = (result.case.id, result.outcome)
            counts[key] = counts.get(key, 0) + 1

    def settle(self) -> None:
        """Put everything into the sketch."""
        if not self.traces:
            return
        self.sketch.traces += self.traces
        self.traces = 0
        amounts, cases = self.sketch.amounts, self.sketch.cases
        count_amounts(self.durations, amounts.durations)
        count_amounts(self.tokens, amounts.tokens)
        for currency, costs in self.costs.items():
            known = amounts.costs.setdefault(currency, CostSketch())
            known.total += sum(costs)
            count_amounts(costs, known.buckets)
        for (case, outcome), number in self.counts.items():
            # The result of a record that was refused is a row of `errors`.
            if case:
                counts = cases.setdefault(case, {})
                counts[outcome] = counts.get(outcome, 0) + number
        self.durations, self.tokens, self.costs, self.counts = [], [], {}, {}


class _Table:
    """One table while it is counted."""

    def __init__(self, table: SliceTable, finders: Sequence[FindValue], most: int) -> None:
        self._table, self._most = table, most
        self._finders = tuple(finders)
        # Most tables have one name, and are asked for every trace.
        self._only = finders[0] if len(finders) == 1 else None
        self._known: dict[Values, _Gathered] = {}
        self._others = _Gathered(table.others)

    def find(self, evidence: Evidence, beside: tuple[Json, ...] | None) -> _Gathered:
        only = self._only
        values = (only(evidence, beside),) if only is not None else tuple([find(evidence, beside) for find in self._finders])
        known = self._known.get(values)
        if known is None:
            sketch = self._table.find(values, self._most)
            if sketch is self._table.others:
                # Remembering every value that is one of many would hold as much as there are traces.
                return self._others
            known = self._known[values] = _Gathered(sketch)
        return known

    def settle(self) -> None:
        for gathered in (*self._known.values(), self._others):
            gathered.settle()


class Slicer:
    """Counts the traces of one partition."""

    def __init__(
        self,
        tables: dict[str, SliceTable],
        groupings: Sequence[Grouping],
        keys: Mapping[str, str],
        beside: Sequence[str],
        *,
        cases: int,
    ) -> None:
        """Count into `tables`; `keys` are those of the folders of the file, `beside` the columns that stand beside each record."""
        most = count_most_slices(cases)
        self._tables = [
            _Table(tables.setdefault(",".join(names), SliceTable()), [_make_finder(name, keys, beside) for name in names], most)
            for names in groupings
        ]

    def add(self, evidence: Evidence, results: Sequence[CaseResult], beside: tuple[Json, ...] | None = None) -> None:
        """Count one trace with its results."""
        cost = None
        for result in results:
            if result.cost is not None:
                cost = result.cost
                break
        for table in self._tables:
            table.find(evidence, beside).add(evidence, results, cost)

    def settle(self) -> None:
        """Put what was counted into the sketch; called often enough that little is held."""
        for table in self._tables:
            table.settle()


def _make_finder(name: str, keys: Mapping[str, str], beside: Sequence[str]) -> FindValue:
    """Return what finds the value of a name in a trace of a file."""
    for key in _DAY_KEYS if name == "day" else (name,):
        if key in keys:
            fixed = write_value(keys[key])
            return lambda evidence, beside: fixed
    plain = name.removeprefix("metadata.")
    find_own = _OWN_FINDERS.get(name) or (lambda evidence: write_value(find_member(evidence.metadata, plain)))
    if plain not in beside:
        return lambda evidence, beside: find_own(evidence)
    position = list(beside).index(plain)

    def find(evidence: Evidence, beside: tuple[Json, ...] | None) -> str | None:
        value = None if beside is None else write_value(beside[position])
        return find_own(evidence) if value is None else value[:10] if name == "day" else value

    return find


def _find_day(evidence: Evidence) -> str | None:
    now = evidence.now
    return now[:10] if now is not None and _DAY.match(now) else None


_OWN_FINDERS: dict[str, Callable[[Evidence], str | None]] = {
    "day": _find_day,
    "model": lambda evidence: write_value(evidence.model),
    "case": lambda evidence: write_value(evidence.case),
}


def write_value(value: object) -> str | None:
    """Return a value as it names a slice; None for nothing, and for what holds several."""
    if value is None or isinstance(value, (dict, list)):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text.encode("utf-8", "replace").decode()
