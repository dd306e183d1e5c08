"""A suite recorded once is replayed without a network, and gives the same results every time."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.integration.running import proctor

CASES = 50
SECRET = "sk-test-0123456789abcdef"


class _Agent(BaseHTTPRequestHandler):
    asked = 0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        _Agent.asked += 1
        number = int(body["input"].split()[-1])
        answer = {"text": f"answer {number}", "usage": {"input_tokens": number, "output_tokens": 3}}
        if number % 7 == 0:
            answer["text"] = "I do not know"
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def agent() -> Iterator[ThreadingHTTPServer]:
    _Agent.asked = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Agent)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def told(text: str) -> Any:
    """A result without its ids and times."""
    document = json.loads(text)
    for key in ("run_id", "started_at"):
        document.pop(key)
    return document


def test_fifty_recorded_cases_are_replayed_twice_alike_and_offline(
    agent: ThreadingHTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENT_TOKEN", SECRET)
    cases = "\n".join(f"  - {{id: c{number}, input: question {number}, expect: [response_contains: answer]}}" for number in range(CASES))
    (tmp_path / "suite.yaml").write_text(f"proctor: 1\ncases:\n{cases}\n")
    url = f"http://127.0.0.1:{agent.server_address[1]}/chat"
    auth = '{type: bearer, token: "${AGENT_TOKEN}"}'
    (tmp_path / "proctor.yaml").write_text(f'targets: {{agent: {{type: http, url: "{url}", auth: {auth}}}}}\n')

    recorded = proctor("run", "suite.yaml", "-n", "2", "--record", "tape.jsonl", "--format", "json", "--quiet")
    assert json.loads(recorded.out)["counts"] == {"pass": 84, "fail": 16, "error": 0, "skip": 0}
    assert _Agent.asked == 2 * CASES
    assert SECRET not in (tmp_path / "tape.jsonl").read_text()

    agent.shutdown()
    agent.server_close()
    replays = [proctor("run", "suite.yaml", "-n", "2", "--replay", "tape.jsonl", "--format", "json", "--quiet") for _ in range(2)]
    assert told(replays[0].out) == told(replays[1].out) == told(recorded.out)
    assert _Agent.asked == 2 * CASES

    (tmp_path / "suite.yaml").write_text((tmp_path / "suite.yaml").read_text().replace("question 3,", "query 3,"))
    missed = json.loads(proctor("run", "suite.yaml", "--replay", "tape.jsonl", "--format", "json", "--quiet").out)
    broken = [case for case in missed["cases"] if case["outcome"] == "error"]
    assert [case["id"] for case in broken] == ["c3"]
    assert "query 3" in broken[0]["reason"] and "question 3" in broken[0]["reason"]
