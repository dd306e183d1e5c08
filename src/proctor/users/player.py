"""The interface of a simulated user: its decision from turn to turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from proctor.model.evidence import Evidence, Usage


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One turn as the user knows it."""

    message: str
    answer: str
    """The text of the agent's answer; what else the agent did a person does not see."""
    by_author: bool = False
    """Whether the message is from the author of the case, not from the player."""
    evidence: Evidence
    """All that was observed of this turn: for claims of the author, never for the model."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """What the user does next: send a message, or end the conversation."""

    say: str = ""
    ends: Literal["done", "gave_up"] | None = None
    reason: str = ""


class Player(Protocol):
    """Plays the user of one conversation."""

    @property
    def name(self) -> str:
        """`script`, or the provider and name of the model."""
        ...

    @property
    def model_calls(self) -> int:
        """Number of calls to a model."""
        ...

    @property
    def usage(self) -> Usage | None:
        """What that took."""
        ...

    async def choose(self, exchanges: Sequence[Exchange]) -> Move:
        """Return what the user does after these turns. Raises `TargetError` where that cannot be known."""
        ...
