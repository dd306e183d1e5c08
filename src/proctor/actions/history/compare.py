"""Compares two stored runs: what changed, and whether it is more than chance."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from proctor.actions.doctor.snapshots import SERVERS, describe_changes, read_snapshot
from proctor.actions.workspace.gating import list_failing_cases
from proctor.actions.workspace.run_history import suite_of
from proctor.actions.workspace.run_tally import Attempt, CaseTally, RunTally
from proctor.errors import InputError
from proctor.model.case import Case, Suite, list_axes, strip_axis
from proctor.model.result import Ending, Unmet
from proctor.model.run import RunHeader
from proctor.model.show import shorten, suggest_one
from proctor.scoring.amounts import AmountChange, compare_amounts
from proctor.scoring.intervals import Counts
from proctor.scoring.paired import Comparison, adjust_by_holm, compare_runs, stratified_test
from proctor.scoring.statistics import count_outcomes, find_incomplete_cases
from proctor.store.files.run_files import RunFiles

MOST_REASON = 500
"""Characters of the reason of one newly failing case."""


class HowMuch(msgspec.Struct, frozen=True, kw_only=True):
    """How much of an incomplete run exists."""

    ended: Ending
    attempts_finished: int
    attempts_planned: int
    cases_finished: int
    cases_planned: int
    missing: tuple[str, ...]


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Cases that got worse for the same reason."""

    reason: str
    """Of the case that dropped most; empty if unknown."""
    before: int
    """Attempts that failed for it in the base."""
    after: int
    """The same in the candidate."""
    more_than_chance: bool
    """Whether it is more frequent than before beyond chance, adjusted for the number of causes."""
    cases: tuple[str, ...]
    """The largest drop first."""


class RunComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about two runs."""

    base: RunHeader
    candidate: RunHeader
    comparison: Comparison
    latency: AmountChange
    tokens: AmountChange
    cost: AmountChange | None = None
    """Of agent and judge together; None if neither run had prices."""
    base_incomplete: HowMuch | None = None
    """How much of the base exists, if it is incomplete."""
    candidate_incomplete: HowMuch | None = None
    reasons: dict[str, str] = {}
    """The reason of every case that got worse: the first failure of its first failed attempt."""
    causes: tuple[Cause, ...] = ()
    """The cases that got worse by reason: beyond chance first, then the most cases."""
    within_chance: tuple[str, ...] = ()
    """Changed cases whose change may be chance."""
    failing: tuple[str, ...] = ()
    """Every case of the candidate that does not pass, including those that failed before or are not in the base."""
    lacking: tuple[str, ...] = ()
    """Every case of the candidate whose evidence lacks something that a claim needs."""
    unmet: Unmet = Unmet()
    """Cases and records of the candidate without a match."""
    warnings: tuple[str, ...] = ()
    """What the figures do not cover."""
    server_changes: tuple[str, ...] = ()
    """What the MCP servers of the two runs offered differently; empty without differences, or if a run has not stored it."""


def compare(home: Path, base: str, candidate: str, *, alpha: float = 0.05) -> RunComparison:
    """Compare `candidate` with `base`, joined by case."""
    files = RunFiles(home)
    first, second = files.open(base), files.open(candidate)
    before, after = RunTally.of(first.entries()), RunTally.of(second.entries())
    suite = suite_of(second)
    comparison = compare_tallies((first.header, before), (second.header, after), suite, alpha=alpha)
    changes = describe_changes(*(read_snapshot(run.folder, SERVERS) for run in (first, second)))
    return msgspec.structs.replace(
        comparison,
        server_changes=changes,
        base_incomplete=how_much(first.header, suite_of(first), before, first.find_ending()),
        candidate_incomplete=how_much(second.header, suite, after, second.find_ending()),
    )


def compare_axis(home: Path, run: str, by: str, *, alpha: float = 0.05) -> RunComparison:
    """Compare two values of a matrix axis within one run, joined by case: `model=a,b`. Raises `InputError` for an unknown axis or value."""
    folder = RunFiles(home).open(run)
    suite, entries = suite_of(folder), list(folder.entries())
    axis, base, candidate = read_axis_pair(by, suite)
    cases = {case.id: case for case in suite.cases}
    sides: list[tuple[RunHeader, RunTally]] = []
    for value in (base, candidate):
        of_value = [entry for entry in entries if entry.case in cases and str(cases[entry.case].tags.get(axis)) == value]
        # Cases are joined by id, which contains the value of the axis; without the value, both sides have the same ids.
        renamed = [msgspec.structs.replace(entry, case=strip_axis(cases[entry.case], axis)) for entry in of_value]
        header = msgspec.structs.replace(folder.header, run_id=f"{folder.header.run_id}[{axis}={value}]")
        sides.append((header, RunTally.of(renamed)))
    joined = [msgspec.structs.replace(case, id=strip_axis(case, axis)) for case in suite.cases if str(case.tags.get(axis)) == candidate]
    comparison = compare_tallies(sides[0], sides[1], msgspec.structs.replace(suite, cases=tuple(joined)), alpha=alpha)
    completeness = how_much(folder.header, suite, RunTally.of(entries), folder.find_ending())
    return msgspec.structs.replace(comparison, base_incomplete=completeness, candidate_incomplete=completeness)


LEAST_LATENCY_CHANGE_MS = 5.0
"""The minimum change of a median in milliseconds; smaller ones may come from other load on the machine."""


def read_axis_pair(by: str, suite: Suite) -> tuple[str, str, str]:
    """Return the axis and its two values from `model=a,b`; raises `InputError` for an axis or value that the suite's matrix lacks."""
    axis, equals, values = by.partition("=")
    parts = [part.strip() for part in values.split(",")]
    if not equals or len(parts) != 2 or not all(parts) or parts[0] == parts[1]:
        raise InputError(f"--by {by!r}: expected an axis and two of its values: model=small,large")
    axes = tuple(dict.fromkeys(name for case in suite.cases for name in list_axes(case)))
    if axis not in axes:
        near = suggest_one(axis, axes)
        raise InputError(f"--by {by!r}: the run has no axis {axis!r} of a matrix{near}; there are {', '.join(axes) or 'none'}")
    known = tuple(dict.fromkeys(str(case.tags[axis]) for case in suite.cases if axis in list_axes(case)))
    for value in parts:
        if value not in known:
            raise InputError(f"--by {by!r}: {axis} has no value {value!r}; there are {', '.join(known)}")
    return axis, parts[0], parts[1]


