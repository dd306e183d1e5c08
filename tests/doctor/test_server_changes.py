"""A server that changes between two runs of an agent is named next to the regression: in the terminal, in HTML, by REST and on the page."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from proctor.cli.main import run
from tests.rest.agent_site import AgentSite
from tests.rest.services import Service
from tests.rest.test_runs import a_project, until
from tests.service.agents import LOOPBACK

SERVER = [sys.executable, "-S", str(Path(__file__).with_name("refund_server.py"))]
LINE = "the server shop changed: tool `refund` lost the parameter `reason`"
SUITE = {"proctor": 1, "name": "refunds", "cases": [{"id": "refund", "input": "refund 17", "expect": [{"response_contains": "refunded"}]}]}
pytestmark = pytest.mark.timeout(60)


def complete(method: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """A model that calls `refund`, and answers with its result."""
    messages = json.loads(body)["messages"]
    if messages[-1]["role"] == "tool":
        message: dict[str, Any] = {"role": "assistant", "content": str(messages[-1]["content"])}
    else:
        tools = json.loads(body)["tools"]
        call = {"name": tools[0]["function"]["name"], "arguments": '{"order": "17"}'}
        message = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": call}]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
    return json.dumps({"id": "1", "object": "chat.completion", "model": "scripted", "choices": [choice]}).encode()


@pytest.fixture
def model() -> Iterator[dict[str, Any]]:
    site = AgentSite("/v1", complete)
    yield {"provider": "openai", "model": "scripted", "base_url": site.address, "api_key": "${MODEL_KEY}"}
    site.close()


def settings_with(model: dict[str, Any], *more: str) -> dict[str, Any]:
    server = {"command": SERVER[0], "args": [*SERVER[1:], *more]}
    agent = {"type": "mcp_agent", "model": "m", "servers": {"shop": server}}
    return {"models": {"m": model}, "targets": {"agent": agent}}


def test_the_command_line_names_the_changed_server(
    model: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODEL_KEY", "sk-test-1")
    (tmp_path / "suite.json").write_text(json.dumps(SUITE))
    codes: list[int] = []
    for more in ((), ("--changed",)):
        (tmp_path / "proctor.yaml").write_text(json.dumps(settings_with(model, *more)))
        codes.append(run(["run", "suite.json", "--target", "agent", "--quiet"]))
    assert codes == [0, 1], capsys.readouterr()
    capsys.readouterr()
    run(["compare", "previous", "latest", "--no-color"])
    text = " ".join(capsys.readouterr().out.split())
    assert LINE in text and "refund" in text
    run(["compare", "previous", "latest", "--format", "html", "--output", "compared.html"])
    assert "lost the parameter" in (tmp_path / "compared.html").read_text()


def test_the_service_names_the_changed_server(model: dict[str, Any], tmp_path: Path) -> None:
    command = shlex.join([*SERVER, "*"])
    url = f"sqlite:///{tmp_path / 'proctor.db'}"
    with Service(url, tmp_path, with_workers=True, allowed_addresses=LOOPBACK, allowed_commands=(command,)) as service:
        project = a_project(service, **settings_with(model))
        assert service.put(f"/api/projects/{project}/secrets/MODEL_KEY", json={"value": "sk-test-1"}).status_code < 300
        ids: list[str] = []
        for more in ((), ("--changed",)):
            changed = service.patch(f"/api/projects/{project}", json={"settings": settings_with(model, *more)})
            assert changed.status_code == 200, changed.text
            sent = service.post("/api/runs", json={"project_id": project, "suite": SUITE, "target": "agent"})
            assert sent.status_code == 202, sent.text
            ids.append(sent.json()["id"])
            ended = until(lambda: service.get(f"/api/runs/{ids[-1]}"), lambda one: one["status"] in ("completed", "failed"), within_s=30)
            assert ended["status"] == "completed", ended
        found = service.get(f"/api/runs/{ids[1]}/compare?base={ids[0]}").json()
        assert found["server_changes"] == [LINE] and found["comparison"]["newly_failing"] == ["refund"]
        assert "lost the parameter" in service.client.get(f"/ui/p/{project}/compare?runs={','.join(ids)}").text
