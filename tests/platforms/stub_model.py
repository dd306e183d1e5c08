"""A model with OpenAI's protocol on loopback that follows the message; whole responses and streamed ones.

- `calculate EXPRESSION`: calls the offered calculator, then states the result and confirms an order
- `calculate A and B`: two calls at once
- `first word of ours`: repeats the user's first message in this conversation, which shows whether the platform separates sessions
- `break`: responds with status 400
- anything else is repeated

It also responds to `POST /shop/...` with JSON, for nodes and tools that send their own requests.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

INPUT_TOKENS, OUTPUT_TOKENS = 20, 5


class StubModel:
    """The server; `requests` has every request for a completion."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("content-length", "0"))) or b"null")
                if self.path.startswith("/shop/"):
                    self._say(200, {"order": body, "stock": 3, "path": self.path})
                    return
                stub.requests.append(body)
                message = answer_to(body)
                if message is None:
                    self._say(400, {"error": {"message": "the model is broken", "type": "invalid_request_error", "code": "broken"}})
                elif body.get("stream"):
                    self._stream(message)
                else:
                    self._say(200, completion(message))

            def do_GET(self) -> None:
                self._say(200, {"object": "list", "data": [{"id": "stub-model", "object": "model"}]})

            def _say(self, status: int, body: Any) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def _stream(self, message: dict[str, Any]) -> None:
                data = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks(message)) + "data: [DONE]\n\n"
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data.encode())

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)

    def __enter__(self) -> StubModel:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def answer_to(body: dict[str, Any]) -> dict[str, Any] | None:
    """The message to respond with, or None to fail."""
    messages = body["messages"]
    results = _results(messages)
    if results:
        return _spoken(f"The result is {' and '.join(results)}. Order #1001 confirmed.")
    texts = [_text(message["content"]) for message in messages if message["role"] == "user"]
    last = texts[-1] if texts else ""
    if last == "break":
        return None
    if last == "first word of ours":
        return _spoken(f"You began with: {texts[0]}")
    if last.startswith("calculate "):
        return _called(body, last.removeprefix("calculate ").split(" and "))
    return _spoken(f"You sent: {last}")


def _results(messages: list[dict[str, Any]]) -> list[str]:
    """The results of tools since the last user message; some platforms send two calls of one answer as two answers with one call."""
    last = max((number for number, message in enumerate(messages) if message["role"] == "user"), default=0)
    return [_text(message["content"]) for message in messages[last:] if message["role"] == "tool"]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())


def _spoken(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _called(body: dict[str, Any], expressions: list[str]) -> dict[str, Any]:
    offered = [tool["function"] for tool in body.get("tools") or ()]
    if not offered:
        return _spoken("I have no tools.")
    # The name of the only argument differs between platforms and tools.
    field = next(iter(offered[0]["parameters"].get("properties") or {"input": {}}))
    calls = [
        {
            "id": f"call_{len(body['messages'])}_{number}",
            "type": "function",
            "function": {"name": offered[0]["name"], "arguments": json.dumps({field: expression})},
        }
        for number, expression in enumerate(expressions)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def completion(message: dict[str, Any]) -> dict[str, Any]:
    """The whole response."""
    return {
        "id": "chatcmpl-stub",
        "object": "chat.completion",
        "created": 1,
        "model": "stub-model",
        "choices": [{"index": 0, "message": message, "finish_reason": _ended(message)}],
        "usage": _usage(),
    }


def chunks(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The same response in pieces."""
    head = {"id": "chatcmpl-stub", "object": "chat.completion.chunk", "created": 1, "model": "stub-model"}
    calls = [{"index": number, **call} for number, call in enumerate(message.get("tool_calls", ()))]
    delta = {**message, **({"tool_calls": calls} if calls else {})}
    return [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": _ended(message)}]},
        {**head, "choices": [], "usage": _usage()},
    ]


def _ended(message: dict[str, Any]) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def _usage() -> dict[str, int]:
    return {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS, "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS}
