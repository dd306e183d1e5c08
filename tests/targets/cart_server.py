"""A server with a cart per session in memory, which answers with every kind of content: for tests of sessions and of results.

Over stdio the process has the cart; over HTTP the session has it. `python -m tests.targets.cart_server` is the former.
"""

from __future__ import annotations

import base64
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

PICTURE = base64.b64encode(b"\x89PNG picture").decode()
SOUND = base64.b64encode(b"RIFF sound").decode()


def cart_server(name: str = "cart") -> MCPServer:
    """A cart for each session."""
    server = MCPServer(name, version="2.0.0", log_level="CRITICAL")
    carts: dict[str, list[str]] = {}

    def cart_of(context: Context[Any, Any]) -> list[str]:
        return carts.setdefault((context.headers or {}).get("mcp-session-id", "this process"), [])

    @server.tool(structured_output=False)
    def add(item: str, context: Context[Any, Any]) -> str:
        """Put an item into the cart."""
        cart_of(context).append(item)
        return f"added {item}"

    @server.tool(structured_output=False)
    def show(context: Context[Any, Any]) -> str:
        """What is in the cart."""
        return ", ".join(cart_of(context)) or "nothing"

    @server.tool()
    def total(ids: list[int]) -> CallToolResult:
        """A result of structured content only."""
        return CallToolResult(content=[], structured_content={"total": sum(ids), "currency": "EUR"})

    @server.tool()
    def mixed() -> CallToolResult:
        """Text, and structured content that differs from it."""
        return CallToolResult(content=[TextContent(type="text", text="see the data")], structured_content={"secret": 42})

    @server.tool()
    def everything() -> CallToolResult:
        """Every kind of content block."""
        return CallToolResult(
            content=[
                TextContent(type="text", text="a picture:"),
                ImageContent(type="image", data=PICTURE, mime_type="image/png"),
                AudioContent(type="audio", data=SOUND, mime_type="audio/wav"),
                EmbeddedResource(type="resource", resource=TextResourceContents(uri="note://1", text="buy tea", mime_type="text/plain")),
                ResourceLink(type="resource_link", uri="https://shop.example/note/2", name="note two"),
            ],
            structured_content={"blocks": 5},
        )

    @server.tool()
    def refuse() -> CallToolResult:
        """A failed result, with its reason in structured content."""
        return CallToolResult(content=[TextContent(type="text", text="out of stock")], structured_content={"left": 0}, is_error=True)

    return server


if __name__ == "__main__":
    cart_server().run()
