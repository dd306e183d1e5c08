"""The layer next to the routes: lets long work find out whether its client still waits."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from proctor.service.decisions.waiting_client import CLIENT_LEAVES


class ClientWatch:
    """Tells every request how to find out that its client has left."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def left() -> None:
            # Whoever asks has read the body; what still comes is the end of it, and then of the connection.
            while (await receive())["type"] != "http.disconnect":
                pass

        token = CLIENT_LEAVES.set(left)
        try:
            await self._app(scope, receive, send)
        finally:
            CLIENT_LEAVES.reset(token)
