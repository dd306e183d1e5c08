"""A simulated user over the whole command line: a model on loopback plays it, another judges, a tape plays both again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.judge_server import agreeable, judge_server
from tests.integration.running import proctor
from tests.users.talks import reply

AGENT = """
def answer(message):
    if "17" in message:
        return {"text": "All good, it comes on Friday.", "tool_calls": [{"name": "SECRET_TOOL", "arguments": {"id": 17}}]}
    return "Which order? Reply with done: true and be satisfied."
"""


def plays_both(body: dict[str, Any]) -> str:
    """Answer as the judge or as the user: the user gives the order number on request and ends once a day was named."""
    if body["response_format"]["json_schema"]["name"] != "user_turn":
        return agreeable(body)
    heard = [message["content"] for message in body["messages"] if message["role"] == "user"]
    if "Friday" in heard[-1]:
        return reply(done=True, reason="a day was named").text
    return reply("It is 17.").text if "Which order" in heard[-1] else reply("I was charged twice.").text


def write_suite(folder: Path, url: str, **user: Any) -> None:
    model = {"provider": "openai", "model": "stub-1", "base_url": url, "api_key": "sk-of-nobody"}
    (folder / "refund_agent.py").write_text(AGENT)
    described = {"targets": {"t": {"type": "callable", "function": "refund_agent:answer"}}, "models": {"m": model}, "judge": {"model": "m"}}
    (folder / "proctor.yaml").write_text(json.dumps(described))
    person = {"persona": "A customer", "goal": "To know the day", "model": "m", **user}
    expect = ["goal_reached", {"turns_within": 2}, {"response_contains": "Friday"}]
    (folder / "s.json").write_text(json.dumps({"proctor": 1, "cases": [{"id": "one", "user": person, "expect": expect}]}))


def test_a_conversation_is_run_judged_recorded_and_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with judge_server(plays_both) as model:
        write_suite(tmp_path, model.url)
        first = proctor("run", "s.json", "--record", "tape.jsonl", "--format", "json", "--no-cache")
        assert first.code == 0, first
    users = [body for body in model.requests if body["response_format"]["json_schema"]["name"] == "user_turn"]
    judged = [body for body in model.requests if body not in users]
    assert (len(users), len(judged)) == (3, 1)
    sent = json.dumps(users)
    assert "SECRET_TOOL" not in sent and "turns_within" not in sent
    assert "I was charged twice." in json.dumps(judged) and "It is 17." in json.dumps(judged) and "To know the day" in json.dumps(judged)
    # The server is gone: everything comes from the tape.
    again = proctor("run", "s.json", "--replay", "tape.jsonl", "--format", "json", "--no-cache")
    assert again.code == 0, json.loads(again.out)["cases"]
    cases = [json.loads(done.out)["cases"][0] for done in (first, again)]
    assert cases[0]["simulated_user"] == cases[1]["simulated_user"]
    assert cases[0]["simulated_user"] | {"reason": ""} == {
        "played_by": "openai/stub-1",
        "turns": 2,
        "ended": "done",
        "by": "model",
        "reason": "",
        "model_calls": 3,
        "usage": {"input_tokens": 300, "output_tokens": 30, "total_tokens": 330},
    }
    shown = proctor("show", "latest")
    assert "1 simulated user: 1 done; their model used 330 tokens" in shown.out
    assert "sk-of-nobody" not in (tmp_path / "tape.jsonl").read_text()


def test_a_budget_ends_the_run_between_conversations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with judge_server(plays_both) as model:
        write_suite(tmp_path, model.url, stop_when={"response_contains": "Friday"})
        done = proctor("run", "s.json", "--repeat", "5", "-j", "1", "--max-tokens", "400")
        assert done.code == 2
        assert "440 tokens spent (440 of them by simulated users), the limit is 400" in done.err + done.out
        assert len(model.requests) == 4
