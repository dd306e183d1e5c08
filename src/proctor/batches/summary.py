"""The summary of a batch, merged from the sketches of its committed partitions, in the order of the plan."""

from __future__ import annotations

from collections.abc import Iterable

from proctor.batches.output_folder import Manifest, OutputFolder
from proctor.batches.sketch import CaseSketch, Reason, Sketch
from proctor.model.batch import BatchSummary, CaseBatch, CheckSummary, CommonReason, Latency, PassRate
from proctor.scoring.amount_sketch import find_percentile
from proctor.scoring.intervals import wilson
from proctor.scoring.statistics import count_outcomes

MOST_REASONS = 20
"""Reasons that a summary shows for one case."""


def summarize_batch(folder: OutputFolder, manifest: Manifest, *, evaluated: int = 0, failures: Iterable[str] = ()) -> BatchSummary:
    """Return the figures of what is committed by the suite of the manifest."""
    whole = Sketch()
    committed = 0
    digest = manifest.suite.digest
    for partition in manifest.partitions:
        footer = folder.read_footer(partition.id)
        if footer is not None and footer.suite == digest:
            committed += 1
            whole.merge(footer.sketch)
    return BatchSummary(
        suite=manifest.suite.name,
        output=str(folder.path),
        started_at=manifest.started_at,
        partitions=len(manifest.partitions),
        committed=committed,
        evaluated=evaluated,
        records=whole.records,
        traces=whole.traces,
        errors=whole.errors,
        cases=tuple(_summarize_case(id, whole.cases.get(id) or CaseSketch()) for id in manifest.suite.cases),
        latency=_find_latency(whole.durations),
        faults=_rank_reasons(whole.faults.values())[:MOST_REASONS],
        failures=tuple(failures),
    )


def _summarize_case(id: str, found: CaseSketch) -> CaseBatch:
    ranked = _rank_reasons(found.reasons.values())
    rest = sum(reason.count for reason in ranked[MOST_REASONS:]) + found.other_reasons
    checks = tuple(CheckSummary(check=label, rate=_make_rate(counts)) for label, counts in zip(found.labels, found.checks, strict=True))
    return CaseBatch(id=id, name=found.name, rate=_make_rate(found.counts), checks=checks, reasons=ranked[:MOST_REASONS], more_reasons=rest)


def _find_latency(durations: dict[int, int]) -> Latency | None:
    p50, p95, p99 = (find_percentile(durations, share) for share in (0.5, 0.95, 0.99))
    if p50 is None or p95 is None or p99 is None:
        return None
    return Latency(traces=sum(durations.values()), p50=round(p50, 3), p95=round(p95, 3), p99=round(p99, 3))


def _make_rate(outcomes: dict[str, int]) -> PassRate:
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


def _rank_reasons(reasons: Iterable[Reason]) -> tuple[CommonReason, ...]:
    ranked = sorted(reasons, key=lambda reason: -reason.count)
    return tuple(
        CommonReason(
            reason=reason.reason,
            count=reason.count,
            outcome=reason.outcome,
            check=reason.check,
            code=reason.code,
            samples=tuple(reason.samples),
        )
        for reason in ranked
    )
