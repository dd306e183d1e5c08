"""A real MCP client on a server in this process: on the connection of `proctor mcp`, or on the server of the service.

    @on_server
    async def test_something(client: Client) -> None: ...

`on_server` gives the test a workspace of its own; `mode="legacy"` speaks the era of the handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from mcp.client import Client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from proctor.mcp_server.http import make_service_server
from proctor.mcp_server.local_runs import LocalRuns
from proctor.mcp_server.server import OpenDesk
from proctor.mcp_server.stdio import Connection
from proctor.mcp_server.tool import Desk
from proctor.service.access.callers import LOCAL, Caller
from proctor.service.hub import Hub
from proctor.service.settings import ServiceSettings
from proctor.store.sql.database import open_database

ERAS = ("2026-07-28", "legacy")


@contextlib.asynccontextmanager
async def transport(open_desk: OpenDesk) -> AsyncGenerator[tuple[Any, Any]]:
    """A connection of `proctor mcp`, as the transport of a client in this process."""
    answers, reader = anyio.create_memory_object_stream[SessionMessage | Exception](1000)
    writer, sent = anyio.create_memory_object_stream[SessionMessage](1000)

    def write(line: bytes) -> None:
        assert b"\n" not in line
        answers.send_nowait(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))

    async def forward() -> None:
        async for message in sent:
            connection.receive(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode())

    connection = Connection(open_desk, write)
    forwarding = asyncio.create_task(forward())
    try:
        yield reader, writer
    finally:
        forwarding.cancel()
        await connection.close()
        for stream in (answers, reader, writer, sent):
            stream.close()


@contextlib.asynccontextmanager
async def connected(
    home: Path, *, caller: Caller = LOCAL, local: bool = True, mode: Any = "auto", url: str | None = None, trust: bool | None = None
) -> AsyncGenerator[tuple[Client, Hub]]:
    """A client of a server on `home`: as on its user's machine, or (`local=False`) as over HTTP."""
    database = await open_database(url or str(home / "proctor.db"))
    hub = Hub(database=database, settings=ServiceSettings(home=home), clock=time.time)
    runs = LocalRuns(home, home.parent, trust=trust)

    async def open_desk() -> Desk:
        return Desk(hub=hub, caller=caller, runs=runs, folder=home.parent, trust=trust)

    server: Any = transport(open_desk) if local else make_service_server(hub, lambda context: caller)
    try:
        async with Client(server, mode=mode) as client:
            yield client, hub
    finally:
        await runs.close()
        await database.close()


def use(home: Path, doing: Callable[[Client], Awaitable[None]], **more: Any) -> None:
    """Do something with a client."""

    async def whole() -> None:
        async with asyncio.timeout(50):
            async with connected(home, **more) as (client, _):
                await doing(client)

    asyncio.run(whole())
