"""The openai package as it was first used for tools: functions and function_call."""

from __future__ import annotations

import json
from typing import Any

from tests.frameworks import shop
from tests.frameworks.agents import openai_sdk


def prepare(settings: dict[str, Any]) -> Any:
    client = openai_sdk.make_client(settings)
    return lambda: Agent(client)


class Agent:
    """One conversation."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.history: list[Any] = [{"role": "system", "content": shop.SYSTEM}]
        self.functions = [{"name": n, "description": shop.describe(n), "parameters": s} for n, s in shop.PARAMETERS.items()]

    def ask(self, text: str, streamed: bool) -> str:
        self.history.append({"role": "user", "content": text})
        while True:
            done = self.client.chat.completions.create(model=shop.MODEL, messages=self.history, functions=self.functions)
            message = done.choices[0].message.model_dump(exclude_none=True)
            self.history.append(message)
            call = message.get("function_call")
            if not call:
                return str(message["content"])
            result, _ = shop.use(call["name"], json.loads(call["arguments"]))
            self.history.append({"role": "function", "name": call["name"], "content": result})

    def messages(self) -> dict[str, Any]:
        return {"openai-functions": self.history}
