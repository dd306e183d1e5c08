"""A whole MCPLab workspace on the command line: its evaluation configs, with the library their references refer to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.running import proctor

FILES = {
    "servers.yaml": "orders: {transport: http, url: 'http://localhost:1/mcp'}\nbroken: {transport: http}\n",
    "agents.yaml": "- {id: haiku, provider: anthropic, model: claude}\n",
    "browser-providers/chat.yaml": "id: chat\nurl: https://chat.example\n",
    "test-cases/refund.yaml": """\
id: refund
prompt: refund it
mcp_servers: [{ref: orders}]
eval:
  tool_constraints: {forbidden_tools: [delete]}
  response_assertions: [{type: contains, value: refund}]
""",
    "test-cases/never.yaml": "id: never\nprompt: x\neval: {tool_constraints: {forbidden_tools: [delete]}}\n",
    "evals/a.yaml": "name: A\nagents: [{ref: haiku}]\nscenarios: [{ref: refund}, {ref: never}, {id: free, prompt: hi}]\n",
    "evals/deep/b.yaml": "name: B\nagents: [{ref: haiku}]\nscenarios: [{id: own, prompt: hi, eval: {tool_sequence: [pay]}}]\n",
    "results/.index/results-search.jsonl": "not for us\n",
}


def run_line(scenario: str, *messages: object, **more: object) -> str:
    return json.dumps({"type": "scenario_run", "trace_version": 3, "scenario_id": scenario, "messages": messages, **more})


def answer(text: str) -> dict[str, object]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "mcplab" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "mcplab"


def trace(workspace: Path, *lines: str) -> Path:
    path = workspace.parent / "trace.jsonl"
    path.write_text("\n".join(['{"type":"trace_meta","trace_version":3}', *lines]) + "\n")
    return path


def test_every_config_of_a_workspace_is_checked_with_its_library(workspace: Path) -> None:
    done = proctor("check", workspace, trace(workspace, run_line("refund", answer("Refund done"))), "--format", "json")
    result = json.loads(done.out)
    assert {case["id"]: case["outcome"] for case in result["cases"]} == {"refund": "pass", "never": "skip", "free": "skip", "own": "skip"}
    assert done.code == 0


def test_a_library_error_is_reported_once_for_all_configs(workspace: Path) -> None:
    done = proctor("check", workspace, trace(workspace, run_line("refund", answer("Refund done"))), "--format", "json")
    warnings = [warning for warning in json.loads(done.out)["warnings"] if "without 'url' is left out" in str(warning)]
    assert len(warnings) == 1


@pytest.mark.parametrize("inside", [False, True])
def test_a_nested_config_alone_uses_the_library_of_its_workspace(workspace: Path, inside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if inside:
        monkeypatch.chdir(workspace / "evals" / "deep")
    done = proctor("validate", "b.yaml" if inside else workspace / "evals" / "deep" / "b.yaml")
    assert done.code == 0, done.out


def test_a_nested_config_uses_the_library_next_to_it(workspace: Path) -> None:
    (workspace / "evals" / "deep" / "agents.yaml").write_text("- {id: sonnet, provider: anthropic, model: claude}\n")
    (workspace / "evals" / "deep" / "b.yaml").write_text("agents: [{ref: sonnet}]\nscenarios: [{id: own, prompt: hi}]\n")
    assert proctor("validate", workspace / "evals" / "deep" / "b.yaml").code == 0
    assert proctor("validate", workspace).code == 0


def test_a_workspace_is_validated_as_a_workspace(workspace: Path) -> None:
    done = proctor("validate", workspace)
    assert done.code == 0, done.out
    assert done.out.count("without 'url' is left out") == 1
    assert "4 suites with 6 cases" in done.err


def test_validate_finds_errors_in_unused_test_cases(workspace: Path) -> None:
    (workspace / "test-cases" / "unused.yaml").write_text("id: unused\nprompt: x\neval: {tool_constraint: {}}\n")
    done = proctor("validate", workspace)
    assert done.code == 4
    assert f"{workspace}/test-cases/unused.yaml:3:8: " in done.out


def test_a_workspace_written_by_init_is_valid(tmp_path: Path) -> None:
    assert proctor("init", tmp_path / "new").code == 0
    done = proctor("validate", tmp_path / "new")
    assert (done.code, done.out) == (0, "")


def test_an_interrupted_run_passes_nothing(workspace: Path) -> None:
    broken = [run_line(name, error="model down", outcome="error") for name in ("refund", "never", "free")]
    done = proctor("check", workspace, trace(workspace, *broken), "--format", "json", "-k", "refund or never or free")
    cases = {case["id"]: case for case in json.loads(done.out)["cases"]}
    assert done.code == 1
    assert {name: case["outcome"] for name, case in cases.items()} == dict.fromkeys(("refund", "never", "free"), "error")
    assert all("model down" in case["reason"] for case in cases.values())
    assert (cases["free"]["code"], cases["free"]["reason"]) == ("run_error", "the run ended in an error: model down")
