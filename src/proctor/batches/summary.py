"""The summary of a batch, merged from the sketches of its committed partitions, in the order of the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from proctor.batches.judging import JudgedTally, estimate_case, read_tally
from proctor.batches.output_folder import Manifest, OutputFolder
from proctor.batches.sketch import MOST_REASONS, TREND, Amounts, CaseSketch, Reason, Sketch, SliceSketch, SliceTable
from proctor.batches.slicer import Grouping
from proctor.model.batch import (
    AmountFigures,
    BatchSummary,
    CaseBatch,
    CheckSummary,
    CommonReason,
    CostFigures,
    JudgedCase,
    PassRate,
    Percentiles,
    Slice,
    SlicedBy,
)
from proctor.report.words.wording import count_noun
from proctor.scoring.amounts import find_percentile
from proctor.scoring.intervals import wilson
from proctor.scoring.statistics import count_outcomes

NO_RUN = "no_run"
"""The code of a result that is skipped because its trace is not a run of an agent."""


def list_warnings(sketch: Sketch, by: Sequence[Sequence[str]] = ()) -> tuple[str, ...]:
    """Return warnings about the figures; `by` are the requested tables."""
    return (
        *_list_unknown_names(sketch),
        *_list_missing_names(sketch, by),
        *_list_incomplete(sketch),
        *_list_undecided(sketch),
        *_list_inexact(sketch),
    )


def describe_foreign(files: Sequence[str]) -> Iterator[str]:
    """Yield a warning about files among the results that the batch did not write."""
    if files:
        noun = "file" if len(files) == 1 else "files"
        yield (
            f"the output folder has {len(files):,} foreign {noun} ({files[0]}); remove them, "
            "or readers will see duplicate or unrelated rows"
        )


def list_unanswered(cases: Sequence[CaseBatch], traces: int) -> Iterator[str]:
    """Yield a warning about cases that no trace answers."""
    unanswered = [case.id for case in cases if not case.rate.counts]
    if unanswered and traces:
        listed = f"{count_noun(len(unanswered), 'case')} ({_list_some(unanswered)})"
        yield f"none of {count_noun(traces, 'trace')} answers {listed}: their result is unknown"


def _list_some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def list_judge_warnings(cases: Sequence[CaseBatch], *, unpriced: bool) -> Iterator[str]:
    """Yield warnings about claims that were not judged; `unpriced` if the judge reports no tokens."""
    if unpriced:
        yield "the judge reports no tokens, so --max-tokens cannot be checked: the sample ends early; use --judge-sample"
    unseen = [case.id for case in cases if case.judged is not None and case.judged.of and not case.judged.judged]
    if unseen:
        listed = f"{count_noun(len(unseen), 'case')} ({_list_some(unseen)})"
        yield f"no result of {listed} was judged, so they did not pass; use a larger --judge-sample or --max-tokens"


def _list_unknown_names(sketch: Sketch) -> Iterator[str]:
    names = sketch.names
    if names is None:
        return
    total = count_noun(names.lines, "line")
    for name in names.missing:
        yield f"--where asks for {name!r}, which none of {total} has"
    for comparison, number in names.unlike.items():
        yield f"--where compares {comparison}, and {number:,} of {total} have a value of another type there and never match"


def _list_missing_names(sketch: Sketch, by: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a warning for each name of `--by` that no trace has: most often it is misspelt."""
    missing: dict[str, None] = {}
    for names in by:
        table = sketch.tables.get(",".join(names))
        values = [] if table is None else [entry.values for entry in table.held.items.values()]
        missing |= {name: None for number, name in enumerate(names) if values and all(value[number] is None for value in values)}
    for name in missing:
        yield (
            f"--by {name!r}: none of {count_noun(sketch.traces, 'trace')} has it; expected a column, a key of the folders or of the "
            "metadata, day, model or case"
        )


def _list_incomplete(sketch: Sketch) -> Iterator[str]:
    """Yield a warning about traces that may lack spans: verdicts that the missing spans could change are unknown."""
    if sketch.incomplete:
        yield (
            f"{sketch.incomplete:,} of {count_noun(sketch.traces, 'trace')} may lack spans that could not be read (see errors): "
            "what did not happen there is unknown; mend what is broken, or name the data set without it"
        )


