"""How much work it is to compare a value with many others, counted before it is done."""

from __future__ import annotations

from proctor.errors import CheckFault
from proctor.model.evidence import Json
from proctor.work import spend

MOST_WORK = 1_000_000
"""Steps of comparing one value with everything that it may fit."""


def bound_product(size: int, actual: Json, why: str) -> None:
    """Count the steps of comparing a value with `size` others. Raises `CheckFault` when that is too many."""
    # Counting stops where the product is over the bound, so that a huge value is not walked to its end only to be refused.
    steps = size * estimate_work(actual, MOST_WORK // size)
    if steps > MOST_WORK:
        raise CheckFault("too_much_work", f"{why}: that takes at least {steps} steps; the maximum is {MOST_WORK}")
    spend(steps)


def estimate_work(value: Json, limit: int) -> int:
    """Estimate how much work it is to compare a value once; stop counting above `limit`."""
    total = 0
    waiting: list[Json] = [value]
    while waiting and total <= limit:
        current = waiting.pop()
        total += 1
        if isinstance(current, str):
            # Texts are compared some dozens of characters at a time, and keys not at all: they are looked up.
            total += len(current) // 64
        elif isinstance(current, dict):
            waiting.extend(current.values())
        elif isinstance(current, (list, tuple)):
            waiting.extend(current)
    return total
