"""Limits of a run: concurrency, budget, retries, and the settings of all of them."""

from collections.abc import Callable

import msgspec

from proctor.errors import InputError
from proctor.model.case import MOST_REPEATS
from proctor.model.evidence import Cost
from proctor.model.json_values import is_finite, is_number

MOST_AT_ONCE = 1_000
"""How many attempts one run may have under way."""
MOST_RETRIES = 100
"""More retries than a fault that passes ever needs."""
MOST_ATTEMPTS = 1_000_000
"""How many attempts one run may plan."""
LONGEST_S = 7 * 24 * 3600.0
"""The longest pause of a run: a week."""


def require_whole(name: str, value: object, least: int, most: int | None = None) -> None:
    """Raise `InputError` unless a number is whole and between these."""
    # `True` is an `int` in Python: `repeat: true` must not count as 1.
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        wanted = f"from {least} to {most:,}" if most is not None else f"of at least {least}"
        raise InputError(f"{name}: expected a whole number {wanted}, found {value!r:.40}")


def require_seconds(name: str, value: object) -> None:
    """Raise `InputError` unless a number is a time one can wait for."""
    if not is_number(value) or not is_finite(value) or not 0 < value <= LONGEST_S:
        raise InputError(f"{name}: expected seconds above 0, at most {LONGEST_S:,.0f} (a week), found {value!r:.40}")


