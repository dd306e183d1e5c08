"""The seam at which everything that crosses a wire can be kept or replayed.

A wire (a model, a tool, an HTTP exchange) describes what it is about to say as plain JSON and hands over how to say it. A tape may let
it through, keep it, or answer from what was kept.
"""

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

from proctor.model.evidence import Json

Kind = Literal["chat", "tool", "http"]


class Tape(Protocol):
    """Stands between a wire and the world."""

    async def exchange(self, kind: Kind, request: Json, send: Callable[[], Awaitable[Json]]) -> Json:
        """What came back for `request`, as plain JSON; `send` really sends it.

        A failure that `send` raises is kept too, and raised again on replay.
        """
        ...


class NoTape:
    """Lets everything through."""

    async def exchange(self, kind: Kind, request: Json, send: Callable[[], Awaitable[Json]]) -> Json:
        """Send it."""
        return await send()


LIVE = NoTape()
"""The tape of a run that is neither recorded nor replayed."""
