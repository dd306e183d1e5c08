"""The shop's tools as an MCP server over stdio: `python -m tests.frameworks.mcp_shop`."""

from __future__ import annotations

from typing import Any

from tests.frameworks import shop


def find_server() -> Any:
    """The class was renamed in version 2 of the SDK."""
    try:
        from mcp.server import MCPServer
    except ImportError:
        from mcp.server.fastmcp import FastMCP as MCPServer
    return MCPServer


def lookup_order(id: int) -> dict[str, Any]:
    """Look up an order by its number."""
    return shop.lookup_order(id)


def refund(id: int, amount: float) -> dict[str, Any]:
    """Refund an amount of an order."""
    return shop.refund(id, amount)


def search_docs(query: str) -> list[dict[str, Any]]:
    """Search the documents of the shop."""
    return shop.search_docs(query)


def make_server() -> Any:
    server = find_server()("shop")
    for function in (lookup_order, refund, search_docs):
        server.tool()(function)
    return server


if __name__ == "__main__":
    make_server().run()