class AttemptGate:
    """Lets a bounded, adapting number of attempts through. It never waits: an attempt that leaves starts the next."""

    def __init__(self, most: int, *, adapt: bool = True, clock: Callable[[], float]) -> None:
        self.most = most
        self.limit = most
        self._adapt = adapt
        self._clock = clock
        self._inside = 0
        self._successes = 0
        self._closed_until = 0.0

    def enter(self) -> bool:
        """Take a place if one is free and no pause is in effect; return whether it was taken."""
        if self._inside >= self.limit or self.get_pause_s() > 0:
            return False
        self._inside += 1
        return True

    def leave(self) -> None:
        """Give the place back."""
        self._inside -= 1

    def get_pause_s(self) -> float:
        """Return how long the other side still asks to be left alone, in seconds."""
        # Most runs have no pauses and need no clock.
        return max(0.0, self._closed_until - self._clock()) if self._closed_until else 0.0

    def note_success(self) -> None:
        """Count an attempt that went through: after a round of these the limit may rise."""
        if not self._adapt or self.limit >= self.most:
            return
        self._successes += 1
        # Halved at once and raised by one per round: the limit settles just below what the server bears.
        if self._successes >= self.limit:
            self._successes = 0
            self.limit += 1

    def slow_down(self, retry_after_s: float | None) -> None:
        """Halve the concurrency, and start no attempt before the requested pause is over."""
        if self._adapt:
            self.limit = max(1, self.limit // 2)
            self._successes = 0
        # A run that does not adapt its number respects a pause all the same.
        if retry_after_s is not None:
            # Several attempts may be rejected at once: the longest pause counts.
            self._closed_until = max(self._closed_until, self._clock() + retry_after_s)


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What a run may spend before it stops; None means no bound."""

    max_tokens: int | None = None
    max_seconds: float | None = None
    max_failures: int | None = None
    max_cost: float | None = None
    """In the currency of the prices."""

    def __post_init__(self) -> None:
        """Raise `InputError` for numbers that make no sense, by name."""
        for name in ("max_tokens", "max_failures"):
            if getattr(self, name) is not None:
                require_whole(name.replace("_", "-"), getattr(self, name), 1)
        if self.max_seconds is not None:
            require_seconds("max-seconds", self.max_seconds)
        cost = self.max_cost
        if cost is not None and (not is_finite(cost) or cost <= 0):
            raise InputError(f"max-cost: expected a number above 0, found {cost!r:.40}")


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """What something took, as far as it is known."""

    tokens: int = 0
    """Of the agent."""
    user_tokens: int = 0
    """Of the model that played the user."""
    cost: float = 0.0

    def add(self, other: "Spending") -> "Spending":
        """Return both together."""
        return Spending(tokens=self.tokens + other.tokens, user_tokens=self.user_tokens + other.user_tokens, cost=self.cost + other.cost)


class BudgetMeter:
    """What a run has spent so far, and which bound it has reached."""

    def __init__(self, budget: Budget, clock: Callable[[], float]) -> None:
        self._budget = budget
        self._clock = clock
        self._started = clock()
        self.tokens = 0
        self.user_tokens = 0
        """Of them, what the models of simulated users took."""
        self.failures = 0
        self.cost = 0.0
        self.tokens_unknown = 0
        """Answered attempts without recorded tokens."""
        self.cost_unknown: str | None = None
        """Why the cost of an attempt is unknown, of the first."""
        self._held: dict[tuple[str, int], Spending] = {}
        """What conversations took that are under way."""

    @property
    def bounds_spending(self) -> bool:
        """Whether there is a bound on tokens or on the cost."""
        return self._budget.max_tokens is not None or self._budget.max_cost is not None

    def hold(self, attempt: tuple[str, int], spending: Spending) -> None:
        """Count the usage of the conversation of an attempt so far, in place of its earlier figure."""
        self._held[attempt] = spending

    def release(self, attempt: tuple[str, int]) -> Spending | None:
        """Return what was held of an attempt, and forget it: it is over, and counted as such or by `add_spending`."""
        return self._held.pop(attempt, None)

    def add_spending(self, spending: Spending) -> None:
        """Count usage that is recorded nowhere else."""
        self.add(tokens=spending.tokens, user_tokens=spending.user_tokens)
        self.cost += spending.cost

    def add_cost(self, cost: Cost | None) -> None:
        """Count the cost of one attempt; if it is unknown, a limit on the cost cannot be checked."""
        if cost is not None:
            self.cost += (cost.agent or 0.0) + (cost.judge or 0.0) + (cost.user or 0.0)
        if cost is None or cost.total() is None:
            self.cost_unknown = self.cost_unknown or (cost.why if cost is not None else "there are no prices")

    def add(self, *, tokens: int = 0, user_tokens: int = 0, failed: bool = False) -> None:
        """Count what the agent of an attempt took and what its simulated user did, or how the attempt ended."""
        self.tokens += tokens + user_tokens
        self.user_tokens += user_tokens
        self.failures += failed

    def explain_overspent(self) -> str | None:
        """Return the limit on tokens or on the cost that was reached, as text, or None; running conversations count."""
        budget = self._budget
        # Only running attempts are held, so this sum is short.
        user_tokens = self.user_tokens + sum(held.user_tokens for held in self._held.values())
        tokens = self.tokens + sum(held.tokens + held.user_tokens for held in self._held.values())
        cost = self.cost + sum(held.cost for held in self._held.values())
        if budget.max_tokens is not None and tokens >= budget.max_tokens:
            apart = f" ({user_tokens} of them by simulated users)" if user_tokens else ""
            return f"{tokens} tokens spent{apart}, the limit is {budget.max_tokens}"
        if budget.max_cost is not None and cost >= budget.max_cost:
            return f"{cost:.6g} spent, the limit is {budget.max_cost:g}"
        return None

    def explain_exhausted(self) -> str | None:
        """Return the limit that was reached, as text, or None."""
        budget = self._budget
        if (overspent := self.explain_overspent()) is not None:
            return overspent
        if budget.max_cost is not None and self.cost_unknown is not None:
            return f"the cost of an attempt is unknown ({self.cost_unknown}), so the limit of {budget.max_cost:g} cannot be checked"
        if budget.max_seconds is not None and self._clock() - self._started >= budget.max_seconds:
            return self.explain_time()
        if budget.max_failures is not None and self.failures >= budget.max_failures:
            return self._explain_failures()
        return None

    def explain_exceeded(self) -> str | None:
        """Return the limit that a run exceeded after everything was started, as text, or None."""
        if (overspent := self.explain_overspent()) is not None:
            return overspent
        most = self._budget.max_failures
        return self._explain_failures() if most is not None and self.failures >= most else None

    def explain_unverifiable_limit(self) -> str:
        """Return which limit could not be checked because usage is unknown, or ""."""
        budget = self._budget
        if budget.max_tokens is not None and self.tokens_unknown:
            whose = "1 attempt" if self.tokens_unknown == 1 else f"{self.tokens_unknown} attempts"
            return f"the tokens of {whose} are unknown, so the limit of {budget.max_tokens} could not be checked"
        if budget.max_cost is not None and self.cost_unknown is not None:
            return f"the cost of an attempt is unknown ({self.cost_unknown}), so the limit of {budget.max_cost:g} could not be checked"
        return ""

    def explain_time(self) -> str:
        """Return the time limit of the run, as text."""
        return f"{self._budget.max_seconds:g} seconds are over"

    def _explain_failures(self) -> str:
        failed = "1 attempt" if self.failures == 1 else f"{self.failures} attempts"
        return f"{failed} failed, the limit is {self._budget.max_failures}"

    def get_seconds_left(self) -> float | None:
        """Return how many seconds the run may still take, or None without a bound."""
        if self._budget.max_seconds is None:
            return None
        return max(0.0, self._budget.max_seconds - (self._clock() - self._started))


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that say how a run is driven."""

    repeat: int = 1
    concurrency: int = 4
    timeout_s: float = 120.0
    """For one attempt, its tries and the waits between them."""
    retries: int = 2
    """How often a safe fault of the transport is tried again."""
    backoff_s: float = 0.5
    """The wait before the first retry; doubled for each further one, and never shorter than the server's Retry-After.
    An attempt without enough time left for that wait is not retried."""
    open_s: float | None = None
    """How long the target may take to open; None: no limit."""
    adapt: bool = True
    """Whether to slow down when the other side is overloaded."""
    budget: Budget = Budget()
    fail_fast: bool = False
    """Whether a case that has already failed is spared the judge."""

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense, by name; raises `InputError`."""
        require_whole("repeat", self.repeat, 1, MOST_REPEATS)
        require_whole("concurrency", self.concurrency, 1, MOST_AT_ONCE)
        require_whole("retries", self.retries, 0, MOST_RETRIES)
        require_seconds("timeout", self.timeout_s)
        if self.backoff_s:
            require_seconds("backoff", self.backoff_s)
        if self.open_s is not None:
            require_seconds("open_s", self.open_s)
