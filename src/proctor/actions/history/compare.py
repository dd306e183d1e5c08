"""Compares two stored runs: what changed, and whether it is more than chance."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from proctor.actions.workspace.gating import list_failing_cases
from proctor.actions.workspace.run_history import suite_of
from proctor.actions.workspace.run_tally import Attempt, CaseTally, RunTally
from proctor.errors import InputError
from proctor.model.case import Case, Suite, list_axes, strip_axis
from proctor.model.result import Ending, Unmet
from proctor.model.run import RunHeader
from proctor.model.show import nearest, shorten
from proctor.scoring.amounts import AmountChange, compare_amounts
from proctor.scoring.completeness import find_incomplete_cases
from proctor.scoring.paired import Comparison, compare_runs
from proctor.store.files.run_files import RunFiles

MOST_REASON = 500
"""Characters of the reason of one newly failing case."""


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
    cost: AmountChange | None = None
    """Of agent and judge together; None where neither run had prices."""
    base_incomplete: HowMuch | None = None
    """How much there is of the base, where it is not all there."""
    candidate_incomplete: HowMuch | None = None
    reasons: dict[str, str] = {}
    """Of every newly failing case, why it fails: the first thing that went wrong in its first attempt that failed."""
    failing: tuple[str, ...] = ()
    """Every case of the candidate that does not pass, also those that failed before or that the base has not."""
    lacking: tuple[str, ...] = ()
    """Every case of the candidate whose evidence lacks what a claim asks for."""
    unmet: Unmet = Unmet()
    """Cases and records of the candidate that did not meet."""
    warnings: tuple[str, ...] = ()
    """What the figures say nothing about."""


def compare(home: Path, base: str, candidate: str, *, alpha: float = 0.05, min_effect: float = 0.0) -> RunComparison:
    """Compare `candidate` with `base`, joined by case."""
    files = RunFiles(home)
    first, second = files.open(base), files.open(candidate)
    before, after = RunTally.of(first.entries()), RunTally.of(second.entries())
    suite = suite_of(second)
    found = compare_tallies((first.header, before), (second.header, after), suite, alpha=alpha, min_effect=min_effect)
    return add_incomplete(
        found,
        base=how_much(first.header, suite_of(first), before, first.find_ending()),
        candidate=how_much(second.header, suite, after, second.find_ending()),
    )


def compare_axis(home: Path, run: str, by: str, *, alpha: float = 0.05) -> RunComparison:
    """Compare two values of an axis of a matrix within one run, joined by case: `model=a,b`. Raises `InputError` for what it has not."""
    folder = RunFiles(home).open(run)
    suite, entries = suite_of(folder), list(folder.entries())
    axis, base, candidate = read_axis_pair(by, suite)
    cases = {case.id: case for case in suite.cases}
    sides: list[tuple[RunHeader, RunTally]] = []
    for value in (base, candidate):
        own = [entry for entry in entries if entry.case in cases and str(cases[entry.case].tags.get(axis)) == value]
        # Cases are joined by their id, which has the value of the axis in it: without that both sides have the same cases.
        renamed = [msgspec.structs.replace(entry, case=strip_axis(cases[entry.case], axis)) for entry in own]
        header = msgspec.structs.replace(folder.header, run_id=f"{folder.header.run_id}[{axis}={value}]")
        sides.append((header, RunTally.of(renamed)))
    joined = [msgspec.structs.replace(case, id=strip_axis(case, axis)) for case in suite.cases if str(case.tags.get(axis)) == candidate]
    found = compare_tallies(sides[0], sides[1], msgspec.structs.replace(suite, cases=tuple(joined)), alpha=alpha)
    much = how_much(folder.header, suite, RunTally.of(entries), folder.find_ending())
    return add_incomplete(found, base=much, candidate=much)


LEAST_LATENCY_CHANGE_MS = 5.0
"""Milliseconds that a median must move: below, runs of the same agent differ by what else the machine does."""


def read_axis_pair(by: str, suite: Suite) -> tuple[str, str, str]:
    """Return the axis and its two values from `model=a,b`; raises `InputError` for what the suite's matrix has not."""
    axis, equals, values = by.partition("=")
    parts = [part.strip() for part in values.split(",")]
    if not equals or len(parts) != 2 or not all(parts) or parts[0] == parts[1]:
        raise InputError(f"--by {by!r}: expected an axis and two of its values: model=small,large")
    axes = tuple(dict.fromkeys(name for case in suite.cases for name in list_axes(case)))
    if axis not in axes:
        close = nearest(axis, axes)
        near = f"; nearest: {close[0]!r}" if close else ""
        raise InputError(f"--by {by!r}: the run has no axis {axis!r} of a matrix{near}; there are {', '.join(axes) or 'none'}")
    known = tuple(dict.fromkeys(str(case.tags[axis]) for case in suite.cases if axis in list_axes(case)))
    for value in parts:
        if value not in known:
            raise InputError(f"--by {by!r}: {axis} has no value {value!r}; there are {', '.join(known)}")
    return axis, parts[0], parts[1]


