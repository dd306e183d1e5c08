"""beeai-framework's RequirementAgent, ending by a tool or by text."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.frameworks import shop
from tests.frameworks.agents import shared_loop


def prepare(settings: dict[str, Any]) -> Any:
    from beeai_framework.adapters.openai import OpenAIChatModel
    from beeai_framework.agents.requirement import RequirementAgent
    from beeai_framework.memory import UnconstrainedMemory
    from beeai_framework.tools import JSONToolOutput, tool

    @tool
    def lookup_order(id: int) -> Any:
        """Look up an order by its number."""
        return JSONToolOutput(shop.lookup_order(id))

    @tool
    def refund(id: int, amount: float) -> Any:
        """Refund an amount of an order."""
        return JSONToolOutput(shop.refund(id, amount))

    @tool
    def search_docs(query: str) -> Any:
        """Search the documents of the shop."""
        return JSONToolOutput(shop.search_docs(query))

    def make() -> Conversation:
        model = OpenAIChatModel(shop.MODEL, api_key="sk-none", base_url=os.environ["MODEL_URL"] + "/v1", allow_parallel_tool_calls=True)
        tools = [lookup_order, refund, search_docs]
        memory = UnconstrainedMemory()
        agent = RequirementAgent(
            llm=model,
            tools=tools,
            memory=memory,
            name="shop_agent",
            instructions=shop.SYSTEM,
            tool_call_checker=False,
            final_answer_as_tool="style" in settings,
        )
        return Conversation(agent)

    return make


class Conversation:
    """One conversation."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self.loop = shared_loop()

    def ask(self, text: str, streamed: bool) -> str:
        return self.loop.run_until_complete(self.run(text))

    async def run(self, text: str) -> str:
        result = await self.agent.run(text)
        return str(result.last_message.text)

    def messages(self) -> dict[str, Any]:
        return {
            "beeai": [
                json.loads(json.dumps(m.to_json_safe() if hasattr(m, "to_json_safe") else m.model_dump(mode="json"), default=str))
                for m in self.agent.memory.messages
            ]
        }
