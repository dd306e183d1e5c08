"""Bounds how many attempts run at once, and what a run may spend.

The number adapts to what the other side can bear: halved when it says that it is too much (429, overloaded), raised by one after every
round of successes, never above what the user asked for.
"""

from collections.abc import Callable

import msgspec

from proctor.errors import InputError
from proctor.model.numbers import is_finite

MOST_AT_ONCE = 1_000
"""How many attempts one run may have under way."""
MOST_RETRIES = 100
"""More retries than a fault that passes ever needs."""
MOST_ATTEMPTS = 1_000_000
"""How many attempts one run may plan."""
LONGEST_S = 7 * 24 * 3600.0
"""The longest time a run may be told to wait: a week."""


def require_whole(name: str, value: object, least: int, most: int | None = None) -> None:
    """Raise `InputError` unless a number is whole and between these."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        wanted = f"from {least} to {most:,}" if most is not None else f"of at least {least}"
        raise InputError(f"{name}: expected a whole number {wanted}, found {value!r:.40}")


def require_seconds(name: str, value: object) -> None:
    """Raise `InputError` unless a number is a time one can wait for."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not is_finite(value) or not 0 < value <= LONGEST_S:
        raise InputError(f"{name}: expected seconds above 0, at most {LONGEST_S:,.0f} (a week), found {value!r:.40}")


class AttemptGate:
    """Lets a bounded, adapting number of attempts through. It never waits: whoever gives a place back starts the next."""

    def __init__(self, most: int, *, adapt: bool = True, clock: Callable[[], float]) -> None:
        self.most = most
        self.limit = most
        self._adapt = adapt
        self._clock = clock
        self._inside = 0
        self._successes = 0
        self._closed_until = 0.0

    def enter(self) -> bool:
        """Take a place if there is one and the other side has not asked for a pause; return whether it was taken."""
        if self._inside >= self.limit or self.get_pause_s() > 0:
            return False
        self._inside += 1
        return True

    def leave(self) -> None:
        """Give the place back."""
        self._inside -= 1

    def get_pause_s(self) -> float:
        """Return how long the other side still asks to be left alone, in seconds."""
        return max(0.0, self._closed_until - self._clock()) if self._closed_until else 0.0

    def note_success(self) -> None:
        """Count an attempt that went through: after a round of these the limit may rise."""
        if not self._adapt or self.limit >= self.most:
            return
        self._successes += 1
        # Halved at once and raised by one per round: the limit settles just below what the other side bears.
        if self._successes >= self.limit:
            self._successes = 0
            self.limit += 1

    def slow_down(self, retry_after_s: float | None) -> None:
        """Halve the number of attempts at once, and start none before the time that the other side asked for."""
        if self._adapt:
            self.limit = max(1, self.limit // 2)
            self._successes = 0
        if retry_after_s is not None:
            # Several attempts may be refused at once: the longest pause that any of them was told holds for all.
            self._closed_until = max(self._closed_until, self._clock() + retry_after_s)


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What a run may spend before it stops; None means no bound."""

    max_tokens: int | None = None
    max_seconds: float | None = None
    max_failures: int | None = None

    def __post_init__(self) -> None:
        """Raise `InputError` for numbers that make no sense, by name."""
        for name in ("max_tokens", "max_failures"):
            if getattr(self, name) is not None:
                require_whole(name.replace("_", "-"), getattr(self, name), 1)
        if self.max_seconds is not None:
            require_seconds("max-seconds", self.max_seconds)


class BudgetMeter:
    """What a run has spent so far, and which bound it has reached."""

    def __init__(self, budget: Budget, clock: Callable[[], float]) -> None:
        self._budget = budget
        self._clock = clock
        self._started = clock()
        self.tokens = 0
        self.failures = 0

    def add(self, *, tokens: int, failed: bool) -> None:
        """Count one finished attempt."""
        self.tokens += tokens
        self.failures += failed

    def explain_exhausted(self) -> str | None:
        """Return the bound that was reached, in words, or None."""
        budget = self._budget
        if budget.max_tokens is not None and self.tokens >= budget.max_tokens:
            return f"{self.tokens} tokens spent, the limit is {budget.max_tokens}"
        if budget.max_seconds is not None and self._clock() - self._started >= budget.max_seconds:
            return f"{budget.max_seconds:g} seconds are over"
        if budget.max_failures is not None and self.failures >= budget.max_failures:
            return f"{self.failures} attempts failed, the limit is {budget.max_failures}"
        return None

    def get_seconds_left(self) -> float | None:
        """Return how many seconds the run may still take, or None without a bound."""
        if self._budget.max_seconds is None:
            return None
        return max(0.0, self._budget.max_seconds - (self._clock() - self._started))
