"""Simulated users in words: who played them, how their conversations ended, and what they took."""

from __future__ import annotations

from collections import Counter

from proctor.model.evidence import UserEnd, UserEnding
from proctor.model.result import CaseResult
from proctor.report.catalogue import Catalogue, speak

_ENDS: tuple[UserEnd | None, ...] = ("done", "gave_up", "turn_limit", None)


def describe_user(ending: UserEnding, words: Catalogue | None = None) -> str:
    """Return how one conversation ended: `script · gave up after 3 turns · the script has nothing more to say`."""
    words = speak(words)
    took = ending.usage.total() if ending.usage is not None else None
    parts = [
        ending.played_by,
        words.say("told.user_ended", how=_name_end(ending.ended, words), count=ending.turns),
        ending.reason,
        "" if took is None else words.say("report.tokens", count=took),
    ]
    return " · ".join(part for part in parts if part)


def _name_end(end: str | None, words: Catalogue) -> str:
    return words.say(f"user.{end or 'broke_off'}")


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

    def describe(self, words: Catalogue | None = None) -> str:
        """Return the counts in one line; empty where nobody was simulated."""
        if not self._ends:
            return ""
        words = speak(words)
        ends = ", ".join(f"{words.write_number(self._ends[end])} {_name_end(end, words)}" for end in _ENDS if self._ends[end])
        tokens = words.say("told.user_tokens", tokens=words.say("report.tokens", count=self._tokens)) if self._tokens else ""
        return words.say("told.users", count=self._ends.total(), ends=ends) + tokens
