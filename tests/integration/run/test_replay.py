"""A suite recorded once is replayed without a network, and gives the same results every time."""

from __future__ import annotations

import json
import sys
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
    requests = 0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        _Agent.requests += 1
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
        """Do not log."""


@pytest.fixture
def agent() -> Iterator[ThreadingHTTPServer]:
    _Agent.requests = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Agent)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def without_ids(text: str) -> Any:
    """A result without its ids and times."""
    document = json.loads(text)
    for key in ("run_id", "started_at"):
        document.pop(key)
    return document


@pytest.mark.timeout(60)
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
    assert _Agent.requests == 2 * CASES
    assert SECRET not in (tmp_path / "tape.jsonl").read_text()

    agent.shutdown()
    agent.server_close()
    monkeypatch.delenv("AGENT_TOKEN")  # replaying needs no key
    replays = [proctor("run", "suite.yaml", "-n", "2", "--replay", "tape.jsonl", "--format", "json", "--quiet") for _ in range(2)]
    assert without_ids(replays[0].out) == without_ids(replays[1].out) == without_ids(recorded.out)
    assert _Agent.requests == 2 * CASES

    (tmp_path / "suite.yaml").write_text((tmp_path / "suite.yaml").read_text().replace("question 3,", "query 3,"))
    missed = json.loads(proctor("run", "suite.yaml", "--replay", "tape.jsonl", "--format", "json", "--quiet").out)
    broken = [case for case in missed["cases"] if case["outcome"] == "error"]
    assert [case["id"] for case in broken] == ["c3"]
    assert "query 3" in broken[0]["reason"] and "question 3" in broken[0]["reason"]


@pytest.mark.parametrize("place", ["/chat/${AGENT_TOKEN}", "/chat?key=${AGENT_TOKEN}", "/chat?x=${AGENT_TOKEN}"])
def test_a_key_in_an_address_is_not_needed_to_replay(
    agent: ThreadingHTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENT_TOKEN", SECRET)
    (tmp_path / "suite.yaml").write_text("proctor: 1\ncases: [{id: a, input: question 1, expect: [response_contains: answer]}]\n")
    url = f"http://127.0.0.1:{agent.server_address[1]}{place}"
    (tmp_path / "proctor.yaml").write_text(f'targets: {{agent: {{type: http, url: "{url}"}}}}\n')
    recorded = proctor("run", "suite.yaml", "--record", "tape.jsonl", "--format", "json", "--quiet")
    monkeypatch.delenv("AGENT_TOKEN")
    replayed = proctor("run", "suite.yaml", "--replay", "tape.jsonl", "--format", "json", "--quiet")
    assert without_ids(replayed.out) == without_ids(recorded.out) and "[redacted]" in (tmp_path / "tape.jsonl").read_text()
    assert proctor("run", "suite.yaml").code == 4, "a live run needs it"
    (tmp_path / "proctor.yaml").write_text('targets: {agent: {type: http, url: "http://${AGENT_TOKEN}/chat"}}\n')
    assert proctor("run", "suite.yaml", "--replay", "tape.jsonl").code == 4, "a host is no secret"


def test_unused_recordings_are_reported_in_one_line(agent: ThreadingHTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"http://127.0.0.1:{agent.server_address[1]}/chat"
    (tmp_path / "proctor.yaml").write_text(f'targets: {{agent: {{type: http, url: "{url}"}}}}\n')
    turns = "turns: [{input: question 1}, {input: question 2}, {input: question 3}]"
    suite = "proctor: 1\ncases: [{id: talk, TURNS, expect: [response_contains: answer]}]\n"
    (tmp_path / "suite.yaml").write_text(suite.replace("TURNS", turns))
    assert proctor("run", "suite.yaml", "--record", "tape.jsonl", "--quiet").code == 0
    whole = proctor("run", "suite.yaml", "--replay", "tape.jsonl")
    assert whole.code == 0 and "never requested" not in whole.err

    # Every exchange is recorded twice now and requested once.
    lines = (tmp_path / "tape.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "tape.jsonl").write_text("".join([*lines, *lines[1:]]))
    less = proctor("run", "suite.yaml", "--replay", "tape.jsonl")
    (line,) = (line for line in less.err.splitlines() if "never requested" in line)
    assert less.code == 0
    assert line.startswith("3 recorded exchanges were never requested, the agent does less than when tape.jsonl was recorded: case 'talk'")
    assert "never requested" not in proctor("run", "suite.yaml", "--replay", "tape.jsonl", "--quiet").err


COUNTING = """\
import pathlib
def answer(message):
    file = pathlib.Path("count")
    file.write_text(str(int(file.read_text()) + 1 if file.exists() else 1))
    return "hello"
"""


@pytest.mark.parametrize("target", ("fn:answer", "python prog.py"))
def test_a_target_without_a_wire_is_named_when_recording_and_refused_when_replaying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "fn", raising=False)
    (tmp_path / "fn.py").write_text(COUNTING)
    (tmp_path / "prog.py").write_text("import fn\nprint(fn.answer(''))\n")
    (tmp_path / "suite.yaml").write_text("proctor: 1\ncases: [{id: a, input: hi, expect: [response_contains: hello]}]\n")
    recorded = proctor("run", "suite.yaml", "--target", target, "--record", "tape.jsonl")
    assert recorded.code == 0 and "nothing of" in recorded.err and "can be recorded: a Python function or a program" in recorded.err
    replayed = proctor("run", "suite.yaml", "--target", target, "--replay", "tape.jsonl")
    assert replayed.code == 4 and "nothing can be played back" in replayed.err and "proctor recheck latest" in replayed.err
    assert (tmp_path / "count").read_text() == "1"
