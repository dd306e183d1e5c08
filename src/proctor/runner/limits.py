"""Limits of a run: concurrency, budget, retries, and the settings of all of them."""

from collections.abc import Callable

import msgspec

from proctor.errors import InputError
from proctor.model.case import MOST_REPEATS
from proctor.model.evidence import Cost
from proctor.model.json_values import is_finite, is_integer, is_number

MOST_AT_ONCE = 1_000
MOST_RETRIES = 100
"""Maximum retries; transient faults never need more."""
MOST_ATTEMPTS = 1_000_000
LONGEST_S = 7 * 24 * 3600.0
"""The longest pause of a run: a week."""


def require_whole(name: str, value: object, least: int, most: int | None = None) -> None:
    """Raise `InputError` unless a number is an integer in this range."""
    # `True` is an `int` in Python: `repeat: true` must not count as 1.
    if not is_integer(value) or value < least or (most is not None and value > most):
        allowed = f"from {least} to {most:,}" if most is not None else f"of at least {least}"
        raise InputError(f"{name}: expected a whole number {allowed}, found {value!r:.40}")


def require_seconds(name: str, value: object) -> None:
    """Raise `InputError` unless a number is a valid duration."""
    if not is_number(value) or not is_finite(value) or not 0 < value <= LONGEST_S:
        raise InputError(f"{name}: expected seconds above 0, at most {LONGEST_S:,.0f} (a week), found {value!r:.40}")