def _list_undecided(sketch: Sketch) -> Iterator[str]:
    """Yield a warning about traces without an agent, on which no check was decided."""
    skipped = max(
        (sum(reason.count for reason in case.reasons.items.values() if reason.code == NO_RUN) for case in sketch.cases.values()), default=0
    )
    if skipped:
        yield (
            f"{skipped:,} of {count_noun(sketch.traces, 'trace')} have no agent, model or tool: nothing was decided on them; "
            "where they are runs of an agent, --evidence-format names how they are written"
        )


def _list_inexact(sketch: Sketch) -> Iterator[str]:
    """Yield a warning for each table with more entries than it can hold: counts of late entries may be too low."""
    for names, table in sketch.tables.items():
        count = len(table.held.items)
        if table.held.most_missed:
            yield _describe_inexact(f"--by {names}: more than {2 * table.most:,} slices", table.held.most_missed, "traces of a slice")
        elif count > table.most:
            yield f"--by {names}: {count:,} slices, of which the {table.most:,} heaviest are shown and the others are counted together"
    cases = [(id, case.reasons.most_missed) for id, case in sketch.cases.items() if case.reasons.most_missed]
    if cases:
        cause = (
            f"more than {2 * MOST_REASONS:,} different reasons in {count_noun(len(cases), 'case')} ({_list_some([id for id, _ in cases])})"
        )
        yield _describe_inexact(cause, max(missed for _, missed in cases), "failures with one reason")
    if sketch.faults.most_missed:
        yield _describe_inexact(
            f"more than {2 * MOST_REASONS:,} different causes of errors", sketch.faults.most_missed, "errors with one cause"
        )


def _describe_inexact(cause: str, most_missed: int, what: str) -> str:
    return f"{cause}: the most frequent are shown, and inexact counts are marked; up to {most_missed:,} {what} may be counted as others"


MOST_LISTED_REASONS = 20
"""Reasons that a summary shows for one case."""


def merge_sketches(folder: OutputFolder, manifest: Manifest) -> tuple[Sketch, int]:
    """Return the merged results of the manifest's suite, in the order of the plan, and the number of their partitions."""
    index = folder.sum_footers(manifest)
    return index.sketch, len(index.results)


def summarize_batch(folder: OutputFolder, manifest: Manifest, *, evaluated: int = 0, failures: Iterable[str] = ()) -> BatchSummary:
    """Return the figures of the committed results of the manifest's suite."""
    sketch, committed = merge_sketches(folder, manifest)
    tally = read_tally(folder, manifest.suite.digest)
    days, other_days = list_days(sketch)
    faults = _rank_reasons(sketch.faults.items.values())
    cases = tuple(_summarize_case(id, sketch.cases.get(id) or CaseSketch(), tally) for id in manifest.suite.cases)
    return BatchSummary(
        suite=manifest.suite.name,
        output=str(folder.path),
        started_at=manifest.started_at,
        partitions=len(manifest.partitions),
        committed=committed,
        evaluated=evaluated,
        records=sketch.records,
        traces=sketch.traces,
        errors=sketch.errors,
        unread=sketch.unread,
        left_out=sketch.left_out,
        files_ruled_out=manifest.ruled_out,
        cases=cases,
        judge_tokens=0 if tally is None else tally.tokens,
        not_judged=manifest.judged and tally is None,
        amounts=_make_amounts(sum_whole(sketch)),
        where=manifest.reading.where,
        days=days,
        other_days=other_days,
        slices=list_slices(sketch, manifest.reading.by),
        faults=faults[:MOST_LISTED_REASONS],
        more_faults=sum(fault.count for fault in faults[MOST_LISTED_REASONS:]) + sketch.faults.others,
        failures=tuple(failures),
        warnings=(
            *manifest.warnings,
            *describe_foreign(folder.list_foreign(manifest)),
            *list_warnings(sketch, manifest.reading.by),
            *(problem.message for problem in sketch.other_inputs.list_warnings()),
            *list_unanswered(cases, sketch.traces),
            *list_judge_warnings(cases, unpriced=tally is not None and tally.unpriced),
        ),
    )


