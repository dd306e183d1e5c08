"""Reasons for which a run fails in addition to its failed assertions: `--fail-on skipped|missing|flaky|new-failure|regression`.

`skipped`, `missing` and `flaky` are about the run itself and make it stricter. `new-failure` and `regression` compare it with an earlier
run: cases that failed there as well are allowed, and listed. If there is too little data for a significance test, every case that fails
more often than before counts. With an earlier run, `missing` also covers the cases that were decided there and are not now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from proctor.errors import InputError
from proctor.model.result import CaseResult, RunResult, Unmet
from proctor.model.run import RunHeader
from proctor.model.show import suggest
from proctor.model.verdict import Verdict
from proctor.report.words.wording import count_noun, unmet_words
from proctor.scoring.intervals import Counts
from proctor.scoring.paired import Comparison, compare_runs
from proctor.scoring.score import reduce_attempts
from proctor.scoring.statistics import count_outcomes
from proctor.store.files.run_files import RunFiles
from proctor.store.files.run_references import BASELINE

REASONS = ("skipped", "missing", "flaky", "new-failure", "regression")
AGAINST = ("new-failure", "regression")
"""The reasons that need an earlier run."""
OF_TWO_RUNS = ("missing", *AGAINST)
"""The reasons that apply to two stored runs."""
_MOST_NAMES = 5


class BaseRun(msgspec.Struct, frozen=True, kw_only=True):
    """The earlier run to compare with."""

    header: RunHeader
    counts: dict[str, Counts]


class GateVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the gates for a run."""

    fails: tuple[str, ...] = ()
    """Why the run fails, one line each."""
    excused: str | None = None
    """Which failures the earlier run also has, if there are no others."""


def read_reasons(flags: Iterable[str]) -> tuple[str, ...]:
    """Return the reasons from the flags, each once; a flag may hold several, separated by commas. Raises `InputError`."""
    reasons = tuple(dict.fromkeys(word.strip() for text in flags for word in text.split(",") if word.strip()))
    for word in reasons:
        if word not in REASONS:
            raise InputError(f"--fail-on {word!r} is no reason; there are {', '.join(REASONS)}{suggest(word, REASONS)}")
    return reasons


def open_base(home: Path, against: str | None, suite: str) -> BaseRun:
    """Return the run to compare with: the named one, else the baseline of the suite. Raises `StoreError` if there is none."""
    folder = RunFiles(home).open(against or BASELINE, suite=suite)
    if folder.find_ending() != "completed":
        raise InputError(f"run {folder.header.run_id!r} is incomplete, so it cannot be the base of a comparison")
    counter = OutcomeCounter()
    for entry in folder.entries():
        counter.count(entry.case, entry.outcome)
    return BaseRun(header=folder.header, counts=counter.list_counts())


class OutcomeCounter:
    """Counts the outcomes of the attempts of every case while they stream."""

    def __init__(self) -> None:
        self._outcomes: dict[str, dict[str, int]] = {}
        self._thresholds: dict[str, float] = {}
        self._lacking: dict[str, None] = {}

    def add(self, result: CaseResult) -> None:
        """Count one result."""
        case = result.case
        self.count(case.id, result.outcome)
        if case.pass_threshold is not None:
            self._thresholds[case.id] = case.pass_threshold
        if lacks_evidence(result.verdicts):
            self._lacking[case.id] = None

    def count(self, case: str, outcome: str) -> None:
        """Count one attempt of a case."""
        outcomes = self._outcomes.setdefault(case, {})
        outcomes[outcome] = outcomes.get(outcome, 0) + 1

    def list_counts(self) -> dict[str, Counts]:
        """Return the number of attempts and of passes of every case."""
        return {case: count_outcomes(outcomes) for case, outcomes in self._outcomes.items()}

    def decide(self, reasons: Sequence[str], run: RunResult, base: BaseRun | None) -> GateVerdict:
        """Return the result of the gates. Raises `InputError` if the earlier run has no case in common with this one."""
        fails: list[str] = []
        if "skipped" in reasons:
            fails += _make_line(
                "skipped", "was skipped", "were skipped", [case for case, tally in self._outcomes.items() if tally.get("skip")]
            )
        if "missing" in reasons:
            fails += list_missing(run.unmet, self._lacking)
        if "flaky" in reasons:
            flaky = [case for case, tally in self._outcomes.items() if tally.get("pass") and (tally.get("fail") or tally.get("error"))]
            fails += _make_line("flaky", "passed and failed", "passed and failed", flaky)
        if base is None:
            return GateVerdict(fails=tuple(fails))
        counts = self.list_counts()
        comparison = compare_runs(base.counts, counts, pass_thresholds=self._thresholds)
        failing = list_failing_cases(counts, self._thresholds)
        name = base.header.run_id
        fails += hold_against(comparison, failing, name, reasons)
        if fails or not failing:
            return GateVerdict(fails=tuple(fails))
        counted = f"{count_noun(len(failing), 'case')} that {'fails' if len(failing) == 1 else 'fail'}"
        return GateVerdict(excused=f"{counted}: {_list_names(failing)}; let through, as held against {name}")


