"""The judge of an MCPLab workspace: the library's agent that its settings name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.judge_server import Judge, checks_of, data_of, judge_server
from tests.integration.running import proctor

CONFIG = """
name: refunds
servers: [{id: shop, transport: http, url: "http://127.0.0.1:1/mcp"}]
agents: [{id: worker, provider: openai, model: m}]
scenarios:
  - id: refund
    prompt: Refund order 17
    mcp_servers: [{ref: shop}]
    eval:
      response_assertions: [{type: contains, value: refund}]
      agent_context: {include_prompt: true, include_tool_sequence: true}
      agent_assertions:
        - {label: polite, prompt: The answer is polite.}
        - {label: final, prompt: The answer says that the refund is done.}
"""


@pytest.fixture
def judge() -> Iterator[Judge]:
    with judge_server() as running:
        yield running


@pytest.fixture
def workspace(tmp_path: Path, judge: Judge, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_BASE_URL", judge.url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-judge")
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals" / "refunds.yaml").write_text(CONFIG)
    (tmp_path / "agents.yaml").write_text(
        "- {id: grader, provider: openai, model: judge-1, temperature: 0.5, max_tokens: 900, system: Be kind.}\n"
    )
    (tmp_path / ".mcplab-app-settings.yaml").write_text("evaluation_judge_agent_name: grader\n")
    (tmp_path / "evidence.json").write_text(
        json.dumps({"case": "refund", "text": "a good answer: refund done", "tool_calls": [{"name": "refund", "arguments": {}}]})
    )
    return tmp_path


def test_all_agent_checks_of_a_scenario_are_one_request_of_the_named_agent(workspace: Path, judge: Judge) -> None:
    done = proctor("check", "evals/refunds.yaml", "evidence.json", "--format", "json", "--trust")
    assert done.code == 0, done.err + done.out
    (request,) = judge.requests
    assert (request["model"], request["temperature"], request["max_tokens"]) == ("judge-1", 0.5, 900)
    assert request["messages"][0]["role"] == "system" and "Be kind" not in json.dumps(request)
    assert len(checks_of(request)) == 2
    assert data_of(request) == {
        "final_answer": "a good answer: refund done",
        "context": {"scenario_prompt": "Refund order 17", "tool_sequence": ["refund"]},
    }
    details = json.loads(done.out)["cases"][0]["assertions"][1]["details"]
    assert (details["judge"], details["check_id"], details["provider"]) == ("grader", "agent-check-1", "openai")


def test_a_judge_missing_in_the_library_is_an_error_of_every_run(workspace: Path) -> None:
    (workspace / ".mcplab-app-settings.yaml").write_text("evaluation_judge_agent_name: graader\n")
    done = proctor("run", "evals/refunds.yaml")
    assert done.code == 4
    assert "'graader'" in done.err and "'grader'" in done.err


def test_a_run_without_a_judge_is_refused_before_anything_starts(workspace: Path, judge: Judge) -> None:
    (workspace / ".mcplab-app-settings.yaml").unlink()
    done = proctor("run", "evals/refunds.yaml")
    assert done.code == 4
    assert "'refund-worker'" in done.err and "need a judge" in done.err
    assert not judge.requests


def test_judge_errors_use_the_wording_of_mcplab(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with judge_server(lambda body: "nonsense") as broken:
        monkeypatch.setenv("OPENAI_BASE_URL", broken.url)
        done = proctor("check", "evals/refunds.yaml", "evidence.json", "--format", "json", "--trust")
    reasons = {each["reason"] for each in json.loads(done.out)["cases"][0]["assertions"] if each["outcome"] == "error"}
    assert reasons == {'Agent check failed: judge "grader" returned invalid JSON for batched agent checks'}
