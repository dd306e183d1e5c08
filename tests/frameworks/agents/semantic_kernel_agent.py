"""Semantic Kernel's ChatCompletionAgent with a plugin named Shop."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.frameworks import shop
from tests.frameworks.agents import shared_loop


def prepare(settings: dict[str, Any]) -> Any:
    from openai import AsyncOpenAI
    from semantic_kernel.agents import ChatCompletionAgent
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
    from semantic_kernel.functions import kernel_function

    class Shop:
        """The plugin."""

        @kernel_function(description=shop.describe("lookup_order"))
        def lookup_order(self, id: int) -> str:
            return json.dumps(shop.lookup_order(id))

        @kernel_function(description=shop.describe("refund"))
        def refund(self, id: int, amount: float) -> str:
            return json.dumps(shop.refund(id, int(amount) if amount == int(amount) and amount < 100 else amount))

        @kernel_function(description=shop.describe("search_docs"))
        def search_docs(self, query: str) -> str:
            return json.dumps(shop.search_docs(query))

    def make() -> Conversation:
        client = AsyncOpenAI(base_url=os.environ["MODEL_URL"] + "/v1", api_key="sk-none")
        service = OpenAIChatCompletion(ai_model_id=shop.MODEL, async_client=client)
        return Conversation(ChatCompletionAgent(service=service, name="shop_agent", instructions=shop.SYSTEM, plugins=[Shop()]))

    return make


class Conversation:
    """One conversation."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self.thread: Any = None
        self.loop = shared_loop()

    def ask(self, text: str, streamed: bool) -> str:
        return self.loop.run_until_complete(self.run(text, streamed))

    async def run(self, text: str, streamed: bool) -> str:
        if not streamed:
            response = await self.agent.get_response(messages=text, thread=self.thread)
            self.thread = response.thread
            return str(response.message.content)
        found = ""
        async for response in self.agent.invoke_stream(messages=text, thread=self.thread):
            found += str(response.message.content or "")
            self.thread = response.thread
        return found

    def messages(self) -> dict[str, Any]:
        async def collect() -> list[Any]:
            return [message async for message in self.thread.get_messages()]

        found = self.loop.run_until_complete(collect())
        return {
            "semantic-kernel": {"messages": [json.loads(m.model_dump_json(exclude_none=True)) for m in found]},
            "semantic-kernel-to-dict": [m.to_dict() for m in found],
        }
