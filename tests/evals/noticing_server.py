"""A server of the Python SDK that sends notices, logs and progress, and asks its user: over stdio, or over HTTP on the port given."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.types import Icon, ToolAnnotations
from pydantic import BaseModel


class Sure(BaseModel):
    """The question."""

    sure: bool


class Placed(BaseModel):
    """An order."""

    status: str


async def ask(product: str) -> Elicit[Sure]:
    """The question to the user."""
    return Elicit(f"Order {product}?", Sure)


def noticing() -> MCPServer[Any]:
    """A fresh server."""
    server: MCPServer[Any] = MCPServer("noticing", version="1.0", instructions="Ask first.", log_level="CRITICAL")

    @server.tool(
        title="Place an order",
        annotations=ToolAnnotations(destructive_hint=False),
        icons=[Icon(src="data:image/png;base64,AA==")],
        meta={"ui": {"visibility": ["app"]}},
    )
    async def place(product: str, sure: Annotated[Sure, Resolve(ask)]) -> Placed:
        """Place an order."""
        return Placed(status="placed" if sure.sure else "left")

    @server.tool()
    async def change(context: Context) -> str:
        """Change the terms."""
        await context.report_progress(1, 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # logging is deprecated, and still there
            await context.info("changing")
        await context.report_progress(2, 2)
        await context.notify_resource_updated("shop://terms")
        await context.notify_resources_changed()
        return "changed"

    @server.resource("shop://terms", mime_type="text/plain")
    def terms() -> str:
        """The terms of trade."""
        return "Pay within 30 days."

    @server.resource("shop://orders/{id}")
    def order(id: str) -> str:
        """One order."""
        return f"Order {id} was shipped."

    @server.prompt()
    def complain(order_id: str) -> str:
        """A complaint about an order."""
        return f"Where is order {order_id}?"

    return server


if __name__ == "__main__":
    if len(sys.argv) > 1:
        noticing().run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        noticing().run("stdio")
