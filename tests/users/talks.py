"""Conversations with simulated users."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from proctor.formats.suites import read_suite
from proctor.llm.ports import ChatModel, ChatReply
from proctor.llm.scripted import Line, ScriptedModel
from proctor.model.case import Case
from proctor.model.evidence import Evidence, Usage
from proctor.users import UserSpeaker, make_speaker


def reply(say: str = "", *, done: bool = False, gives_up: bool = False, reason: str = "", tokens: int | None = None) -> ChatReply:
    """The reply of a user's model."""
    text = json.dumps({"say": say, "done": done, "gives_up": gives_up, "reason": reason})
    return ChatReply(text=text, usage=None if tokens is None else Usage(total_tokens=tokens))


def case_with(user: dict[str, Any], **more: Any) -> Case:
    """A case of the native format with this user."""
    return read_suite(json.dumps({"proctor": 1, "cases": [{"id": "a", "user": user, **more}]})).cases[0]


def model_of(lines: Sequence[Line]) -> ScriptedModel:
    """A model that replies with these lines, in order."""
    return ScriptedModel(lines)


async def no_pause(seconds: float) -> None:
    """Return without waiting."""


def speaker_of(case: Case, model: ChatModel | None = None) -> UserSpeaker:
    """The speaker of a case's user."""
    return make_speaker(case, model, lambda: "2026-11-16T09:00:00Z", pause=no_pause)


async def talk(speaker: UserSpeaker, agent: Callable[[str], str | Evidence], most: int = 100) -> list[str]:
    """Let a user talk to an agent until it stops, and return the user's messages."""
    messages: list[str] = []
    answer: Evidence | None = None
    while (text := await speaker.say_next(answer)) is not None:
        messages.append(text)
        assert len(messages) <= most, "a user that never stops"
        answered = agent(text)
        answer = Evidence(input=text, text=answered) if isinstance(answered, str) else answered
    return messages
