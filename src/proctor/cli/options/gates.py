"""The flag `--fail-on` of `check` and `run`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from proctor.cli.signals.exit_codes import Exit
from proctor.errors import InputError
from proctor.model.result import CaseResult, RunResult

if TYPE_CHECKING:
    from proctor.actions.workspace.gating import BaseRun, OutcomeCounter

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
