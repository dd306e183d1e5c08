"""Builds the simulated user of an attempt from its case."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Literal

import msgspec

from proctor.checks.registry import Registry, default_registry
from proctor.decide.prepare import PreparedCase
from proctor.errors import TargetError
from proctor.llm.ports import ChatModel
from proctor.model.case import Assertion, Case, UserLine
from proctor.model.evidence import Evidence, Usage, UserEnd, UserEnding
from proctor.users.model_player import ModelPlayer
from proctor.users.player import Exchange, Move, Player

Holds = Callable[[Evidence], Awaitable[bool]]
Clock = Callable[[], str]


def prepare_claim(assertion: Assertion, case: Case, registry: Registry, clock: Clock) -> Holds:
    """Return how to see whether a claim holds of a turn; what was not recorded holds of none.

    Variables, zone and clock are those of the case. Asking raises `TargetError` where the claim cannot be decided, such as a pattern that
    runs out of time.
    """
    alone = Case(id=case.id, context=case.context, timezone=case.timezone, assertions=(assertion,))
    prepared = PreparedCase(alone, registry)

    async def holds(evidence: Evidence) -> bool:
        # In a thread: a claim of a foreign suite may be slow, and other conversations must go on.
        verdict = (await asyncio.to_thread(prepared.decide, evidence, None, 0, clock)).verdicts[0]
        # Missing evidence means "not yet"; a check that failed to decide is an error.
        if verdict.outcome == "error" and verdict.code != "missing_evidence":
            reason = f"the simulated user waits for {assertion.label or assertion.check!r}, which could not be decided: {verdict.reason}"
            raise TargetError(reason, code=verdict.code or "user_unavailable")
        return verdict.outcome == "pass"

    return holds


class UserSpeaker:
    """Speaks for the simulated user of one attempt; fits `proctor.model.attempt.Speaker`."""

    def __init__(self, player: Player, *, opening: str | None, gives_up_after: int, stop: tuple[str, Holds] | None) -> None:
        """`opening` is the first message, where the author wrote it; `stop` is what ends the conversation as done, with its name."""
        self._player = player
        self._opening = opening
        self._most_turns = gives_up_after
        self._stop = stop
        self._exchanges: list[Exchange] = []
        self._message = ""
        self._ending = UserEnding(played_by=player.name)

    async def say_next(self, answer: Evidence | None) -> str | None:
        """Return the user's next message, or None when the conversation is over. Raises `TargetError`."""
        if answer is None and self._opening is not None:
            self._message = self._opening
            return self._message
        if answer is not None:
            opened = self._opening is not None and not self._exchanges
            self._exchanges.append(Exchange(message=self._message, answer=answer.text or "", by_author=opened, evidence=answer))
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
        self._message = move.say
        return self._message

    def describe_ending(self) -> UserEnding:
        """Return who spoke, why it ended as far as it did, and what it took."""
        player = self._player
        return msgspec.structs.replace(self._ending, turns=len(self._exchanges), model_calls=player.model_calls, usage=player.usage)

    def _end(self, ended: UserEnd, by: Literal["stop_when", "script", "model", "limit"], reason: str) -> None:
        self._ending = msgspec.structs.replace(self._ending, ended=ended, by=by, reason=reason)


def _describe_limit(turns: int, move: Move) -> str:
    reason = f"; {move.reason}" if move.reason else ""
    return f"gives_up_after: {turns}{reason}"


NOTHING_LEFT = "the script has nothing more to say"


class ScriptPlayer:
    """Plays one user from a script."""

    name = "script"
    model_calls = 0
    usage: Usage | None = None

    def __init__(self, lines: Sequence[UserLine], prepare: Callable[[Assertion], Holds]) -> None:
        """`prepare` makes ready what a rule waits for."""
        self._rules = [(line, prepare(line.when)) for line in lines if line.when is not None]
        self._lines = iter([line for line in lines if line.when is None])

    async def choose(self, exchanges: Sequence[Exchange]) -> Move:
        """Return the rule that the last answer calls for, else the next line."""
        for line, holds in self._rules if exchanges else ():
            if await holds(exchanges[-1].evidence):
                return _make_move(line)
        line = next(self._lines, None)
        return Move(ends="gave_up", reason=NOTHING_LEFT) if line is None else _make_move(line)


def _make_move(line: UserLine) -> Move:
    if line.ends is None:
        return Move(say=line.say)
    label = "" if line.when is None else f": {line.when.label or line.when.check}"
    return Move(ends=line.ends, reason=f"ended by a line of the script{label}")


Pause = Callable[[float], Awaitable[None]]


def make_speaker(
    case: Case, model: ChatModel | None, clock: Clock, *, registry: Registry | None = None, pause: Pause = asyncio.sleep
) -> UserSpeaker:
    """Return who speaks for the simulated user of a case, for one attempt; `model` plays it where it has no script."""
    user = case.user
    assert user is not None, "only cases with a user come here"
    prepare: Callable[[Assertion], Holds] = partial(prepare_claim, case=case, registry=registry or default_registry(), clock=clock)
    stop = user.stop_when if isinstance(user.stop_when, Assertion) else None
    return UserSpeaker(
        ScriptPlayer(user.script, prepare) if model is None else ModelPlayer(user, model, pause=pause),
        opening=case.input,
        gives_up_after=user.gives_up_after,
        stop=None if stop is None else (stop.label or stop.check, prepare(stop)),
    )
