"""Has the real SDKs of Langfuse and LangSmith trace an agent, and writes what they sent as these platforms export it.

    uv venv /tmp/sdks
    uv pip install --python /tmp/sdks/bin/python langfuse langsmith openai opentelemetry-exporter-otlp-proto-http pandas pyarrow
    /tmp/sdks/bin/python tests/batches/make_sdk_tables.py langfuse
    /tmp/sdks/bin/python tests/batches/make_sdk_tables.py langsmith

Neither platform can be installed for a test, so a server on loopback replaces it: it accepts what the SDK sends and returns it
back. The agent, its client of OpenAI and its tracing are real, and so are `ObservationV2` of Langfuse, `Client.list_runs` and `Run` of
LangSmith, through which every row goes. What each platform does between the two (which attribute becomes which column) is written down
here by its documentation. The tables are in `span_tables`, with the same traces over OTLP as the same SDKs sent them.
`make span-tables` does it again.
"""

from __future__ import annotations

import gzip
import json
import os
import platform
import sys
import threading
import uuid
from datetime import UTC, datetime
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TABLES = Path(__file__).parent / "span_tables"
SESSION = "5b0f1e3c-6f3b-4a53-9f2a-0c8b0b6f2d11"
ORDERS = (17, 18, 19)
_PARAMETERS = {"type": "object", "properties": {"id": {"type": "integer"}}}
TOOLS = [
    {"type": "function", "function": {"name": "lookup_order", "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}}}}
]


class Platform(ThreadingHTTPServer):
    """The model, and the place that traces are sent to."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[bytes] = []
        self.runs: dict[str, dict[str, Any]] = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Platform

    def do_GET(self) -> None:
        if self.path.startswith("/info"):
            scale = {"scale_up_qsize_trigger": 1000, "scale_up_nthreads_limit": 16, "scale_down_nempty_trigger": 4}
            limits = {"use_multipart_endpoint": True, "size_limit": 100, "size_limit_bytes": 20_971_520}
            self._answer({"version": "0.14", "batch_ingest_config": scale | limits})
        else:
            project = {"id": SESSION, "name": "shop", "start_time": "2026-01-01T00:00:00", "tenant_id": SESSION}
            self._answer([project | {"reference_dataset_id": None}])

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            data = gzip.decompress(data)
        if self.path.endswith("/chat/completions"):
            self._answer(answer_chat(json.loads(data)["messages"]))
        elif self.path.endswith("/v1/traces"):
            self.server.requests.append(data)
            self._answer({})
        elif self.path.endswith("/runs/query"):
            self._answer({"runs": list(self.server.runs.values()), "cursors": {}})
        else:
            if self.headers.get("content-encoding") == "zstd":
                import zstandard

                data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
            self._keep_runs(data)
            self._answer({})

    do_PATCH = do_POST

    def _keep_runs(self, data: bytes) -> None:
        """Merge the parts of runs, as LangSmith does."""
        head = f"content-type: {self.headers['content-type']}\r\n\r\n".encode()
        for part in BytesParser().parsebytes(head + data).get_payload():
            _, id, *member = str(part.get_param("name", header="content-disposition")).split(".")
            value = json.loads(part.get_payload(decode=True))
            run = self.server.runs.setdefault(id, {})
            if member:
                run[member[0]] = value
            else:
                run.update({key: one for key, one in value.items() if one is not None})

    def _answer(self, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        return


def answer_chat(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Request the order, then answer with the result."""
    last = messages[-1]
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if last["role"] == "tool":
        message["content"] = "It has shipped." if "shipped" in last["content"] else "It could not be found."
    else:
        order = int("".join(filter(str.isdigit, last["content"])))
        call = {"name": "lookup_order", "arguments": json.dumps({"id": order})}
        message["tool_calls"] = [{"id": f"call_{order}", "type": "function", "function": call}]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
    usage = {"prompt_tokens": 100 + len(messages), "completion_tokens": 10, "total_tokens": 110 + len(messages)}
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": "gpt-4o-mini-2024-07-18", "choices": [choice], "usage": usage}


def run_agent(client: Any, lookup_order: Any, order: int) -> str:
    """One run: a question, a call of a tool that fails for the last order, and the answer."""
    messages: list[Any] = [{"role": "user", "content": f"Where is order {order}?"}]
    for _ in range(4):
        reply = client.chat.completions.create(model="gpt-4o-mini", messages=messages, tools=TOOLS).choices[0].message
        messages.append(reply.model_dump(exclude_none=True))
        for call in reply.tool_calls or ():
            try:
                found = json.dumps(lookup_order(**json.loads(call.function.arguments)))
            except LookupError as error:
                found = str(error)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": found})
        if not reply.tool_calls:
            return reply.content
    raise RuntimeError("the model asks on and on")


def find_order(id: int) -> dict[str, str]:
    if id == ORDERS[-1]:
        raise LookupError("there is no such order")
    return {"status": "shipped"}


def make_langfuse(tables: Path) -> None:
    server = Platform()
    os.environ |= {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": f"{server.address}/v1", "LANGFUSE_BASE_URL": server.address}
    from langfuse import Langfuse, observe
    from langfuse.openai import OpenAI

    langfuse = Langfuse(public_key="pk", secret_key="sk", host=server.address)
    client, lookup_order = OpenAI(), observe(name="lookup_order", as_type="tool")(find_order)

    @observe(name="shop_agent", as_type="agent")
    def ask(question: str, order: int) -> str:
        return run_agent(client, lookup_order, order)

    for order in ORDERS:
        ask(f"Where is order {order}?", order)
    langfuse.flush()
    requests = write_requests(tables / "langfuse-otlp.json", server)
    rows = [read_observation(span, scope, group) for group, scope, span in list_spans(requests)]
    write_observations(tables, rows)


def list_spans(requests: list[Any]) -> list[tuple[Any, Any, Any]]:
    groups = [group for request in requests for group in request["resourceSpans"]]
    return [(group, scope, span) for group in groups for scope in group["scopeSpans"] for span in scope["spans"]]


_USAGE = {"prompt_tokens": "input", "completion_tokens": "output", "total_tokens": "total"}
"""Langfuse's names of OpenAI's counts."""


def read_observation(span: Any, scope: Any, group: Any) -> Any:
    """An observation of Langfuse's API, as its ingestion of OTLP makes one."""
    from langfuse.api import ObservationV2

    attributes = {entry["key"]: read_value(entry["value"]) for entry in span.get("attributes", [])}
    own = {key.removeprefix("langfuse.observation."): value for key, value in attributes.items() if key.startswith("langfuse.observation.")}
    extra = {key.removeprefix("metadata."): value for key, value in own.items() if key.startswith("metadata.")}
    resource = {entry["key"]: read_value(entry["value"]) for entry in group["resource"]["attributes"]}
    # Langfuse keeps the attributes of other instrumentations only, since it has understood its own.
    others = {} if scope["scope"]["name"].startswith("langfuse-sdk") else {"attributes": attributes}
    start, end = (datetime.fromtimestamp(int(span[key]) / 10**9, UTC) for key in ("startTimeUnixNano", "endTimeUnixNano"))
    return ObservationV2(
        id=span["spanId"],
        trace_id=span["traceId"],
        parent_observation_id=span.get("parentSpanId"),
        project_id="p1",
        environment="default",
        type=own.get("type", "span").upper(),
        name=span["name"],
        level=own.get("level", "ERROR" if span.get("status", {}).get("code") == "STATUS_CODE_ERROR" else "DEFAULT"),
        status_message=own.get("status_message") or span.get("status", {}).get("message"),
        start_time=start,
        end_time=end,
        latency=(end - start).total_seconds(),
        input=own.get("input"),
        output=own.get("output"),
        metadata={**extra, **others, "resourceAttributes": resource, "scope": {**scope["scope"], "attributes": {}}},
        model=own.get("model.name"),
        model_parameters=own.get("model.parameters"),
        usage_details={_USAGE[key]: count for key, count in json.loads(own.get("usage_details", "{}")).items() if key in _USAGE},
        trace_name=attributes.get("langfuse.trace.name"),
        tags=[],
    )


def read_value(value: dict[str, Any]) -> Any:
    ((kind, inner),) = value.items()
    return int(inner) if kind == "intValue" else inner if kind != "arrayValue" else [read_value(one) for one in inner.get("values", [])]


def write_observations(tables: Path, rows: list[Any]) -> None:
    """Write observations as the API gives them, and as the export to blob storage does: in Parquet, maps of texts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    observations = [json.loads(row.json(by_alias=True)) for row in rows]
    (tables / "langfuse-api.jsonl").write_text("".join(json.dumps(row) + "\n" for row in observations))
    texts, counts = pa.map_(pa.string(), pa.string()), pa.map_(pa.string(), pa.uint64())
    moment = pa.timestamp("us", "UTC")
    columns = {
        **{name: pa.array([getattr(row, name) or "" for row in rows]) for name in ("id", "trace_id", "project_id", "environment", "type")},
        "parent_observation_id": pa.array([row.parent_observation_id or "" for row in rows]),
        **{name: pa.array([getattr(row, name) for row in rows], moment) for name in ("start_time", "end_time")},
        "name": pa.array([row.name or "" for row in rows]),
        "metadata": pa.array([[(key, write_text(value)) for key, value in row.metadata.items()] for row in rows], texts),
        "level": pa.array([row.level.value for row in rows]),
        "status_message": pa.array([row.status_message or "" for row in rows]),
        "input": pa.array([row.input or "" for row in rows]),
        "output": pa.array([row.output or "" for row in rows]),
        "provided_model_name": pa.array([row.model or "" for row in rows]),
        "model_parameters": pa.array([row.model_parameters or "" for row in rows]),
        "usage_details": pa.array([list(row.usage_details.items()) for row in rows], counts),
        "cost_details": pa.array([[] for _ in rows], pa.map_(pa.string(), pa.float64())),
        "latency": pa.array([row.latency for row in rows]),
        **{name: pa.array([list_calls(row, name) for row in rows], pa.list_(pa.string())) for name in ("tool_calls", "tool_call_names")},
        "tool_definitions": pa.array([[("lookup_order", "{}")] if row.type == "GENERATION" else [] for row in rows], texts),
        **{name: pa.array(["" for _ in rows]) for name in ("user_id", "session_id", "release", "version")},
        "trace_name": pa.array([row.trace_name or "" for row in rows]),
        "tags": pa.array([[] for _ in rows], pa.list_(pa.string())),
        "bookmarked": pa.array([False for _ in rows]),
    }
    pq.write_table(pa.table(columns), tables / "langfuse-export.parquet", row_group_size=4)
    print(len(rows), "observations, columns:", *columns)


def list_calls(row: Any, name: str) -> list[str]:
    calls = (json.loads(row.output) or {}).get("tool_calls") or [] if row.type == "GENERATION" and row.output else []
    return [call["function"]["name"] if name == "tool_call_names" else json.dumps(call) for call in calls]


def write_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def hide_place(text: str) -> str:
    """Text without the machine-specific parts."""
    return text.replace(f"{Path(__file__).parent}{os.sep}", "").replace(platform.platform(), "Linux")


def write_requests(path: Path, server: Platform) -> list[Any]:
    sys.path.insert(0, str(Path(__file__).parent))
    from make_span_tables import read_protobuf

    requests = [read_protobuf(data) for data in server.requests]
    path.write_text(hide_place(json.dumps(requests, indent=1)) + "\n")
    return requests


def make_langsmith(tables: Path) -> None:
    server = Platform()
    os.environ |= {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": f"{server.address}/v1", "LANGSMITH_ENDPOINT": server.address}
    os.environ |= {"LANGCHAIN_REVISION_ID": "r1", "LANGSMITH_API_KEY": "lsv2_x", "LANGSMITH_TRACING": "true", "LANGSMITH_PROJECT": "shop"}
    from langsmith import Client, traceable
    from langsmith.wrappers import wrap_openai
    from openai import OpenAI
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{server.address}/otel/v1/traces")))
    langsmith = Client(api_url=server.address, api_key="lsv2_x", tracing_mode="hybrid", otel_tracer_provider=provider)
    client = wrap_openai(OpenAI(), tracing_extra={"client": langsmith})
    lookup_order = traceable(run_type="tool", name="lookup_order", client=langsmith)(find_order)

    @traceable(run_type="chain", name="shop_agent", client=langsmith)
    def ask(question: str, order: int) -> str:
        return run_agent(client, lookup_order, order)

    for order in ORDERS:
        ask(f"Where is order {order}?", order)
    langsmith.flush()
    provider.force_flush()
    write_requests(tables / "langsmith-otlp.json", server)
    for run in server.runs.values():
        finish_run(run)
    write_runs(tables, list(langsmith.list_runs(project_name="shop")))


def finish_run(run: dict[str, Any]) -> None:
    """Add what LangSmith adds to a received run: its tokens, its status."""
    usage = (run.get("outputs") or {}).get("usage_metadata") or run.get("extra", {}).get("metadata", {}).get("usage_metadata") or {}
    counts = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"), ("total_tokens", "total_tokens"))
    run |= {name: usage.get(source, 0) for name, source in counts}
    run |= {"status": "error" if run.get("error") else "success", "session_id": SESSION}


def write_runs(tables: Path, runs: list[Any]) -> None:
    """Write runs as `Run` gives them as JSON, as a data frame of them, and as the bulk export does: structures as JSON text."""
    import pandas as pd

    rows = [json.loads(hide_place(run.model_dump_json())) for run in runs]
    (tables / "langsmith-api.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    frame = pd.DataFrame(
        [{**run.model_dump(), **{name: row[name] for name in ("extra", "error")}} for run, row in zip(runs, rows, strict=True)]
    )
    plain = frame.map(lambda value: str(value) if isinstance(value, uuid.UUID) else value)
    names = ("inputs", "outputs", "extra", "events", "attachments", "serialized", "tags", "feedback_stats", "parent_run_ids")
    for name in [name for name in names if name in plain]:
        plain[name] = plain[name].map(lambda value: json.dumps(value, default=str) if value is not None else None)
    plain.to_parquet(tables / "langsmith-frame.parquet")
    # The bulk export names every run above, and no parent.
    above = {str(run.id): [part[-36:] for part in run.dotted_order.split(".")][:-1] for run in runs}
    plain["parent_run_ids"] = [above[id] for id in plain["id"]]
    plain["is_root"] = plain["parent_run_id"].isna()
    plain = plain.drop(columns=["parent_run_id", "child_runs", "serialized", "attachments"])
    plain.to_parquet(tables / "langsmith-export.parquet")
    print(len(runs), "runs, columns:", *plain.columns)


if __name__ == "__main__":
    place = Path(sys.argv[2]) if len(sys.argv) > 2 else TABLES
    place.mkdir(exist_ok=True)
    {"langfuse": make_langfuse, "langsmith": make_langsmith}[sys.argv[1]](place)
