"""smolagents' ToolCallingAgent, which ends by the tool final_answer, or its CodeAgent."""

from __future__ import annotations

import os
from typing import Any

from tests.frameworks import shop


def prepare(settings: dict[str, Any]) -> Any:
    from smolagents import CodeAgent, OpenAIModel, Tool, ToolCallingAgent

    def as_tool(name: str) -> Any:
        kinds = {"id": ("integer", int), "amount": ("number", float), "query": ("string", str)}
        inputs = {key: {"type": kinds[key][0], "description": key} for key in shop.PARAMETERS[name]["properties"]}
        source = {
            "lookup_order": lambda self, id: shop.lookup_order(id),
            "refund": lambda self, id, amount: shop.refund(id, amount),
            "search_docs": lambda self, query: shop.search_docs(query),
        }
        body = {
            "name": name,
            "description": shop.describe(name),
            "inputs": inputs,
            "output_type": "object",
            "forward": source[name],
            "skip_forward_signature_validation": True,
        }
        return type(f"{name}_tool", (Tool,), body)()

    def make() -> Conversation:
        model = OpenAIModel(model_id=shop.MODEL, api_base=os.environ["MODEL_URL"] + "/v1", api_key="sk-none")
        kind = CodeAgent if settings["style"] == "code" else ToolCallingAgent
        agent = kind(
            tools=[as_tool(name) for name in shop.TOOLS],
            model=model,
            name="shop_agent",
            description="Shop support",
            stream_outputs=False,
            verbosity_level=0,
        )
        return Conversation(agent)

    return make


class Conversation:
    """One conversation."""

    def __init__(self, agent: Any) -> None:
        self.agent, self.first = agent, True

    def ask(self, text: str, streamed: bool) -> str:
        reset, self.first = self.first, False
        if not streamed:
            return str(self.agent.run(text, reset=reset))
        self.agent.stream_outputs = True
        last: Any = None
        for step in self.agent.run(text, reset=reset, stream=True):
            last = step
        return str(last.output)

    def messages(self) -> dict[str, Any]:
        return {"smolagents-steps": self.agent.memory.get_full_steps()}
