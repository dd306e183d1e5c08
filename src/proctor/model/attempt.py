"""One attempt at a case: ids, timeout, speaker."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from proctor.model.case import Case
from proctor.model.evidence import Evidence, Json, UserEnding


class Speaker(Protocol):
    """Gives the messages of one conversation in order: those of the case, or of a simulated user."""

    async def say_next(self, answer: Evidence | None) -> str | None:
        """Return the next message, or None if the conversation is over; `answer` is the agent's last turn.

        Raises `TargetError` if there is no next message.
        """
        ...

    def describe_ending(self) -> UserEnding | None:
        """Return who spoke and why the conversation ended; None if the case lists its messages."""
        ...


class OwnTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that belongs to an attempt."""

    name: str
    description: str
    schema: dict[str, Json]
    """The JSON Schema of the arguments."""


class OwnTools(Protocol):
    """Tools of an attempt besides those of its target: those of the simulated systems of its case."""

    def list_tools(self) -> Mapping[str, tuple[OwnTool, ...]]:
        """Return the tools by the name of their system."""
        ...

    async def call_tool(self, system: str, tool: str, arguments: dict[str, Json]) -> dict[str, Json]:
        """Call a tool of a system once and return an MCP result; a refusal has `isError`."""
        ...


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a case."""

    case: Case
    number: int = 0
    """From 0; repeats of a case are numbered."""
    request_id: str
    """Identifies this attempt in headers and traces."""
    session_id: str
    """The conversation that all turns of this attempt belong to."""
    timeout_s: float = 120.0
    """The time limit of the whole attempt; the target must end by itself, and is stopped if it does not."""
    speaker: Speaker | None = None
    """The simulated user of this attempt; None if the case lists its messages."""
    tools: OwnTools | None = None
    """The tools of the simulated systems of this attempt, for a target that gives its model tools."""
