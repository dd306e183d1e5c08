"""An agent that only records spans, as an instrumented framework does."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Span

SCOPE = "tests.traced_agent"


def tracer() -> trace.Tracer:
    """A tracer of the current provider."""
    return trace.get_tracer_provider().get_tracer(SCOPE)


def chat(parts: list[dict[str, Any]], *, finish: str, **more: Any) -> Span:
    """A model request that is started and not ended."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "scripted",
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "go"}]}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": parts, "finish_reason": finish}]),
        "gen_ai.response.finish_reasons": (finish,),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
    }
    return tracer().start_span("chat scripted", attributes=attributes, **more)


def ask_for_tool(name: str, arguments: dict[str, Any], id: str) -> None:
    """A model request whose response calls a tool."""
    chat([{"type": "tool_call", "id": id, "name": name, "arguments": arguments}], finish="tool_call").end()


def run_tool(name: str, arguments: dict[str, Any], id: str, result: str, **more: Any) -> None:
    """A tool that runs."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": id,
        "gen_ai.tool.call.arguments": json.dumps(arguments),
        "gen_ai.tool.call.result": result,
    }
    tracer().start_span(f"execute_tool {name}", attributes=attributes, **more).end()


def say(text: str) -> None:
    """A model request with a text response."""
    chat([{"type": "text", "content": text}], finish="stop").end()


def look_up(order: int, tool: Callable[..., None] = run_tool) -> str:
    """A whole run: the model calls a tool, the tool runs, the model answers."""
    ask_for_tool("lookup_order", {"id": order}, f"call-{order}")
    tool("lookup_order", {"id": order}, f"call-{order}", f"shipped {order}")
    say(f"order {order}")
    return f"order {order}"
