"""Traces of the real OpenTelemetry SDK with its OTLP/HTTP exporter, evaluated against Mibo cases."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.live.serving import Serving, serving

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

CASE: dict[str, Any] = {
    "name": "refund",
    "scenario": "a customer was charged twice",
    "input_utterance": "I was charged twice",
    "assertions": {
        "procedural": [
            {"id": "status", "target": "http_status", "expected_status": 200},
            {
                "id": "looked_up",
                "target": "node_call",
                "condition": "MUST_CALL",
                "expected_name": "lookup_order",
                "expected_arguments": {"id": 17},
            },
            {"id": "not_deleted", "target": "node_call", "condition": "MUST_NOT_CALL", "expected_name": "delete_order"},
            {"id": "says", "target": "response_regex", "pattern": "[Rr]efund", "should_match": True},
            {"id": "cheap", "target": "token_limit", "max_total_tokens": 1000},
            {"id": "fast", "target": "response_time", "max_ms": 60000},
        ]
    },
}


def genai(tracer: Any, text: str) -> None:
    """An agent instrumented by the GenAI conventions."""
    said = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": text}]}])
    asked = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "I was charged twice"}]}])
    root = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.input.messages": asked,
        "gen_ai.output.messages": said,
        "http.response.status_code": 200,
    }
    with tracer.start_as_current_span("invoke_agent shop", attributes=root):
        with tracer.start_as_current_span("chat m", attributes={"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 100}) as span:
            span.set_attribute("gen_ai.usage.output_tokens", 20)
        call = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup_order", "gen_ai.tool.call.arguments": '{"id": 17}'}
        with tracer.start_as_current_span("execute_tool lookup_order", attributes=call):
            pass


def openinference(tracer: Any, text: str) -> None:
    """The same agent instrumented by OpenInference."""
    root = {"openinference.span.kind": "AGENT", "input.value": "I was charged twice", "output.value": text, "http.status_code": 200}
    with tracer.start_as_current_span("agent", attributes=root):
        model = {
            "openinference.span.kind": "LLM", "llm.token_count.prompt": 100, "llm.token_count.completion": 20,
            "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": text,
        }  # fmt: skip
        with tracer.start_as_current_span("llm", attributes=model):
            pass
        call = {"openinference.span.kind": "TOOL", "tool.name": "lookup_order", "input.value": '{"id": 17}', "output.value": '{"total": 9}'}
        with tracer.start_as_current_span("lookup_order", attributes=call):
            pass


def export(server: Serving, act: Any, text: str, compression: Any) -> None:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
    exporter = OTLPSpanExporter(endpoint=f"{server.url}/v1/traces", compression=compression)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    act(provider.get_tracer("test"), text)
    assert provider.force_flush(20_000)
    provider.shutdown()


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("act", [genai, openinference], ids=["genai", "openinference"])
def test_traces_of_the_sdk_are_evaluated_against_mibo_cases(tmp_path: Path, act: Any, compressed: bool) -> None:
    from opentelemetry.exporter.otlp.proto.http import Compression

    with serving(tmp_path, flags=("--quiet-period-s", "0.2")) as server:
        _, project = server.ask("POST", "/api/projects", {"name": "sdk"})
        place = {"project_id": project["id"], "name": "shop", "kind": "otlp", "service_name": "shop"}
        assert server.ask("POST", "/api/agents", place)[0] == 201
        status, made = server.ask("POST", "/api/cases", {"project_id": project["id"], "document": CASE, "dialect": "mibo"})
        assert status == 201, made
        compression = Compression.Gzip if compressed else Compression.NoCompression
        export(server, act, "Your refund is on its way.", compression)
        export(server, act, "No.", compression)
        end = time.monotonic() + 30
        while True:
            _, page = server.ask("GET", "/api/traces?status=evaluated")
            if len(page["data"]) == 2:
                break
            assert time.monotonic() < end, page
            time.sleep(0.05)
        assert [row["outcome"] for row in page["data"]] == ["fail", "pass"]
        assert page["data"][1]["input_text"] == "I was charged twice"
        _, results = server.ask("GET", f"/api/results?trace_id={page['data'][0]['id']}")
        _, whole = server.ask("GET", f"/api/results/{results['data'][0]['id']}")
        failed = [entry["id"] for entry in whole["result"]["assertions"] if entry["outcome"] != "pass"]
        assert failed == ["says"], whole["result"]
