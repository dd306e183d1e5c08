"""An MCP server over HTTP of the handshake era, on plain sockets, which dies during a tool call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.targets.bare_server import answer


@asynccontextmanager
async def dying_server() -> AsyncIterator[str]:
    """The address of the server; its first call of `die` closes the connection and stops listening."""
    server: asyncio.Server | None = None

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().lower().split("\r\n")
                size = next((int(line.partition(":")[2]) for line in lines if line.startswith("content-length:")), 0)
                body = await reader.readexactly(size)
                if not lines[0].startswith("post"):
                    writer.write(b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n")
                    continue
                message = json.loads(body)
                if message.get("method") == "tools/call" and message["params"]["name"] == "die":
                    assert server is not None
                    server.close()
                    # Half a response, then nothing.
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{")
                    await writer.drain()
                    return
                writer.write(_reply(message))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.close()


def _reply(message: dict[str, object]) -> bytes:
    if "id" not in message:
        return b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
    try:
        response: dict[str, object] = {"result": answer(str(message["method"]), message.get("params") or {})}  # type: ignore[arg-type]
    except LookupError as error:
        response = {"error": {"code": -32601, "message": f"unknown method {error}"}}
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **response}).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
