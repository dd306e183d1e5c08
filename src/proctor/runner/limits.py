"""How many attempts may be under way at once, and what a run may spend.

The number adapts to what the other side can bear: halved when it says that it is too much (429, overloaded), raised by one after every
round of successes, never above what the user asked for.
"""

from collections.abc import Callable

import msgspec


class Gate:
    """Lets a bounded and adapting number of attempts through. It never waits: whoever gives a place back looks who can have it."""

    def __init__(self, most: int, *, adapt: bool = True, clock: Callable[[], float]) -> None:
        self.most = most
        self.limit = most
        self._adapt = adapt
        self._clock = clock
        self._inside = 0
        self._successes = 0
        self._closed_until = 0.0

    def enter(self) -> bool:
        """Take a place if there is one, and if the other side has not asked for a pause."""
        if self._inside >= self.limit or self.pause() > 0:
            return False
        self._inside += 1
        return True

    def leave(self) -> None:
        """Give the place back."""
        self._inside -= 1

    def pause(self) -> float:
        """How long the other side still wants to be left alone, in seconds."""
        return max(0.0, self._closed_until - self._clock()) if self._closed_until else 0.0

    def succeeded(self) -> None:
        """An attempt went through: after a round of these the limit may rise."""
        if not self._adapt or self.limit >= self.most:
            return
        self._successes += 1
        if self._successes >= self.limit:
            self._successes = 0
            self.limit += 1

    def too_much(self, retry_after_s: float | None) -> None:
        """The other side is overloaded: half as many at once, and none before it asked to be tried again."""
        if self._adapt:
            self.limit = max(1, self.limit // 2)
            self._successes = 0
        if retry_after_s is not None:
            self._closed_until = max(self._closed_until, self._clock() + retry_after_s)


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What a run may spend before it stops; nothing: no bound."""

    max_tokens: int | None = None
    max_seconds: float | None = None
    max_failures: int | None = None


class Spent:
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

    def exhausted(self) -> str | None:
        """The bound that was reached, in words."""
        budget = self._budget
        if budget.max_tokens is not None and self.tokens >= budget.max_tokens:
            return f"{self.tokens} tokens spent, the limit is {budget.max_tokens}"
        if budget.max_seconds is not None and self._clock() - self._started >= budget.max_seconds:
            return f"{budget.max_seconds:g} seconds are over"
        if budget.max_failures is not None and self.failures >= budget.max_failures:
            return f"{self.failures} attempts failed, the limit is {budget.max_failures}"
        return None

    def seconds_left(self) -> float | None:
        """How long the run may still take."""
        if self._budget.max_seconds is None:
            return None
        return max(0.0, self._budget.max_seconds - (self._clock() - self._started))
