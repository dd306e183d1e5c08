"""How far a batch is, in one line on standard error that moves."""

from __future__ import annotations

import sys
import time

import msgspec

_EVERY_S = 0.25
"""How often the line changes: more than a person can read helps nobody."""


class BatchProgress(msgspec.Struct, kw_only=True):
    """How far a batch is."""

    partitions: int
    """Partitions that are to be evaluated now."""
    carried: int = 0
    """Partitions that have their result from an earlier batch."""
    done: int = 0
    traces: int = 0
    failed: int = 0
    """Results that did not pass, and records that could not be read."""


class ProgressLine:
    """Shows partitions, traces a second, failures so far and the time left; nothing at all where it is told to be quiet."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._started = time.monotonic()
        self._next = 0.0

    def show(self, progress: BatchProgress) -> None:
        """Show how far a batch is."""
        now = time.monotonic()
        if self._quiet or (now < self._next and progress.done < progress.partitions):
            return
        self._next = now + _EVERY_S
        print(f"\r\x1b[2K{_describe(progress, max(now - self._started, 1e-6))}", end="", file=sys.stderr, flush=True)

    def finish(self) -> None:
        """Wipe the line."""
        if not self._quiet:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def _describe(progress: BatchProgress, passed_s: float) -> str:
    left = passed_s / progress.done * (progress.partitions - progress.done) if progress.done else None
    told = [f"{progress.done:,}/{progress.partitions:,} partitions", f"{progress.traces / passed_s:,.0f} traces a second"]
    told += [f"{progress.failed:,} failed"] * bool(progress.failed)
    told += [f"{progress.carried:,} were there"] * bool(progress.carried)
    told += [] if left is None else [f"{left:,.0f} s left"]
    return ", ".join(told)
