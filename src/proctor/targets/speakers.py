"""Who speaks to an agent: the case, message by message, or a simulated user."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.model.account import Account
from proctor.model.attempt import Attempt, Speaker
from proctor.model.evidence import Evidence, UserEnding


class FixedTexts:
    """Says what the case lists, whatever the agent answers."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._left = iter(texts)

    async def say_next(self, answer: Evidence | None) -> str | None:
        """Return the next text, or None after the last one."""
        return next(self._left, None)

    def describe_ending(self) -> UserEnding | None:
        """Return nothing: nobody was simulated."""
        return None


def choose_speaker(attempt: Attempt, texts: Sequence[str]) -> Speaker:
    """Return the simulated user of an attempt, else a speaker of these texts."""
    return attempt.speaker or FixedTexts(texts)


def with_user(evidence: Evidence, attempt: Attempt) -> Evidence:
    """Return the evidence with how the simulated user of the attempt fared; an agent's own word on that never counts."""
    ending = attempt.speaker.describe_ending() if attempt.speaker is not None else None
    if ending is None:
        return evidence if evidence.simulated_user is None else msgspec.structs.replace(evidence, simulated_user=None)
    account = evidence.account or Account()
    account = msgspec.structs.replace(account, notes=(*account.notes, f"the user was simulated ({ending.played_by}): {ending.describe()}"))
    return msgspec.structs.replace(evidence, simulated_user=ending, account=account)
