"""The client manager on the official everything server, over each transport; and its names against MCPJam's own package."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from proctor.evals.agents.client_manager import MCPClientManager
from proctor.targets.mcp.settings import ServerFault
from tests.foreign import install_from_npm
from tests.live.clients.test_mcp_servers import EVERYTHING, everything_over_http
from tests.live.clients.test_mcp_servers import npm_servers as npm_servers
from tests.tables import load
from tests.targets.mcp_twins import run

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]


async def work(entry: dict[str, Any], *, has_session: bool) -> None:
    heard: list[tuple[str, Any]] = []
    questions: list[Any] = []
    progress: list[Any] = []
    manager = MCPClientManager({"all": entry}, progress_handler=lambda event: progress.append(event["progress"]))
    manager.on_task_status_changed("all", lambda task: heard.append(("task", task["status"])))
    manager.on_resource_updated("all", lambda notice: heard.append(("updated", notice["uri"])))
    manager.add_notification_handler("all", "notifications/message", lambda notice: heard.append(("log", notice["level"])))
    manager.set_elicitation_callback(lambda question: questions.append(question) or {"action": "accept", "content": {"name": "Ada"}})
    async with manager:
        info = manager.get_initialization_info("all")
        assert info is not None and info["protocol"] == "2025-11-25" and info["server_info"]["title"] == "Everything Reference Server"
        tools = {tool.name: tool for tool in await manager.get_tools()}
        assert tools["echo"].annotations["readOnlyHint"] is True and tools["get-structured-content"].output_schema is not None
        resources = (await manager.list_resources("all"))["resources"]
        uri = resources[0]["uri"]
        assert (await manager.read_resource("all", uri))["contents"][0]["text"]
        assert (await manager.list_resource_templates("all"))["resourceTemplates"]
        await manager.set_logging_level("all", "debug")
        await manager.subscribe_resource("all", uri)
        await manager.execute_tool("all", "toggle-subscriber-updates")
        prompts = [each["name"] for each in (await manager.list_prompts("all"))["prompts"]]
        assert (await manager.get_prompt("all", prompts[0]))["messages"][0]["content"]["type"] == "text"
        await manager.execute_tool("all", "trigger-long-running-operation", {"duration": 1, "steps": 3})
        assert progress == [1, 2, 3]
        answer = await manager.execute_tool("all", "trigger-elicitation-request")
        assert "Ada" in str(answer["content"]) and "name" in questions[0]["schema"]["properties"]
        assert manager.supports_tasks_for_tool_calls("all") and manager.supports_tasks_list("all") and manager.supports_tasks_cancel("all")
        created = await manager.execute_tool("all", "simulate-research-query", {"topic": "tea", "ambiguous": False}, task={"ttl": 60_000})
        task = created["task"]["taskId"]
        assert (await manager.get_task("all", task))["taskId"] == task
        assert [each["taskId"] for each in (await manager.list_tasks("all"))["tasks"]] == [task]
        assert "tea" in str((await manager.get_task_result("all", task, timeout_ms=30_000))["content"])
        with pytest.raises(ServerFault, match="Cannot cancel task"):
            await manager.cancel_task("all", task)
        async with asyncio.timeout(20):
            while ("updated", uri) not in heard or not {"task", "log"} <= {kind for kind, _ in heard}:
                await asyncio.sleep(0.1)
        await manager.execute_tool("all", "toggle-subscriber-updates")
        await manager.unsubscribe_resource("all", uri)
        if has_session:
            assert manager.get_session_id_by_server("all")


@pytest.mark.in_turn
@pytest.mark.parametrize("kind", ["stdio", "streamableHttp", "sse"])
def test_everything_that_a_server_offers(npm_servers: Path, kind: str) -> None:
    if kind == "stdio":
        program = str(npm_servers / EVERYTHING / "dist" / "index.js")
        run(work({"command": "node", "args": [program, "stdio"]}, has_session=False))
        return
    with everything_over_http(npm_servers, kind) as url:
        run(work({"url": url}, has_session=kind == "streamableHttp"))


@pytest.mark.on_request
def test_the_names_are_those_of_the_original_package(pytestconfig: pytest.Config) -> None:
    cache = Path(pytestconfig.cache.mkdir("live-npm-mcpjam"))  # type: ignore[union-attr]
    folder = install_from_npm(cache, "@mcpjam/sdk@1.14.0") / "@mcpjam" / "sdk" / "dist"
    text = next(text for path in folder.glob("*.d.ts") if "declare class MCPClientManager {" in (text := path.read_text(encoding="utf-8")))
    body = text.partition("declare class MCPClientManager {")[2].partition("\n}\n")[0]
    names = set(re.findall(r"^    ([a-z]\w+)\(", body, re.MULTILINE)) - {"constructor"}
    assert names == {row["id"] for row in load("evals/cases/client_manager_methods.yaml")}
