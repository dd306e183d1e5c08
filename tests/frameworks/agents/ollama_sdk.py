"""A hand-written loop over the ollama package."""

from __future__ import annotations

import os
from typing import Any

from tests.frameworks import shop


def prepare(settings: dict[str, Any]) -> Any:
    from ollama import Client

    client = Client(host=os.environ["MODEL_URL"])
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
                return str(message["content"])
            for call in message["tool_calls"]:
                result, _ = shop.use(call["function"]["name"], call["function"]["arguments"])
                self.history.append({"role": "tool", "tool_name": call["function"]["name"], "content": result})

    def complete(self, streamed: bool) -> dict[str, Any]:
        options = {"model": "qwen3", "messages": self.history, "tools": self.tools}
        if not streamed:
            return self.client.chat(**options).message.model_dump(exclude_none=True)
        text, calls = "", []
        for chunk in self.client.chat(stream=True, **options):
            text += chunk.message.content or ""
            calls += [call.model_dump(exclude_none=True) for call in chunk.message.tool_calls or []]
        return {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}

    def messages(self) -> dict[str, Any]:
        return {"ollama": self.history}
