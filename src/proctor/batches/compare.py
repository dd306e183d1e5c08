"""Compares two batches with the statistics of two runs: every trace is an attempt at each case it answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from proctor.actions.history.compare import LEAST_LATENCY_CHANGE_MS, RunComparison
from proctor.actions.workspace.gating import list_failing_cases
from proctor.batches.judging import JudgedTally, estimate_case, read_tally
from proctor.batches.output_folder import MANIFEST, Manifest, OutputFolder
from proctor.batches.plan import name_output
from proctor.batches.sketch import Sketch
from proctor.batches.summary import merge_sketches, sum_whole
from proctor.errors import InputError
from proctor.model.run import RunHeader
from proctor.report.builders.batch import describe_judged
from proctor.report.words.wording import count_noun
from proctor.scoring.amounts import AmountChange, compare_sketches
from proctor.scoring.intervals import Counts
from proctor.scoring.paired import compare_runs
from proctor.scoring.statistics import count_outcomes
from proctor.sources.datasets.files import import_arrow

MOST_JUDGED = 10
"""Cases whose judged figures are listed."""


def is_batch(place: str | None) -> bool:
    """Return whether a place is the folder of a batch; only batches have addresses."""
    return place is not None and ("://" in place or (Path(place) / MANIFEST).is_file())


def compare_batches(base: str, candidate: str, *, alpha: float = 0.05) -> RunComparison:
    """Compare two batches, joined by case. Raises `InputError` if one is not a batch, or is not finished."""
    import_arrow("pyarrow.parquet")
    before, after = _open(base), _open(candidate)
    counts = _count_cases(before.sketch), _count_cases(after.sketch)
    comparison = compare_runs(*counts, alpha=alpha)
    # With very many traces nearly every case has some failures, and recorded traces are not repeats, so `flaky` is meaningless.
    steady = msgspec.structs.replace(comparison.candidate, flaky=())
    regressed = (change.case for change in comparison.changes if change.verdict == "regressed")
    comparison = msgspec.structs.replace(comparison, candidate=steady, repeats_needed=())
    first, second = sum_whole(before.sketch), sum_whole(after.sketch)
    shared = [currency for currency in first.costs if currency in second.costs]
    cost: AmountChange | None = None
    if len(shared) == 1:
        cost = compare_sketches(first.costs[shared[0]].buckets, second.costs[shared[0]].buckets, alpha=alpha)
    return RunComparison(
        base=before.make_header(),
        candidate=after.make_header(),
        comparison=comparison,
        latency=compare_sketches(first.durations, second.durations, alpha=alpha, least_change=LEAST_LATENCY_CHANGE_MS),
        tokens=compare_sketches(first.tokens, second.tokens, alpha=alpha),
        cost=cost,
        reasons=_find_reasons(after.sketch, {*comparison.newly_failing, *regressed}),
        failing=tuple(list_failing_cases(counts[1], {})),
        warnings=(*(line for opened in (before, after) for line in opened.list_warnings()), *_list_differences(before, after)),
    )


class _Opened(msgspec.Struct, frozen=True):
    place: str
    manifest: Manifest
    sketch: Sketch
    tally: JudgedTally | None

    def describe_judged(self, case: str) -> str | None:
        """Return the judged figures of a case; None if no judge decided it."""
        judged = None if self.tally is None else estimate_case(self.tally, case, self.sketch.cases[case].labels)
        return None if judged is None else describe_judged(judged, judged.rate)

    def list_warnings(self) -> Iterator[str]:
        """Yield which parts of the data set are missing from the figures."""
        sketch = self.sketch
        if sketch.unread:
            yield f"{self.place}: {count_noun(sketch.unread, 'record')} could not be read or decided, and count for nothing here"

    def make_header(self) -> RunHeader:
        return RunHeader(run_id=self.place, started_at=self.manifest.started_at, suite_name=self.manifest.suite.name)


def _open(place: str) -> _Opened:
    folder = OutputFolder(name_output(place))
    manifest = folder.read_manifest() if is_batch(place) else None
    if manifest is None:
        raise InputError(f"no batch at {place!r}: a batch is compared with another one, and each is named by its folder")
    sketch, committed = merge_sketches(folder, manifest)
    tally = read_tally(folder, manifest.suite.digest)
    if committed < len(manifest.partitions) or (manifest.judged and tally is None):
        state = f"{committed:,} of {len(manifest.partitions):,} partitions have a result"
        state += ", and the judge has not decided yet" if manifest.judged and tally is None else ""
        raise InputError(f"{place!r} is not finished: {state}; `proctor batch` with --resume goes on with it")
    return _Opened(place, manifest, sketch, tally)


def _list_differences(before: _Opened, after: _Opened) -> Iterator[str]:
    """Yield other differences between two batches, and parts that are not compared."""
    versions = before.manifest.version, after.manifest.version
    if versions[0] != versions[1]:
        yield f"decided by proctor {versions[0]} and by {versions[1]}, which may decide otherwise"
    shared = [case for case in before.sketch.cases if case in after.sketch.cases]
    judged = [(case, figures) for case in shared if any(figures := (before.describe_judged(case), after.describe_judged(case)))]
    for case, (first, second) in judged[:MOST_JUDGED]:
        yield f"{case}: judged samples are not compared: {first or 'not judged'}, then {second or 'not judged'}"
    if len(judged) > MOST_JUDGED:
        yield f"nor is it for {len(judged) - MOST_JUDGED:,} more cases"


def _count_cases(sketch: Sketch) -> dict[str, Counts]:
    return {id: count_outcomes(case.counts) for id, case in sketch.cases.items()}


def _find_reasons(sketch: Sketch, wanted: set[str]) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for id in wanted:
        found = max(sketch.cases[id].reasons.items.values(), key=lambda reason: reason.count, default=None)
        if found is not None:
            reasons[id] = f"{found.check}: {found.reason}" if found.check else found.reason
    return reasons
