"""One MCPLab suite on real servers of others over stdio, in both protocol eras, with a scripted OpenAI-compatible model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.actions.running.run import LiveRun
from proctor.targets.mcp.settings import ServerSettings
from tests.actions.mcplab.test_mcplab_command import model_server
from tests.actions.mcplab_world import completion, drive_mcplab
from tests.live.clients.test_mcp_servers import EVERYTHING, FILESYSTEM, everything_over_http, node, npm_servers, time_server
from tests.llm.provider_server import ReceivedRequest, ScriptedResponse, provider
from tests.targets.mcp_twins import run

__all__ = ["npm_servers", "time_server"]

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]

SUITE = """\
name: Real servers
servers: []
agents: [{id: gpt, provider: openai, model: gpt-test}]
scenarios:
  - id: echo
    prompt: "echo {\\"message\\": \\"hello\\"}"
    mcp_servers: [{id: everything, transport: http, url: "http://127.0.0.1:9/everything"}]
    eval:
      tool_sequence: [echo]
      response_assertions: [{type: contains, value: "Echo: hello"}]
  - id: read
    prompt: "read_text_file {\\"path\\": \\"NOTE\\"}"
    mcp_servers: [{id: files, transport: http, url: "http://127.0.0.1:9/files"}]
    eval:
      tool_constraints: {required_tools: ["files:read_text_file"], forbidden_tools: [write_file]}
      response_assertions: [{type: contains, value: buy tea}]
  - id: time
    prompt: "convert_time {\\"source_timezone\\": \\"Europe/Berlin\\", \\"target_timezone\\": \\"Asia/Tokyo\\", \\"time\\": \\"12:00\\"}"
    mcp_servers: [{id: time, transport: http, url: "http://127.0.0.1:9/time"}]
    eval:
      tool_input_assertions: [{type: jsonpath, tool: convert_time, path: $.time, equals: "12:00"}]
      response_assertions: [{type: contains, value: Asia/Tokyo}]
"""


def obedient(request: ReceivedRequest) -> ScriptedResponse:
    """Calls the tool that the prompt names with the arguments it gives, and repeats what came back."""
    last = request.body["messages"][-1]
    if last["role"] == "tool":
        return completion(last["content"])
    tool, _, arguments = last["content"].partition(" ")
    return completion("", [(tool, json.loads(arguments))])


@pytest.mark.parametrize("era", ["auto", "handshake"])
def test_a_suite_runs_on_real_servers_in_both_eras(npm_servers: Path, time_server: str, tmp_path: Path, era: Any) -> None:
    (tmp_path / "note.txt").write_text("buy tea", encoding="utf-8")
    (tmp_path / "suite.yaml").write_text(SUITE.replace("NOTE", str(tmp_path / "note.txt")), encoding="utf-8")
    servers = {
        "everything": node("everything", npm_servers, EVERYTHING, "stdio", era=era),
        "files": node("files", npm_servers, FILESYSTEM, str(tmp_path), era=era),
        "time": ServerSettings(id="time", command=time_server, args=("--local-timezone", "UTC"), era=era),
    }

    async def work() -> LiveRun:
        async with provider(obedient) as seen:
            known = {"OPENAI_BASE_URL": f"{seen.url}/v1"}
            return await drive_mcplab(
                tmp_path / "suite.yaml", environment=known, reached_by=servers, home=tmp_path / "home", artifacts=True
            )

    live = run(work())
    assert [(case.id, case.outcome) for case in live.result.cases] == [("echo", "pass"), ("read", "pass"), ("time", "pass")]
    results = json.loads((live.folder / "mcplab" / "results.json").read_text(encoding="utf-8"))
    assert results["summary"]["pass_rate"] == 1
    assert all(results["metadata"]["mcp_server_versions"][name] for name in servers)


WORKSPACE = {
    "agents.yaml": "gpt: {provider: openai, model: gpt-test}\nclaude: {provider: anthropic, model: claude-test}\n",
    "servers.yaml": "everything: {transport: http, url: 'URL', auth: {type: bearer, token: '${SERVER_TOKEN}'}}\n",
    "evals/nested/echo.yaml": """\
agents: [{ref: gpt}]
x-owner: the shop
scenarios:
  - id: echo
    prompt: 'echo {"message": "hello"}'
    mcp_servers: [{ref: everything}]
    snapshot_eval: {enabled: true}
    eval:
      tool_sequence: [echo]
      response_assertions: [{type: contains, value: "Echo: hello"}, {type: jsonpath_exists, path: $.nothing}]
""",
}


def test_a_workspace_with_an_env_file_runs_from_the_command_line(npm_servers: Path, tmp_path: Path) -> None:
    """Keys, the model's address and a server's token are only in `.env` of the workspace; only the agent without a key fails."""
    with everything_over_http(npm_servers, "streamableHttp") as url, model_server(obedient) as model:
        for name, text in WORKSPACE.items():
            path = tmp_path / "mcplab" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("URL", url), encoding="utf-8")
        variables = f'OPENAI_API_KEY="sk-from-the-file"\nexport OPENAI_BASE_URL={model}/v1 # ours\nSERVER_TOKEN=tok-from-the-file\n'
        (tmp_path / ".env").write_text(variables, encoding="utf-8")
        words = ["run", "mcplab/evals/nested/echo.yaml", "--agents", "gpt,claude", "--artifacts", "mcplab", "--format", "json"]
        unset = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "SERVER_TOKEN")
        environment = {key: value for key, value in os.environ.items() if key not in unset}
        done = subprocess.run(
            [sys.executable, "-m", "proctor", *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )
    result = json.loads(done.stdout)
    assert {case["id"]: (case["outcome"], case["code"]) for case in result["cases"]} == {
        "echo-gpt": ("fail", None),
        "echo-claude": ("error", "missing_variable"),
    }, done.stderr
    folder = next((tmp_path / ".proctor").rglob("results.json")).parent
    (row, _) = json.loads((folder / "results.json").read_text(encoding="utf-8"))["scenarios"]
    (failure,) = row["runs"][0]["failures"]
    assert failure.startswith("JSONPath assertion failed: ") and failure.endswith("$.nothing")
    assert row["runs"][0]["check_results"][-1]["type"] == "response_jsonpath_exists"
    line = json.loads((folder / "trace.jsonl").read_text(encoding="utf-8").splitlines()[1])
    assert [message["role"] for message in line["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert line["messages"][1]["usage"] == {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25}
    times = [message["ts"] for message in line["messages"]]
    assert times == sorted(times) and line["ts_start"] <= times[0] and times[0] < times[-1]
    stored = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / ".proctor").rglob("*") if path.is_file())
    assert "sk-from-the-file" not in stored + done.stderr and "tok-from-the-file" not in stored + done.stderr
