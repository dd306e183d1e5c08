"""Shows on standard error that a long run is alive; nothing when it is short or nobody is looking."""

from __future__ import annotations

import sys
import time

from proctor.model.result import CaseResult

_QUIET_S = 1.0
_EVERY_S = 0.25


class Progress:
    """Counts results and, on a terminal, says so now and then."""

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled and sys.stderr.isatty()
        """Whether anybody is looking."""
        self._started = time.monotonic()
        self._next = self._started + _QUIET_S
        self._count = 0
        self._failed = 0
        self._shown = False

    def add(self, result: CaseResult) -> None:
        """Count one more result."""
        self._count += 1
        if result.outcome in ("fail", "error"):
            self._failed += 1
        # The clock is not asked for every result: at a hundred thousand a second that would show.
        if self._count % 64 == 0 and (now := time.monotonic()) >= self._next:
            self._next = now + _EVERY_S
            rate = self._count / (now - self._started)
            self._shown = True
            print(f"\r\x1b[2K{self._count:,} checked, {self._failed:,} failed, {rate:,.0f} a second", end="", file=sys.stderr, flush=True)

    def finish(self) -> None:
        """Wipe the line."""
        if self._shown:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
