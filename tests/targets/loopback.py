"""A small HTTP server on loopback, and an in-memory tape."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from proctor.errors import TargetError
from proctor.model.attempt import Attempt
from proctor.model.case import Case, Turn

REASONS = {200: "OK", 302: "Found", 404: "Not Found", 429: "Too Many Requests", 500: "Internal Server Error"}


class ReceivedRequest(msgspec.Struct, frozen=True):
    """A received request."""

    method: str
    path: str
    headers: dict[str, str]
    data: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A response to send; `raw` is written unchanged instead."""

    status: int = 200
    body: Any = None
    data: bytes | None = None
    headers: dict[str, str] = {}
    raw: bytes | None = None

    def bytes(self) -> bytes:
        if self.raw is not None:
            return self.raw
        data = self.data if self.data is not None else json.dumps(self.body).encode()
        headers = {"content-type": "application/json", "content-length": str(len(data)), **self.headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"HTTP/1.1 {self.status} {REASONS.get(self.status, 'Status')}\r\n{head}\r\n".encode() + data


Answer = Callable[[ReceivedRequest], Reply | Awaitable[Reply]]


class Server:
    """Responds to every request with the result of `answer` and records the requests."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[ReceivedRequest] = []
        self.url = ""
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                reply = self.answer(request)
                if isinstance(reply, Awaitable):
                    reply = await _unless_gone(reply, reader)
                    if reply is None:
                        break
                writer.write(reply.bytes())
                await writer.drain()
                if reply.raw is not None:
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def open_connections(self) -> int:
        return len(self._tasks)


@contextlib.asynccontextmanager
async def serve(answer: Answer) -> AsyncIterator[Server]:
    """Serve on a free port while the block runs."""
    server = Server(answer)
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    server.url = f"http://127.0.0.1:{server.port}"
    try:
        yield server
    finally:
        listening.close()
        await server.stop()
        await listening.wait_closed()


async def _unless_gone(answer: Awaitable[Reply], reader: asyncio.StreamReader) -> Reply | None:
    """The answer, or None if the client disconnects first."""
    answering, gone = asyncio.ensure_future(answer), asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
        return answering.result() if answering.done() else None
    finally:
        for task in (answering, gone):
            task.cancel()
        await asyncio.gather(answering, gone, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> ReceivedRequest | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode().rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    data = await reader.readexactly(int(headers.get("content-length", "0")))
    return ReceivedRequest(method, path, headers, data)


class Recorder:
    """A tape that records exchanges as JSON text, like a real one."""

    def __init__(self) -> None:
        self.exchanges: list[tuple[str, Any, Any]] = []

    async def exchange(self, kind: str, request: Any, send: Callable[[], Awaitable[Any]]) -> Any:
        request = json.loads(json.dumps(request))
        try:
            answer = json.loads(json.dumps(await send()))
        except TargetError as error:
            self.exchanges.append((kind, request, {"fault": [error.message, error.code, error.safe]}))
            raise
        self.exchanges.append((kind, request, answer))
        return answer


class Player:
    """A tape that replays recorded exchanges in order and sends nothing."""

    def __init__(self, exchanges: list[tuple[str, Any, Any]]) -> None:
        self.left = list(exchanges)

    async def exchange(self, kind: str, request: Any, send: Callable[[], Awaitable[Any]]) -> Any:
        for index, (recorded_kind, recorded_request, answer) in enumerate(self.left):
            if recorded_kind == kind and recorded_request == json.loads(json.dumps(request)):
                del self.left[index]
                if "fault" in answer:
                    message, code, safe = answer["fault"]
                    raise TargetError(message, code=code, safe=safe)
                return answer
        raise AssertionError(f"nothing was recorded for {request}; recorded: {[entry[1] for entry in self.left]}")


def attempt(*messages: str, body: Any = None, number: int = 0, timeout_s: float = 5.0, marker: str = "a", **more: Any) -> Attempt:
    """An attempt at a case with one message, several turns, or a body."""
    given: dict[str, Any] = {"id": "case-1", **more}
    if len(messages) > 1:
        given["turns"] = tuple(Turn(input=text) for text in messages)
    elif messages:
        given["input"] = messages[0]
    return Attempt(
        case=Case(custom_body=body, **given),
        number=number,
        request_id=f"request-{marker}-0001",
        session_id=f"session-{marker}-0001",
        timeout_s=timeout_s,
    )
