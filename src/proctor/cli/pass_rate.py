"""The flags `--min-pass-rate` and `--allow-errors` of `run`: a share of attempts that must pass, instead of all."""

from __future__ import annotations

import argparse

from proctor.cli.exits import Exit
from proctor.cli.parser import parse_share
from proctor.errors import InputError
from proctor.model.result import RunResult


def add_rate_flags(parser: argparse.ArgumentParser) -> None:
    """Add both flags."""
    parser.add_argument(
        "--min-pass-rate", type=parse_share, metavar="SHARE", help="the share of attempts that must pass, instead of all; errors still fail"
    )
    parser.add_argument("--allow-errors", action="store_true", help="with --min-pass-rate: errors count as attempts that did not pass")


def check_rate_flags(options: argparse.Namespace) -> None:
    """Refuse flags that mean nothing; raises `InputError`."""
    if options.allow_errors and options.min_pass_rate is None:
        raise InputError("--allow-errors goes with --min-pass-rate")


def choose_rate_exit(run: RunResult, least: float, *, allow_errors: bool) -> tuple[Exit, str]:
    """Return the exit code of a run held against a pass rate, with the rate and the bound in words.

    An attempt that ended in an error was not examined: no rate covers it, unless errors are allowed.
    """
    passes, errors = run.counts["pass"], run.counts["error"]
    examined = passes + run.counts["fail"]
    if not examined and not errors:
        return Exit.NOTHING, "nothing was examined, so that no pass rate is reached"
    if errors and not allow_errors:
        many = "1 attempt ended in an error and was" if errors == 1 else f"{errors:,} attempts ended in an error and were"
        told = f"{many} not examined, so that no pass rate is reached; --allow-errors counts them as attempts that did not pass"
        return Exit.FAILED, told
    if not examined:
        return Exit.FAILED, "nothing was examined, so that no pass rate is reached"
    attempts = examined + errors
    # A rate that is the bound itself must not miss it by a rounding error.
    reached = passes / attempts >= least - 1e-9
    beside = f", {errors:,} of them an error" if errors else ""
    held = f"at least {100 * least:.1f} %: {'reached' if reached else 'not reached'}"
    told = f"pass rate {100 * passes / attempts:.1f} % ({passes:,} of {attempts:,} attempts{beside}), {held}"
    return (Exit.PASSED if reached else Exit.FAILED), told