def _summarize_case(id: str, found: CaseSketch, tally: JudgedTally | None) -> CaseBatch:
    ranked = _rank_reasons(found.reasons.items.values())
    rest = sum(reason.count for reason in ranked[MOST_LISTED_REASONS:]) + found.reasons.others
    labels = number_duplicates(found.labels)
    checks = tuple(CheckSummary(check=label, rate=make_rate(counts)) for label, counts in zip(labels, found.checks, strict=True))
    return CaseBatch(
        id=id,
        name=found.name,
        rate=make_rate(found.counts),
        checks=checks,
        reasons=ranked[:MOST_LISTED_REASONS],
        more_reasons=rest,
        judged=None if tally is None else _describe_judged(id, found, tally),
    )


def number_duplicates(labels: Sequence[str]) -> list[str]:
    """Return the names of checks, with a number after repeated ones, because figures are found by name."""
    seen: Counter[str] = Counter()
    numbered: list[str] = []
    for label in labels:
        seen[label] += 1
        numbered.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return numbered


def _describe_judged(id: str, case: CaseSketch, tally: JudgedTally) -> JudgedCase | None:
    judged = estimate_case(tally, id, number_duplicates(case.labels))
    if judged is None or id not in tally.sketch.cases:
        return judged
    # The reasons of deterministic checks are those of all results, not of the sample.
    claims = {tally.sketch.cases[id].labels[number] for number in tally.judged[id]}
    ranked = _rank_reasons(reason for reason in tally.sketch.cases[id].reasons.items.values() if reason.check in claims)
    return msgspec.structs.replace(judged, reasons=ranked[:MOST_LISTED_REASONS])


def _rank_reasons(reasons: Iterable[Reason]) -> tuple[CommonReason, ...]:
    ranked = sorted(reasons, key=lambda reason: -reason.count)
    return tuple(CommonReason(**dict(msgspec.structs.asdict(reason), samples=tuple(reason.samples))) for reason in ranked)


MOST_CASES = 50
"""The maximum number of cases listed in every slice; slices of a larger suite have only the figures of all cases together."""


def make_rate(outcomes: Mapping[str, int]) -> PassRate:
    """Return the pass rate of these outcomes."""
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
    """Return the amounts of all traces, summed over the days; every trace has one, which may be "unknown"."""
    total = Amounts()
    for one in _find_table(sketch, TREND).iterate():
        total.merge(one.amounts)
    return total


def list_days(sketch: Sketch) -> tuple[tuple[Slice, ...], Slice | None]:
    """Return the trend by day, and the days that are not in it; nothing if no trace has a day."""
    slices, others = _choose_slices(_find_table(sketch, TREND))
    return (slices, others) if any(entry.values != (None,) for entry in slices) else ((), None)


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
    ranked = sorted(table.held.items.values(), key=lambda entry: -entry.count)
    others = SliceSketch()
    for entry in (table.others, *ranked[table.most :]):
        others.merge(entry)
    found = sorted(ranked[: table.most], key=lambda entry: [(value is None, value or "") for value in entry.values])
    return tuple(map(_make_slice, found)), _make_slice(others) if others.count else None


def _make_slice(sketch: SliceSketch) -> Slice:
    totals: dict[str, int] = {}
    for counts in sketch.cases.values():
        for outcome, number in counts.items():
            totals[outcome] = totals.get(outcome, 0) + number
    cases = {case: make_rate(counts) for case, counts in sketch.cases.items()} if len(sketch.cases) <= MOST_CASES else {}
    return Slice(
        values=sketch.values,
        traces=sketch.count,
        missed=sketch.missed,
        rate=make_rate(totals),
        amounts=_make_amounts(sketch.amounts),
        cases=cases,
    )


def _make_amounts(amounts: Amounts) -> AmountFigures:
    costs: list[CostFigures] = []
    for currency, cost in amounts.costs.items():
        each = _find_percentiles(cost.buckets, 9)
        if each is not None:
            costs.append(CostFigures(currency=currency, total=round(cost.total, 9), each=each))
    return AmountFigures(latency=_find_percentiles(amounts.durations, 3), tokens=_find_percentiles(amounts.tokens, 0), cost=tuple(costs))


def _find_percentiles(buckets: Mapping[int, int], places: int) -> Percentiles | None:
    percentiles: Sequence[float | None] = [find_percentile(buckets, share) for share in (0.5, 0.95, 0.99)]
    p50, p95, p99 = (None if amount is None else round(amount, places) for amount in percentiles)
    if p50 is None or p95 is None or p99 is None:
        return None
    return Percentiles(traces=sum(buckets.values()), p50=p50, p95=p95, p99=p99)
