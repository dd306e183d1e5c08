"""The tool `examine_server`: on a user's machine for declared servers and addresses, on the service by its rules."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import InputError
from proctor.mcp_server.local_runs import LocalRuns
from proctor.mcp_server.server import all_tools
from proctor.service.access.callers import LOCAL
from proctor.service.refusals import Refusal
from tests.doctor.servers import SCRIPT, http_server

QUICK: dict[str, Any] = {"profiles": ["mcp-2025-11-25"], "areas": ["tools"], "timeout_s": 2.0}
pytestmark = pytest.mark.timeout(40)


def declare(folder: Path) -> None:
    server = json.dumps({"command": sys.executable, "args": ["-S", str(SCRIPT), "--defect", "unknown-tool"]})
    (folder / "proctor.yaml").write_text(f"targets:\n  agent:\n    type: mcp_agent\n    model: m\n    servers: {{shop: {server}}}\n")


async def test_a_declared_server_is_examined_and_stored(tmp_path: Path) -> None:
    declare(tmp_path)
    runs = LocalRuns(tmp_path, tmp_path)
    found = await runs.examine(LOCAL, {"server": "shop", "name": "first", **QUICK}, 30.0)
    assert found["status"] == "completed" and found["findings"]["verdict"] == "failed"
    assert [each["check"] for each in found["findings"]["findings"] if each["verdict"] == "fail"] == ["unknown-tool"]
    assert (await runs.get(LOCAL, "first"))["id"] == found["id"]
    await runs.close()


async def test_an_address_is_examined(tmp_path: Path) -> None:
    runs = LocalRuns(tmp_path, tmp_path)
    with http_server() as url:
        found = await runs.examine(LOCAL, {"server": url, **QUICK}, 30.0)
    assert found["findings"]["verdict"] == "passed", found["findings"]
    await runs.close()


@pytest.mark.parametrize(
    "server", ["sh -c id", "/bin/id", "./id", "mcp.json:shop", {"command": "sh", "args": ["-c", "id"]}, {"id": "x", "command": "id"}]
)
async def test_a_model_starts_no_undeclared_command(tmp_path: Path, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"shop": {"command": "id"}}}')
    with pytest.raises(Refusal, check=lambda error: error.code == "FORBIDDEN"):
        await LocalRuns(tmp_path, tmp_path).examine(LOCAL, {"server": server, **QUICK}, 0.0)
    with pytest.raises(InputError, match="no MCP server 'id'"):
        await LocalRuns(tmp_path, tmp_path).examine(LOCAL, {"server": "id", **QUICK}, 0.0)


def test_the_tool_is_derived_from_the_request() -> None:
    here, there = ({tool.name: tool for tool in all_tools(local=local)}["examine_server"].input_schema for local in (True, False))
    assert here["required"] == there["required"] == ["server"]
    assert {"projectId", "authorizeWith"} == set(there["properties"]) - set(here["properties"])
    assert "unknown-tool" not in json.dumps(here) and "security" in here["properties"]["areas"]["items"]["enum"]
