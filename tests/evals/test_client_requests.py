"""Requests of a manager other than tools, and messages from the server: in both eras, over stdio and HTTP."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from typing import Any

import pytest

from proctor.errors import TargetError
from proctor.evals.agents.client_manager import MCPClientManager
from proctor.targets.mcp.settings import ServerFault
from tests.doctor.servers import settings_of
from tests.evals.noticing_server import noticing
from tests.tables import load
from tests.targets.mcp_twins import ROOT, http_shop, run

METHODS: dict[str, str] = {row["id"]: row["ours"] for row in load("evals/cases/client_manager_methods.yaml")}
PLACES = [("stdio", "handshake"), ("stdio", "stateless"), ("http", "handshake"), ("http", "stateless"), ("in_process", "auto")]
ERAS = pytest.mark.parametrize(("place", "era"), PLACES, ids=[" ".join(each) for each in PLACES])


@contextmanager
def serve(place: str, era: str) -> Any:
    if place == "http":
        with http_shop(noticing()) as (url, _):
            yield {"url": f"{url}/mcp", "era": era}
    elif place == "in_process":
        yield {"server": noticing()}
    else:
        yield {"command": sys.executable, "args": ["-m", "tests.evals.noticing_server"], "cwd": ROOT, "era": era}


def use(entry: Any, work: Callable[[MCPClientManager], Awaitable[Any]], prepare: Any = None, **options: Any) -> Any:
    async def main() -> Any:
        manager = MCPClientManager({"shop": entry}, retry_waits_s=(), **options)
        if prepare is not None:
            prepare(manager)
        async with manager:
            return await work(manager)

    return run(main())


def test_every_method_of_the_original_has_its_name_here_and_the_original_spelling_names_it() -> None:
    assert len(METHODS) == 48
    manager = MCPClientManager()
    for original, ours in METHODS.items():
        assert callable(getattr(manager, ours))
        if original != ours:
            with pytest.raises(AttributeError, match=f"no attribute '{original}'; the name here is '{ours}'"):
                getattr(manager, original)
    with pytest.raises(AttributeError, match=r"no attribute 'fly'$"):
        manager.fly  # pyright: ignore[reportAttributeAccessIssue]  # noqa: B018


@pytest.mark.timeout(60)
@ERAS
def test_resources_and_prompts(place: str, era: str) -> None:
    async def work(manager: MCPClientManager) -> None:
        assert [each["uri"] for each in (await manager.list_resources("shop"))["resources"]] == ["shop://terms"]
        assert [each["name"] for each in (await manager.list_resource_templates("shop"))["resourceTemplates"]] == ["order"]
        assert (await manager.read_resource("shop", "shop://orders/3"))["contents"][0]["text"] == "Order 3 was shipped."
        assert [each["name"] for each in (await manager.list_prompts("shop"))["prompts"]] == ["complain"]
        prompt = await manager.get_prompt("shop", "complain", {"order_id": "3"})
        assert prompt["messages"][0]["content"]["text"] == "Where is order 3?"
        with pytest.raises(ServerFault, match="refused `resources/read`") as caught:
            await manager.read_resource("shop", "shop://nothing/at/all")
        assert caught.value.error_code in (-32002, -32602)
        info = manager.get_initialization_info("shop")
        assert info is not None and info["instructions"] == "Ask first." and info["server_info"]["name"] == "noticing"
        assert info["protocol"] == ("2025-11-25" if era == "handshake" else "2026-07-28")
        assert "prompts" in (manager.get_server_capabilities("shop") or {}) and not manager.supports_tasks_list("shop")
        assert manager.get_client("shop") is manager.get_managed_client("shop") is not None

    with serve(place, era) as entry:
        use(entry, work)


@pytest.mark.timeout(60)
@ERAS
def test_a_tool_keeps_its_description_and_can_prompt_the_user(place: str, era: str) -> None:
    requests: list[dict[str, Any]] = []

    async def answer(request: dict[str, Any]) -> dict[str, Any]:
        requests.append(request)
        return {"action": "accept", "content": {"sure": True}}

    async def work(manager: MCPClientManager) -> None:
        tools = {tool.name: tool for tool in await manager.get_tools()}
        place_tool = tools["place"]
        assert place_tool.title == "Place an order" and place_tool.annotations == {"destructiveHint": False}
        assert place_tool.icons == ({"src": "data:image/png;base64,AA=="},) and place_tool.output_schema is not None
        assert manager.get_tool_metadata("shop", "place") == place_tool.meta == {"ui": {"visibility": ["app"]}}
        assert list(await manager.get_tools_for_ai_sdk()) == ["change"]
        assert set(await manager.get_tools_for_ai_sdk(include_app_only=True)) == {"change", "place"}
        assert (await manager.execute_tool("shop", "place", {"product": "tea"}))["structuredContent"] == {"status": "placed"}

    with serve(place, era) as entry:
        use(entry, work, lambda manager: manager.set_elicitation_callback(answer))
    assert requests[0]["message"] == "Order tea?" and requests[0]["schema"]["required"] == ["sure"] and requests[0]["server"] == "shop"


@pytest.mark.timeout(60)
@ERAS
def test_notices_logs_and_progress_reach_their_handlers(place: str, era: str) -> None:
    heard: list[tuple[str, Any]] = []
    progress: list[Any] = []
    wire: list[dict[str, Any]] = []

    def prepare(manager: MCPClientManager) -> None:
        manager.on_resource_updated("shop", lambda params: heard.append(("updated", params["uri"])))
        manager.on_resource_list_changed("shop", lambda _: heard.append(("list", None)))
        manager.add_notification_handler("shop", "notifications/message", lambda params: heard.append(("log", params["data"])))

    async def work(manager: MCPClientManager) -> None:
        if era == "handshake":
            # The SDK has neither in this era and refuses both.
            for ask in (manager.set_logging_level("shop"), manager.subscribe_resource("shop", "shop://terms")):
                with pytest.raises(ServerFault) as caught:
                    await ask
                assert caught.value.error_code == -32601
        else:
            await manager.set_logging_level("shop", "info")
            await manager.subscribe_resource("shop", "shop://terms")
        await manager.execute_tool("shop", "change", on_progress=lambda *report: progress.append(report[:2]))
        async with asyncio.timeout(5):
            while len(heard) < (1 if era == "handshake" else 3):
                await asyncio.sleep(0.02)
        if era != "handshake":
            await manager.unsubscribe_resource("shop", "shop://terms")
            await manager.execute_tool("shop", "change")
            await asyncio.sleep(0.2)

    with serve(place, era) as entry:
        use(entry, work, prepare, progress_handler=lambda event: progress.append(event["server"]), rpc_logger=wire.append)
    assert progress[:4] == ["shop", (1.0, 2.0), "shop", (2.0, 2.0)]
    assert ("log", "changing") in heard
    assert heard.count(("updated", "shop://terms")) == (0 if era == "handshake" else 1)
    assert (("list", None) in heard) == (era != "handshake")
    methods = {each["message"].get("method") for each in wire}
    assert place == "in_process" or (
        {"tools/call", "tools/list"} <= methods and {each["direction"] for each in wire} == {"send", "receive"}
    )


@pytest.mark.timeout(60)
def test_an_elicitation_is_answered_later_or_by_the_handler_of_its_server() -> None:
    async def work(manager: MCPClientManager) -> None:
        async def wait(request: dict[str, Any]) -> dict[str, Any]:
            return await manager.get_pending_elicitations()[request["request_id"]]

        manager.set_elicitation_callback(wait)
        call = asyncio.create_task(manager.execute_tool("shop", "place", {"product": "tea"}))
        async with asyncio.timeout(5):
            while not manager.get_pending_elicitations():
                await asyncio.sleep(0.02)
        (request_id,) = manager.get_pending_elicitations()
        assert manager.respond_to_elicitation(request_id, {"action": "accept", "content": {"sure": False}})
        assert not manager.respond_to_elicitation(request_id, {"action": "decline"})
        assert (await call)["structuredContent"] == {"status": "left"}
        manager.set_elicitation_handler("shop", lambda params: {"action": "accept", "content": {"sure": params["message"] == "Order tea?"}})
        assert (await manager.execute_tool("shop", "place", {"product": "tea"}))["structuredContent"] == {"status": "placed"}
        manager.clear_elicitation_handler("shop")
        manager.clear_elicitation_callback()
        assert (await manager.execute_tool("shop", "place", {"product": "tea"}))["isError"] is True

    use(noticing(), work, lambda manager: manager.set_elicitation_callback(lambda _: {"action": "decline"}))
    with pytest.raises(TargetError, match="unknown MCP server"):
        MCPClientManager().set_elicitation_handler("shop", lambda _: {})


@pytest.mark.timeout(60)
def test_tasks_of_a_server_that_has_them() -> None:
    statuses: list[str] = []

    async def work(manager: MCPClientManager) -> None:
        assert (
            manager.supports_tasks_for_tool_calls("shop") and manager.supports_tasks_list("shop") and manager.supports_tasks_cancel("shop")
        )
        created = await manager.execute_tool("shop", "slow_report", {"days": "3"}, task={"ttl": 60_000})
        task = created["task"]["taskId"]
        assert created["task"]["status"] == "working" and "content" not in created
        assert [each["taskId"] for each in (await manager.list_tasks("shop"))["tasks"]] == [task]
        async with asyncio.timeout(5):
            while (await manager.get_task("shop", task))["status"] == "working":
                await asyncio.sleep(0.05)
        assert (await manager.get_task_result("shop", task))["structuredContent"] == {"status": "sent"}
        with pytest.raises(ServerFault, match="refused `tasks/cancel`"):
            await manager.cancel_task("shop", task)
        other = (await manager.execute_tool("shop", "slow_report", {"days": "3"}, task={}))["task"]["taskId"]
        assert (await manager.cancel_task("shop", other))["status"] == "cancelled"
        with pytest.raises(TargetError, match="made no task of the call of 'find_order'"):
            await manager.execute_tool("shop", "find_order", {"id": "17"}, task={})  # it is not declared for tasks
        assert statuses[-1] == "cancelled"

    settings = settings_of("--era", "handshake")
    use(settings, work, lambda manager: manager.on_task_status_changed("shop", lambda params: statuses.append(params["status"])))


def test_a_request_has_its_own_limit_and_is_repeated_only_if_it_reads() -> None:
    async def work(manager: MCPClientManager) -> None:
        with pytest.raises(TargetError, match=r"timed out after 0\.3 s"):
            await manager.execute_tool("shop", "hang", timeout_ms=300)
        sent.clear()
        with pytest.raises(TargetError, match=r"timed out after 0\.2 s"):
            await manager.execute_tool("shop", "hang", timeout_ms=200, retries=1)
        assert sum(each["message"].get("method") == "tools/call" for each in sent) == 2
        assert await manager.list_prompts("shop") == {"prompts": []} == {"prompts": (await manager.list_resources("shop"))["resources"]}

    sent: list[dict[str, Any]] = []
    entry = {"command": sys.executable, "args": ["-S", "-m", "tests.targets.bare_server"], "cwd": ROOT}
    use(entry, work, rpc_logger=sent.append, client_info={"name": "tester", "title": "Tester"})
    assert next(each for each in sent if each["message"].get("method") != "tools/call")


@pytest.mark.timeout(60)
def test_settings_of_servers_over_http_and_their_sessions() -> None:
    seen: list[dict[str, Any]] = []

    async def work(manager: MCPClientManager) -> None:
        assert len(manager.get_session_id_by_server("shop") or "") > 10
        settings = manager.get_server_config("shop")
        assert settings is not None and settings.transport == "http" and manager.get_server_config("none") is None
        (replay,) = manager.get_server_replay_configs()
        assert replay["access_token"] == "sesame-123" and replay["server"] == "shop"
        assert not [each for each in seen if "sesame-123" in str(each)]
        introduced = next(each["message"] for each in seen if each["message"].get("method") == "initialize")
        assert introduced["params"]["clientInfo"] == {"name": "tester", "version": "7"}
        await manager.connect_to_server("local", noticing())
        with pytest.raises(TargetError, match="must be connected over streamable HTTP"):
            manager.get_session_id_by_server("local")

    with http_shop(noticing()) as (url, _):
        entry = {"url": f"{url}/mcp", "accessToken": "sesame-123", "era": "handshake"}
        use(entry, work, rpc_logger=seen.append, client_info={"name": "tester", "version": "7"})
