"""A provider on loopback that answers what a test gives it, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec


class Asked(msgspec.Struct):
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Said(msgspec.Struct):
    """One answer. `body` is JSON unless it is bytes; `silent` never answers; `cut` closes in the middle."""

    status: int = 200
    body: Any = msgspec.field(default_factory=dict)
    headers: dict[str, str] = {}
    silent: bool = False
    cut: bool = False


class Provider:
    """What was asked, and where."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.url = ""
        self.connections = 0
        self.none_open = asyncio.Event()


@asynccontextmanager
async def provider(answers: Sequence[Said] | Callable[[Asked], Said]) -> AsyncIterator[Provider]:
    """A server that gives `answers` in order (the last one again and again)."""
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
                asked = await _request(reader)
                if asked is None:
                    break
                seen.asked.append(asked)
                said = answers(asked) if callable(answers) else answers[min(len(seen.asked), len(answers)) - 1]
                if said.silent:
                    await reader.read()  # until the one who asks gives up
                    break
                await _answer(writer, said)
                if said.cut:
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


async def _request(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(method, path, headers, json.loads(body) if body else None)


async def _answer(writer: asyncio.StreamWriter, said: Said) -> None:
    content = said.body if isinstance(said.body, bytes) else json.dumps(said.body).encode()
    length = len(content) + (10 if said.cut else 0)
    lines = [f"HTTP/1.1 {said.status} X", f"content-length: {length}", *(f"{key}: {value}" for key, value in said.headers.items())]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
    await writer.drain()
