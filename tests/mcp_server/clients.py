"""A real MCP client on a server in this process.

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

from mcp.client import Client

from proctor.mcp_server.local_runs import LocalRuns
from proctor.mcp_server.server import McpServer
from proctor.mcp_server.service_runs import ServiceRuns
from proctor.service.access.callers import LOCAL, Caller
from proctor.service.hub import Hub
from proctor.service.settings import ServiceSettings
from proctor.store.sql.database import open_database

ERAS = ("2026-07-28", "legacy")


@contextlib.asynccontextmanager
async def connected(
    home: Path, *, caller: Caller = LOCAL, local: bool = True, mode: Any = "auto", url: str | None = None, trust: bool | None = None
) -> AsyncGenerator[tuple[Client, Hub]]:
    """A client of a server on `home`: as on its user's machine, or (`local=False`) as over HTTP."""
    database = await open_database(url or str(home / "proctor.db"))
    hub = Hub(database=database, settings=ServiceSettings(home=home), clock=time.time)
    runs = LocalRuns(home, home.parent, trust=trust) if local else ServiceRuns(hub)
    server = McpServer(hub, runs, lambda context: caller, folder=home.parent if local else None, trust=trust)
    try:
        async with Client(server.protocol, mode=mode) as client:
            yield client, hub
    finally:
        if isinstance(runs, LocalRuns):
            await runs.close()
        await database.close()


def use(home: Path, doing: Callable[[Client], Awaitable[None]], **more: Any) -> None:
    """Do something with a client."""

    async def whole() -> None:
        async with asyncio.timeout(50):
            async with connected(home, **more) as (client, _):
                await doing(client)

    asyncio.run(whole())
