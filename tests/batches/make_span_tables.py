"""Has the real Arize Phoenix and the real MLflow write tables of spans, each with the same traces over OTLP.

    uv venv /tmp/tables
    uv pip install --python /tmp/tables/bin/python arize-phoenix mlflow opentelemetry-exporter-otlp-proto-http pandas pyarrow
    /tmp/tables/bin/python tests/batches/make_span_tables.py phoenix
    /tmp/tables/bin/python tests/batches/make_span_tables.py mlflow

`make span-tables` installs both and holds what they write now to the same checks (`tests/platforms/test_span_tables.py`).

Both run alone, with nothing but their own packages and the standard library; what they write lies in `span_tables` and is committed.
Phoenix runs as a server, receives the recording of a real agent over OTLP and exports its data frame. MLflow traces a
small agent, keeps it in SQLite, and sends it over OTLP at the same time; `search_traces` is its table.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TABLES = HERE / "span_tables"
RECORDING = HERE.parent / "evidence" / "frameworks" / "langchain-0-oi.json"
_IDS = ("traceId", "spanId", "parentSpanId")


def find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def write_protobuf(document: Any) -> bytes:
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    def in_base64(value: Any) -> Any:
        # OTLP writes ids in hexadecimal where JSON of protobuf would have base64.
        if isinstance(value, list):
            return [in_base64(one) for one in value]
        if not isinstance(value, dict):
            return value
        return {key: base64.b64encode(bytes.fromhex(one)).decode() if key in _IDS else in_base64(one) for key, one in value.items()}

    return ParseDict(in_base64(document), ExportTraceServiceRequest(), ignore_unknown_fields=True).SerializeToString()


def read_protobuf(data: bytes) -> Any:
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    def in_hexadecimal(value: Any) -> Any:
        if isinstance(value, list):
            return [in_hexadecimal(one) for one in value]
        if not isinstance(value, dict):
            return value
        return {key: base64.b64decode(one).hex() if key in _IDS else in_hexadecimal(one) for key, one in value.items()}

    return in_hexadecimal(MessageToDict(ExportTraceServiceRequest.FromString(data)))


def make_phoenix(tables: Path) -> None:
    port = find_port()
    home = tempfile.mkdtemp()
    settings = {"PHOENIX_PORT": str(port), "PHOENIX_GRPC_PORT": str(find_port()), "PHOENIX_WORKING_DIR": home, "PHOENIX_HOST": "127.0.0.1"}
    server = subprocess.Popen([sys.executable, "-m", "phoenix.server.main", "serve"], env={**os.environ, **settings})
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(f"{address}/healthz")
        requests = json.loads(RECORDING.read_text())
        for document in requests if isinstance(requests, list) else [requests]:
            body = write_protobuf(document)
            post = urllib.request.Request(f"{address}/v1/traces", data=body, headers={"content-type": "application/x-protobuf"})
            urllib.request.urlopen(post).read()
        expected = sum(len(scope["spans"]) for request in requests for group in request["resourceSpans"] for scope in group["scopeSpans"])
        from phoenix.client import Client

        frame: Any = None
        for _ in range(60):
            frame = Client(base_url=address).spans.get_spans_dataframe(limit=10_000)
            if frame is not None and len(frame) >= expected:
                break
            time.sleep(1)
        frame.to_parquet(tables / "phoenix.parquet")
        print(len(frame), "spans, columns:", *frame.columns)
    finally:
        server.terminate()
        server.wait()


def wait_for(address: str) -> None:
    for _ in range(240):
        try:
            urllib.request.urlopen(address).read()
            return
        except OSError:
            time.sleep(0.5)
    raise SystemExit(f"no server answers at {address}")


def make_mlflow(tables: Path) -> None:
    received: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                import gzip

                data = gzip.decompress(data)
            received.append(data)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    collector = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    os.environ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] = "http/protobuf"
    os.environ["MLFLOW_TRACE_ENABLE_OTLP_DUAL_EXPORT"] = "true"
    os.environ["MLFLOW_ENABLE_ASYNC_TRACE_LOGGING"] = "false"
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{tempfile.mkdtemp()}/mlflow.db")
    mlflow.set_experiment("shop")
    for number in range(3):
        trace_agent(mlflow, 17 + number, fails=number == 2)
    time.sleep(8)
    frame = mlflow.search_traces()
    frame["spans"] = [json.dumps([span if isinstance(span, dict) else span.to_dict() for span in spans]) for spans in frame["spans"]]
    for name in frame.columns:
        if frame[name].map(lambda value: isinstance(value, (dict, list))).any():
            frame[name] = frame[name].map(json.dumps)
    frame.to_parquet(tables / "mlflow.parquet")
    (tables / "mlflow-otlp.json").write_text(json.dumps([read_protobuf(data) for data in received], indent=1) + "\n")
    print(len(frame), "traces,", len(received), "requests, columns:", *frame.columns)


def trace_agent(mlflow: Any, order: int, *, fails: bool) -> None:
    """One run: a question, a call of a tool, and the answer."""
    question = {"role": "user", "content": f"Where is order {order}?"}
    call = {"id": "call_1", "type": "function", "function": {"name": "lookup_order", "arguments": json.dumps({"id": order})}}
    tool_request = {"role": "assistant", "content": None, "tool_calls": [call]}
    with mlflow.start_span("shop_agent", span_type="AGENT") as agent:
        agent.set_inputs({"messages": [question]})
        ask(mlflow, [question], tool_request, 100)
        found = {"error": "not found"} if fails else {"status": "shipped"}
        with mlflow.start_span("lookup_order", span_type="TOOL") as tool:
            tool.set_inputs({"id": order})
            tool.set_outputs(found)
            if fails:
                tool.set_status("ERROR")
        answer = {"role": "assistant", "content": "It could not be found." if fails else "It has shipped."}
        ask(mlflow, [question, tool_request, {"role": "tool", "tool_call_id": "call_1", "content": json.dumps(found)}], answer, 120)
        agent.set_outputs(answer["content"])


def ask(mlflow: Any, messages: list[Any], answer: dict[str, Any], tokens: int) -> None:
    with mlflow.start_span("Completions", span_type="CHAT_MODEL") as span:
        span.set_inputs({"model": "gpt-4o-mini", "messages": messages})
        span.set_outputs({"choices": [{"message": answer, "finish_reason": "tool_calls" if answer.get("tool_calls") else "stop"}]})
        span.set_attribute("mlflow.chat.tokenUsage", {"input_tokens": tokens, "output_tokens": 10, "total_tokens": tokens + 10})


if __name__ == "__main__":
    place = Path(sys.argv[2]) if len(sys.argv) > 2 else TABLES
    place.mkdir(exist_ok=True)
    {"phoenix": make_phoenix, "mlflow": make_mlflow}[sys.argv[1]](place)
