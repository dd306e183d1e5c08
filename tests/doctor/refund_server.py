"""An MCP server over stdio with one tool; `--changed` takes the parameter `reason` away, and refuses."""

import json
import sys

CHANGED = "--changed" in sys.argv
PROPERTIES = {"order": {"type": "string"}, **({} if CHANGED else {"reason": {"type": "string"}})}
TOOL = {"name": "refund", "description": "Refunds an order.", "inputSchema": {"type": "object", "properties": PROPERTIES}}

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result: object = None
    if message["method"] == "initialize":
        version = message["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "shop", "version": "1"}}
    elif message["method"] == "tools/list":
        result = {"tools": [TOOL]}
    elif message["method"] == "tools/call":
        text = "a refund needs an approval" if CHANGED else "refunded"
        result = {"content": [{"type": "text", "text": text}], "isError": CHANGED}
    answer = {"result": result} if result is not None else {"error": {"code": -32601, "message": "no such method"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
