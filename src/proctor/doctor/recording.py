"""Every message of one connection, in order, within bounds: a hostile server must not fill the memory.

A frame is one message on the wire (or one line that is not a message). Evidence shows frames shortened and without secrets.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from proctor.doctor.model import Message
from proctor.model.evidence import Json
from proctor.model.show import shorten
from proctor.targets.mcp.settings import hide_secrets

MOST_FRAME_BYTES: Final = 8_000_000
"""Bytes of one message."""
MOST_BYTES: Final = 64_000_000
"""Bytes of all messages of one connection."""
MOST_FRAMES: Final = 5_000
"""Messages of one connection."""
_SHOWN: Final = 600
"""Characters of a message in evidence."""


class TooMuch(Exception):
    """The server sent more than is recorded."""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One message, or one line that is not a message."""

    number: int
    direction: Literal["sent", "received"]
    at_s: float
    raw: bytes
    message: Json = None
    fault: str = ""
    """Why `raw` is not a message: not UTF-8, or not JSON."""
    http: str = ""

    @property
    def fields(self) -> Mapping[str, Any]:
        """The message if it is an object; else nothing."""
        return self.message if isinstance(self.message, dict) else {}

    def is_response(self) -> bool:
        """Return whether this is the response to a request."""
        return "method" not in self.fields and ("result" in self.fields or "error" in self.fields)


class Recording:
    """The frames of one connection."""

    def __init__(self, numbers: Iterator[int] | None = None, secrets: tuple[str, ...] = ()) -> None:
        self.frames: list[Frame] = []
        self.secrets = secrets
        self._numbers = numbers or itertools.count(1)
        self._bytes = 0

    def add(self, direction: Literal["sent", "received"], raw: bytes, http: str = "") -> Frame:
        """Add what was sent or received. Raises `TooMuch` beyond the bounds."""
        self._bytes += len(raw)
        if len(self.frames) >= MOST_FRAMES or self._bytes > MOST_BYTES:
            raise TooMuch(f"it sent more than {MOST_FRAMES:,} messages or {MOST_BYTES // 1_000_000} MB")
        message, fault = parse_message(raw)
        number, now = next(self._numbers), time.monotonic()
        frame = Frame(number=number, direction=direction, at_s=now, raw=raw, message=message, fault=fault, http=http)
        self.frames.append(frame)
        return frame

    def show(self, frame: Frame | None) -> Message | None:
        """Return a frame as evidence."""
        if frame is None:
            return None
        text = shorten(hide_secrets(frame.raw.decode("utf-8", "replace"), self.secrets), _SHOWN)
        return Message(number=frame.number, direction=frame.direction, text=text, http=hide_secrets(frame.http, self.secrets))

    def list_received(self) -> list[Frame]:
        """Return the frames of the server."""
        return [frame for frame in self.frames if frame.direction == "received"]

    def find_request(self, identity: Json) -> Frame | None:
        """Return the request of ours with this id, whatever its type."""
        for frame in self.frames:
            if frame.direction == "sent" and "method" in frame.fields and "id" in frame.fields and str(frame.fields["id"]) == str(identity):
                return frame
        return None


def parse_message(raw: bytes) -> tuple[Json, str]:
    """Return a message and why it is invalid; the reason is empty for a valid one."""
    if not raw:
        return None, ""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return None, "not UTF-8"
    try:
        return msgspec.json.decode(text), ""
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None, "not JSON"
