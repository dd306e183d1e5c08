"""Which cases a command takes, and when it stops: the flags of `check` and `run`, named as in pytest."""

from __future__ import annotations

import argparse
import sys

from proctor.model.case import Suite
from proctor.model.result import CaseResult, RunResult


class FirstFailure(Exception):
    """Something failed, and nothing more is wanted."""


def add_selection_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a command that goes through the cases of a suite."""
    parser.add_argument(
        "-k",
        metavar="EXPR",
        help="only cases whose id, name or tags fit: 'refund and not slow', 'id=c3', 'name=\"Slow refund\"', 'test_dimension=billing'",
    )
    parser.add_argument("-x", "--exitfirst", action="store_true", help="stop at the first failure")
    parser.add_argument("-v", "--verbose", action="store_true", help="each case with its assertions on standard error, as it ends")


def add_last_failed_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag of a command that can drive again what failed."""
    parser.add_argument("--last-failed", "--lf", action="store_true", help="only cases that failed or errored when they were last driven")


def select_cases(suite: Suite, options: argparse.Namespace) -> Suite | None:
    """Return the chosen part of a suite; None, having said why, where nothing is left. Raises `ProctorError`."""
    if options.k:
        from proctor.decide.selection import select  # most runs take the whole suite

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
    """Raise `FirstFailure` for a result that is one."""
    if result.outcome in ("fail", "error"):
        raise FirstFailure


def has_failed(run: RunResult) -> bool:
    """Return whether anything of a run failed or ended in an error."""
    return bool(run.counts.get("fail") or run.counts.get("error"))
