"""The summary of a batch, merged from the sketches of its committed partitions, in the order of the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from proctor.batches.judged.judged_tally import JudgedTally, estimate_case, read_tally
from proctor.batches.output.output_folder import Manifest, OutputFolder
from proctor.batches.slices.figures import list_days, list_slices, make_rate, sum_amounts
from proctor.batches.slices.sketch import CaseSketch, Reason, Sketch
from proctor.batches.warnings import describe_foreign, list_judge_warnings, list_unanswered, list_warnings
from proctor.model.batch import BatchSummary, CaseBatch, CheckSummary, CommonReason, JudgedCase

MOST_REASONS = 20
"""Reasons that a summary shows for one case."""


def merge_sketches(folder: OutputFolder, manifest: Manifest) -> tuple[Sketch, int]:
    """Return what is committed by the suite of the manifest, in the order of the plan, and how many partitions that are."""
    index = folder.sum_footers(manifest)
    return index.sketch, len(index.results)


def summarize_batch(folder: OutputFolder, manifest: Manifest, *, evaluated: int = 0, failures: Iterable[str] = ()) -> BatchSummary:
    """Return the figures of what is committed by the suite of the manifest."""
    whole, committed = merge_sketches(folder, manifest)
    tally = read_tally(folder, manifest.suite.digest)
    days, other_days = list_days(whole)
    faults = _rank_reasons(whole.faults.items.values())
    cases = tuple(_summarize_case(id, whole.cases.get(id) or CaseSketch(), tally) for id in manifest.suite.cases)
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
        unread=whole.unread,
        left_out=whole.left_out,
        files_ruled_out=manifest.ruled_out,
        cases=cases,
        judge_tokens=0 if tally is None else tally.tokens,
        not_judged=manifest.judged and tally is None,
        amounts=sum_amounts(whole),
        where=manifest.reading.where,
        days=days,
        other_days=other_days,
        slices=list_slices(whole, manifest.reading.by),
        faults=faults[:MOST_REASONS],
        more_faults=sum(fault.count for fault in faults[MOST_REASONS:]) + whole.faults.others,
        failures=tuple(failures),
        warnings=(
            *manifest.warnings,
            *describe_foreign(folder.list_foreign(manifest)),
            *list_warnings(whole, manifest.reading.by),
            *(problem.message for problem in whole.other_inputs.list_warnings()),
            *list_unanswered(cases, whole.traces),
            *list_judge_warnings(cases, unpriced=tally is not None and tally.unpriced),
        ),
    )


def _summarize_case(id: str, found: CaseSketch, tally: JudgedTally | None) -> CaseBatch:
    ranked = _rank_reasons(found.reasons.items.values())
    rest = sum(reason.count for reason in ranked[MOST_REASONS:]) + found.reasons.others
    labels = tell_apart(found.labels)
    checks = tuple(CheckSummary(check=label, rate=make_rate(counts)) for label, counts in zip(labels, found.checks, strict=True))
    return CaseBatch(
        id=id,
        name=found.name,
        rate=make_rate(found.counts),
        checks=checks,
        reasons=ranked[:MOST_REASONS],
        more_reasons=rest,
        judged=None if tally is None else _describe_judged(id, found, tally),
    )


def tell_apart(labels: Sequence[str]) -> list[str]:
    """Return the names of checks with a number behind those that were there before: figures are found by them."""
    seen: Counter[str] = Counter()
    told: list[str] = []
    for label in labels:
        seen[label] += 1
        told.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return told


def _describe_judged(id: str, found: CaseSketch, tally: JudgedTally) -> JudgedCase | None:
    judged = estimate_case(tally, id, tell_apart(found.labels))
    if judged is None or id not in tally.sketch.cases:
        return judged
    # Why the deterministic checks failed is told of all results, not of the sample.
    claims = {tally.sketch.cases[id].labels[number] for number in tally.judged[id]}
    ranked = _rank_reasons(reason for reason in tally.sketch.cases[id].reasons.items.values() if reason.check in claims)
    return msgspec.structs.replace(judged, reasons=ranked[:MOST_REASONS])


def _rank_reasons(reasons: Iterable[Reason]) -> tuple[CommonReason, ...]:
    ranked = sorted(reasons, key=lambda reason: -reason.count)
    return tuple(
        CommonReason(
            reason=reason.reason,
            count=reason.count,
            missed=reason.missed,
            outcome=reason.outcome,
            check=reason.check,
            code=reason.code,
            samples=tuple(reason.samples),
        )
        for reason in ranked
    )
