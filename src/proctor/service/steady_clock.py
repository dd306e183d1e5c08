"""A clock for waits and leases that are kept in a database: it shows the time of day and never goes back.

What is due and how long a lease lasts is stored as a time of day, since other processes read it. When somebody puts the clock of the
machine back, everything stored just before would be due an hour later. So a process goes on from the latest time it has seen, as fast as
time really passes; a clock that is put forward (a machine that was suspended) is followed.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class SteadyClock:
    """Unix seconds that never go back; called like `time.time`."""

    def __init__(self, wall: Callable[[], float] = time.time, passing: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._passing = passing
        self._ahead = wall() - passing()
        """What is to be added to the time that has passed."""

    def __call__(self) -> float:
        """Return the time now."""
        passed = self._passing()
        # Both a forward step and the drift of the two clocks are taken from the wall; a step back is not.
        self._ahead = max(self._ahead, self._wall() - passed)
        return passed + self._ahead
