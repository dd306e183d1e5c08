"""MCPLab suites sent to a real `proctor serve`: MCP servers of others over stdio and one over HTTP, allowed and not, and kill -9."""

from __future__ import annotations

import json
import shlex
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.live.clients.test_mcp_servers import EVERYTHING, npm_servers, time_server
from tests.live.serving import Serving, serving
from tests.targets.mcp_twins import children, http_shop

__all__ = ["npm_servers", "time_server"]

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]

CASES = 20
AT_ONCE = 2
LOOPBACK = ("--allowed-address", "127.0.0.1")
SUITE = """\
name: Real servers
agents: [{id: gpt, provider: openai, model: gpt-test}]
scenarios:
  - id: echo
    prompt: 'echo {"message": "hello"}'
    mcp_servers: [{ref: everything}]
    eval:
      tool_sequence: [echo]
      response_assertions: [{type: contains, value: "Echo: hello"}]
  - id: time
    prompt: 'convert_time {"source_timezone": "Europe/Berlin", "target_timezone": "Asia/Tokyo", "time": "12:00"}'
    mcp_servers: [{ref: time}]
    eval:
      tool_input_assertions: [{type: jsonpath, tool: convert_time, path: $.time, equals: "12:00"}]
      response_assertions: [{type: contains, value: Asia/Tokyo}]
"""


