"""Connections that clients of a server in a thread have left open."""

from __future__ import annotations

import contextlib
import socket
import socketserver
from typing import TYPE_CHECKING, Any

# A mixin of the real server class at run time; for the type checker it is one, so that `super()` is known.
_Server = socketserver.TCPServer if TYPE_CHECKING else object


class OpenConnections(_Server):
    """Part of a threading server that can end the connections which clients keep."""

    daemon_threads = True

    def __init__(self, *given: Any) -> None:
        self._connections: set[socket.socket] = set()
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember a connection, and answer on it."""
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that ends."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """End the connections that clients have left open, so that their threads end."""
        # A copy: threads that end meanwhile take their connections out of the set.
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                # Not closed: its thread is woken by the end of the stream and closes it itself.
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that went away in the middle is no concern of the run."""
