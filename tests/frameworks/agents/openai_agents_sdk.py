"""The openai-agents package."""

from __future__ import annotations

import os
from typing import Any

from tests.frameworks import shop
from tests.frameworks.agents import shared_loop


def prepare(settings: dict[str, Any]) -> Any:
    from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    if settings.get("tracing") == "off":
        set_tracing_disabled(True)
    kind = OpenAIChatCompletionsModel if settings.get("api") == "chat" else OpenAIResponsesModel

    def make() -> Conversation:
        client = AsyncOpenAI(base_url=os.environ["MODEL_URL"] + "/v1", api_key="sk-none")
        tools = [function_tool(tool) for tool in shop.TOOLS.values()]
        return Conversation(
            Agent(name="Shop agent", instructions=shop.SYSTEM, tools=tools, model=kind(model=shop.MODEL, openai_client=client))
        )

    return make


class Conversation:
    """One conversation; its trace is left open over the turns."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self.history: list[Any] = []
        self.loop = shared_loop()

    def ask(self, text: str, streamed: bool) -> str:
        return self.loop.run_until_complete(self.run([*self.history, {"role": "user", "content": text}], streamed))

    async def run(self, given: list[Any], streamed: bool) -> str:
        from agents import Runner

        if streamed:
            result = Runner.run_streamed(self.agent, given)
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(self.agent, given)
        self.history = result.to_input_list()
        return str(result.final_output)

    def messages(self) -> dict[str, Any]:
        return {"openai-agents-input": self.history}
