"""A server that means harm: `python hostile_server.py KIND`."""

import json
import sys
import time

KIND = sys.argv[1]


def write(message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    number = 0
    if KIND == "dies":
        sys.exit("the database is missing")
    if KIND == "noise":
        while True:
            sys.stdout.write("x" * 1000 + "\n")
    for line in sys.stdin:
        try:
            message = json.loads(line)
        except ValueError:
            continue
        number += 1
        if KIND == "silent" or "id" not in message:
            continue
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] == "initialize":
            capabilities = {"tools": {}, "resources": {}, "prompts": {}}
            result: object = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {"name": "h", "version": "1"}}
            write({**answer, "result": result})
        elif KIND == "quiet later":
            continue
        elif KIND == "flood":
            while True:
                write({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 500}})
        elif KIND == "giant":
            write({**answer, "result": {"tools": [{"name": "a" * 30_000_000, "inputSchema": {"type": "object"}}]}})
        elif KIND == "endless pages":
            tools = [{"name": f"t{number}", "inputSchema": {"type": "object"}}]
            write({**answer, "result": {"tools": tools, "resources": [], "prompts": [], "nextCursor": str(number)}})
        elif KIND == "deep":
            sys.stdout.write(json.dumps(answer)[:-1] + ', "result": ' + '{"a":' * 50_000 + "1" + "}" * 50_000 + "}\n")
            sys.stdout.flush()
        elif KIND == "changing":
            tools = [{"name": f"t{number}-{n}", "inputSchema": {"type": "object"}} for n in range(number % 7)]
            write({**answer, "result": {"tools": tools, "resources": [None, 3], "prompts": "none"}})
        else:
            write({**answer, "result": [1, None]})
    if KIND == "stays":
        time.sleep(60)


main()
