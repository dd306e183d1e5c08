"""Progress of a run: one updating line on a terminal, else one line per attempt.

On GitHub every failure also becomes an annotation at the source of the assertion, so that a pull request shows it in place.
"""

import sys
from collections.abc import Iterable
from itertools import islice
from typing import Literal

from proctor.actions.workspace.status_line import StatusLine
from proctor.cli.show.renderers import print_case
from proctor.model.result import CaseResult
from proctor.model.show import count_rest
from proctor.report.words.faults import Repeats, find_case_fault, find_fault
from proctor.report.words.neutral import to_one_line
from proctor.runner.ports import Event

_MOST_NAMES = 3


def make_listener(*, quiet: bool, verbose: bool = False) -> "LiveProgress":
    """Return the progress display for standard error."""
    if verbose:
        return _Assertions()
    if quiet:
        return LiveProgress()
    return _MovingLine() if sys.stderr.isatty() else _PlainLines()


class LiveProgress:
    """A listener that can be closed; this one shows nothing."""

    def __call__(self, event: Event) -> None:
        """Show an event."""

    def finish(self) -> None:
        """Restore the screen."""


class _Assertions(LiveProgress):
    """Each attempt in full as it ends, and what else happens to the run."""

    def __call__(self, event: Event) -> None:
        if event.kind == "finished" and event.result is not None:
            print_case(event.result)
        else:
            _print_rest(event)


def _print_rest(event: Event) -> None:
    if event.kind in ("retrying", "slowed", "stopping"):
        print(f"{event.kind}  {to_one_line(event.case, 80)}  {to_one_line(event.message, 160)}", file=sys.stderr)


class _MovingLine(LiveProgress):
    """One line: running cases, progress, rate, failures, time left."""

    def __init__(self) -> None:
        self._total = 0
        self._running: dict[tuple[str, int], None] = {}
        self._done = self._failed = 0
        self._describe_failure = _FailureLines()
        self._line = StatusLine(enabled=True)
        self.finish = self._line.finish

    def __call__(self, event: Event) -> None:
        key = (event.case, event.attempt)
        if event.kind == "planned":
            self._total = event.total
        elif event.kind == "started":
            self._running[key] = None
        elif event.kind == "finished" and event.result is not None:
            self._running.pop(key, None)
            self._done += 1
            if event.result.outcome in ("fail", "error"):
                self._failed += 1
                self._line.print_above(self._describe_failure(event.result))
        elif event.kind in ("slowed", "stopping"):
            self._line.print_above(f"{event.kind}: {to_one_line(event.message, 160)}")
        # Drawing is slower than some attempts; the last state is always drawn.
        self._line.show(self._describe, is_last=self._done == self._total)

    def _describe(self, seconds: float) -> str:
        rate = self._done / seconds
        remaining = f", about {(self._total - self._done) / rate:.0f} s to go" if self._done and self._done < self._total else ""
        names = ", ".join(to_one_line(case, 24) for case, _ in list(self._running)[:_MOST_NAMES])
        more = count_rest(len(self._running), _MOST_NAMES)
        running = f"; running {names}{more}" if names else ""
        return f"{self._done}/{self._total} done, {self._failed} failed, {rate:.1f} a second{remaining}{running}"[:160]


class _PlainLines(LiveProgress):
    """For logs: one line per finished attempt."""

    def __init__(self) -> None:
        self._total = self._done = 0
        self._line = _FailureLines()

    def __call__(self, event: Event) -> None:
        if event.kind == "planned":
            self._total = event.total
        elif event.kind == "finished" and event.result is not None:
            self._done += 1
            line = (
                self._line(event.result)
                if event.result.outcome in ("fail", "error")
                else f"{event.result.outcome}  {to_one_line(event.case, 80)}{_describe_attempt(event.attempt)}"
            )
            print(f"{self._done}/{self._total}  {line}", file=sys.stderr)
        else:
            _print_rest(event)


class _FailureLines:
    """A failed attempt on one line: case and first finding. A judge fault is shown once."""

    def __init__(self) -> None:
        self._shown_fault: tuple[str, str] | None = None
        self._case_faults = Repeats()

    def __call__(self, result: CaseResult) -> str:
        first = next(iter(result.failures()), None)
        reason = result.reason or "" if first is None else first.reason
        fault = find_fault(first.verdict) if first is not None else None
        if fault is not None and fault == self._shown_fault:
            reason = "not judged, as above"
        self._shown_fault = fault or self._shown_fault
        if self._case_faults.is_repeat(result):
            reason = f"as above [{result.code}]"
        attempt = _describe_attempt(result.attempt)
        return f"{result.outcome}  {to_one_line(result.case.id, 80)}{attempt}  {to_one_line(reason, 160)}".rstrip()


def _describe_attempt(number: int) -> str:
    return f" (attempt {number + 1})" if number else ""


def write_annotations(results: Iterable[CaseResult], *, level: Literal["error", "warning"] = "error") -> list[str]:
    """Return GitHub workflow commands for every failed assertion, at its source."""
    lines: list[str] = []
    faults = Repeats()
    for result in results:
        if faults.is_repeat(result):
            continue
        # A fault of the whole case is shown at its first claim.
        most = 1 if find_case_fault(result) is not None else None
        for entry in islice(result.failures(), most):
            origin = entry.assertion.origin
            place = f" file={_escape_property(origin.file)},line={origin.line or 1},col={origin.column or 1}," if origin.file else " "
            title = _escape_property(f"{result.case.id}: {entry.assertion.label or entry.assertion.check}")
            lines.append(f"::{level}{place}title={title}::{_escape_message(entry.reason)}")
    return lines


def _escape_message(text: str) -> str:
    # The percent sign first, or it would escape later escapes.
    return to_one_line(text, 500).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    # GitHub's workflow commands end a property at these.
    return _escape_message(text).replace(":", "%3A").replace(",", "%2C")
