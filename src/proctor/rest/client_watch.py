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

        watched = _WatchedClient(receive)
        token = CLIENT_LEAVES.set(watched.wait_until_left)
        try:
            await self._app(scope, receive, send)
        finally:
            CLIENT_LEAVES.reset(token)
            watched.forget()


class _WatchedClient:
    """The client of one request, for as long as the request lasts.

    A timer that a request sets keeps the request's context, and so this object, until its time has come, also when it was cancelled long
    before. It must not keep the body along.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive: Receive | None = receive

    async def wait_until_left(self) -> None:
        """Return once the client has left or its request is over."""
        # Whoever asks has read the body; what still comes is the end of it, and then of the connection.
        while self._receive is not None and (await self._receive())["type"] != "http.disconnect":
            pass

    def forget(self) -> None:
        """Let go of the request, which is over."""
        self._receive = None
