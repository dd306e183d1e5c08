"""Counts the traces of one partition by shared values: always by day, and by the names of `--by`.

A name is a key of a folder (`day=2026-10-01`), an extra column, `day` (of the clock of the trace), `model` or `case` of the
evidence, or a key of its metadata, whichever is found first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from proctor.batches.sketch import CostSketch, SliceSketch, SliceTable, Values, count_most_slices
from proctor.errors import InputError
from proctor.model.evidence import Evidence, Json, Usage
from proctor.model.result import CaseResult
from proctor.scoring.amounts import find_bucket
from proctor.sources.datasets.row_filter import find_member

MOST_NAMES = 4
"""The maximum number of names of one table."""
MOST_TABLES = 10
_DAY_KEYS = ("day", "date", "dt")
"""Names of the folders of days."""
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")

Grouping = tuple[str, ...]
FindValue = Callable[[Evidence, "tuple[Json, ...] | None"], "str | None"]


def read_groupings(texts: Iterable[str]) -> tuple[Grouping, ...]:
    """Return the tables that `--by model,day` asks for, one for each text. Raises `InputError`."""
    groupings: list[Grouping] = []
    for text in texts:
        names = tuple(name.strip() for name in text.split(","))
        if not all(names) or len(set(names)) < len(names):
            raise InputError(f"--by {text!r}: expected columns or keys of metadata, each once: model, or model,day for both together")
        if len(names) > MOST_NAMES:
            raise InputError(f"--by {text!r}: expected at most {MOST_NAMES} names")
        groupings.append(names)
    if len(groupings) > MOST_TABLES:
        raise InputError(f"--by: expected at most {MOST_TABLES} tables, found {len(groupings)}")
    return tuple(dict.fromkeys(groupings))


def list_extra_columns(by: Sequence[Grouping]) -> tuple[str, ...]:
    """Return the names that may be extra columns."""
    return tuple(dict.fromkeys(name.removeprefix("metadata.") for names in by for name in names if name != "case"))


_Entry = tuple[int | None, int | None, "tuple[str, float, int | None] | None", int]
"""One trace, for all tables: the buckets of its duration and its tokens, its cost, and the number of its outcomes."""
_Outcomes = tuple[tuple[str, str], ...]
_MOST_OUTCOMES = 10_000
"""Maximum distinct outcomes of a trace in the lookup table; then it is cleared."""
SETTLED_AT_ONCE = 1_024
"""Traces that are buffered and counted together."""


class _Gathered:
    __slots__ = ("entries", "sketch")

    def __init__(self, sketch: SliceSketch) -> None:
        self.sketch = sketch
        self.entries: list[_Entry] = []

    def settle(self, outcomes: Sequence[_Outcomes]) -> None:
        """Move everything into the sketch."""
        entries, self.entries = self.entries, []
        if not entries:
            return
        self.sketch.count += len(entries)
        amounts, cases = self.sketch.amounts, self.sketch.cases
        durations, all_tokens = amounts.durations, amounts.tokens
        counts: dict[int, int] = {}
        for duration, tokens, cost, number in entries:
            if duration is not None:
                durations[duration] = durations.get(duration, 0) + 1
            if tokens is not None:
                all_tokens[tokens] = all_tokens.get(tokens, 0) + 1
            if cost is not None:
                _add_cost(amounts.costs, *cost)
            counts[number] = counts.get(number, 0) + 1
        for number, times in counts.items():
            for case, outcome in outcomes[number]:
                # The result of a rejected record is a row of `errors`.
                if case:
                    known = cases.setdefault(case, {})
                    known[outcome] = known.get(outcome, 0) + times


def _add_cost(costs: dict[str, CostSketch], currency: str, total: float, bucket: int | None) -> None:
    known = costs.setdefault(currency, CostSketch())
    known.total += total
    if bucket is not None:
        known.buckets[bucket] = known.buckets.get(bucket, 0) + 1


class _Table:
    def __init__(self, table: SliceTable, positions: Sequence[int]) -> None:
        """`positions` are the indexes of its names among all names."""
        self._table = table
        self._positions = tuple(positions)
        # Most tables have one name, and this runs for every trace.
        self._only = positions[0] if len(positions) == 1 else None
        self._known: dict[Values | str | None, _Gathered] = {}

    def find(self, values: Sequence[str | None]) -> _Gathered:
        single = self._only
        key = values[single] if single is not None else tuple([values[position] for position in self._positions])
        known = self._known.get(key)
        if known is None:
            sketch = self._table.find(tuple(values[position] for position in self._positions))
            known = self._known[key] = _Gathered(sketch)
        return known

    def settle(self, outcomes: Sequence[_Outcomes]) -> None:
        for gathered in self._known.values():
            gathered.settle(outcomes)
        if self._table.cut():
            self._known.clear()


class Slicer:
    """Counts the traces of one partition."""

    def __init__(
        self,
        tables: dict[str, SliceTable],
        groupings: Sequence[Grouping],
        keys: Mapping[str, str | None],
        extra: Sequence[str],
        *,
        cases: int,
    ) -> None:
        """Count into `tables`; `keys` are those of the folders of the file, `extra` the extra columns of each record."""
        # A name in several tables is looked up once.
        names_of_all = list(dict.fromkeys(name for names in groupings for name in names))
        self._finders = [make_finder(name, keys, extra) for name in names_of_all]
        self._tables = [
            _Table(
                tables.setdefault(joined := ",".join(names), SliceTable(most=count_most_slices(cases, joined))),
                [names_of_all.index(name) for name in names],
            )
            for names in groupings
        ]
        self._waiting = 0
        self._outcomes: list[_Outcomes] = []
        self._numbers: dict[_Outcomes, int] = {}

    def add(self, evidence: Evidence, results: Sequence[CaseResult], extra: tuple[Json, ...] | None = None) -> None:
        """Count one trace with its results."""
        outcomes = tuple([(result.case.id, result.outcome) for result in results])
        number = self._numbers.get(outcomes)
        if number is None:
            number = self._numbers[outcomes] = len(self._outcomes)
            self._outcomes.append(outcomes)
        # Values shared by all tables are computed once.
        duration, usage, cost = evidence.duration_ms, evidence.usage, None
        for result in results:
            if result.cost is not None:
                total = result.cost.total()
                cost = None if total is None else (result.cost.currency, total, find_bucket(total))
                break
        entry = (None if duration is None else find_bucket(duration), None if usage is None else _read_tokens(usage), cost, number)
        values = [find(evidence, extra) for find in self._finders]
        for table in self._tables:
            table.find(values).entries.append(entry)
        self._waiting += 1
        if self._waiting >= SETTLED_AT_ONCE:
            self.settle()

    def settle(self) -> None:
        """Move the counts into the sketch."""
        self._waiting = 0
        for table in self._tables:
            table.settle(self._outcomes)
        # Only here: after the lines above, no entry refers to one of these numbers.
        if len(self._outcomes) > _MOST_OUTCOMES:
            self._outcomes, self._numbers = [], {}


def _read_tokens(usage: Usage) -> int | None:
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    return find_bucket((usage.input_tokens or 0) + (usage.output_tokens or 0))


def make_finder(name: str, keys: Mapping[str, str | None], extra: Sequence[str]) -> FindValue:
    """Return a function that finds the value of a name in a trace of a file."""
    for key in _DAY_KEYS if name == "day" else (name,):
        if key in keys:
            fixed = write_value(keys[key])
            return lambda evidence, extra: fixed
    bare_name = name.removeprefix("metadata.")
    find_own = _OWN_FINDERS.get(name) or (lambda evidence: write_value(find_member(evidence.metadata, bare_name)))
    if bare_name not in extra:
        return lambda evidence, extra: find_own(evidence)
    position = list(extra).index(bare_name)

    def find(evidence: Evidence, extra: tuple[Json, ...] | None) -> str | None:
        value = None if extra is None else write_value(extra[position])
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
    """Return a value as the name of a slice; None for null and for lists and objects."""
    if type(value) is str and value.isascii():
        return value
    if value is None or isinstance(value, (dict, list)):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
