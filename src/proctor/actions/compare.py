"""Two kept runs side by side: what changed, and whether it is more than chance."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from proctor.actions.history import suite_of
from proctor.model.case import Suite
from proctor.model.result import Ending
from proctor.model.run import RunEntry, RunHeader
from proctor.scoring.amounts import AmountChange, compare_amounts
from proctor.scoring.completeness import find_incomplete
from proctor.scoring.intervals import Counts
from proctor.scoring.paired import Comparison, compare_runs
from proctor.scoring.statistics import count_outcomes
from proctor.store.run_files import RunFiles


class HowMuch(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is of a run that did not come to its end."""

    ended: Ending
    attempts_finished: int
    attempts_planned: int
    cases_finished: int
    cases_planned: int
    missing: tuple[str, ...]
    """Cases that lack attempts."""


class RunComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about two runs."""

    base: RunHeader
    candidate: RunHeader
    comparison: Comparison
    latency: AmountChange
    tokens: AmountChange
    base_incomplete: HowMuch | None = None
    """How much there is of the base, where it is not all there."""
    candidate_incomplete: HowMuch | None = None


def compare(home: Path, base: str, candidate: str, *, alpha: float = 0.05, min_effect: float = 0.0) -> RunComparison:
    """Compare `candidate` with `base`, joined by case."""
    files = RunFiles(home)
    first, second = files.open(base), files.open(candidate)
    before, after = list(first.entries()), list(second.entries())
    suite = suite_of(second)
    found = compare_entries((first.header, before), (second.header, after), suite, alpha=alpha, min_effect=min_effect)
    return tell_incomplete(
        found,
        base=how_much(first.header, suite_of(first), before, first.find_ending()),
        candidate=how_much(second.header, suite, after, second.find_ending()),
    )


def tell_incomplete(found: RunComparison, *, base: HowMuch | None, candidate: HowMuch | None) -> RunComparison:
    """Return the comparison with how much there is of either run."""
    return msgspec.structs.replace(found, base_incomplete=base, candidate_incomplete=candidate)


def how_much(header: RunHeader, suite: Suite, entries: Iterable[RunEntry], ended: Ending) -> HowMuch | None:
    """Say how much there is of a run; nothing where every planned attempt is there."""
    found = find_incomplete(suite.cases, header.repeat, ((entry.case, entry.attempt) for entry in entries), ended)
    if found is None:
        return None
    return HowMuch(
        ended=found.ended,
        attempts_finished=found.attempts_finished,
        attempts_planned=found.attempts_planned or 0,
        cases_finished=found.cases_finished,
        cases_planned=found.cases_planned or 0,
        missing=tuple(each.case.id for each in found.missing),
    )


def compare_entries(
    base: tuple[RunHeader, Sequence[RunEntry]],
    candidate: tuple[RunHeader, Sequence[RunEntry]],
    suite: Suite,
    *,
    alpha: float = 0.05,
    min_effect: float = 0.0,
) -> RunComparison:
    """Compare what was kept of two runs; `suite` is the candidate's."""
    first, second = base[0], candidate[0]
    order = {case.id: number for number, case in enumerate(suite.cases)}
    # Attempts are kept as they end: two comparisons of the same runs must not differ by that.
    before, after = (sorted(entries, key=lambda entry: order.get(entry.case, len(order))) for _, entries in (base, candidate))
    thresholds = {case.id: case.pass_threshold for case in suite.cases if case.pass_threshold is not None}
    return RunComparison(
        base=first,
        candidate=second,
        comparison=compare_runs(_counts(before), _counts(after), alpha=alpha, min_effect=min_effect, pass_thresholds=thresholds),
        latency=compare_amounts(_amounts(before, _latency), _amounts(after, _latency), alpha=alpha),
        tokens=compare_amounts(_amounts(before, _tokens), _amounts(after, _tokens), alpha=alpha),
    )


def _counts(entries: Iterable[RunEntry]) -> dict[str, Counts]:
    by_case: dict[str, dict[str, int]] = {}
    for entry in entries:
        outcomes = by_case.setdefault(entry.case, {})
        outcomes[entry.outcome] = outcomes.get(entry.outcome, 0) + 1
    return {case: count_outcomes(outcomes) for case, outcomes in by_case.items()}


def _amounts(entries: Iterable[RunEntry], amount: Callable[[RunEntry], float | None]) -> dict[str, list[float]]:
    by_case: dict[str, list[float]] = {}
    for entry in entries:
        value = amount(entry)
        if value is not None:
            by_case.setdefault(entry.case, []).append(value)
    return by_case


def _latency(entry: RunEntry) -> float | None:
    """How long the agent took, as the evidence says, else as we measured."""
    recorded = entry.evidence.duration_ms if entry.evidence is not None else None
    return recorded if recorded is not None else entry.duration_ms


def _tokens(entry: RunEntry) -> float | None:
    usage = entry.evidence.usage if entry.evidence is not None else None
    return usage.total() if usage is not None else None
