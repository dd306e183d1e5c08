"""Makes the simulated user of an attempt out of what its case says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from proctor.checks.registry import Registry, default_registry
from proctor.llm.ports import ChatModel
from proctor.model.case import Assertion, Case, UserLine
from proctor.model.evidence import Usage
from proctor.users.claims import Clock, Holds, prepare_claim
from proctor.users.model_player import ModelPlayer
from proctor.users.player import Exchange, Move
from proctor.users.speaker import UserSpeaker

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
    return Move(ends=line.ends, reason=f"a line of the script says so{label}")


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
