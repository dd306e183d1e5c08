"""A judge on loopback with OpenAI's protocol: it passes answers that contain `good`."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[[dict[str, Any]], str]


class Judge:
    """The requests that the judge received, and its address."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[dict[str, Any]] = []

    @property
    def criteria(self) -> list[str]:
        """The criteria of every request, in the order they came."""
        return [item["criterion"] for body in self.requests for item in checks_of(body)]


def prompt_of(body: dict[str, Any]) -> str:
    return body["messages"][-1]["content"]


def checks_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The list of checks in a request."""
    text = prompt_of(body)
    found = json.JSONDecoder()
    for match in re.finditer(r"\[", text):
        try:
            value, _ = found.raw_decode(text, match.start())
        except ValueError:
            continue
        if value and isinstance(value[0], dict) and "id" in value[0]:
            return value
    raise AssertionError(f"no checks in {text[:500]!r}")


def data_of(body: dict[str, Any]) -> dict[str, Any]:
    """The data block of a request: the one line of JSON that is an object."""
    for line in prompt_of(body).splitlines():
        if line.startswith("{"):
            return json.loads(line)
    raise AssertionError("no data")


def agreeable(body: dict[str, Any]) -> str:
    """Pass text that contains `good`; take scores from the text (`score 0.8`)."""
    shown = json.dumps(data_of(body))
    scored = "score" in json.dumps(body["response_format"])
    found = re.search(r"score (\d(?:\.\d+)?)", shown)
    results: list[dict[str, Any]] = []
    for check in checks_of(body):
        entry: dict[str, Any] = {"id": check["id"], "reason": "read it"}
        if scored:
            entry["score"] = float(found[1]) if found else 0.0
        else:
            entry["pass"] = "good" in shown
        results.append(entry)
    return json.dumps({"results": results})


@contextmanager
def judge_server(reply: Reply = agreeable, status: int = 200) -> Iterator[Judge]:
    """A judge that answers `reply` of each request."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            judge.requests.append(body)
            answer = {
                "model": "stub-1",
                "choices": [{"message": {"role": "assistant", "content": reply(body)}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
            }
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Do not log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    judge = Judge(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield judge
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
