"""A service that is killed during runs: they continue, and every attempt is stored once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.service.agents import suite

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]
CASES = tuple(f"case-{number}" for number in range(40))
AT_ONCE = 4
UNDER_WAY = 2 * AT_ONCE + 1
LEASE_S = 2
KILLS = min(4, int(os.environ.get("PROCTOR_CRASH_ROUNDS", "2")))
"""How often the service is killed in the middle of one run; `make torture` has more."""


class CountingAgent:
    """Answers after a moment, and counts its requests."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        lock = threading.Lock()
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["content-length"])))["input"]
                with lock:
                    agent.requests[message] += 1
                time.sleep(0.1)
                body = json.dumps({"text": f"hello {message}"}).encode()
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
        self.target = {"type": "http", "url": f"http://127.0.0.1:{self._server.server_address[1]}/", "response_path": "text"}
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Server:
    """A real `proctor serve`."""

    def __init__(self, database: str, home: Path) -> None:
        words = ["--port", "0", "--database", database, "--home", str(home), "--allowed-address", "127.0.0.1", "--lease-s", str(LEASE_S)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PROCTOR_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "proctor", "serve", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        assert self._process.stdout is not None
        found = re.search(r"http://\S+", self._process.stdout.readline())
        assert found is not None
        self.client = httpx2.Client(base_url=found[0], timeout=20)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        self.client.close()
        if self._process.poll() is None:
            self._process.send_signal(how)
        code = self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def start_run(self, target: dict[str, Any]) -> str:
        project = self.client.post("/api/projects", json={"name": "shop"}).json()["id"]
        body = {"project_id": project, "suite": suite(*CASES), "target": target, "concurrency": AT_ONCE}
        sent = self.client.post("/api/runs", json=body)
        assert sent.status_code == 202, sent.text
        return str(sent.json()["id"])

    def until(self, run_id: str, least: int = len(CASES), *, within_s: float = 60.0) -> dict[str, Any]:
        """The run once this many attempts are finished, or it has ended."""
        end = time.monotonic() + within_s
        while True:
            run: dict[str, Any] = self.client.get(f"/api/runs/{run_id}").json()
            if run["status"] not in ("queued", "running") or (run["finished"] >= least and least < len(CASES)):
                return run
            assert time.monotonic() < end, run
            time.sleep(0.02)

    def results(self, run_id: str) -> Counter[tuple[str, int]]:
        found: Counter[tuple[str, int]] = Counter()
        cursor: str | None = None
        while True:
            page = self.client.get(f"/api/runs/{run_id}/results", params={"limit": 100, **({"cursor": cursor} if cursor else {})}).json()
            found.update((row["case"], row["attempt"]) for row in page["data"])
            cursor = page["_meta"]["next"]
            if cursor is None:
                return found


@pytest.fixture
def agent() -> Iterator[CountingAgent]:
    found = CountingAgent()
    yield found
    found.close()


def examine(server: Server, run_id: str, agent: CountingAgent, interrupted: int) -> None:
    run = server.until(run_id)
    assert (run["status"], run["outcome"], run["counts"]["pass"]) == ("completed", "pass", len(CASES))
    assert server.results(run_id) == Counter({(case, 0): 1 for case in CASES}), "each case once"
    assert set(agent.requests) == set(CASES)
    # Only attempts in progress, or not yet on disk, were repeated.
    assert sum(agent.requests.values()) <= len(CASES) + interrupted * UNDER_WAY
    events = server.client.get(f"/api/runs/{run_id}/events").text
    finished = [json.loads(line[6:])["case"] for line in events.splitlines() if line.startswith("data: ") and '"finished","at"' in line]
    assert sorted(finished) == sorted(CASES)


def test_a_run_continues_after_a_kill_and_restart_of_the_service(database_url: str, tmp_path: Path, agent: CountingAgent) -> None:
    server = Server(database_url, tmp_path)
    try:
        run_id = server.start_run(agent.target)
        for number in range(KILLS):
            server.until(run_id, 8 * (number + 1))
            server.kill()
            server = Server(database_url, tmp_path)
        examine(server, run_id, agent, KILLS)
        assert server.stop() == 0
    finally:
        server.kill()


@pytest.mark.on_request
def test_a_service_that_is_stopped_gives_the_run_back_at_once(database_url: str, tmp_path: Path, agent: CountingAgent) -> None:
    server = Server(database_url, tmp_path)
    try:
        run_id = server.start_run(agent.target)
        server.until(run_id, 8)
        assert server.stop() == 0
        server = Server(database_url, tmp_path)
        examine(server, run_id, agent, 1)
    finally:
        server.kill()


@pytest.mark.in_turn
def test_a_second_server_on_the_database_takes_over(database_url: str, tmp_path: Path, agent: CountingAgent) -> None:
    servers = [Server(database_url, tmp_path), Server(database_url, tmp_path)]
    try:
        ids = [servers[number % 2].start_run(agent.target) for number in range(2)]
        for run_id in ids:
            servers[0].until(run_id, 4)
        servers[0].kill()
        for run_id in ids:
            run = servers[1].until(run_id)
            assert run["counts"]["pass"] == len(CASES), run
            assert servers[1].results(run_id) == Counter({(case, 0): 1 for case in CASES})
        assert sum(agent.requests.values()) <= 2 * len(CASES) + UNDER_WAY
    finally:
        for server in servers:
            server.kill()