def add_incomplete(found: RunComparison, *, base: HowMuch | None, candidate: HowMuch | None) -> RunComparison:
    """Return the comparison with how much there is of either run."""
    return msgspec.structs.replace(found, base_incomplete=base, candidate_incomplete=candidate)


def how_much(header: RunHeader, suite: Suite, tally: RunTally, ended: Ending) -> HowMuch | None:
    """Say how much there is of a run; nothing where every planned attempt is there."""
    attempts = {case: one.attempts for case, one in tally.cases.items()}
    found = find_incomplete_cases(suite.cases, header.repeat, attempts, ended)
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


def compare_tallies(
    base: tuple[RunHeader, RunTally], candidate: tuple[RunHeader, RunTally], suite: Suite, *, alpha: float = 0.05, min_effect: float = 0.0
) -> RunComparison:
    """Compare the tallies of two runs; `suite` is the candidate's."""
    order = {case.id: number for number, case in enumerate(suite.cases)}
    # Attempts are stored as they end: two comparisons of the same runs must not differ by that.
    before, after = (tally.put_in_order(order) for _, tally in (base, candidate))
    thresholds = {case.id: case.pass_threshold for case in suite.cases if case.pass_threshold is not None}
    counts = after.count_by_case()
    comparison = compare_runs(before.count_by_case(), counts, alpha=alpha, min_effect=min_effect, pass_thresholds=thresholds)

    def compare_by(amounts: Callable[[CaseTally], list[float]], least_change: float = 0.0) -> AmountChange:
        first, second = ({case: amounts(one) for case, one in tally.cases.items() if amounts(one)} for tally in (before, after))
        return compare_amounts(first, second, alpha=alpha, least_change=least_change)

    return RunComparison(
        base=base[0],
        candidate=candidate[0],
        comparison=comparison,
        reasons=_find_reasons(after, suite, set(comparison.newly_failing)),
        failing=tuple(list_failing_cases(counts, thresholds)),
        latency=compare_by(lambda one: one.times_ms, LEAST_LATENCY_CHANGE_MS),
        lacking=tuple(case for case, one in after.cases.items() if one.lacks),
        unmet=after.find_unmet(suite),
        tokens=compare_by(lambda one: one.tokens),
        cost=compare_by(lambda one: one.costs) if before.has_costs or after.has_costs else None,
    )


def _find_reasons(tally: RunTally, suite: Suite, wanted: set[str]) -> dict[str, str]:
    cases = {case.id: case for case in suite.cases if case.id in wanted}
    reasons = {
        case: next(filter(None, (find_reason(entry, cases.get(case)) for entry in one.failed)), "")
        for case, one in tally.cases.items()
        if case in wanted
    }
    return {case: reason for case, reason in reasons.items() if reason}


def find_reason(entry: Attempt, case: Case | None) -> str:
    """Return why an attempt did not pass, with the name of the assertion; empty without a reason."""
    for number, verdict in enumerate(entry.verdicts):
        if verdict.outcome in ("fail", "error"):
            assertion = case.assertions[number] if case is not None and number < len(case.assertions) else None
            label = f"{assertion.label or assertion.check}: " if assertion is not None else ""
            return f"{label}{shorten(verdict.reason, MOST_REASON)}"
    return shorten(entry.reason or "", MOST_REASON)
