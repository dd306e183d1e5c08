"""Limits the work of one assertion, counted in steps.

Some checks cost the product of two inputs: phrases by turns, expected by actual calls, fields by files. Neither input is large by itself,
and both are untrusted. Such work is counted in steps, not by a clock, so that the same suite and evidence give the same verdict on any
machine; beyond the limit the verdict is an `error` with the code `too_much_work` and the number of steps. A step takes a fraction of a
microsecond.

Requests to simulated systems are counted in the same way, one request like one assertion.

Counting begins with `begin_counting`; without it, as in a single comparison by hand, there is no limit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Final

from proctor.errors import CheckFault

MOST_STEPS: Final = 1_500_000
"""Steps of one assertion on one evidence."""

Spend = Callable[[int], None]


class _StepCount:
    __slots__ = ("left", "refusal")

    def __init__(self, refusal: str) -> None:
        self.left = MOST_STEPS
        self.refusal = refusal


_CURRENT: ContextVar[_StepCount | None] = ContextVar("_CURRENT", default=None)


def begin_counting(refusal: str = "") -> Token[_StepCount | None]:
    """Begin to count the steps of an assertion, and return what was counted before; `refusal` replaces the message of the fault."""
    return _CURRENT.set(_StepCount(refusal))


def end_counting(token: Token[_StepCount | None]) -> None:
    """Continue the count that was under way before `begin_counting`."""
    _CURRENT.reset(token)


def spend(steps: int) -> None:
    """Count some steps of the current assertion. Raises `CheckFault` when they are too many."""
    account = _CURRENT.get()
    if account is not None:
        account.left -= steps
        if account.left < 0:
            needed = MOST_STEPS - account.left
            told = f"deciding this takes at least {needed} steps; at most {MOST_STEPS} are taken"
            raise CheckFault("too_much_work", account.refusal or told)
