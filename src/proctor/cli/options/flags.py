"""Flags that several commands share: judge, clock, selection of cases."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from proctor.cli.parser import parse_natural, parse_positive
from proctor.errors import InputError
from proctor.model.case import Suite
from proctor.model.result import CaseResult, RunResult

if TYPE_CHECKING:
    from pathlib import Path

    from proctor.actions.judging.judge_settings import JudgeOptions
    from proctor.actions.judging.judges import OpenedJudge
    from proctor.model.case import Suite


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
    from proctor.actions.trust.trust import read_variables, trust_for

    trust = trust_for("reading", granted=options.trust, home=home)
    variables = read_variables(os.environ, home, trust, lambda text: None if options.quiet else print(text, file=sys.stderr))
    opened = open_suite_judge(suite, home, variables, wanted, trust)
    if opened is not None and opened.warning is not None and not options.quiet:
        print(f"warning: {opened.warning}", file=sys.stderr)
    return opened


def add_now_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--now ISO`."""
    parser.add_argument("--now", metavar="ISO", help="the current time for expressions (default: that of the evidence)")


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


def add_last_failed_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag of a command that can drive again what failed."""
    parser.add_argument("--last-failed", "--lf", action="store_true", help="only cases that failed or errored in the last run")


def select_cases(suite: Suite, options: argparse.Namespace) -> Suite | None:
    """Return the selected part of a suite; None, with a message, if it is empty. Raises `ProctorError`."""
    if options.k:
        from proctor.decide.selection import select  # rarely needed

        suite = select(suite, options.k)
    why = f"no case fits -k {options.k!r}" if options.k else "the suite has no cases"
    if suite.cases and getattr(options, "last_failed", False):
        from proctor.actions.history.last_failed import choose_failed_cases, find_last_failed
        from proctor.actions.workspace.run_history import find_home  # as above

        last = find_last_failed(find_home(options.home), suite)
        suite = choose_failed_cases(suite, last)
        what = "the cases chosen here are none of those that failed in" if last.cases else "nothing failed in"
        before = " and the runs before it" if last.earlier else ""
        why = f"{what} {last.run_id}{before}, the last run of this suite"
        if not last.whole:
            why += ", which did not come to its end"
        if suite.cases and not options.quiet:
            print(f"{_count_failed(len(suite.cases), len(last.cases))} that failed in {last.run_id}{before}", file=sys.stderr)
    if suite.cases:
        return suite
    print(f"nothing selected: {why}", file=sys.stderr)
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
