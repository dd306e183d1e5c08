"""A hand-written loop over boto3's Converse."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.frameworks import shop


def prepare(settings: dict[str, Any]) -> Any:
    import boto3

    client = boto3.client("bedrock-runtime", region_name="us-east-1", endpoint_url=os.environ["MODEL_URL"])
    return lambda: Agent(client)


class Agent:
    """One conversation."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.history: list[Any] = []
        self.tools = {
            "tools": [
                {"toolSpec": {"name": n, "description": shop.describe(n), "inputSchema": {"json": s}}} for n, s in shop.PARAMETERS.items()
            ]
        }

    def ask(self, text: str, streamed: bool) -> str:
        self.history.append({"role": "user", "content": [{"text": text}]})
        while True:
            message = self.stream() if streamed else self.complete()
            self.history.append(message)
            uses = [block["toolUse"] for block in message["content"] if "toolUse" in block]
            if not uses:
                return "".join(block.get("text", "") for block in message["content"])
            results = []
            for use in uses:
                result, failed = shop.use(use["name"], use["input"])
                content = [{"text": result}] if failed or result.startswith("[") else [{"json": json.loads(result)}]
                results.append(
                    {"toolResult": {"toolUseId": use["toolUseId"], "content": content, "status": "error" if failed else "success"}}
                )
            self.history.append({"role": "user", "content": results})

    def options(self) -> dict[str, Any]:
        return {"modelId": "amazon.nova-lite-v1:0", "system": [{"text": shop.SYSTEM}], "messages": self.history, "toolConfig": self.tools}

    def complete(self) -> dict[str, Any]:
        return self.client.converse(**self.options())["output"]["message"]

    def stream(self) -> dict[str, Any]:
        blocks: dict[int, Any] = {}
        for event in self.client.converse_stream(**self.options())["stream"]:
            if "contentBlockStart" in event:
                start = event["contentBlockStart"]
                blocks[start["contentBlockIndex"]] = {"toolUse": {**start["start"]["toolUse"], "input": ""}}
            elif "contentBlockDelta" in event:
                delta = event["contentBlockDelta"]
                block = blocks.setdefault(delta["contentBlockIndex"], {"text": ""})
                if "text" in delta["delta"]:
                    block["text"] += delta["delta"]["text"]
                else:
                    block["toolUse"]["input"] += delta["delta"]["toolUse"]["input"]
        for block in blocks.values():
            if "toolUse" in block:
                block["toolUse"]["input"] = json.loads(block["toolUse"]["input"])
        return {"role": "assistant", "content": list(blocks.values())}

    def messages(self) -> dict[str, Any]:
        return {"bedrock-converse": self.history}
