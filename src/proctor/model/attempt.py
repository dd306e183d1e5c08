"""One attempt at a case: ids, timeout, speaker."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from proctor.model.case import Case
from proctor.model.evidence import Evidence, Json, UserEnding


class Speaker(Protocol):
    """Gives the messages of one conversation in order: those of the case, or of a simulated user."""

    async def say_next(self, answer: Evidence | None) -> str | None:
        """Return the next message, or None when the conversation is over; `answer` is what the agent did last.

        Raises `TargetError` if there is no next message.
        """
        ...

    def describe_ending(self) -> UserEnding | None:
        """Return who spoke and why the conversation ended; nothing of messages that the case lists."""
        ...


class OwnTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that an attempt has of its own."""

    name: str
    description: str
    schema: dict[str, Json]
    """The JSON Schema of the arguments."""


class OwnTools(Protocol):
    """Tools of an attempt in addition to those of its target: of the simulated systems of its case."""

    def list_tools(self) -> Mapping[str, tuple[OwnTool, ...]]:
        """Return the tools by the name of their system."""
        ...

    async def call_tool(self, system: str, tool: str, arguments: dict[str, Json]) -> dict[str, Json]:
        """Call a tool of a system, once, and return an MCP result; a refusal has `isError`."""
        ...


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One go at one case."""

    case: Case
    number: int = 0
    """From 0; repeats of a case are numbered."""
    request_id: str
    """Identifies this go in headers and traces."""
    session_id: str
    """The conversation all turns of this go belong to."""
    timeout_s: float = 120.0
    """How long the whole go may take; the target must end by itself, and is ended if it does not."""
    speaker: Speaker | None = None
    """The simulated user of this go; nothing where the case lists its messages."""
    tools: OwnTools | None = None
    """What a model can do in the simulated systems of this go, for a target that gives its model tools."""