class AttemptGate:
    """Admits a bounded, adaptive number of attempts. It never waits: an attempt that leaves starts the next."""

    def __init__(self, most: int, *, adapt: bool = True, clock: Callable[[], float]) -> None:
        self.most = most
        self.limit = most
        self._adapt = adapt
        self._clock = clock
        self._inside = 0
        self._successes = 0
        self._closed_until = 0.0

    def enter(self) -> bool:
        """Take a slot if one is free and no pause is in effect; return whether it was taken."""
        if self._inside >= self.limit or self.get_pause_s() > 0:
            return False
        self._inside += 1
        return True

    def leave(self) -> None:
        """Release the slot."""
        self._inside -= 1

    def get_pause_s(self) -> float:
        """Return the remaining seconds of the pause that the server requested."""
        # Most runs have no pauses and need no clock.
        return max(0.0, self._closed_until - self._clock()) if self._closed_until else 0.0

    def note_success(self) -> None:
        """Count a successful attempt: after a round of these the limit may rise."""
        if not self._adapt or self.limit >= self.most:
            return
        self._successes += 1
        # Halved at once and raised by one per round, so the limit settles just below the server's capacity.
        if self._successes >= self.limit:
            self._successes = 0
            self.limit += 1

    def slow_down(self, retry_after_s: float | None) -> None:
        """Halve the concurrency, and start no attempt before the requested pause is over."""
        if self._adapt:
            self.limit = max(1, self.limit // 2)
            self._successes = 0
        # A run with fixed concurrency also respects a pause.
        if retry_after_s is not None:
            # Several attempts may be rejected at once: the longest pause counts.
            self._closed_until = max(self._closed_until, self._clock() + retry_after_s)


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a run; None means no limit."""

    max_tokens: int | None = None
    max_seconds: float | None = None
    max_failures: int | None = None
    max_cost: float | None = None
    """In the currency of the prices."""

    def __post_init__(self) -> None:
        """Raise `InputError` for an invalid number, naming its field."""
        for name in ("max_tokens", "max_failures"):
            if getattr(self, name) is not None:
                require_whole(name.replace("_", "-"), getattr(self, name), 1)
        if self.max_seconds is not None:
            require_seconds("max-seconds", self.max_seconds)
        cost = self.max_cost
        if cost is not None and (not is_finite(cost) or cost <= 0):
            raise InputError(f"max-cost: expected a number above 0, found {cost!r:.40}")


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """Usage, if known."""

    tokens: int = 0
    """Of the agent."""
    user_tokens: int = 0
    """Of the model that played the user."""
    cost: float = 0.0

    def add(self, other: "Spending") -> "Spending":
        """Return the sum of both."""
        return Spending(tokens=self.tokens + other.tokens, user_tokens=self.user_tokens + other.user_tokens, cost=self.cost + other.cost)


class BudgetMeter:
    """The usage of a run so far, and the limit that it has reached."""

    def __init__(self, budget: Budget, clock: Callable[[], float], judge_cost: Callable[[], float] = lambda: 0.0) -> None:
        """`judge_cost` returns the cost of requests to judges so far, including running attempts."""
        self._budget = budget
        self._judge_cost = judge_cost
        self._judge_counted = 0.0
        self._clock = clock
        self._started = clock()
        self.tokens = 0
        self.user_tokens = 0
        """The tokens of simulated users among them."""
        self.failures = 0
        self.cost = 0.0
        self.tokens_unknown = 0
        """Answered attempts without recorded tokens."""
        self.cost_unknown: str | None = None
        """Why the cost of the first such attempt is unknown."""
        self._held: dict[tuple[str, int], Spending] = {}
        """Usage of running conversations."""

    @property
    def bounds_spending(self) -> bool:
        """Whether tokens or cost are limited."""
        return self._budget.max_tokens is not None or self._budget.max_cost is not None

    def hold(self, attempt: tuple[str, int], spending: Spending) -> None:
        """Count the usage of the conversation of an attempt so far, in place of its earlier figure."""
        self._held[attempt] = spending

    def release(self, attempt: tuple[str, int]) -> Spending | None:
        """Remove and return the held usage of a finished attempt, which is now counted elsewhere or by `add_spending`."""
        return self._held.pop(attempt, None)

    def add_spending(self, spending: Spending) -> None:
        """Count usage that is recorded nowhere else."""
        self.add(tokens=spending.tokens, user_tokens=spending.user_tokens)
        self.cost += spending.cost

    def add_cost(self, cost: Cost | None) -> None:
        """Count the cost of one attempt; if it is unknown, a limit on the cost cannot be checked."""
        if cost is not None:
            self.cost += (cost.agent or 0.0) + (cost.judge or 0.0) + (cost.user or 0.0)
            self._judge_counted += cost.judge or 0.0
        if cost is None or cost.total() is None:
            self.cost_unknown = self.cost_unknown or (cost.why if cost is not None else "there are no prices")

    def add(self, *, tokens: int = 0, user_tokens: int = 0, failed: bool = False) -> None:
        """Count the tokens of an attempt's agent and simulated user, and whether the attempt failed."""
        self.tokens += tokens + user_tokens
        self.user_tokens += user_tokens
        self.failures += failed

    def explain_overspent(self) -> str | None:
        """Return the limit on tokens or on the cost that was reached, as text, or None; running conversations count."""
        budget = self._budget
        # Only running attempts are held, so this sum is short.
        user_tokens = self.user_tokens + sum(spending.user_tokens for spending in self._held.values())
        tokens = self.tokens + sum(spending.tokens + spending.user_tokens for spending in self._held.values())
        if budget.max_tokens is not None and tokens >= budget.max_tokens:
            user_note = f" ({user_tokens} of them by simulated users)" if user_tokens else ""
            return f"{tokens} tokens spent{user_note}, the limit is {budget.max_tokens}"
        return self.explain_cost()

    def explain_cost(self) -> str | None:
        """Return the limit on the cost if it was reached, as text, or None; running conversations and judgements count."""
        most = self._budget.max_cost
        judging = max(0.0, self._judge_cost() - self._judge_counted)
        cost = self.cost + judging + sum(spending.cost for spending in self._held.values())
        return f"{cost:.6g} spent, the limit is {most:g}" if most is not None and cost >= most else None

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
        """Return the remaining seconds of the run, or None without a limit."""
        if self._budget.max_seconds is None:
            return None
        return max(0.0, self._budget.max_seconds - (self._clock() - self._started))


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is driven."""

    repeat: int = 1
    concurrency: int = 4
    timeout_s: float = 120.0
    """For one attempt, including its retries and the waits between them."""
    retries: int = 2
    """Maximum retries after a safe transport fault."""
    backoff_s: float = 0.5
    """The wait before the first retry; doubled for each further one, and never shorter than the server's Retry-After.
    An attempt without enough time left for that wait is not retried."""
    open_s: float | None = None
    """Maximum seconds until the target is open; None: no limit."""
    adapt: bool = True
    """Whether to slow down when the server is overloaded."""
    budget: Budget = Budget()
    fail_fast: bool = False
    """Whether to skip the judge for a case that has already failed."""

    def __post_init__(self) -> None:
        """Reject invalid numbers, naming the field; raises `InputError`."""
        require_whole("repeat", self.repeat, 1, MOST_REPEATS)
        require_whole("concurrency", self.concurrency, 1, MOST_AT_ONCE)
        require_whole("retries", self.retries, 0, MOST_RETRIES)
        require_seconds("timeout", self.timeout_s)
        if self.backoff_s:
            require_seconds("backoff", self.backoff_s)
        if self.open_s is not None:
            require_seconds("open_s", self.open_s)
