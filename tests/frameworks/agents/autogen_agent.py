"""autogen-agentchat's AssistantAgent."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.frameworks import shop
from tests.frameworks.agents import shared_loop


def prepare(settings: dict[str, Any]) -> Any:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_core.tools import FunctionTool
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    def as_tool(name: str) -> Any:
        def lookup_order(id: int) -> str:
            return json.dumps(shop.lookup_order(id))

        def refund(id: int, amount: float) -> str:
            return json.dumps(shop.refund(id, amount))

        def search_docs(query: str) -> str:
            return json.dumps(shop.search_docs(query))

        return FunctionTool(
            {"lookup_order": lookup_order, "refund": refund, "search_docs": search_docs}[name], description=shop.describe(name), name=name
        )

    def make() -> Conversation:
        model = OpenAIChatCompletionClient(model=shop.MODEL, base_url=os.environ["MODEL_URL"] + "/v1", api_key="sk-none")
        agent = AssistantAgent(
            "shop_agent", model, tools=[as_tool(n) for n in shop.TOOLS], system_message=shop.SYSTEM, max_tool_iterations=5
        )
        return Conversation(agent)

    return make


class Conversation:
    """One conversation."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self.results: list[Any] = []
        self.loop = shared_loop()

    def ask(self, text: str, streamed: bool) -> str:
        return self.loop.run_until_complete(self.run(text, streamed))

    async def run(self, text: str, streamed: bool) -> str:
        if streamed:
            self.agent._model_client_stream = True
            result: Any = None
            async for item in self.agent.run_stream(task=text):
                result = item
        else:
            result = await self.agent.run(task=text)
        self.results.append(result)
        return str(result.messages[-1].content)

    def messages(self) -> dict[str, Any]:
        state = self.loop.run_until_complete(self.agent.save_state())
        return {
            "autogen-state": json.loads(json.dumps(state, default=str)),
            "autogen-results": [r.model_dump(mode="json") for r in self.results],
        }
