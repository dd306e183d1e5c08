"""The deadline of the prompts of an iteration.

An iteration that runs out of time should still say what its agent did. So its prompts know the deadline and end by themselves, with what
was observed so far, before the iteration is ended from outside. The deadline travels with the context: into tasks and worker threads.
"""

from __future__ import annotations

import time
from contextvars import ContextVar


class Deadline:
    """When an iteration has to be over, and whether one of its prompts was ended by that."""

    __slots__ = ("at", "missed")

    def __init__(self, limit_s: float) -> None:
        self.at = time.monotonic() + limit_s
        self.missed = False


DEADLINE: ContextVar[Deadline | None] = ContextVar("DEADLINE", default=None)
"""Of the iteration that this is a part of, if it is."""


class PromptLimit:
    """How long one prompt may take: its own limit, or what is left of its iteration."""

    __slots__ = ("_deadline", "_own_s", "seconds")

    def __init__(self, own_s: float) -> None:
        deadline = DEADLINE.get()
        left = None if deadline is None else deadline.at - time.monotonic()
        self._own_s = own_s
        self._deadline = deadline if left is not None and left < own_s else None
        self.seconds = own_s if self._deadline is None or left is None else left

    def explain_expiry(self) -> str:
        """Return the message for a prompt that took too long, and mark the iteration if the limit was its own."""
        if self._deadline is None:
            return f"Operation timed out after {self._own_s * 1000:g}ms"
        self._deadline.missed = True
        return "the iteration ran out of time"
