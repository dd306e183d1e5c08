"""A hand-written loop over the anthropic package."""

from __future__ import annotations

import os
from typing import Any

from tests.frameworks import shop


def prepare(settings: dict[str, Any]) -> Any:
    from anthropic import Anthropic

    client = Anthropic(base_url=os.environ["MODEL_URL"], api_key="sk-none")
    return lambda: Agent(client)


class Agent:
    """One conversation."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.history: list[Any] = []
        self.tools = [
            {"name": name, "description": shop.describe(name), "input_schema": schema} for name, schema in shop.PARAMETERS.items()
        ]

    def ask(self, text: str, streamed: bool) -> str:
        self.history.append({"role": "user", "content": text})
        while True:
            message = self.complete(streamed)
            self.history.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]})
            uses = [block for block in message.content if block.type == "tool_use"]
            if not uses:
                return str(message.content[0].text)
            results = []
            for use in uses:
                result, failed = shop.use(use.name, use.input)
                results.append({"type": "tool_result", "tool_use_id": use.id, "content": result, **({"is_error": True} if failed else {})})
            self.history.append({"role": "user", "content": results})

    def complete(self, streamed: bool) -> Any:
        options = {"model": shop.ANTHROPIC_MODEL, "max_tokens": 500, "system": shop.SYSTEM, "messages": self.history, "tools": self.tools}
        if not streamed:
            return self.client.messages.create(**options)
        with self.client.messages.stream(**options) as stream:
            for _ in stream:
                pass
            return stream.get_final_message()

    def messages(self) -> dict[str, Any]:
        return {"anthropic-messages": self.history}
