"""A stdio server of the handshake era without the `mcp` package, so that it starts at once: for tests of processes, not of tools."""

from __future__ import annotations

import json
import os
import sys

SCHEMA = {"type": "object"}
TOOLS = [
    {"name": name, "description": name, "inputSchema": SCHEMA} for name in ("search", "environment", "hang", "die", "refuse", "structured")
]


class Refusal(Exception):
    """A JSON-RPC error with the requested code and message."""

    def __init__(self, error: dict[str, object]) -> None:
        super().__init__()
        self.error = error


def answer(method: str, params: dict[str, object]) -> dict[str, object] | None:
    """The result of one request, or None if it never gets one."""
    if method == "initialize":
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "bare", "version": "0.9"}}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method != "tools/call":
        raise LookupError(method)
    if params["name"] == "die":
        os._exit(3)
    if params["name"] == "missing":
        raise LookupError("tool")
    if params["name"] == "hang":
        return None
    if params["name"] == "refuse":
        raise Refusal(params["arguments"])  # type: ignore[arg-type]
    if params["name"] == "structured":
        return {"structuredContent": {"status": "shipped"}}
    if params["name"] == "environment":
        name = str(params["arguments"]["name"])  # type: ignore[index]
        return {"content": [{"type": "text", "text": f"{name}={os.environ.get(name, '')}"}]}
    return {"content": [{"type": "text", "text": f"found {params['arguments']}"}]}


def main() -> None:
    """Answer until standard input ends."""
    print("the shop is open", file=sys.stderr, flush=True)
    print("a line that is no message", flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        try:
            result = answer(message["method"], message.get("params") or {})
        except LookupError as error:
            reply = {"error": {"code": -32601, "message": f"unknown method {error}"}}
        except Refusal as refusal:
            reply = {"error": refusal.error}
        else:
            if result is None:
                continue
            reply = {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)


if __name__ == "__main__":
    main()
