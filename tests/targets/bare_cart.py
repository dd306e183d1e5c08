"""A stdio server with one cart per process, without the `mcp` package, so that it starts at once.

With the argument `slow` it takes its time to end.
"""

from __future__ import annotations

import json
import os
import sys
import time

CART: list[str] = []
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("add", "show", "pid", "hang", "half")]


def answer(method: str, params: dict[str, object]) -> dict[str, object] | None:
    """The result of one request, or None if it never gets one."""
    if method == "initialize":
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "cart", "version": "1"}}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method != "tools/call":
        raise LookupError(method)
    if params["name"] == "hang":
        return None
    if params["name"] == "add":
        CART.append(str(params["arguments"]["item"]))  # type: ignore[index]
    if params["name"] == "half":
        return {"content": [{"type": "text", "text": "an emoji cut in two: \ud83d"}], "structuredContent": {"cut\ude00": "\ud83d"}}
    text = str(os.getpid()) if params["name"] == "pid" else ", ".join(CART)
    return {"content": [{"type": "text", "text": text}]}


def main() -> None:
    """Answer until standard input ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        try:
            result = answer(message["method"], message.get("params") or {})
        except LookupError as error:
            reply = {"error": {"code": -32601, "message": f"unknown method {error}"}}
        else:
            if result is None:
                continue
            reply = {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)
    if "slow" in sys.argv:
        time.sleep(0.5)


if __name__ == "__main__":
    main()