def how_much(header: RunHeader, suite: Suite, tally: RunTally, ended: Ending) -> HowMuch | None:
    """Return how much of a run exists, or None if every planned attempt exists."""
    attempts = {case: entry.attempts for case, entry in tally.cases.items()}
    incomplete = find_incomplete_cases(suite.cases, header.repeat, attempts, ended)
    if incomplete is None:
        return None
    return HowMuch(
        ended=incomplete.ended,
        attempts_finished=incomplete.attempts_finished,
        attempts_planned=incomplete.attempts_planned or 0,
        cases_finished=incomplete.cases_finished,
        cases_planned=incomplete.cases_planned or 0,
        missing=tuple(each.case.id for each in incomplete.missing),
    )


def compare_tallies(
    base: tuple[RunHeader, RunTally], candidate: tuple[RunHeader, RunTally], suite: Suite, *, alpha: float = 0.05, min_effect: float = 0.0
) -> RunComparison:
    """Compare the tallies of two runs; `suite` is the candidate's."""
    order = {case.id: number for number, case in enumerate(suite.cases)}
    # Attempts are stored in the order they end, which must not affect the comparison.
    before, after = (tally.put_in_order(order) for _, tally in (base, candidate))
    thresholds = {case.id: case.pass_threshold for case in suite.cases if case.pass_threshold is not None}
    counts = after.count_by_case()
    comparison = compare_runs(before.count_by_case(), counts, alpha=alpha, pass_thresholds=thresholds)
    worse = {change.case: change.difference for change in comparison.changes if change.difference < 0}
    fallen = {case.id: case for case in suite.cases if case.id in worse or case.id in comparison.newly_failing}
    reasons = {
        case: reason
        for case in after.cases
        if case in worse or case in comparison.newly_failing
        if (reason := next(filter(None, (find_reason(entry, fallen.get(case)) for entry in after.cases[case].failed)), ""))
    }
    causes, within_chance = _find_causes(before, after, comparison, worse, reasons)

    def compare_by(amounts: Callable[[CaseTally], list[float]], least_change: float = 0.0) -> AmountChange:
        first, second = ({case: amounts(each) for case, each in tally.cases.items() if amounts(each)} for tally in (before, after))
        return compare_amounts(first, second, alpha=alpha, least_change=least_change)

    return RunComparison(
        base=base[0],
        candidate=candidate[0],
        comparison=comparison,
        reasons=reasons,
        causes=causes,
        within_chance=within_chance,
        failing=tuple(list_failing_cases(counts, thresholds)),
        latency=compare_by(lambda each: each.times_ms, LEAST_LATENCY_CHANGE_MS),
        lacking=tuple(case for case, each in after.cases.items() if each.lacks),
        unmet=after.find_unmet(suite),
        tokens=compare_by(lambda each: each.tokens),
        cost=compare_by(lambda each: each.costs) if before.has_costs or after.has_costs else None,
    )


