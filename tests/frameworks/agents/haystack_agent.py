"""Haystack's Agent."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.frameworks import shop


def prepare(settings: dict[str, Any]) -> Any:
    from haystack.components.agents import Agent
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.tools import Tool
    from haystack.utils import Secret

    if settings.get("own"):
        switch_tracing(settings.get("content", False))

    def make() -> Conversation:
        generator = OpenAIChatGenerator(
            api_key=Secret.from_token("sk-none"), model=shop.MODEL, api_base_url=os.environ["MODEL_URL"] + "/v1", generation_kwargs={}
        )
        tools = [Tool(name=n, description=shop.describe(n), parameters=shop.PARAMETERS[n], function=f) for n, f in shop.TOOLS.items()]
        agent = Agent(chat_generator=generator, tools=tools, system_prompt=shop.SYSTEM)
        if hasattr(agent, "warm_up"):
            agent.warm_up()
        return Conversation(agent, settings.get("pipeline", False))

    return make


def switch_tracing(content: bool) -> None:
    from haystack import tracing
    from haystack_integrations.tracing.opentelemetry import OpenTelemetryTracer
    from opentelemetry import trace

    tracing.enable_tracing(OpenTelemetryTracer(trace.get_tracer("shop_haystack")))
    tracing.tracer.is_content_tracing_enabled = content


class Conversation:
    """One conversation."""

    def __init__(self, agent: Any, in_pipeline: bool) -> None:
        self.agent = agent
        self.history: list[Any] = []
        self.pipeline: Any = None
        if in_pipeline:
            from haystack import Pipeline

            self.pipeline = Pipeline()
            self.pipeline.add_component("shop_agent", agent)

    def ask(self, text: str, streamed: bool) -> str:
        from haystack.dataclasses import ChatMessage

        given: dict[str, Any] = {"messages": [*self.history, ChatMessage.from_user(text)]}
        if streamed:
            given["streaming_callback"] = lambda chunk: None
        result = self.pipeline.run({"shop_agent": given})["shop_agent"] if self.pipeline else self.agent.run(**given)
        self.history = [m for m in result["messages"] if m.role.value != "system"]
        return str(result["messages"][-1].text)

    def messages(self) -> dict[str, Any]:
        return {
            "haystack": [json.loads(json.dumps(m.to_dict(), default=str)) for m in self.history],
            "haystack-openai": [m.to_openai_dict_format() for m in self.history],
        }
