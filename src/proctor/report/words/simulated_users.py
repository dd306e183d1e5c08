"""Simulated users in words: who played them, how their conversations ended, and what they took."""

from __future__ import annotations

from collections import Counter

from proctor.model.evidence import UserEnd, UserEnding
from proctor.model.result import CaseResult
from proctor.report.words.wording import count_noun

_ENDS: tuple[UserEnd | None, ...] = ("done", "gave_up", "turn_limit", None)


def describe_user(ending: UserEnding) -> str:
    """Return how one conversation ended: `script · gave up after 3 turns · the script has nothing more to say`."""
    took = ending.usage.total() if ending.usage is not None else None
    parts = [
        ending.played_by,
        f"{_name_end(ending.ended)} after {count_noun(ending.turns, 'turn')}",
        ending.reason,
        "" if took is None else count_noun(took, "token"),
    ]
    return " · ".join(part for part in parts if part)


def _name_end(end: str | None) -> str:
    return "turn limit reached" if end == "turn_limit" else (end or "broke_off").replace("_", " ")


class UserTally:
    """How the conversations of a run ended."""

    def __init__(self) -> None:
        self._ends: Counter[str | None] = Counter()
        self._tokens = 0

    def add(self, result: CaseResult) -> None:
        """Count one result, if it had a simulated user."""
        user = result.simulated_user
        if user is not None:
            self._ends[user.ended] += 1
            self._tokens += (user.usage.total() if user.usage is not None else None) or 0

    def describe(self) -> str:
        """Return the counts in one line; empty where nobody was simulated."""
        if not self._ends:
            return ""
        ends = ", ".join(f"{self._ends[end]:,} {_name_end(end)}" for end in _ENDS if self._ends[end])
        tokens = f"; their model took {count_noun(self._tokens, 'token')}" if self._tokens else ""
        return f"{count_noun(self._ends.total(), 'simulated user')}: {ends}" + tokens
