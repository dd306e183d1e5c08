"""MCPLab workspaces on real servers that keep a cart, or that answer in structured content only: as the original runs them.

The server is one of the `mcp` package: over streamable HTTP, where it keeps a cart per session, and over stdio, where its process does.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from proctor.actions.running.run import LiveRun
from proctor.targets.mcp.settings import ServerSettings
from tests.actions.mcplab_world import completion, drive_mcplab
from tests.llm.provider_server import Provider, ReceivedRequest, ScriptedResponse, provider
from tests.targets.cart_server import cart_server
from tests.targets.mcp_twins import ROOT, run

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

CONFIG = """\
name: Carts
agents: [{{id: gpt, provider: openai, model: gpt-test}}]
scenarios:
  - id: buy
    prompt: buy tea
    mcp_servers: [{{id: cart, transport: http, url: "{url}"{session}}}]
    eval:
      tool_sequence: [add, show]
      response_assertions:
        - {{type: regex, pattern: '^tea$'}}
        - {{type: not_contains, value: ','}}
"""
STRUCTURED = """\
name: Totals
agents: [{{id: gpt, provider: openai, model: gpt-test}}]
scenarios:
  - id: total
    prompt: total of 1 and 2
    mcp_servers: [{{id: cart, transport: http, url: "{url}"}}]
    eval:
      tool_constraints: {{required_tools: [total]}}
      response_assertions:
        - {{type: contains, value: "3 EUR"}}
        - {{type: not_contains, value: nothing}}
"""
KEYS = {"OPENAI_API_KEY": "sk-live-test"}


@contextmanager
def served() -> Iterator[str]:
    """The cart on a free port of loopback."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(
            uvicorn.Config(cart_server().streamable_http_app(), log_level="critical", ws="none", timeout_graceful_shutdown=1)
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        deadline = time.monotonic() + 10
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        finally:
            server.should_exit = True
            thread.join(10)


def shopper(request: ReceivedRequest) -> ScriptedResponse:
    """Buys tea, looks into the cart, and answers with its content."""
    results = [json.loads(message["content"]) for message in request.body["messages"] if message["role"] == "tool"]
    if not results:
        return completion("", [("add", {"item": "tea"})])
    return completion("", [("show", {})]) if len(results) == 1 else completion(results[-1]["content"][0]["text"])


def reckoner(request: ReceivedRequest) -> ScriptedResponse:
    """Requests the total, and answers with the structured content."""
    last = request.body["messages"][-1]
    if last["role"] != "tool":
        return completion("", [("total", {"ids": [1, 2]})])
    found = json.loads(last["content"]).get("structuredContent") or {}
    return completion(f"{found['total']} {found['currency']}" if found else "nothing")


def drive(path: Path, model: Any, home: Path, **options: Any) -> tuple[LiveRun, Provider]:
    async def work() -> tuple[LiveRun, Provider]:
        async with provider(model) as seen:
            known = {**KEYS, "OPENAI_BASE_URL": f"{seen.url}/v1"}
            return await drive_mcplab(path, environment=known, home=home, **options), seen

    return run(work())


def written(folder: Path, text: str, url: str, session: str = "") -> Path:
    path = folder / "config.yaml"
    path.write_text(text.format(url=url, session=session))
    return path


def over_stdio(**more: Any) -> dict[str, ServerSettings]:
    return {"cart": ServerSettings(id="cart", command=sys.executable, args=("-m", "tests.targets.cart_server"), cwd=ROOT, **more)}


def test_six_concurrent_attempts_have_separate_carts_over_http(tmp_path: Path) -> None:
    with served() as url:
        live, _ = drive(written(tmp_path, CONFIG, url), shopper, tmp_path / "home", repeat=6, concurrency=6)
    assert live.result.counts == {"pass": 6, "fail": 0, "error": 0, "skip": 0}


@pytest.mark.in_turn
def test_six_concurrent_attempts_have_separate_carts_over_stdio(tmp_path: Path) -> None:
    path = written(tmp_path, CONFIG, "http://127.0.0.1:9/mcp")
    live, _ = drive(path, shopper, tmp_path / "home", repeat=6, concurrency=6, reached_by=over_stdio())
    assert live.result.counts == {"pass": 6, "fail": 0, "error": 0, "skip": 0}


def test_sequential_attempts_have_separate_carts(tmp_path: Path) -> None:
    with served() as url:
        live, _ = drive(written(tmp_path, CONFIG, url), shopper, tmp_path / "home", repeat=3, concurrency=1)
    assert live.result.counts["pass"] == 3


@pytest.mark.parametrize("stdio", [False, True])
def test_a_shared_session_is_shared_by_choice(stdio: bool, tmp_path: Path) -> None:
    with served() as url:
        instead = over_stdio(session="shared") if stdio else {}
        path = written(tmp_path, CONFIG, url, ", session: shared")
        live, _ = drive(path, shopper, tmp_path / "home", repeat=6, concurrency=1, reached_by=instead)
    assert live.result.counts == {"pass": 1, "fail": 5, "error": 0, "skip": 0}


@pytest.mark.parametrize("stdio", [False, True])
def test_structured_content_alone_reaches_the_model_and_the_evidence(stdio: bool, tmp_path: Path) -> None:
    with served() as url:
        path = written(tmp_path, STRUCTURED, url)
        live, seen = drive(path, reckoner, tmp_path / "home", repeat=2, reached_by=over_stdio() if stdio else {})
    assert live.result.counts == {"pass": 2, "fail": 0, "error": 0, "skip": 0}
    sent = json.loads(seen.requests[-1].body["messages"][-1]["content"])
    assert sent == {"content": [], "structuredContent": {"total": 3, "currency": "EUR"}, "isError": False}
    evidence = live.entries["total", 0].evidence
    assert evidence is not None and evidence.tool_calls is not None and evidence.tool_calls[0].result == sent
