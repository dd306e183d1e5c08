"""How a run is driven."""

import msgspec

from proctor.model.case import MOST_REPEATS
from proctor.runner.limits import MOST_AT_ONCE, MOST_RETRIES, Budget, require_seconds, require_whole


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that say how a run is driven."""

    repeat: int = 1
    concurrency: int = 4
    timeout_s: float = 120.0
    """For one attempt, its tries and the waits between them."""
    retries: int = 2
    """How often a safe fault of the transport is tried again."""
    backoff_s: float = 0.5
    """The wait before the first retry; doubled for each further one, and never shorter than the other side asked for.
    Who asks for a longer wait than is left of the attempt is not asked again."""
    open_s: float | None = None
    """How long the target may take to open; nothing: as long as it likes."""
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
