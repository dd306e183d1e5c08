"""A hand-written loop over the cohere package, its second chat API."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.frameworks import shop


def prepare(settings: dict[str, Any]) -> Any:
    import cohere

    client = cohere.ClientV2(api_key="none", base_url=os.environ["MODEL_URL"])
    return lambda: Agent(client)


class Agent:
    """One conversation."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.history: list[Any] = [{"role": "system", "content": shop.SYSTEM}]
        self.tools = [
            {"type": "function", "function": {"name": n, "description": shop.describe(n), "parameters": s}}
            for n, s in shop.PARAMETERS.items()
        ]

    def ask(self, text: str, streamed: bool) -> str:
        self.history.append({"role": "user", "content": text})
        while True:
            message = self.complete(streamed)
            self.history.append(message)
            if not message.get("tool_calls"):
                return "".join(block["text"] for block in message["content"])
            for call in message["tool_calls"]:
                result, _ = shop.use(call["function"]["name"], json.loads(call["function"]["arguments"]))
                content = [{"type": "document", "document": {"data": result}}]
                self.history.append({"role": "tool", "tool_call_id": call["id"], "content": content})

    def complete(self, streamed: bool) -> dict[str, Any]:
        options = {"model": "command-a-03-2025", "messages": self.history, "tools": self.tools}
        if not streamed:
            message = json.loads(self.client.chat(**options).message.json())
            return {key: value for key, value in message.items() if value is not None}
        text, calls = "", []
        for event in self.client.chat_stream(**options):
            if event.type == "tool-call-start":
                calls.append(json.loads(event.delta.message.tool_calls.json()))
            elif event.type == "tool-call-delta":
                calls[-1]["function"]["arguments"] += event.delta.message.tool_calls.function.arguments
            elif event.type == "content-delta":
                text += event.delta.message.content.text
        return {"role": "assistant", "tool_calls": calls} if calls else {"role": "assistant", "content": [{"type": "text", "text": text}]}

    def messages(self) -> dict[str, Any]:
        return {"cohere": self.history}
