"""Traces of the real OpenTelemetry SDK with its OTLP/HTTP exporter, evaluated against Mibo cases."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.live.serving import Serving, serving

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("sdk"), flags=("--quiet-period-s", "0.2")) as found:
        yield found


@pytest.fixture
def project(server: Serving) -> Iterator[str]:
    """The only project of the service, which is gone afterwards with all that is in it."""
    _, made = server.ask("POST", "/api/projects", {"name": "sdk"})
    yield made["id"]
    status, body = server.ask("DELETE", f"/api/projects/{made['id']}")
    assert status < 300, body
    assert server.ask("GET", "/api/traces")[1]["data"] == [] == server.ask("GET", "/api/agents")[1]["data"]


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
    """An agent instrumented by the GenAI conventions, with content captured: its model asks for a tool, is given the result and answers."""
    question = {"role": "user", "parts": [{"type": "text", "content": "I was charged twice"}]}
    call = {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "lookup_order", "arguments": {"id": 17}}]}
    result = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": {"total": 9}}]}
    answer = {"role": "assistant", "parts": [{"type": "text", "content": text}]}
    root = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.input.messages": json.dumps([question]),
        "gen_ai.output.messages": json.dumps([answer]),
        "http.response.status_code": 200,
    }
    run = {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup_order", "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": '{"id": 17}',
    }  # fmt: skip
    with tracer.start_as_current_span("invoke_agent shop", attributes=root):
        chat(tracer, [question], call)
        with tracer.start_as_current_span("execute_tool lookup_order", attributes=run):
            pass
        chat(tracer, [question, call, result], answer)


def chat(tracer: Any, given: list[Any], answered: Any) -> None:
    attributes = {
        "gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 50, "gen_ai.usage.output_tokens": 10,
        "gen_ai.input.messages": json.dumps(given), "gen_ai.output.messages": json.dumps([answered]),
    }  # fmt: skip
    with tracer.start_as_current_span("chat m", attributes=attributes):
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
def test_traces_of_the_sdk_are_evaluated_against_mibo_cases(server: Serving, project: str, act: Any, compressed: bool) -> None:
    from opentelemetry.exporter.otlp.proto.http import Compression

    place = {"project_id": project, "name": "shop", "kind": "otlp", "service_name": "shop"}
    assert server.ask("POST", "/api/agents", place)[0] == 201
    status, made = server.ask("POST", "/api/cases", {"project_id": project, "document": CASE, "dialect": "mibo"})
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


LOGGED: dict[str, Any] = {
    "name": "no refund",
    "scenario": "a customer asks",
    "input_utterance": "Refund order 17",
    "assertions": {
        "procedural": [
            {
                "id": "asked",
                "target": "node_call",
                "condition": "MUST_CALL",
                "expected_name": "lookup_order",
                "expected_arguments": {"id": 17},
            },
            {"id": "not_deleted", "target": "node_call", "condition": "MUST_NOT_CALL", "expected_name": "delete_order"},
        ]
    },
}


def export_logged(server: Serving, tool: str, *, compression: Any, first: str) -> None:
    """A model request with an empty span, and its messages in log records of the SDK, sent in either order."""
    from opentelemetry._logs import LogRecord, SeverityNumber
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": "logged"})
    spans, records = TracerProvider(resource=resource), LoggerProvider(resource=resource)
    span_exporter = OTLPSpanExporter(endpoint=f"{server.url}/v1/traces", compression=compression)
    spans.add_span_processor(BatchSpanProcessor(span_exporter, schedule_delay_millis=60_000))
    log_exporter = OTLPLogExporter(endpoint=f"{server.url}/v1/logs", compression=compression)
    records.add_log_record_processor(BatchLogRecordProcessor(log_exporter, schedule_delay_millis=60_000))
    call = {"id": "call_1", "type": "function", "function": {"name": tool, "arguments": '{"id": 17}'}}
    answer = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Done."}}
    events = (
        ("gen_ai.user.message", {"content": "Refund order 17"}),
        ("gen_ai.assistant.message", {"tool_calls": [call]}),
        ("gen_ai.tool.message", {"id": "call_1", "content": "found"}),
        ("gen_ai.choice", answer),
    )
    logger = records.get_logger("test")
    with spans.get_tracer("test").start_as_current_span(
        "chat m", attributes={"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    ):
        logger.emit(LogRecord(timestamp=time.time_ns(), severity_number=SeverityNumber.INFO, body="an ordinary line"))
        for name, body in events:
            logger.emit(LogRecord(timestamp=time.time_ns(), event_name=name, body=body, attributes={"gen_ai.system": "openai"}))
    for provider in (records, spans) if first == "logs" else (spans, records):
        assert provider.force_flush(20_000)
        provider.shutdown()


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("first", ["logs", "spans"])
def test_log_records_of_the_sdk_are_evaluated_with_their_spans_and_make_their_agent(
    server: Serving, project: str, first: str, compressed: bool
) -> None:
    from opentelemetry.exporter.otlp.proto.http import Compression

    assert server.ask("POST", "/api/cases", {"project_id": project, "document": LOGGED, "dialect": "mibo"})[0] == 201
    compression = Compression.Gzip if compressed else Compression.NoCompression
    for tool in ("lookup_order", "delete_order"):
        export_logged(server, tool, compression=compression, first=first)
    end = time.monotonic() + 30
    while True:
        _, page = server.ask("GET", "/api/traces?status=evaluated")
        if [row["outcome"] for row in page["data"]] == ["fail", "pass"]:
            break
        assert time.monotonic() < end, page
        time.sleep(0.05)
    assert [row["input_text"] for row in page["data"]] == ["Refund order 17"] * 2
    _, agents = server.ask("GET", "/api/agents")
    assert [(agent["name"], agent["project_id"]) for agent in agents["data"]] == [("logged", project)]
