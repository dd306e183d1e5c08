"""llama-index's FunctionAgent."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.frameworks import shop
from tests.frameworks.agents import shared_loop


def prepare(settings: dict[str, Any]) -> Any:
    from llama_index.core.agent.workflow import FunctionAgent, ReActAgent
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.openai import OpenAI

    if settings.get("own"):
        from llama_index.observability.otel import LlamaIndexOpenTelemetry
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        LlamaIndexOpenTelemetry(
            span_exporter=OTLPSpanExporter(), service_name_or_resource=os.environ["OTEL_SERVICE_NAME"]
        ).start_registering()

    def make() -> Conversation:
        model = OpenAI(model=shop.MODEL, api_base=os.environ["MODEL_URL"] + "/v1", api_key="sk-none")
        tools = [FunctionTool.from_defaults(function) for function in shop.TOOLS.values()]
        kind = ReActAgent if settings.get("react") else FunctionAgent
        return Conversation(kind(tools=tools, llm=model, system_prompt=shop.SYSTEM, name="shop_agent", description="Shop support"))

    return make


class Conversation:
    """One conversation."""

    def __init__(self, agent: Any) -> None:
        from llama_index.core.workflow import Context

        self.agent = agent
        self.context = Context(agent)
        self.loop = shared_loop()

    def ask(self, text: str, streamed: bool) -> str:
        return self.loop.run_until_complete(self.run(text, streamed))

    async def run(self, text: str, streamed: bool) -> str:
        self.agent.streaming = streamed
        handler = self.agent.run(text, ctx=self.context)
        if streamed:
            async for _ in handler.stream_events():
                pass
        return str(await handler)

    def messages(self) -> dict[str, Any]:
        async def collect() -> Any:
            memory = await self.context.store.get("memory")
            return await memory.aget()

        return {"llamaindex": [json.loads(m.model_dump_json()) for m in self.loop.run_until_complete(collect())]}
