"""A hand-written loop over the openai package with decorators of an observability SDK around it and its tools."""

from __future__ import annotations

import json
from typing import Any

from tests.frameworks import shop
from tests.frameworks.agents import openai_sdk


def prepare(settings: dict[str, Any]) -> Any:
    agent_of, tool_of = DECORATORS[settings["decorate"]]()
    client = openai_sdk.make_client(settings)
    tools = {name: tool_of(function) for name, function in shop.TOOLS.items()}

    def use(name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        try:
            return json.dumps(tools[name](**arguments)), False
        except ValueError as error:
            return f"Error: {error}", True

    class Observed(openai_sdk.Chat):
        """The loop as one observed function."""

        def ask(self, text: str, streamed: bool) -> str:
            @agent_of
            def shop_agent(question: str) -> str:
                return openai_sdk.Chat.ask(self, question, streamed)

            return str(shop_agent(text))

    openai_sdk.shop = type("Shop", (), {**vars(shop), "use": staticmethod(use)})
    return lambda: Observed(client)


def langfuse() -> Any:
    from langfuse import observe

    return observe(as_type="agent"), observe(as_type="tool")


def traceloop() -> Any:
    from traceloop.sdk.decorators import agent, tool

    return agent(name="shop_agent"), lambda function: tool(name=function.__name__)(function)


def langsmith() -> Any:
    from langsmith import traceable

    return traceable(run_type="chain", name="shop_agent"), traceable(run_type="tool")


def openlit() -> Any:
    import openlit

    return openlit.trace, openlit.trace


def logfire() -> Any:
    from logfire import instrument

    return instrument("shop_agent", record_return=True), lambda f: instrument(f"running tool {f.__name__}", record_return=True)(f)


def opik() -> Any:
    from opik import track

    return track(type="general"), track(type="tool")


def openinference() -> Any:
    from openinference.instrumentation import OITracer, TraceConfig
    from opentelemetry import trace

    tracer = OITracer(trace.get_tracer("shop_oi"), config=TraceConfig())
    return tracer.agent, tracer.tool


def genai_util() -> Any:
    """Spans as the conventions write them, made by hand."""
    from opentelemetry import trace

    tracer = trace.get_tracer("shop_by_hand")

    def agent(function: Any) -> Any:
        def wrapped(question: str) -> Any:
            with tracer.start_as_current_span("invoke_agent shop_agent") as span:
                span.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "shop_agent"})
                return function(question)

        return wrapped

    def tool(function: Any) -> Any:
        def wrapped(**arguments: Any) -> Any:
            with tracer.start_as_current_span(f"execute_tool {function.__name__}") as span:
                span.set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": function.__name__})
                return function(**arguments)

        return wrapped

    return agent, tool


DECORATORS = {
    "langfuse": langfuse,
    "traceloop": traceloop,
    "langsmith": langsmith,
    "openlit": openlit,
    "logfire": logfire,
    "opik": opik,
    "openinference": openinference,
    "by_hand": genai_util,
}
