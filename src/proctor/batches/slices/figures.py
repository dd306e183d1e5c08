"""The figures of slices, made of their sketches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from proctor.batches.slices.sketch import Sketch
from proctor.batches.slices.sketch_slice import TREND, Amounts, SliceSketch, SliceTable
from proctor.batches.slices.slicer import Grouping
from proctor.model.batch import AmountFigures, CostFigures, PassRate, Percentiles, Slice, SlicedBy
from proctor.scoring.amount_sketch import find_percentile
from proctor.scoring.intervals import wilson
from proctor.scoring.statistics import count_outcomes

MOST_CASES = 50
"""Cases that are listed in every slice; slices of a larger suite have the figures of all cases together."""


def make_rate(outcomes: Mapping[str, int]) -> PassRate:
    """Return how often something passed."""
    counts = count_outcomes(outcomes)
    between = wilson(counts)
    return PassRate(
        counts=dict(outcomes),
        decided=counts.runs,
        passed=counts.passes,
        rate=counts.rate if counts.runs else None,
        low=between.low,
        high=between.high,
    )


def sum_whole(sketch: Sketch) -> Amounts:
    """Return the amounts of all traces: every one has a day, which may be "unknown"."""
    whole = Amounts()
    for one in _find_table(sketch, TREND).iterate():
        whole.merge(one.amounts)
    return whole


def sum_amounts(sketch: Sketch) -> AmountFigures:
    """Return the figures of the amounts of all traces."""
    return _make_amounts(sum_whole(sketch))


def list_days(sketch: Sketch) -> tuple[tuple[Slice, ...], Slice | None]:
    """Return the trend by day, and the days that are not in it; nothing if no trace has a day."""
    found, others = _choose_slices(_find_table(sketch, TREND))
    return (found, others) if any(one.values != (None,) for one in found) else ((), None)


def list_slices(sketch: Sketch, by: Iterable[Grouping]) -> tuple[SlicedBy, ...]:
    """Return the requested tables."""
    return tuple(_make_table(names, _find_table(sketch, names)) for names in by)


def _find_table(sketch: Sketch, names: Grouping) -> SliceTable:
    return sketch.tables.get(",".join(names)) or SliceTable(most=1)


def _make_table(names: Grouping, table: SliceTable) -> SlicedBy:
    slices, others = _choose_slices(table)
    return SlicedBy(by=names, slices=slices, others=others)


def _choose_slices(table: SliceTable) -> tuple[tuple[Slice, ...], Slice | None]:
    """Return the heaviest slices in the order of their values, and everything else."""
    ranked = sorted(table.held.items.values(), key=lambda one: -one.count)
    others = SliceSketch()
    for one in (table.others, *ranked[table.most :]):
        others.merge(one)
    found = sorted(ranked[: table.most], key=lambda one: [(value is None, value or "") for value in one.values])
    return tuple(map(_make_slice, found)), _make_slice(others) if others.count else None


def _make_slice(found: SliceSketch) -> Slice:
    together: dict[str, int] = {}
    for counts in found.cases.values():
        for outcome, number in counts.items():
            together[outcome] = together.get(outcome, 0) + number
    cases = {case: make_rate(counts) for case, counts in found.cases.items()} if len(found.cases) <= MOST_CASES else {}
    return Slice(
        values=found.values,
        traces=found.count,
        missed=found.missed,
        rate=make_rate(together),
        amounts=_make_amounts(found.amounts),
        cases=cases,
    )


def _make_amounts(found: Amounts) -> AmountFigures:
    costs: list[CostFigures] = []
    for currency, cost in found.costs.items():
        each = _find_percentiles(cost.buckets, 9)
        if each is not None:
            costs.append(CostFigures(currency=currency, total=round(cost.total, 9), each=each))
    return AmountFigures(latency=_find_percentiles(found.durations, 3), tokens=_find_percentiles(found.tokens, 0), cost=tuple(costs))


def _find_percentiles(buckets: Mapping[int, int], places: int) -> Percentiles | None:
    found: Sequence[float | None] = [find_percentile(buckets, share) for share in (0.5, 0.95, 0.99)]
    p50, p95, p99 = (None if amount is None else round(amount, places) for amount in found)
    if p50 is None or p95 is None or p99 is None:
        return None
    return Percentiles(traces=sum(buckets.values()), p50=p50, p95=p95, p99=p99)
