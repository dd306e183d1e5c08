"""Measures how long an agent takes, and nothing else: not the making of a client or a connection, not the start of a thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Self

_SENDING = ".send_request_headers.started"
"""Event names of the HTTP client for an open connection and a sent request, after the name of the protocol."""


def read_clock() -> float:
    """Return the seconds of a clock that only goes forward."""
    return time.perf_counter()


class Stopwatch:
    """The time in which an agent was waited for: every stretch from what was sent or called to what came back, together."""

    def __init__(self) -> None:
        self._total_s = 0.0
        self._since: float | None = None
        self._is_sent = False

    def __enter__(self) -> Self:
        self._since, self._is_sent = read_clock(), False
        return self

    def __exit__(self, *_: object) -> None:
        if self._since is not None:
            self._total_s += read_clock() - self._since

    def call(self, work: Callable[[], object]) -> object:
        """Return what `work` returns, measured in the thread that does it."""
        with self:
            return work()

    async def note_event(self, name: str, _: object) -> None:
        """Handle an event of the HTTP client: an exchange begins when the connection is open and the headers are sent."""
        if not self._is_sent and name.endswith(_SENDING):
            self._since, self._is_sent = read_clock(), True

    def read_ms(self) -> float:
        """Return the milliseconds of all stretches."""
        return round(self._total_s * 1000, 3)
