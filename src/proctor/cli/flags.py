"""Flags that several commands share: judge, clock, selection of cases."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from proctor.cli.exit_codes import Exit
from proctor.cli.parser import parse_natural, parse_positive
from proctor.errors import InputError
from proctor.model.case import Suite
from proctor.model.result import CaseResult, RunResult

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from proctor.actions.judging.judge_settings import JudgeOptions
    from proctor.actions.judging.judges import OpenedJudge
    from proctor.actions.workspace.gating import BaseRun, OutcomeCounter


def add_judge_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `run`, `check` and `recheck` share."""
    judge = parser.add_argument_group("the judge")
    judge.add_argument("--judge-model", metavar="NAME", help="the judge model: one of `models`, or provider/name")
    judge.add_argument("--judge-samples", type=parse_positive, metavar="N", help="judge samples per claim (default: 1)")
    judge.add_argument("--max-judge-calls", type=parse_natural, metavar="N", help="request limit of the judge")
    judge.add_argument("--no-cache", action="store_true", help="do not use the cache of the judge")
    judge.add_argument("--share-judgements", action="store_true", help="reuse one cached verdict for repeats of a case")
    judge.add_argument("--fail-fast", action="store_true", help="skip judged checks once the verdict of a case is final")


def read_judge_options(options: argparse.Namespace) -> JudgeOptions:
    """Return the judge options of the flags."""
    from proctor.actions.judging.judge_settings import JudgeOptions  # rarely needed

    return JudgeOptions(
        model=options.judge_model,
        samples=options.judge_samples,
        cache=not options.no_cache,
        share_over_repeats=True if options.share_judgements else None,
        max_calls=options.max_judge_calls,
    )


def open_judge(suite: Suite, home: Path, options: argparse.Namespace, wanted: JudgeOptions) -> OpenedJudge | None:
    """Open the judge of a suite with recorded evidence; None if nothing is judged."""
    from proctor.actions.judging.judges import open_suite_judge  # rarely needed
    from proctor.actions.judging.trust import read_variables, trust_for

    trust = trust_for("reading", granted=options.trust, home=home)
    variables = read_variables(os.environ, home, trust, lambda text: None if options.quiet else print(text, file=sys.stderr))
    opened = open_suite_judge(suite, home, variables, wanted, trust)
    if opened is not None and opened.warning is not None and not options.quiet:
        print(f"warning: {opened.warning}", file=sys.stderr)
    return opened


def require_moment(text: str) -> None:
    """Reject a `--now` that is not a date or time."""
    from proctor.expressions.moments import read_moment  # rarely needed

    if read_moment(text) is None:
        raise InputError(f"--now {text!r} is no date or time; expected ISO 8601, for example 2026-11-15T09:00:00Z")


class FirstFailure(Exception):
    """Raised at the first failure with -x."""


def add_selection_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a command that goes through the cases of a suite."""
    parser.add_argument(
        "-k",
        metavar="EXPR",
        help="only cases whose id, name or tags match: 'refund and not slow', 'id=c3', 'name=\"Slow refund\"', 'test_dimension=billing'",
    )
    parser.add_argument("-x", "--exitfirst", action="store_true", help="stop at the first failure")
    parser.add_argument("-v", "--verbose", action="store_true", help="each case with its assertions on standard error, as it ends")


def select_cases(suite: Suite, options: argparse.Namespace) -> Suite | None:
    """Return the selected part of a suite; None, with a message, if it is empty. Raises `ProctorError`."""
    if options.k:
        from proctor.decide.selection import select  # rarely needed

        suite = select(suite, options.k)
    reason = f"no case fits -k {options.k!r}" if options.k else "the suite has no cases"
    if suite.cases and getattr(options, "last_failed", False):
        from proctor.actions.history.chosen_runs import choose_failed_cases, find_last_failed
        from proctor.actions.workspace.run_history import find_home  # rarely needed

        last = find_last_failed(find_home(options.home), suite)
        suite = choose_failed_cases(suite, last)
        finding = "the cases chosen here are none of those that failed in" if last.cases else "nothing failed in"
        before = " and the runs before it" if last.earlier else ""
        reason = f"{finding} {last.run_id}{before}, the last run of this suite"
        if not last.whole:
            reason += ", which did not come to its end"
        if suite.cases and not options.quiet:
            print(f"{_count_failed(len(suite.cases), len(last.cases))} that failed in {last.run_id}{before}", file=sys.stderr)
    if suite.cases:
        return suite
    print(f"nothing selected: {reason}", file=sys.stderr)
    return None


def _count_failed(chosen: int, failed: int) -> str:
    of_all = f"{chosen:,} of the {failed:,} cases" if chosen < failed else f"the {chosen:,} cases"
    return "the case" if failed == 1 else of_all


def stop_at_failure(result: CaseResult) -> None:
    """Raise `FirstFailure` for a failed result."""
    if result.outcome in ("fail", "error"):
        raise FirstFailure


def has_failed(run: RunResult) -> bool:
    """Return whether any result failed or errored."""
    return bool(run.counts.get("fail") or run.counts.get("error"))


_EVERY_FAILURE = "every failure counts (--allow-missing-baseline)"


def add_gate_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a command whose exit code is a gate."""
    parser.add_argument(
        "--fail-on",
        metavar="REASONS",
        action="append",
        default=[],
        help="exit 1 also for skipped, missing or flaky cases; with new-failure, cases that also fail in the baseline are allowed, with "
        "regression, failures that are no worse than there beyond chance (a list with commas; may be repeated)",
    )
    parser.add_argument("--against", metavar="RUN", help="the run to compare with for new-failure and regression (default: the baseline)")
    parser.add_argument(
        "--allow-missing-baseline",
        action="store_true",
        help="without a baseline for the suite or its cases, count every failure (default: exit 4)",
    )


