"""A scripted model on loopback: it implements the APIs of the providers and follows the scenario step by step."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.frameworks.shop import BY_NAME, PURE, Step
from tests.frameworks.styles import Spoken, speak
from tests.frameworks.wires import ModelReply, anthropic, gemini, hosted, openai_chat, openai_responses, others


class Script:
    """The position in the running scenario, and every request and reply of the model."""

    def __init__(self, style: str = "calls") -> None:
        self.lock = threading.Lock()
        self.style = style
        self.scenario = ""
        self.left: list[Spoken] = []
        self.number = 0
        self.replies: dict[str, list[ModelReply]] = {}
        self.unsent: dict[str, list[Spoken]] = {}
        self.too_many: list[str] = []
        self.tools: list[dict[str, Any]] = []

    def begin(self, name: str) -> None:
        """Start a scenario."""
        with self.lock:
            self.scenario = name
            self.left = self.unsent[name] = speak(BY_NAME[name], self.style)
            self.replies[name] = []

    def next(self, model: str) -> ModelReply:
        """The next reply; its token counts grow with the place in the turn."""
        with self.lock:
            if not self.left:
                self.too_many.append(self.scenario)
                raise LookupError(f"the script of {self.scenario or 'nothing'} has no further step")
            spoken = self.left.pop(0)
            self.number += 1
            reply = ModelReply(spoken.sent, spoken.means, self.number, 100 + 10 * spoken.place, 10 + spoken.place, model)
            self.replies[self.scenario].append(reply)
            return reply

    def aside(self, model: str) -> ModelReply:
        """A reply to a request outside the conversation."""
        with self.lock:
            self.number += 1
            return ModelReply(Step(text="Shop"), Step(), self.number, 1, 1, model)

    def whole_turn(self, model: str) -> ModelReply:
        """All steps of the model until its answer, with tools that the provider calls itself."""
        with self.lock:
            spoken: list[Spoken] = []
            while self.left and not (spoken and spoken[-1].means.text):
                spoken.append(self.left.pop(0))
            if not spoken:
                self.too_many.append(self.scenario)
                raise LookupError(f"the script of {self.scenario or 'nothing'} has no further turn")
            self.number += 1
            means = Step(calls=tuple(call for one in spoken for call in one.means.calls), text=spoken[-1].means.text)
            # A provider that calls tools takes some time.
            time.sleep(0.015 * len(spoken))
            hosted = tuple(self.call_tool(name, arguments) for name, arguments in means.calls)
            reply = ModelReply(means, means, self.number, 100, 10, model, hosted)
            self.replies[self.scenario].append(reply)
            return reply

    def call_tool(self, name: str, arguments: dict[str, Any]) -> tuple[Any, str | None]:
        noted = {"scenario": self.scenario, "name": name, "arguments": arguments}
        try:
            result = PURE[name](**arguments)
        except ValueError as error:
            self.tools.append({**noted, "error": str(error)})
            return None, str(error)
        self.tools.append({**noted, "result": result})
        return result, None


def is_aside(script: Script, request: dict[str, Any]) -> bool:
    """Some command lines send requests of their own to the model, without the shop's tools."""
    return script.style == "mcp" and not any("lookup_order" in str(tool.get("name")) for tool in request.get("tools") or [])


def answer(path: str, request: dict[str, Any], script: Script) -> tuple[str, Iterable[bytes]]:
    """Content type and body for one request to a provider's API."""
    streamed = bool(request.get("stream"))
    route = path.split("?")[0]
    if found := re.search(r"models/([^/:]+):(stream)?[gG]enerateContent", route):
        reply = script.next(found[1])
        return ("text/event-stream", gemini.stream(reply)) if found[2] else ("application/json", one(gemini.whole(reply)))
    if found := re.search(r"/model/([^/]+)/converse(-stream)?$", route):
        reply = script.next(found[1])
        return (
            ("application/vnd.amazon.eventstream", others.bedrock_stream(reply))
            if found[2]
            else ("application/json", one(others.bedrock(reply)))
        )
    model = str(request.get("model") or "unknown")
    if route.endswith("/responses") and any(tool.get("type") == "mcp" for tool in request.get("tools") or []):
        reply = script.whole_turn(model)
        return (
            ("text/event-stream", hosted.openai_stream(reply, request))
            if streamed
            else ("application/json", one(hosted.openai(reply, request)))
        )
    if route.endswith("/messages") and request.get("mcp_servers"):
        reply = script.whole_turn(model)
        return ("text/event-stream", hosted.anthropic_stream(reply)) if streamed else ("application/json", one(hosted.anthropic(reply)))
    if route.endswith("/count_tokens"):
        return "application/json", one({"input_tokens": 100})
    reply = script.aside(model) if is_aside(script, request) else script.next(model)
    if route.endswith("/chat/completions"):
        # Some providers report usage at the end of every stream, not only on request; Mistral sends calls in one piece.
        options = request | {"always_usage": "/mistral/" in route or "/groq/" in route, "whole_calls": "/mistral/" in route}
        return (
            ("text/event-stream", openai_chat.stream(reply, options))
            if streamed
            else ("application/json", one(openai_chat.whole(reply, functions="functions" in request)))
        )
    if route.endswith("/responses"):
        return (
            ("text/event-stream", openai_responses.stream(reply, request))
            if streamed
            else ("application/json", one(openai_responses.whole(reply, request)))
        )
    if route.endswith("/messages"):
        return ("text/event-stream", anthropic.stream(reply)) if streamed else ("application/json", one(anthropic.whole(reply)))
    if route.endswith("/api/chat"):
        return "application/x-ndjson", others.ollama(reply, request.get("stream", True))
    if route.endswith("/v2/chat"):
        return ("text/event-stream", others.cohere_stream(reply)) if streamed else ("application/json", one(others.cohere(reply)))
    raise LookupError(f"no provider has the path {path}")


def one(document: dict[str, Any]) -> Iterator[bytes]:
    yield json.dumps(document).encode()


class Handler(BaseHTTPRequestHandler):
    """One request to the scripted model."""

    protocol_version = "HTTP/1.1"
    script: Script

    def do_GET(self) -> None:
        self.send(200, "application/json", [b'{"object": "list", "data": []}'])

    def do_POST(self) -> None:
        if self.headers.get("transfer-encoding") == "chunked":
            body = b"".join(self.chunks())
        else:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            kind, parts = self.answer(json.loads(body or b"{}"))
        except LookupError as error:
            self.send(404, "application/json", [json.dumps({"error": {"message": str(error)}}).encode()])
            return
        self.send(200, kind, parts)

    def answer(self, request: dict[str, Any]) -> tuple[str, Iterable[bytes]]:
        return answer(self.path, request, self.script)

    def chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().strip() or b"0", 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def send(self, status: int, kind: str, parts: Iterable[bytes]) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for part in parts:
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing; the recorder reports problems."""


class QuietServer(ThreadingHTTPServer):
    """Ignore clients that disconnect."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def serve(script: Script, port: int = 0) -> ThreadingHTTPServer:
    """Start the model on loopback."""
    handler = type("ScriptHandler", (Handler,), {"script": script})
    server = QuietServer(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
