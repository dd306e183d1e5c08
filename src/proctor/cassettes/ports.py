"""The protocol through which everything that crosses a wire can be recorded or replayed.

A wire (a model, a tool, an HTTP exchange) describes what it is about to say as plain JSON and hands over how to say it. A tape may let
it through, keep it, or answer from what was kept.
"""

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

from proctor.model.evidence import Json

Kind = Literal["chat", "tool", "http"]


class Tape(Protocol):
    """Records every request and reply, or replays them."""

    async def exchange(self, kind: Kind, request: Json, send: Callable[[], Awaitable[Json]]) -> Json:
        """Return what came back for `request`, as plain JSON; `send` really sends it.

        A failure that `send` raises is kept too, and raised again on replay.
        """
        ...


class NoTape:
    """Sends everything and records nothing."""

    async def exchange(self, kind: Kind, request: Json, send: Callable[[], Awaitable[Json]]) -> Json:
        """Send the request and return what came back."""
        return await send()


LIVE = NoTape()
"""The tape of a run that is neither recorded nor replayed."""
