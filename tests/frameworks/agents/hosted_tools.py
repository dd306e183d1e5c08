"""Providers' SDKs with an MCP server that the provider itself calls."""

from __future__ import annotations

import os
from typing import Any

from tests.frameworks import shop


def prepare(settings: dict[str, Any]) -> Any:
    if settings["provider"] == "anthropic":
        from anthropic import Anthropic

        client: Any = Anthropic(base_url=os.environ["MODEL_URL"], api_key="sk-none")
        return lambda: AnthropicAgent(client)
    from openai import OpenAI

    client = OpenAI(base_url=os.environ["MODEL_URL"] + "/v1", api_key="sk-none")
    return lambda: OpenAIAgent(client)


class OpenAIAgent:
    """One conversation over the Responses API."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.history: list[Any] = []

    def ask(self, text: str, streamed: bool) -> str:
        self.history.append({"role": "user", "content": text})
        tools = [{"type": "mcp", "server_label": "shop", "server_url": "https://shop.example/mcp", "require_approval": "never"}]
        options = {"model": shop.MODEL, "instructions": shop.SYSTEM, "input": self.history, "tools": tools}
        if streamed:
            response: Any = None
            for event in self.client.responses.create(stream=True, **options):
                if event.type == "response.completed":
                    response = event.response
        else:
            response = self.client.responses.create(**options)
        self.history += [item.model_dump(exclude_none=True) for item in response.output]
        return str(response.output_text)

    def messages(self) -> dict[str, Any]:
        return {"openai-responses-mcp": self.history}


class AnthropicAgent:
    """One conversation over the beta messages API."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.history: list[Any] = []

    def ask(self, text: str, streamed: bool) -> str:
        self.history.append({"role": "user", "content": text})
        options: dict[str, Any] = {
            "model": shop.ANTHROPIC_MODEL,
            "max_tokens": 500,
            "system": shop.SYSTEM,
            "messages": self.history,
            "betas": ["mcp-client-2025-11-20"],
            "mcp_servers": [{"type": "url", "url": "https://shop.example/mcp", "name": "shop"}],
            "tools": [{"type": "mcp_toolset", "mcp_server_name": "shop"}],
        }
        if streamed:
            with self.client.beta.messages.stream(**options) as stream:
                for _ in stream:
                    pass
                message = stream.get_final_message()
        else:
            message = self.client.beta.messages.create(**options)
        self.history.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]})
        return str(message.content[-1].text)

    def messages(self) -> dict[str, Any]:
        return {"anthropic-mcp": self.history}
