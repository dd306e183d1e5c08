"""A port on loopback that accepts HL7 v2 messages over MLLP, for clients that support no other protocol.

A frame is `0x0B`, the message, `0x1C 0x0D`; each is answered with the acknowledgement in its own frame, in order. Bytes outside of a
frame are ignored, as the protocol requires. MLLP has no authentication, so the port is opened only for systems that request it, on
loopback, and only while their attempt runs.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

# --- connections that clients of a threading server have left open

# A mixin of the real server class at run time; for the type checker it is one, so that `super()` is known.
_Server = socketserver.TCPServer if TYPE_CHECKING else object


class OpenConnections(_Server):
    """A mixin for a threading server that can close connections left open by clients."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._connections: set[socket.socket] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Register a connection, and serve it."""
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Unregister a closing connection."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """Shut down connections left open by clients, so that their threads end."""
        # A copy: ending threads remove their connections from the set.
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                # Shut down, not closed: that wakes its thread, which closes it.
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error: a client that disconnects early does not affect the run."""


MOST_BYTES = 10_000_000
"""Bytes of one message; the connection of a client that sends more without an end is closed."""
_IDLE_S = 30.0
"""Seconds that an idle connection stays open."""
_BEGIN, _END = b"\x0b", b"\x1c\r"


class MllpServer:
    """Receives messages on a port, and answers each with `answer`. `close` ends all threads and sockets."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._tcp = _Tcp(("127.0.0.1", 0), type("Handler", (_Handler,), {"answer": staticmethod(answer)}))
        # `shutdown` waits for the next poll: by default that is half a second at the end of every attempt.
        self._thread = threading.Thread(target=self._tcp.serve_forever, kwargs={"poll_interval": 0.05}, name="proctor-mllp", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._tcp.server_address[1])

    def close(self) -> None:
        """Stop listening, and close open connections."""
        self._tcp.shutdown()
        self._tcp.close_connections()
        self._tcp.server_close()
        self._thread.join()

    def list_unfinished(self) -> list[str]:
        """Return nothing: an incomplete message is discarded, as real systems do."""
        return []


class _Tcp(OpenConnections, socketserver.ThreadingTCPServer):
    request_queue_size = 64


class _Handler(socketserver.BaseRequestHandler):
    answer: Any

    def handle(self) -> None:
        """Answer the messages of one connection until it ends."""
        wire: socket.socket = self.request
        wire.settimeout(_IDLE_S)
        waiting = bytearray()
        # Complete frames are removed as they arrive, so only one unfinished message is buffered.
        while len(waiting) <= MOST_BYTES:
            try:
                received = wire.recv(65_536)
            except TimeoutError:
                return
            if not received:
                return
            waiting += received
            for frame in take_frames(waiting):
                wire.sendall(_BEGIN + self.answer(frame) + _END)


def take_frames(waiting: bytearray) -> list[bytes]:
    """Remove and return the messages of complete frames from the received bytes."""
    frames: list[bytes] = []
    while True:
        begin = waiting.find(_BEGIN)
        if begin < 0:
            waiting.clear()
            return frames
        # A new start byte inside a frame discards the previous one, which can no longer be completed.
        end = waiting.find(_END, begin)
        if end < 0:
            del waiting[:begin]
            return frames
        frames.append(bytes(waiting[waiting.rfind(_BEGIN, begin, end) + 1 : end]))
        del waiting[: end + len(_END)]
