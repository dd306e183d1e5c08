"""Real MCP servers of others over stdio and HTTP: npm `server-everything` and `server-filesystem`, PyPI `mcp-server-time`.

They are installed once into pytest's cache folder. Where npm or the package index cannot be reached the tests are skipped, and say so.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from proctor.cassettes.ports import LIVE
from proctor.evals.agents.client_manager import MCPClientManager
from proctor.llm.ports import ChatReply
from proctor.model.case import Case
from proctor.model.evidence import Evidence
from proctor.targets.mcp.agent import McpAgent
from proctor.targets.mcp.servers import McpServers
from proctor.targets.mcp.settings import Era, ServerSettings
from tests.foreign import install_from_index, install_from_npm
from tests.targets.mcp_twins import ScriptedModel, attempt, calls, run

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]

EVERYTHING = "@modelcontextprotocol/server-everything"
FILESYSTEM = "@modelcontextprotocol/server-filesystem"


@pytest.fixture(scope="session")
def npm_servers(pytestconfig: pytest.Config) -> Path:
    return install_from_npm(Path(pytestconfig.cache.mkdir("live-npm-servers")), EVERYTHING, FILESYSTEM)  # type: ignore[union-attr]


@pytest.fixture(scope="session")
def time_server(pytestconfig: pytest.Config) -> str:
    folder = Path(pytestconfig.cache.mkdir("live-python-servers"))  # type: ignore[union-attr]
    return str(install_from_index(folder, "mcp-server-time") / "mcp-server-time")


def node(id: str, packages: Path, name: str, *args: str, era: Era = "auto") -> ServerSettings:
    return ServerSettings(id=id, command="node", args=(str(packages / name / "dist" / "index.js"), *args), era=era)


@contextmanager
def everything_over_http(packages: Path, kind: str) -> Iterator[str]:
    """The address of `server-everything` in a process of its own: `streamableHttp`, or `sse` as old servers are."""
    program = ["node", str(packages / EVERYTHING / "dist" / "index.js"), kind]
    process, port = started_on_a_port(program)
    try:
        yield f"http://127.0.0.1:{port}/{'sse' if kind == 'sse' else 'mcp'}"
    finally:
        process.terminate()
        process.wait(10)


def started_on_a_port(program: list[str]) -> tuple[subprocess.Popen[bytes], int]:
    """Start a server on a free port; retry with another if the port is taken first."""
    end = time.monotonic() + 30
    while True:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        process = subprocess.Popen(program, env={**os.environ, "PORT": str(port)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                return process, port
            if time.monotonic() > end:
                process.kill()
                raise AssertionError("the server did not start")
            time.sleep(0.05)
        assert time.monotonic() < end, f"the server ended with {process.returncode}"


def drive(model: ScriptedModel, case: Case, *servers: ServerSettings) -> Evidence:
    async def main() -> Evidence:
        agent = McpAgent("agent", servers=McpServers(servers), model_for=lambda _tape: model)
        await agent.open()
        try:
            return await agent.run(attempt(case), LIVE)
        finally:
            await agent.close()

    return run(main())


@pytest.mark.parametrize("era", ["auto", "handshake"])
def test_server_everything_answers(npm_servers: Path, era: Any) -> None:
    model = ScriptedModel(calls(("echo", {"message": "hello"}), ("echo", {"message": 5})), ChatReply(text="done"))
    evidence = drive(model, Case(id="echo", input="Say hello"), node("everything", npm_servers, EVERYTHING, "stdio", era=era))
    assert evidence.text == "done" and evidence.error is None and evidence.tool_calls is not None
    good, bad = evidence.tool_calls
    assert good.result["content"][0]["text"] == "Echo: hello" and not good.failed()
    assert bad.failed()
    (server,) = evidence.metadata["servers"]
    assert server["protocol"] == "2025-11-25" and server["version"]


@pytest.mark.parametrize("options", [{}, {"transport": "http"}], ids=["by its address", "after streamable HTTP was refused"])
def test_an_old_server_is_reached_over_server_sent_events(npm_servers: Path, options: dict[str, Any]) -> None:
    async def work(url: str) -> None:
        async with MCPClientManager({"everything": {"url": url, **options}}) as manager:
            answer = await manager.execute_tool("everything", "echo", {"message": "hello"})
            assert answer["content"] == [{"type": "text", "text": "Echo: hello"}]
            unknown = await manager.execute_tool("everything", "nope")
            assert unknown["isError"] is True and "nope" in unknown["content"][0]["text"]

    with everything_over_http(npm_servers, "sse") as url:
        run(work(url))


@pytest.mark.parametrize("era", ["auto", "handshake"])
def test_server_filesystem_reads_only_allowed_folders(npm_servers: Path, tmp_path: Path, era: Any) -> None:
    (tmp_path / "note.txt").write_text("buy tea", encoding="utf-8")
    reads = [("read_text_file", {"path": str(tmp_path / "note.txt")}), ("read_text_file", {"path": "/etc/hostname"})]
    evidence = drive(
        ScriptedModel(calls(*reads), ChatReply(text="done")),
        Case(id="read", input="What should I buy?"),
        node("files", npm_servers, FILESYSTEM, str(tmp_path), era=era),
    )
    assert evidence.tool_calls is not None
    allowed, refused = evidence.tool_calls
    assert allowed.result["content"][0]["text"] == "buy tea"
    assert refused.error_kind == "content-error" and "denied" in refused.error.lower()


@pytest.mark.parametrize("era", ["auto", "handshake"])
def test_server_time_speaks_both_eras(time_server: str, era: Any) -> None:
    arguments = {"source_timezone": "Europe/Berlin", "target_timezone": "Asia/Tokyo", "time": "12:00"}
    evidence = drive(
        ScriptedModel(
            calls(("convert_time", arguments), ("convert_time", {**arguments, "target_timezone": "Nowhere"})), ChatReply(text="done")
        ),
        Case(id="time", input="What time is it in Tokyo?"),
        ServerSettings(id="time", command=time_server, args=("--local-timezone", "UTC"), era=era),
    )
    assert evidence.tool_calls is not None
    good, bad = evidence.tool_calls
    assert "Asia/Tokyo" in good.result["content"][0]["text"] and not good.failed()
    assert bad.failed()
    (server,) = evidence.metadata["servers"]
    assert server["protocol"] == ("2025-11-25" if era == "handshake" else "2026-07-28")


def test_three_servers_at_once_are_one_set_of_tools(npm_servers: Path, time_server: str, tmp_path: Path) -> None:
    servers = (
        node("everything", npm_servers, EVERYTHING, "stdio"),
        node("files", npm_servers, FILESYSTEM, str(tmp_path)),
        ServerSettings(id="time", command=time_server),
    )
    model = ScriptedModel(calls(("echo", {"message": "hi"}), ("list_allowed_directories", {})), ChatReply(text="done"))
    evidence = drive(model, Case(id="all", input="Hi"), *servers)
    assert evidence.tool_calls is not None and [call.server for call in evidence.tool_calls] == ["everything", "files"]
    assert not any(call.failed() for call in evidence.tool_calls)
    assert evidence.available_tools is not None and "time:convert_time" in evidence.available_tools


def test_a_real_server_with_bad_arguments_reports_why_it_ended(npm_servers: Path) -> None:
    async def main() -> str:
        with pytest.raises(Exception, match="MCP server 'files'") as caught:
            await McpServers([node("files", npm_servers, FILESYSTEM, "/no/such/folder/anywhere")], waits_s=()).open()
        return str(caught.value)

    assert "standard error ends with" in run(main())
