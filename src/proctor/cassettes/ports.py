"""The protocol for recording and replaying all network traffic.

A client (of a model, a tool, an HTTP server) describes its request as plain JSON and passes a function that sends it. A tape sends it,
records the response, or answers from a recording.
"""

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

from proctor.model.evidence import Json

Kind = Literal["chat", "tool", "http"]


class Tape(Protocol):
    """Records every request and reply, or replays them."""

    async def exchange(self, kind: Kind, request: Json, send: Callable[[], Awaitable[Json]]) -> Json:
        """Return the response to `request`, as plain JSON; `send` actually sends it.

        A failure that `send` raises is recorded too, and raised again on replay.
        """
        ...


class NoTape:
    """Sends everything and records nothing."""

    async def exchange(self, kind: Kind, request: Json, send: Callable[[], Awaitable[Json]]) -> Json:
        """Send the request and return the response."""
        return await send()


LIVE = NoTape()
"""The tape of a run that is neither recorded nor replayed."""
