"""Receives OTLP over HTTP (protobuf or JSON, spans and logs) and stores it as OTLP JSON, without data that identifies the machine."""

from __future__ import annotations

import base64
import getpass
import gzip
import json
import re
import socket
import sys
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS = {"traces": ExportTraceServiceRequest, "logs": ExportLogsServiceRequest}
IDS = {"traceId", "spanId", "parentSpanId"}
# Resource attributes that describe the machine or the process, not the agent.
MACHINE = re.compile(r"^(host|os|process|container|k8s|cloud|device|faas)\.|^service\.instance\.id$|^telemetry\.auto\.|^revision_id$")
# Enumerations are numbers in OTLP JSON; protobuf's own JSON would write names.
NUMBERED = {"use_integers_for_enums": True}


class Collector:
    """Requests in order of arrival, each with the running scenario."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.scenario = ""
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.unread: list[str] = []

    def take(self, path: str, kind: str, body: bytes) -> None:
        found = re.search(r"/(traces|logs)(?:/|\?|$)", path)
        if not found:
            return
        request = json.loads(body) if "json" in kind else read_protobuf(found[1], body)
        with self.lock:
            self.requests.append((self.scenario, request))


def read_protobuf(signal: str, body: bytes) -> dict[str, Any]:
    """A protobuf request as OTLP JSON: ids in hex."""
    request = KINDS[signal]()
    request.ParseFromString(body)
    return in_hex(MessageToDict(request, **NUMBERED))


def in_hex(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: base64.b64decode(v).hex() if k in IDS and isinstance(v, str) else in_hex(v) for k, v in value.items()}
    if isinstance(value, list):
        return [in_hex(item) for item in value]
    return value


class Scrubber:
    """Removes machine data from a request: folders, host and user names, and resource attributes about them."""

    def __init__(self, folders: list[tuple[str, str]], name: str) -> None:
        self.name = name
        words = [(re.escape(folder), shown) for folder, shown in sorted(folders, key=lambda pair: -len(pair[0])) if len(folder) > 1]
        host, user = socket.gethostname(), getpass.getuser()
        words += [(rf"\b{re.escape(host)}\b", "host")] if len(host) > 3 else []
        words += [(rf"\b{re.escape(user)}\b", "user")] if user not in ("root", "user", "") else []
        self.words = [(re.compile(pattern), shown) for pattern, shown in words]

    def request(self, request: dict[str, Any]) -> dict[str, Any]:
        for key in ("resourceSpans", "resourceLogs"):
            for entry in request.get(key, []):
                entry["resource"] = self.resource(entry.get("resource") or {})
        return self.value(request)

    def resource(self, resource: dict[str, Any]) -> dict[str, Any]:
        attributes = [a for a in resource.get("attributes", []) if not MACHINE.search(a["key"])]
        for attribute in attributes:
            if attribute["key"] == "service.name":
                attribute["value"] = {"stringValue": self.name}
        return {"attributes": attributes}

    def value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.value(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, str):
            for pattern, shown in self.words:
                value = pattern.sub(shown, value)
        return value


class Handler(BaseHTTPRequestHandler):
    """One export."""

    protocol_version = "HTTP/1.1"
    collector: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        coding = self.headers.get("content-encoding") or ""
        if coding == "gzip":
            body = gzip.decompress(body)
        elif coding == "deflate":
            body = zlib.decompress(body)
        kind = self.headers.get("content-type") or ""
        self.collector.take(self.path, kind, body)
        answer = b"{}" if "json" in kind else b""
        self.send_response(200)
        self.send_header("content-type", kind or "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_PATCH = do_PUT = do_POST

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing; the recorder reports problems."""


class QuietServer(ThreadingHTTPServer):
    """Ignore clients that disconnect."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def serve(collector: Collector) -> ThreadingHTTPServer:
    """Start the collector on loopback."""
    handler = type("CollectorHandler", (Handler,), {"collector": collector})
    server = QuietServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
