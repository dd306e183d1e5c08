"""Makes the simulated user of an attempt out of what its case says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from proctor.checks.registry import Registry, default_registry
from proctor.llm.ports import ChatModel
from proctor.model.case import Assertion, Case
from proctor.users.claims import Clock, Holds, prepare_claim
from proctor.users.model_player import ModelPlayer
from proctor.users.script import ScriptPlayer
from proctor.users.speaker import UserSpeaker

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
