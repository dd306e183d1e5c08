"""A provider on loopback that sends scripted responses and records the requests it receives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec


class ReceivedRequest(msgspec.Struct):
    """A received request."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class ScriptedResponse(msgspec.Struct):
    """A response to send. `body` is JSON unless it is bytes; `silent` never responds; `cut` closes halfway through."""

    status: int = 200
    body: Any = msgspec.field(default_factory=dict)
    headers: dict[str, str] = {}
    silent: bool = False
    cut: bool = False


class Provider:
    """The requests a server received, and its address."""

    def __init__(self) -> None:
        self.requests: list[ReceivedRequest] = []
        self.url = ""
        self.connections = 0
        self.none_open = asyncio.Event()


@asynccontextmanager
async def provider(answers: Sequence[ScriptedResponse] | Callable[[ReceivedRequest], ScriptedResponse]) -> AsyncIterator[Provider]:
    """Serve `answers` in order; the last one is repeated."""
    seen = Provider()
    handlers: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        seen.connections += 1
        seen.none_open.clear()
        try:
            while True:
                request = await _read_request(reader)
                if request is None:
                    break
                seen.requests.append(request)
                response = answers(request) if callable(answers) else answers[min(len(seen.requests), len(answers)) - 1]
                if response.silent:
                    await reader.read()  # until the client gives up
                    break
                await _write_response(writer, response)
                if response.cut:
                    break
        except (asyncio.CancelledError, ConnectionError):
            pass
        finally:
            handlers.discard(task)
            if not handlers:
                seen.none_open.set()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    seen.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield seen
    finally:
        server.close()
        for task in list(handlers):
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        await server.wait_closed()


async def _read_request(reader: asyncio.StreamReader) -> ReceivedRequest | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return ReceivedRequest(method, path, headers, json.loads(body) if body else None)


async def _write_response(writer: asyncio.StreamWriter, response: ScriptedResponse) -> None:
    content = response.body if isinstance(response.body, bytes) else json.dumps(response.body).encode()
    length = len(content) + (10 if response.cut else 0)
    lines = [f"HTTP/1.1 {response.status} X", f"content-length: {length}", *(f"{key}: {value}" for key, value in response.headers.items())]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
    await writer.drain()
