"""A server of the Python SDK with everything the doctor looks at: over stdio, or over HTTP on the port that is given."""

from __future__ import annotations

import sys
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

server = MCPServer("orders", version="1.0", instructions="Look up the order first.", log_level="CRITICAL")


class Order(BaseModel):
    """An order."""

    status: str


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def lookup_order(id: Annotated[str, Field(description="The id of the order.")]) -> Order:
    """Look up one order by its id."""
    return Order(status="shipped")


@server.resource("shop://terms", mime_type="text/plain")
def terms() -> str:
    """The terms of trade."""
    return "Pay within 30 days."


@server.resource("shop://orders/{id}", mime_type="text/plain")
def order(id: str) -> str:
    """One order."""
    return f"Order {id} was shipped."


@server.prompt()
def complain(order_id: str) -> str:
    """A complaint about an order."""
    return f"Where is order {order_id}?"


if len(sys.argv) > 1:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    server.run("stdio")
