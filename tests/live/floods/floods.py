"""Requests of a hostile tenant that are slow to decide, and an observer of the service."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

LETTERS = "a" * 5_000
MCP = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18", "content-type": "application/json"}


def patterns(count: int = 40) -> list[str]:
    """Patterns that each take as long as one search may."""
    return [f"^(a+)+(b|c{number})$" for number in range(count)]


def pattern_suite(count: int = 40, *cases: str, judged: bool = False) -> dict[str, Any]:
    """A suite whose every case searches `count` such patterns."""
    expect: list[dict[str, Any]] = [{"response_matches": pattern} for pattern in patterns(count)]
    if judged:
        expect.append({"judged": "it is polite"})
    return {"proctor": 1, "name": "flood", "cases": [{"id": id, "input": id, "expect": expect} for id in cases or ("a",)]}


def check_call(suite: dict[str, Any], text: str = LETTERS, count: int = 1) -> dict[str, Any]:
    """A call of the MCP tool that checks evidence."""
    evidence = [{"case": suite["cases"][0]["id"], "text": text} for _ in range(count)]
    arguments = {"document": suite, "evidence": evidence}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "check_evidence", "arguments": arguments}}


def portal_criteria(count: int = 40) -> list[dict[str, Any]]:
    """Criteria that each search one such pattern in the state."""
    correlated = {"resource": "prior_auth_requests", "key": "request_id"}
    return [
        {
            "assert": "portal-state-match",
            "correlate_by": correlated,
            "assertions": [{"path": "status", "expected": {"$regex": pattern}}],
        }
        for pattern in patterns(count)
    ]


PORTAL_STATE = {"portal": {"prior_auth_requests": [{"request_id": "R-1", "status": LETTERS}]}}


class Watch:
    """Asks for the health of a service again and again, and keeps how long each answer took."""

    def __init__(self, url: str, *, path: str = "/health", every_s: float = 0.05) -> None:
        self._address = urlsplit(url)
        self._path = path
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.took: list[float] = []

    @property
    def slowest(self) -> float:
        return max(self.took)

    def _ask(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            connection = http.client.HTTPConnection(self._address.hostname or "", self._address.port, timeout=120)
            try:
                connection.request("GET", self._path)
                assert connection.getresponse().read()
            finally:
                connection.close()
            self.took.append(time.monotonic() - began)
            self._stop.wait(self._every_s)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@contextlib.contextmanager
def letter_agent(text: str = LETTERS) -> Iterator[dict[str, Any]]:
    """An agent that always answers the same; how a run finds it."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            body = json.dumps({"text": text}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield {"type": "http", "url": f"http://127.0.0.1:{server.server_address[1]}/", "response_path": "text"}
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def send_and_hold(url: str, path: str, body: Any, headers: dict[str, str] | None = None) -> socket.socket:
    """Send a request, and do not wait for the answer; the open connection."""
    address = urlsplit(url)
    data = json.dumps(body).encode()
    head = {"host": f"{address.hostname}:{address.port}", "content-length": str(len(data)), **MCP, **(headers or {})}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    connection = socket.create_connection((address.hostname or "", address.port or 80))
    connection.sendall("\r\n".join(lines).encode() + data)
    return connection
