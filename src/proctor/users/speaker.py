"""One simulated user in one conversation: when it speaks, when it stops, and what is kept of it.

After each answer, in this order:

1. `stop_when`, where it is a claim: it holds of the agent's last turn, and the conversation is `done`.
2. The player (a script or a model) chooses: it says something, is `done`, or has `gave_up`.
3. Whoever still wants to speak after `gives_up_after` turns has reached the `turn_limit`.

The player is asked after the last turn too: what it waited for may just have come.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from proctor.errors import TargetError
from proctor.model.evidence import Evidence, UserEnd, UserEnding
from proctor.users.claims import Holds
from proctor.users.player import Exchange, Move, Player


class UserSpeaker:
    """Speaks for the simulated user of one attempt; fits `proctor.model.attempt.Speaker`."""

    def __init__(self, player: Player, *, opening: str | None, gives_up_after: int, stop: tuple[str, Holds] | None) -> None:
        """`opening` is the first message, where the author wrote it; `stop` is what ends the conversation as done, with its name."""
        self._player = player
        self._opening = opening
        self._most_turns = gives_up_after
        self._stop = stop
        self._exchanges: list[Exchange] = []
        self._said = ""
        self._ending = UserEnding(played_by=player.name)

    async def say_next(self, answer: Evidence | None) -> str | None:
        """Return what the user says next, or None when the conversation is over. Raises `TargetError`."""
        if answer is None and self._opening is not None:
            self._said = self._opening
            return self._said
        if answer is not None:
            opened = self._opening is not None and not self._exchanges
            self._exchanges.append(Exchange(said=self._said, answer=answer.text or "", by_author=opened, evidence=answer))
            if self._stop is not None and await self._stop[1](answer):
                return self._end("done", "stop_when", self._stop[0])
        move = await self._player.choose(self._exchanges)
        if not self._exchanges and move.ends is not None:
            raise TargetError("the simulated user ended the conversation before it began", code="bad_user_reply")
        if move.ends is not None:
            return self._end(move.ends, "script" if self._player.name == "script" else "model", move.reason)
        turns = len(self._exchanges)
        if turns >= self._most_turns:
            return self._end("turn_limit", "limit", _describe_limit(turns, move))
        self._said = move.say
        return self._said

    def describe_ending(self) -> UserEnding:
        """Return who spoke, why it ended as far as it did, and what it took."""
        player = self._player
        return msgspec.structs.replace(self._ending, turns=len(self._exchanges), model_calls=player.model_calls, usage=player.usage)

    def _end(self, ended: UserEnd, by: Literal["stop_when", "script", "model", "limit"], reason: str) -> None:
        self._ending = msgspec.structs.replace(self._ending, ended=ended, by=by, reason=reason)


def _describe_limit(turns: int, move: Move) -> str:
    reason = f"; {move.reason}" if move.reason else ""
    return f"gives_up_after: {turns}{reason}"
