"""A line on standard error that shows how far a command is, and is overwritten."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

_WIPE = "\r\x1b[2K"


class StatusLine:
    """Shows a text at most every `every_s` seconds, for the first time after `wait_s`; nothing unless it is `enabled`."""

    def __init__(self, *, enabled: bool, wait_s: float = 0.0, every_s: float = 0.2) -> None:
        self._enabled, self._every_s = enabled, every_s
        self.started = time.monotonic()
        self._next = self.started + wait_s
        self._shown = False

    def show(self, write: Callable[[float], str], *, is_last: bool = False) -> None:
        """Show a text made from the seconds so far, if it is due or the last one."""
        now = time.monotonic()
        if self._enabled and (now >= self._next or is_last):
            self._next, self._shown = now + self._every_s, True
            print(f"{_WIPE}{write(max(now - self.started, 1e-6))}", end="", file=sys.stderr, flush=True)

    def print_above(self, line: str) -> None:
        """Print a line that stays."""
        print(f"{_WIPE if self._enabled else ''}{line}", file=sys.stderr)

    def finish(self) -> None:
        """Wipe the line."""
        if self._shown:
            print(_WIPE, end="", file=sys.stderr, flush=True)
