"""A hand-written loop over the mistralai package."""

from __future__ import annotations

import importlib
import json
import os
from typing import Any

from tests.frameworks import shop


def find_client() -> Any:
    """The class has moved between versions of the package."""
    for module in ("mistralai", "mistralai.client"):
        found = getattr(importlib.import_module(module), "Mistral", None)
        if found:
            return found
    raise ImportError("mistralai has no Mistral")


def prepare(settings: dict[str, Any]) -> Any:
    client = find_client()(api_key="none", server_url=os.environ["MODEL_URL"] + "/mistral")
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
                arguments = call["function"]["arguments"]
                result, _ = shop.use(call["function"]["name"], json.loads(arguments) if isinstance(arguments, str) else arguments)
                self.history.append({"role": "tool", "name": call["function"]["name"], "tool_call_id": call["id"], "content": result})

    def complete(self, streamed: bool) -> dict[str, Any]:
        options = {"model": "mistral-small-latest", "messages": self.history, "tools": self.tools}
        if not streamed:
            return self.client.chat.complete(**options).choices[0].message.model_dump(exclude_none=True, mode="json")
        text, calls = "", {}
        for event in self.client.chat.stream(**options):
            for choice in event.data.choices:
                text += choice.delta.content if isinstance(choice.delta.content, str) else ""
                for part in choice.delta.tool_calls or []:
                    call = calls.setdefault(
                        part.index or 0, {"id": part.id, "type": "function", "function": {"name": part.function.name, "arguments": ""}}
                    )
                    call["function"]["arguments"] += part.function.arguments or ""
        return {"role": "assistant", "content": "", "tool_calls": list(calls.values())} if calls else {"role": "assistant", "content": text}

    def messages(self) -> dict[str, Any]:
        return {"mistral": self.history}
