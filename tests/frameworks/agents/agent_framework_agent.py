"""Microsoft's agent-framework."""

from __future__ import annotations

import os
from typing import Any

from tests.frameworks import shop
from tests.frameworks.agents import shared_loop


def prepare(settings: dict[str, Any]) -> Any:
    import agent_framework.openai as clients
    from agent_framework import Agent, tool
    from agent_framework.observability import enable_instrumentation

    enable_instrumentation(enable_sensitive_data=settings.get("sensitive", False))
    kind = getattr(clients, settings.get("client", "OpenAIChatCompletionClient"))

    def make() -> Conversation:
        client = kind(model=shop.MODEL, api_key="sk-none", base_url=os.environ["MODEL_URL"] + "/v1")
        tools = [tool(function, approval_mode="never_require") for function in shop.TOOLS.values()]
        return Conversation(Agent(client, instructions=shop.SYSTEM, name="shop_agent", tools=tools))

    return make


class Conversation:
    """One conversation."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self.session = agent.create_session()
        self.history: list[Any] = []
        self.loop = shared_loop()

    def ask(self, text: str, streamed: bool) -> str:
        return self.loop.run_until_complete(self.run(text, streamed))

    async def run(self, text: str, streamed: bool) -> str:
        from agent_framework import Message

        if streamed:
            stream = self.agent.run(text, session=self.session, stream=True)
            async for _ in stream:
                pass
            response = await stream.get_final_response()
        else:
            response = await self.agent.run(text, session=self.session)
        self.history += [Message("user", [text]), *response.messages]
        return str(response.text)

    def messages(self) -> dict[str, Any]:
        return {"agent-framework-session": self.session.to_dict(), "agent-framework": [message.to_dict() for message in self.history]}
