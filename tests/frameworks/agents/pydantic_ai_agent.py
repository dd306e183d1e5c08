"""pydantic-ai with a version of its instrumentation, or under logfire."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.frameworks import shop
from tests.frameworks.agents import shared_loop


def make_model(settings: dict[str, Any]) -> Any:
    if settings.get("provider") == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel(shop.ANTHROPIC_MODEL, provider=AnthropicProvider(base_url=os.environ["MODEL_URL"], api_key="sk-none"))
    if settings.get("provider") == "google":
        from pydantic_ai.models.google import GoogleModel
        from pydantic_ai.providers.google import GoogleProvider

        return GoogleModel(shop.GEMINI_MODEL, provider=GoogleProvider(base_url=os.environ["MODEL_URL"], api_key="sk-none"))
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    kind = OpenAIResponsesModel if settings.get("api") == "responses" else OpenAIChatModel
    return kind(shop.MODEL, provider=OpenAIProvider(base_url=os.environ["MODEL_URL"] + "/v1", api_key="sk-none"))


def prepare(settings: dict[str, Any]) -> Any:
    from pydantic_ai import Agent, ModelRetry

    options = settings.get("instrumentation")
    if options is not None:
        from pydantic_ai.models.instrumented import InstrumentationSettings

        Agent.instrument_all(InstrumentationSettings(**options))
    retries = settings.get("retries", True)

    def refund(id: int, amount: float) -> dict[str, Any]:
        """Refund an amount of an order."""
        try:
            return shop.refund(id, amount)
        except ValueError as error:
            if not retries:
                raise
            raise ModelRetry(str(error)) from error

    def make() -> Conversation:
        agent = Agent(
            make_model(settings), name="shop_agent", instructions=shop.SYSTEM, tools=[shop.lookup_order, refund, shop.search_docs]
        )
        return Conversation(agent)

    return make


class Conversation:
    """One conversation."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self.result: Any = None
        self.loop = shared_loop()

    def ask(self, text: str, streamed: bool) -> str:
        return self.loop.run_until_complete(self.run(text, streamed))

    async def run(self, text: str, streamed: bool) -> str:
        history = self.result.all_messages() if self.result else None
        if not streamed:
            self.result = await self.agent.run(text, message_history=history)
            return str(self.result.output)
        async with self.agent.run_stream(text, message_history=history) as result:
            async for _ in result.stream_text():
                pass
            self.result = result
            return str(await result.get_output())

    def messages(self) -> dict[str, Any]:
        return {"pydantic-ai-messages": json.loads(self.result.all_messages_json())}
