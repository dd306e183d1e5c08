"""A small MCP server with constant answers: the shop that the tests buy from.

`python -m tests.targets.shop_server` serves over standard input and output; `shop()` gives the server itself, for in-process use
and for streamable HTTP on loopback. Faults are tools too: one that fails, hangs, dies, or returns far too much.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.utilities.types import Image

ORDERS: dict[int, dict[str, Any]] = {17: {"id": 17, "total": 9.5, "status": "shipped"}, 18: {"id": 18, "total": 120, "status": "open"}}


def shop(name: str = "shop", version: str = "1.4.2") -> MCPServer[Any]:
    """A fresh shop."""
    server: MCPServer[Any] = MCPServer(name, version=version, log_level="CRITICAL")

    @server.tool()
    def lookup_order(id: int) -> dict[str, Any]:
        """Look up one order by its number."""
        if id not in ORDERS:
            raise ToolError(f"no order {id}")
        return ORDERS[id]

    @server.tool()
    def search(query: str, limit: int = 5) -> list[str]:
        """Search the catalogue."""
        return [f"{query} {number}" for number in range(1, min(limit, 3) + 1)]

    @server.tool()
    def picture() -> Image:
        """A picture of the shop."""
        return Image(data=b"\x89PNG" + b"\0" * 300, format="png")

    @server.tool(structured_output=False)
    def environment(name: str) -> str:
        """A variable of the server's environment."""
        return f"{name}={os.environ.get(name, '')}"

    @server.tool(structured_output=False)
    def flood(megabytes: int) -> str:
        """Far too much text."""
        return "x" * (megabytes * 1_000_000)

    @server.tool()
    async def hang() -> str:
        """Never answers."""
        await asyncio.Event().wait()
        return "never"

    @server.tool()
    def die() -> str:
        """Ends the server's process."""
        os._exit(3)

    return server


if __name__ == "__main__":
    print("the shop is open", file=sys.stderr, flush=True)
    shop().run("stdio")
