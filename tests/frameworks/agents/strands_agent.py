"""strands-agents."""

from __future__ import annotations

import os
from typing import Any

from tests.frameworks import shop


def prepare(settings: dict[str, Any]) -> Any:
    from strands import Agent, tool

    def make_model() -> Any:
        if settings.get("provider") == "anthropic":
            from strands.models.anthropic import AnthropicModel

            return AnthropicModel(
                client_args={"api_key": "sk-none", "base_url": os.environ["MODEL_URL"]}, model_id=shop.ANTHROPIC_MODEL, max_tokens=500
            )
        if settings.get("provider") == "bedrock":
            from strands.models import BedrockModel

            return BedrockModel(model_id="amazon.nova-lite-v1:0", endpoint_url=os.environ["MODEL_URL"], region_name="us-east-1")
        from strands.models.openai import OpenAIModel

        return OpenAIModel(client_args={"api_key": "sk-none", "base_url": os.environ["MODEL_URL"] + "/v1"}, model_id=shop.MODEL)

    def make() -> Conversation:
        tools = [tool(function) for function in shop.TOOLS.values()]
        return Conversation(
            Agent(model=make_model(), tools=tools, system_prompt=shop.SYSTEM, name="shop_agent", callback_handler=None), make_model
        )

    return make


class Conversation:
    """One conversation."""

    def __init__(self, agent: Any, make_model: Any) -> None:
        self.agent, self.make_model = agent, make_model

    def ask(self, text: str, streamed: bool) -> str:
        # Every turn runs in its own event loop, which a reused connection would not survive.
        self.agent.model = self.make_model()
        return str(self.agent(text)).strip()

    def messages(self) -> dict[str, Any]:
        return {"strands-messages": self.agent.messages}
