"""A server as a child process, line by line: also the lines that are no messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import anyio
import msgspec

from proctor.doctor.client import Reply
from proctor.doctor.recording import MOST_FRAME_BYTES, Frame, Recording, TooMuch
from proctor.model.evidence import Json
from proctor.targets.mcp.settings import ServerFault, ServerSettings, hide_secrets
from proctor.targets.mcp.stdio import ChildServer

_SETTLE_S = 0.05
"""Seconds after the exit in which the last output is read."""


class _RecordedChild(ChildServer):
    """A child process whose lines go to the link, and which sends bytes as they are."""

    most_line_bytes = MOST_FRAME_BYTES
    reads_to_end = True  # buffered output that is no message arrives at the end

    def attach(self, link: StdioLink) -> None:
        """Choose who receives the lines."""
        self._link = link

    async def _deliver(self, line: bytes, incoming: Any) -> None:
        if not line.strip():
            return
        try:
            self._link.receive(line)
        except TooMuch as error:
            self.fault = str(error)
            incoming.close()

    def _encode(self, message: Any) -> bytes:
        return message


class StdioLink:
    """One process of a server, from `open` to `close`."""

    def __init__(self, settings: ServerSettings, recording: Recording) -> None:
        self.recording = recording
        self.settings = settings
        self.answers: Mapping[str, Json] = {}
        """Results for requests of the server, by method; others are refused."""
        self.started_s = 0.0
        self.took_s = 0.0
        """Seconds from the start to the first line."""
        self._child = _RecordedChild(settings.command, settings.args, env=settings.env, cwd=settings.cwd)
        self._child.attach(self)
        self._waiting: dict[str, asyncio.Future[tuple[Frame, Mapping[str, Any]]]] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self._over = False

    async def open(self) -> None:
        """Start the process. Raises `ServerFault` if there is no such program."""
        self.started_s = time.monotonic()
        try:
            self._from_child, to_child = await self._child.__aenter__()
        except OSError as error:
            place = self.settings.describe_place()
            raise ServerFault("command_not_found", self.settings.id, f"cannot be started: {place}: {error.strerror or error}") from None
        self._to_child: Any = to_child
        self._watcher = asyncio.create_task(self._watch_end())

    async def close(self) -> None:
        """End the process by the steps of the protocol: end of input, SIGTERM, SIGKILL."""
        await self._child.__aexit__(None, None, None)
        if self._watcher is not None:
            await self._watcher
        for task in self._answering:
            task.cancel()

    async def _watch_end(self) -> None:
        with suppress(anyio.EndOfStream, anyio.ClosedResourceError):
            async for _ in self._from_child:
                pass
        self._over = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionResetError())

    @property
    def overflow(self) -> str:
        """Why the connection was given up: the server sent more than is recorded. Empty otherwise."""
        return self._child.fault or ""

    def is_open(self) -> bool:
        """Return whether the process is running and listened to."""
        return not self._over and self._child.fault is None

    def explain_end(self) -> str:
        """Return why the connection ended, with the end of standard error."""
        if self._child.fault is not None:
            return f"the server {self._child.fault}"
        code = self._child.exit_code
        how = "the server closed its output" if code is None else f"the server ended with exit code {code}"
        tail = hide_secrets(self._child.stderr_tail(), self.recording.secrets)
        return f"{how}; its standard error ends with: {tail[-400:]}" if tail else how

    @property
    def needed_signal(self) -> str:
        """The signal that was needed to end the process; empty if it ended by itself after the end of its input."""
        return self._child.needed_signal

    def receive(self, line: bytes) -> None:
        """Record a line, and hand a response to the request that waits for it."""
        frame = self.recording.add("received", line.rstrip(b"\r"))
        if not self.took_s:
            # On a slow machine, where starting takes long, ending may, too.
            self.took_s = time.monotonic() - self.started_s
            self._child.grace_s = max(self._child.grace_s, self.took_s)
        messages = frame.message if isinstance(frame.message, list) else [frame.message]
        for message in messages:
            if not isinstance(message, dict):
                continue
            if "method" in message:
                if "id" in message:
                    self._answer(message)
                continue
            waiting = self._waiting.get(str(message.get("id")))
            if waiting is not None and not waiting.done():
                waiting.set_result((frame, message))

    def _answer(self, request: Mapping[str, Any]) -> None:
        """Answer a request of the server."""
        message = answer_request(request, self.answers)
        task = asyncio.create_task(self._send(msgspec.json.encode(message)))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _send(self, line: bytes) -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, TooMuch):
            self.recording.add("sent", line)
            await self._to_child.send(line + b"\n")

    async def exchange(self, message: Mapping[str, Json] | bytes, *, timeout_s: float, headers: Mapping[str, str | None]) -> Reply:
        """Send a message and wait for its response."""
        raw = message if isinstance(message, bytes) else msgspec.json.encode(message)
        identity = message.get("id") if isinstance(message, Mapping) else None
        waits = identity is not None and isinstance(message, Mapping) and "method" in message
        if not self.is_open():
            return Reply(problem=self.explain_end())
        position = len(self.recording.frames)
        future: asyncio.Future[tuple[Frame, Mapping[str, Any]]] = asyncio.get_running_loop().create_future()
        if waits:
            self._waiting[str(identity)] = future
        try:
            async with asyncio.timeout(timeout_s):
                await self._send(raw)
                response, fields = await future if waits else (None, {})
            problem = ""
        except TimeoutError:
            response, fields, problem = None, {}, f"no response within {timeout_s:g} s"
        except ConnectionResetError:
            await self._child.wait_for_last_words()
            response, fields, problem = None, {}, self.explain_end()
        finally:
            self._waiting.pop(str(identity), None)
        request_frame = next(iter(self.recording.frames[position : position + 1]), None)
        return Reply(request=request_frame, response=response, fields=fields, problem=problem)

    async def wait(self, seconds: float) -> None:
        """Wait for messages that were not requested, or for the end of the process."""
        until = time.monotonic() + seconds
        while self.is_open() and time.monotonic() < until:
            await asyncio.sleep(_SETTLE_S)


def answer_request(request: Mapping[str, Any], answers: Mapping[str, Json]) -> dict[str, Json]:
    """Return the answer to a request of the server: `ping` works, and what the user declared; all else is refused."""
    method, identity = str(request.get("method")), request.get("id")
    if method == "ping" or method in answers:
        return {"jsonrpc": "2.0", "id": identity, "result": answers.get(method) or {}}
    return {"jsonrpc": "2.0", "id": identity, "error": {"code": -32601, "message": f"proctor declared no capability for {method}"}}
