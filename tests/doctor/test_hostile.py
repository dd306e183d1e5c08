"""A server that floods, is silent, or lies costs bounded time and memory, and is never reported as good."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
import time
import tracemalloc
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from proctor.doctor.examine import Options, examine
from proctor.errors import TargetError
from proctor.targets.mcp.settings import ServerSettings

SCRIPT = Path(__file__).with_name("hostile_server.py")
KINDS = ("dies", "noise", "silent", "quiet later", "flood", "giant", "endless pages", "deep", "changing", "lists", "stays")
MOST_S = 60.0
"""A busy machine needs three times the total of the options."""
MOST_BYTES = 200_000_000


@pytest.mark.in_turn
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_server_is_survived_and_not_passed(kind: str) -> None:
    settings = ServerSettings(id="hostile", command=sys.executable, args=("-S", str(SCRIPT), kind))
    options = Options(timeout_s=0.6, start_s=2.0, total_s=8.0, quiet_s=0.05)
    began = time.monotonic()
    tracemalloc.start()
    found = None
    try:
        found = asyncio.run(examine(settings, options))
    except TargetError as error:
        assert "did not start: the server ended with exit code" in str(error)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.monotonic() - began < MOST_S and peak < MOST_BYTES
    if found is None:
        assert kind == "dies"
        return
    assert found.failed or found.incomplete
    assert found.score is not None and found.score <= 94


@pytest.mark.in_turn
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["events", "body", "drip", "redirect", "page"])
def test_a_hostile_address_is_survived_and_not_passed(kind: str) -> None:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(307 if kind == "redirect" else 200)
            self.send_header("Content-Type", {"events": "text/event-stream", "page": "text/html"}.get(kind, "application/json"))
            self.send_header("Location", "http://169.254.169.254/latest")
            self.end_headers()
            event = b'data: {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}\n\n'
            block = {"events": event * 100, "body": b"[" * 100_000, "drip": b" "}.get(kind, b"")
            with contextlib.suppress(OSError):
                self.wfile.write(b"<html>It works!</html>" if kind == "page" else b"")
                while block:
                    self.wfile.write(block)
                    time.sleep(0.2 if kind == "drip" else 0)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    settings = ServerSettings(id="hostile", transport="http", url=f"http://127.0.0.1:{server.server_address[1]}/mcp")
    began = time.monotonic()
    try:
        found = asyncio.run(examine(settings, Options(timeout_s=0.6, start_s=2.0, total_s=8.0, quiet_s=0.05)))
    finally:
        server.shutdown()
        server.server_close()
    assert time.monotonic() - began < MOST_S
    assert (found.failed or found.incomplete) and (found.score or 0) <= 94


def test_no_tool_is_called_without_declared_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    from proctor.doctor.recording import Recording
    from tests.doctor.servers import look
    from tests.doctor.template_server import TOOLS

    sent: list[dict[str, object]] = []
    add = Recording.add

    def spy(self: Recording, direction: str, raw: bytes, http: str = "") -> object:
        if direction == "sent" and raw.startswith(b"{"):
            try:
                sent.append(json.loads(raw))
            except ValueError:
                pass
        return add(self, direction, raw, http)  # type: ignore[arg-type]

    monkeypatch.setattr(Recording, "add", spy)
    for transport in ("stdio", "http"):
        found = look(transport=transport)
        assert found.tool_calls == 0
    calls = [message["params"] for message in sent if message.get("method") == "tools/call"]
    assert calls, "the probe of an unknown tool is one"
    names = {tool["name"] for tool in TOOLS}
    assert not [call for call in calls if call["name"] in names]  # type: ignore[index]
    assert all(str(call["name"]).startswith("proctor-") or call["name"] == 42 for call in calls)  # type: ignore[index]