class Model:
    """Speaks OpenAI's protocol: calls the tool and arguments of the prompt, and repeats the result."""

    def __init__(self) -> None:
        self.slow_s = 0.0
        self.began: Counter[str] = Counter()
        lock = threading.Lock()
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                messages = json.loads(self.rfile.read(int(self.headers["content-length"])))["messages"]
                with lock:
                    if messages[-1]["role"] == "user":
                        model.began[messages[-1]["content"]] += 1
                time.sleep(model.slow_s)
                body = json.dumps(model.answer(messages)).encode()
                try:
                    self.send_response(200)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    """The client was killed."""

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @staticmethod
    def answer(messages: list[dict[str, Any]]) -> dict[str, Any]:
        last = messages[-1]
        message: dict[str, Any] = {"role": "assistant", "content": last["content"]}
        if last["role"] == "user":
            tool, _, arguments = last["content"].partition(" ")
            # The text after the arguments distinguishes prompts.
            call = {"name": tool, "arguments": arguments.partition(" #")[0]}
            message = {"role": "assistant", "content": None, "tool_calls": [{"id": "call_0", "type": "function", "function": call}]}
        return {"model": "gpt-test", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def model() -> Iterator[Model]:
    made = Model()
    yield made
    made.close()


def a_project(server: Serving, model: Model, **settings: Any) -> str:
    status, project = server.ask("POST", "/api/projects", {"name": "shop", "settings": settings})
    assert status == 201, project
    for name, value in (("OPENAI_BASE_URL", model.url), ("OPENAI_API_KEY", "sk-of-the-project-1234")):
        assert server.ask("PUT", f"/api/projects/{project['id']}/secrets/{name}", {"value": value})[0] in (200, 201, 204)
    return str(project["id"])


def until(server: Serving, run_id: str, least: int | None = None) -> dict[str, Any]:
    """The run once this many attempts are finished, or it has ended."""
    end = time.monotonic() + 120
    while True:
        run: dict[str, Any] = server.ask("GET", f"/api/runs/{run_id}")[1]
        if run["status"] not in ("queued", "running") or (least is not None and run["finished"] >= least):
            return run
        assert time.monotonic() < end, run
        time.sleep(0.05)


def list_results(server: Serving, run_id: str) -> list[dict[str, Any]]:
    return list(server.ask("GET", f"/api/runs/{run_id}/results?limit=100")[1]["data"])


def refused(server: Serving, project: str, suite: Any) -> tuple[int, dict[str, Any]]:
    status, body = server.ask("POST", "/api/runs", {"project_id": project, "suite": suite})
    assert isinstance(body, bytes), body
    return status, json.loads(body)["error"]


def over_http(url: str, count: int = 1) -> dict[str, Any]:
    server = {"id": "shop", "transport": "http", "url": f"{url}/mcp"}
    rules = {"tool_sequence": ["lookup_order"], "response_assertions": [{"type": "contains", "value": "shipped"}]}
    return {
        "agents": [{"id": "gpt", "provider": "openai", "model": "gpt-test"}],
        "scenarios": [
            {"id": f"case-{number}", "prompt": f'lookup_order {{"id": 17}} #{number}', "mcp_servers": [server], "eval": rules}
            for number in range(count)
        ],
    }


@pytest.mark.on_request
def test_servers_of_others_are_started_where_their_commands_are_allowed_and_only_there(
    npm_servers: Path, time_server: str, tmp_path: Path, model: Model
) -> None:
    everything = ["node", str(npm_servers / EVERYTHING / "dist" / "index.js"), "stdio"]
    clock = [time_server, "--local-timezone", "UTC"]
    library = {"servers": {"everything": {"command": "node", "args": everything[1:]}, "time": {"command": clock[0], "args": clock[1:]}}}
    allowed = [word for line in (everything, clock) for word in ("--allowed-command", shlex.join(line))]
    before = children()
    with serving(tmp_path, flags=(*LOOPBACK, *allowed)) as server:
        project = a_project(server, model, mcplab=library)
        status, sent = server.ask("POST", "/api/runs", {"project_id": project, "suite": SUITE})
        assert status == 202, sent
        run = until(server, sent["id"])
        outcomes = {row["case"]: (row["outcome"], row["reason"]) for row in list_results(server, sent["id"])}
        assert (run["status"], run["outcome"], run["target"]) == ("completed", "pass", "gpt"), (run, outcomes)
        assert {case: outcome for case, (outcome, _) in outcomes.items()} == {"echo": "pass", "time": "pass"}
    requests = sum(model.began.values())
    with serving(tmp_path, flags=(*LOOPBACK, *allowed[:2])) as server:
        status, error = refused(server, project, SUITE)
        assert status == 403 and "MCP server 'time' is not allowed on the server" in error["message"], error
        assert "--allowed-command" in error["hint"] and "mcp-server-time" in error["hint"]
        assert server.ask("GET", f"/api/runs?project_id={project}")[1]["data"][0]["id"] == sent["id"], "nothing was queued"
    assert sum(model.began.values()) == requests
    assert not children() - before


@pytest.mark.in_turn
def test_a_server_over_http_on_loopback_is_reached_where_it_is_allowed_and_only_there(tmp_path: Path, model: Model) -> None:
    with http_shop() as (url, gate):
        with serving(tmp_path, flags=LOOPBACK) as server:
            project = a_project(server, model)
            status, sent = server.ask("POST", "/api/runs", {"project_id": project, "suite": over_http(url)})
            assert status == 202, sent
            run = until(server, sent["id"])
            assert (run["status"], run["outcome"]) == ("completed", "pass"), (run, list_results(server, sent["id"]))
        seen = len(gate.seen)
        with serving(tmp_path) as server:
            status, error = refused(server, project, over_http(url))
            assert status == 400 and "MCP server 'shop'" in error["message"] and "--allowed-address" in error["message"], error
        assert len(gate.seen) == seen > 0


@pytest.mark.in_turn
def test_a_run_continues_after_a_kill_of_the_service(tmp_path: Path, database_url: str, model: Model) -> None:
    flags = (*LOOPBACK, "--lease-s", "2")
    model.slow_s = 0.05
    with http_shop() as (url, _):
        server = Serving(tmp_path, database=database_url, flags=flags)
        try:
            project = a_project(server, model)
            body = {"project_id": project, "suite": over_http(url, CASES), "concurrency": AT_ONCE}
            run_id = str(server.ask("POST", "/api/runs", body)[1]["id"])
            for least in (4, 9):
                assert until(server, run_id, least)["status"] == "running"
                server.kill()
                server = Serving(tmp_path, database=database_url, flags=flags)
            run = until(server, run_id)
            assert (run["status"], run["outcome"], run["counts"]["pass"]) == ("completed", "pass", CASES), run
            found = Counter((row["case"], row["attempt"]) for row in list_results(server, run_id))
            assert found == Counter({(f"case-{number}", 0): 1 for number in range(CASES)}), "each case once"
            # Only attempts in progress, or not yet on disk, were repeated.
            assert len(model.began) == CASES and sum(model.began.values()) <= CASES + 2 * (2 * AT_ONCE + 1)
            assert server.stop() == 0
        finally:
            if server.process.poll() is None:
                server.kill()
