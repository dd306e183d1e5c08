"""Counts event streams: how many of them are followed with one key at one moment.

A stream costs a connection and a look into the database every half a second for as long as its reader likes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from proctor.model.evidence import Json
from proctor.service.refusals import Refusal

_RETRY_AFTER_S = 5.0


STILL_HERE = b": still here\n\n"
"""A comment, which readers pass over: proxies close a connection on which nothing comes for long."""


def write_event(event: Mapping[str, Json]) -> bytes:
    """Return an event as a stream carries it."""
    return f"id: {event['id']}\nevent: {event['kind']}\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n"


class Streams:
    """The streams that are open, by who follows them."""

    def __init__(self, per_key: int) -> None:
        self._per_key = per_key
        self._open: Counter[str] = Counter()

    def enter(self, who: str) -> None:
        """Count a stream of somebody. Raises `Refusal` when there are enough."""
        if self._open[who] >= self._per_key:
            told = f"there are {self._per_key} event streams with this key already (--streams-per-key)"
            raise Refusal("RATE_LIMITED", told, retry_after_s=_RETRY_AFTER_S)
        self._open[who] += 1

    def leave(self, who: str) -> None:
        """Stop counting a stream of somebody."""
        self._open[who] -= 1
        # Keys come and go; each would leave a count of 0 behind for ever.
        if self._open[who] <= 0:
            del self._open[who]


class CountedStream(StreamingResponse):
    """An event stream that is counted until it ends, however it ends."""

    def __init__(self, streams: Streams, who: str, *arguments: Any, **named: Any) -> None:
        # nginx would hold events back until its buffer is full.
        super().__init__(*arguments, media_type="text/event-stream", headers={"x-accel-buffering": "no"}, **named)
        streams.enter(who)
        self._streams = streams
        self._who = who

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.leave(self._who)