def lacks_evidence(verdicts: Iterable[Verdict]) -> bool:
    """Return whether the evidence lacks something that a claim needs."""
    # A list, not `any`: this runs for every attempt of both runs of a comparison.
    return "missing_evidence" in [verdict.code for verdict in verdicts]


def list_missing(unmet: Unmet, lacking: Iterable[str]) -> list[str]:
    """Return what is missing in one run, one line each; `lacking` are the cases whose evidence lacks something that a claim needs."""
    fails = [f"missing: {unmet_words(unmet)}"] if unmet.any else []
    return fails + _make_line("missing", "lacks evidence that it needs", "lack evidence that they need", lacking)


def list_failing_cases(counts: Mapping[str, Counts], thresholds: Mapping[str, float]) -> list[str]:
    """Return the cases that were decided and do not pass."""
    return [
        case
        for case, counted in counts.items()
        if counted.runs and reduce_attempts({"pass": counted.passes, "fail": counted.runs - counted.passes}, thresholds.get(case)) != "pass"
    ]


def hold_against(comparison: Comparison, failing: Sequence[str], base: str, reasons: Sequence[str]) -> list[str]:
    """Return why a run fails in comparison with an earlier one, one line each: the common rule of `run`, `check` and `compare`.

    `failing` are the cases of the later run that do not pass. Raises `InputError` if the runs have no case in common.
    """
    if not comparison.cases:
        raise InputError(f"run {base!r} has no decided case in common with this one, so that nothing can be held against it")
    fails: list[str] = []
    if "missing" in reasons:
        singular, plural = f"was decided in {base} and is not now", f"were decided in {base} and are not now"
        fails += _make_line("missing", singular, plural, comparison.only_in_base)
    if "new-failure" in reasons:
        # A case that the base never decided has no earlier failure that could excuse it.
        unknown = [case for case in failing if case in comparison.only_in_candidate]
        fails += _make_line(
            "new-failure", f"passed in {base} and does not now", f"passed in {base} and do not now", comparison.newly_failing
        )
        fails += _make_line("new-failure", f"fails and was not decided in {base}", f"fail and were not decided in {base}", unknown)
    if "regression" in reasons and comparison.verdict == "regressed":
        fails.append(f"regression: against {base} {comparison.reason}")
    elif "regression" in reasons and "new-failure" not in reasons and comparison.verdict == "too_little_data":
        known = {change.case for change in comparison.changes if change.difference >= 0}
        worse = [case for case in failing if case not in known]
        reason = f"too little data to decide whether it is worse than {base}, so that every case that fails more often counts"
        fails += [f"regression: {reason}: {_list_names(worse)}"] if worse else []
    return fails


def _make_line(reason: str, singular: str, several: str, cases: Iterable[str]) -> list[str]:
    names = list(cases)
    return [f"{reason}: {count_noun(len(names), 'case')} {singular if len(names) == 1 else several}: {_list_names(names)}"] if names else []


def _list_names(cases: Sequence[str]) -> str:
    more = f" and {len(cases) - _MOST_NAMES:,} more" if len(cases) > _MOST_NAMES else ""
    return ", ".join(case or "(no case)" for case in cases[:_MOST_NAMES]) + more