_MOST_CAUSES = 50
"""Causes that are tested, the most frequent in both runs together: a choice that does not favour either run."""


def _find_causes(
    before: RunTally, after: RunTally, comparison: Comparison, worse: Mapping[str, float], reasons: Mapping[str, str]
) -> tuple[tuple[Cause, ...], tuple[str, ...]]:
    """Return the causes of drops, and the changed cases whose change may be chance.

    A case changed beyond chance if it did alone, if the cause of its failures became more or less frequent beyond chance, or if the whole
    run changed, and no cause or case by itself.
    """
    shared = [change.case for change in comparison.changes]
    totals = Counter[str]()
    for case in shared:
        totals.update(before.cases[case].causes)
        totals.update(after.cases[case].causes)
    shapes = [shape for shape, _ in totals.most_common(_MOST_CAUSES)]
    pairs = {shape: [_count_cause(tally, shape, shared) for tally in (before, after)] for shape in shapes}
    adjusted = adjust_by_holm([stratified_test(list(zip(*pairs[shape], strict=True))).p_value for shape in shapes])
    significant = {shape for shape, p_value in zip(shapes, adjusted, strict=True) if p_value <= comparison.alpha}
    failed = {shape: [sum(entry.runs - entry.passes for entry in side) for side in pairs[shape]] for shape in shapes}
    more = {shape for shape in significant if failed[shape][0] < failed[shape][1]}
    fewer = {shape for shape in significant if failed[shape][0] > failed[shape][1]}
    verdicts = {change.case: change.verdict for change in comparison.changes}
    main = {case: max(after.cases[case].causes.items(), key=lambda item: item[1], default=("", 0))[0] for case in worse}
    better = {change.case for change in comparison.changes if change.difference > 0}
    fell = {case for case in worse if verdicts[case] == "regressed" or main[case] in more}
    rose = {case for case in better if verdicts[case] == "improved" or not fewer.isdisjoint(before.cases[case].causes)}
    if comparison.verdict == "regressed" and not fell:
        fell = set(worse)
    if comparison.verdict == "improved" and not rose:
        rose = better
    by_cause: dict[str, list[str]] = {}
    for case in sorted(worse, key=worse.__getitem__):
        by_cause.setdefault(main[case], []).append(case)
    causes = [
        Cause(
            reason=next(filter(None, (reasons.get(case, "") for case in cases)), ""),
            before=failed.get(shape, (0, 0))[0],
            after=failed.get(shape, (0, 0))[1],
            more_than_chance=shape in more,
            cases=tuple(cases),
        )
        for shape, cases in by_cause.items()
    ]
    causes.sort(key=lambda cause: (not cause.more_than_chance, -len(cause.cases), cause.before - cause.after))
    changed = (case for case in shared if case in worse or case in better)
    return tuple(causes), tuple(case for case in changed if case not in fell and case not in rose)


def _count_cause(tally: RunTally, shape: str, cases: Sequence[str]) -> list[Counts]:
    """Return how many decided attempts of each case did not fail for this cause."""
    counts: list[Counts] = []
    for case in cases:
        entry = tally.cases[case]
        runs = count_outcomes(entry.outcomes).runs
        counts.append(Counts(runs, runs - min(runs, entry.causes.get(shape, 0))))
    return counts


def find_reason(entry: Attempt, case: Case | None) -> str:
    """Return why an attempt did not pass, with the name of the assertion; empty without a reason."""
    if entry.outcome == "error" and entry.reason:
        # The attempt failed, not an assertion.
        return shorten(entry.reason, MOST_REASON)
    for number, verdict in enumerate(entry.verdicts):
        if verdict.outcome in ("fail", "error"):
            assertion = case.assertions[number] if case is not None and number < len(case.assertions) else None
            label = f"{assertion.label or assertion.check}: " if assertion is not None else ""
            return f"{label}{shorten(verdict.reason, MOST_REASON)}"
    return shorten(entry.reason or "", MOST_REASON)
