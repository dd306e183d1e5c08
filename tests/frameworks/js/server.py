"""One loopback server for a recording: the scripted model, the OTLP receiver, and the endpoint where a driver reports its progress."""

from __future__ import annotations

import gzip
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.frameworks.js import wires

Json = dict[str, Any]


@dataclass
class Recording:
    """Everything from one driver: the model's replies, the tools' log, the exports."""

    scenarios: dict[str, list[Json]]
    scenario: str | None = None
    replies: dict[str, list[wires.Reply]] = field(default_factory=dict[str, list[wires.Reply]])
    ledger: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])
    requests: list[tuple[str | None, Json]] = field(default_factory=list[tuple[str | None, Json]])
    messages: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    problems: list[str] = field(default_factory=list[str])
    number: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def say(self, position: tuple[int, int], prefix: str) -> wires.Reply:
        """Reply at a position of the running scenario and record it."""
        with self.lock:
            if self.scenario is None:
                raise ValueError("a model request outside a scenario")
            self.number += 1
            reply = wires.plan_reply(self.scenarios[self.scenario], position, self.number, prefix)
            self.replies.setdefault(self.scenario, []).append(reply)
            return reply


class Handler(BaseHTTPRequestHandler):
    """Handles one request; the recording belongs to the server."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "model", ""
    recording: Recording

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        self.answer({"object": "list", "data": []})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("transfer-encoding") == "chunked":
            body = self.read_chunks()
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        try:
            self.route(self.path.split("?")[0], body)
        except (KeyError, IndexError, ValueError, TypeError) as problem:
            self.recording.problems.append(f"{self.path}: {problem!r} on {body[:300]!r}")
            self.answer({"error": {"message": repr(problem)}}, 500)

    def read_chunks(self) -> bytes:
        """Read a chunked body."""
        parts: list[bytes] = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def route(self, path: str, body: bytes) -> None:
        if path.endswith(("/traces", "/logs")):
            return self.receive(path, body)
        if path.endswith("/metrics"):
            return self.answer({})
        document = json.loads(body or b"{}")
        if path.startswith("/desk/"):
            return self.attend(path.removeprefix("/desk/"), document)
        time.sleep(0.012)
        if path.endswith("/chat/completions"):
            reply = self.recording.say(wires.locate_in_chat(document), "call")
            return self.speak(wires.speak_chat(reply, document))
        if path.endswith("/responses"):
            reply = self.recording.say(wires.locate_in_responses(document), "call")
            return self.speak(wires.speak_responses(reply, document))
        if path.endswith("/messages"):
            reply = self.recording.say(wires.locate_in_anthropic(document), "toolu")
            return self.speak(wires.speak_anthropic(reply, document))
        if "enerateContent" in path:
            reply = self.recording.say(wires.locate_in_gemini(document), "fc")
            return self.speak(wires.speak_gemini(reply, "stream" in path))
        raise ValueError("nothing lives at this address")

    def receive(self, path: str, body: bytes) -> None:
        """Receive an OTLP request as JSON or protobuf."""
        if "protobuf" in self.headers.get("content-type", ""):
            kind = ExportTraceServiceRequest if path.endswith("/traces") else ExportLogsServiceRequest
            document = read_protobuf(kind.FromString(body))
        else:
            document = json.loads(body)
        with self.recording.lock:
            self.recording.requests.append((self.recording.scenario, document))
        self.answer({})

    def attend(self, errand: str, document: Json) -> None:
        """Record that a scenario begins or ends, or store a message list."""
        recording = self.recording
        if errand == "begin":
            recording.scenario = document["scenario"]
        elif errand == "end":
            recording.ledger[document["scenario"]] = document["ledger"]
            recording.scenario = None
        elif errand == "messages":
            recording.messages.setdefault(document["kind"], {})[document["scenario"]] = document["messages"]
        else:
            raise ValueError(f"no such errand: {errand}")
        self.answer({})

    def speak(self, reply: Json | list[tuple[str | None, Json | str]]) -> None:
        """Send a reply of the model, as JSON or as server-sent events."""
        if isinstance(reply, dict):
            return self.answer(reply)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for name, data in reply:
            text = data if isinstance(data, str) else json.dumps(data)
            self.wfile.write(((f"event: {name}\n" if name else "") + f"data: {text}\n\n").encode())
            self.wfile.flush()
        self.close_connection = True

    def answer(self, document: Json, status: int = 200) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def read_protobuf(message: Any) -> Json:
    """Return an OTLP message as OTLP JSON, where ids are hexadecimal instead of base64."""
    document: Json = MessageToDict(message, use_integers_for_enums=True)
    top, scopes, leaves = (
        ("resource_spans", "scope_spans", "spans") if hasattr(message, "resource_spans") else ("resource_logs", "scope_logs", "log_records")
    )
    sources = [leaf for resource in getattr(message, top) for scope in getattr(resource, scopes) for leaf in getattr(scope, leaves)]
    written = [
        leaf
        for resource in document.get(_camel(top), [])
        for scope in resource.get(_camel(scopes), [])
        for leaf in scope.get(_camel(leaves), [])
    ]
    for source, record in zip(sources, written, strict=True):
        write_ids(source, record)
    return document


def _camel(name: str) -> str:
    first, second = name.split("_") if "_" in name else (name, "")
    return first + second.capitalize()


def write_ids(source: Any, record: Json) -> None:
    """Write the ids of a span or log record in hexadecimal."""
    for field_name, key in (("trace_id", "traceId"), ("span_id", "spanId"), ("parent_span_id", "parentSpanId")):
        if key in record:
            record[key] = getattr(source, field_name).hex()
    for link, written_link in zip(getattr(source, "links", []), record.get("links", []), strict=True):
        written_link["traceId"], written_link["spanId"] = link.trace_id.hex(), link.span_id.hex()


class Desk:
    """A server that runs while a driver works."""

    def __init__(self, recording: Recording) -> None:
        handler = type("Bound", (Handler,), {"recording": recording})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        # A driver that ends drops its connections, which is no error.
        self.server.handle_error = lambda request, client_address: None
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Desk:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