class Decision(msgspec.Struct, frozen=True):
    """The decision of a gate, made before the report, which shows why failures are allowed."""

    code: int
    why: tuple[str, ...] = ()
    error: InputError | None = None
    """Why no decision was possible."""

    def mark(self, run: RunResult) -> RunResult:
        """Return the run with the reason why its failures are allowed, if any."""
        is_excused = self.error is None and self.code == Exit.PASSED and run.outcome in ("fail", "error")
        return msgspec.structs.replace(run, let_through="; ".join(self.why)) if is_excused else run

    def finish(self) -> int:
        """Print the reasons and return the exit code. Raises `InputError` if no decision was possible."""
        for line in self.why:
            print(line, file=sys.stderr)
        if self.error is not None:
            raise self.error
        return self.code


class Gate:
    """Applies the gate flags to a run."""

    def __init__(
        self, reasons: tuple[str, ...], counter: OutcomeCounter | None, base: BaseRun | None, *, allow_missing: bool = False
    ) -> None:
        self._allow_missing = allow_missing
        self._reasons = reasons
        self._counter = counter
        self._base = base

    @property
    def enabled(self) -> bool:
        """Whether any gate flag was given."""
        return self._counter is not None

    def add_all(self, results: Iterable[CaseResult]) -> None:
        """Count results, if any gate flag was given."""
        for result in results if self.enabled else ():
            self.add(result)

    def add(self, result: CaseResult) -> None:
        """Count one result."""
        if self._counter is not None:
            self._counter.add(result)

    def decide(self, run: RunResult, code: int, why: tuple[str, ...] = (), *, lenient: bool = True) -> Decision:
        """Return the exit code and reasons, after `why`; `lenient` allows known failures."""
        # A run that failed or was unusable keeps its exit code.
        if self._counter is None or code not in (Exit.PASSED, Exit.FAILED, Exit.NOTHING):
            return Decision(code, why)
        from proctor.report.words.neutral import to_one_line  # only for gates

        try:
            verdict = self._counter.decide(self._reasons, run, self._base)
        except InputError as error:
            if not self._allow_missing:
                return Decision(code, why, error)
            why = (*why, f"{to_one_line(str(error), 500)}; {_EVERY_FAILURE}")
            verdict = self._counter.decide(self._reasons, run, None)
        if verdict.fails:
            return Decision(Exit.FAILED, (*why, *(f"failed on {to_one_line(line, 500)}" for line in verdict.fails)))
        if code == Exit.FAILED and lenient and verdict.excused is not None:
            return Decision(Exit.PASSED, (*why, to_one_line(verdict.excused, 500)))
        return Decision(code, why)


def open_gate(options: argparse.Namespace, suite: str) -> Gate:
    """Return the gate of the flags. Raises `ProctorError` if the earlier run is missing."""
    if not options.fail_on and options.against is None:
        return Gate((), None, None)
    from proctor.actions.workspace.gating import AGAINST, OutcomeCounter, open_base, read_reasons  # most commands have no gate
    from proctor.actions.workspace.run_history import find_home
    from proctor.errors import StoreError

    reasons = read_reasons(options.fail_on)
    if not any(reason in AGAINST for reason in reasons):
        if options.against is not None:
            raise InputError(f"--against goes with --fail-on {' or '.join(AGAINST)}")
        return Gate(reasons, OutcomeCounter(), None)
    allow_missing: bool = options.allow_missing_baseline
    try:
        base = open_base(find_home(options.home), options.against, suite)
    except StoreError as error:
        if not allow_missing or options.against is not None:
            raise
        print(f"{error}; {_EVERY_FAILURE}", file=sys.stderr)
        base = None
    return Gate(reasons, OutcomeCounter(), base, allow_missing=allow_missing)
