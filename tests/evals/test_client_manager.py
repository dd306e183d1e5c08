"""Servers by name: connect, call, disconnect."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from proctor.errors import InputError, TargetError
from proctor.evals.agents.client_manager import MCPClientManager
from tests.targets.mcp_twins import ROOT, bare_shop, http_shop, run
from tests.targets.shop_server import shop


def use(servers: dict[str, Any], work: Callable[[MCPClientManager], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        async with MCPClientManager(servers, retry_waits_s=(), **options) as manager:
            return await work(manager)

    return run(main())


def test_tools_of_several_servers() -> None:
    async def work(manager: MCPClientManager) -> None:
        assert manager.list_servers() == ["one", "two"] and manager.has_server("one") and not manager.has_server("three")
        tools = await manager.get_tools()
        assert {tool.server for tool in tools} == {"one", "two"}
        assert [tool.name for tool in await manager.list_tools("one")] == [tool.name for tool in tools if tool.server == "one"]
        assert {tool.server for tool in await manager.get_tools(["two"])} == {"two"}
        search = next(tool for tool in tools if tool.name == "search")
        assert search.description == "Search the catalogue." and search.schema["required"] == ["query"]
        assert manager.get_server_summaries()[0] == {
            "id": "one", "status": "connected", "name": "shop", "version": "1.4.2", "protocol": "2026-07-28",
        }  # fmt: skip

    use({"one": shop(), "two": {"server": shop("other")}}, work)


def test_a_tool_is_executed_and_its_own_error_is_a_result() -> None:
    async def work(manager: MCPClientManager) -> None:
        assert (await manager.execute_tool("shop", "lookup_order", {"id": 17}))["structuredContent"]["total"] == 9.5
        assert (await manager.execute_tool("shop", "lookup_order", {"id": 99}))["isError"] is True
        unknown = await manager.execute_tool("shop", "serch")
        assert unknown["isError"] is True and "serch" in unknown["content"][0]["text"]
        with pytest.raises(TargetError, match="unknown MCP server 'shpo'; nearest: 'shop'"):
            await manager.execute_tool("shpo", "search")

    use({"shop": shop()}, work)


def test_a_server_that_refuses_an_unknown_tool_answers_with_an_error_all_the_same() -> None:
    async def work(manager: MCPClientManager) -> None:
        unknown = await manager.execute_tool("shop", "missing")
        assert unknown["isError"] is True
        assert unknown["content"][0]["text"] == "MCP server 'shop' has no tool 'missing': unknown method tool"

    use({"shop": bare_shop()}, work)


@pytest.mark.parametrize(
    ("path", "options"),
    [("/sse", {}), ("/sse", {"preferSSE": True}), ("/sse", {"transport": "sse"}), ("/sse", {"transport": "http"}), ("/sse?a=b", {})],
)
def test_an_old_server_is_reached_over_server_sent_events(path: str, options: dict[str, Any]) -> None:
    async def work(manager: MCPClientManager) -> None:
        assert (await manager.execute_tool("shop", "lookup_order", {"id": 17}))["structuredContent"]["total"] == 9.5
        assert await manager.ping_server("shop")

    with http_shop(over_sse=True) as (url, _):
        use({"shop": {"url": f"{url}{path}", **options}}, work)


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("/sse", {"transport": "http", "disableSseFallback": True}, "refused to connect: it answered 405"),
        ("/none", {}, "refused to connect: it answered 404"),
        ("/none/sse", {}, "refused to connect: it answered 404 Not Found"),
    ],
)
def test_refusals_of_an_old_server_keep_their_text(path: str, options: dict[str, Any], message: str) -> None:
    async def work(manager: MCPClientManager) -> None:
        raise AssertionError("connected")

    with http_shop(over_sse=True) as (url, _), pytest.raises(TargetError, match=message):
        use({"shop": {"url": f"{url}{path}", **options}}, work)


def test_a_server_is_connected_closed_and_reconnected() -> None:
    async def work(manager: MCPClientManager) -> None:
        assert manager.get_connection_status("shop") == "disconnected"
        await manager.connect_to_server("shop")
        assert manager.get_connection_status("shop") == "connected" and await manager.ping_server("shop")
        with pytest.raises(TargetError, match="connected already"):
            await manager.connect_to_server("shop")
        await manager.disconnect_server("shop")
        await manager.disconnect_server("shop")
        assert manager.get_connection_status("shop") == "disconnected"
        assert await manager.list_tools("shop"), "used again, connected again"
        await manager.connect_to_server("more", shop("more"))
        assert manager.list_servers() == ["shop", "more"]
        await manager.remove_server("more")
        assert manager.list_servers() == ["shop"]

    use({"shop": shop()}, work, lazy_connect=True)


def test_a_server_that_could_not_be_reached_is_connected_by_its_new_settings() -> None:
    async def work(manager: MCPClientManager) -> None:
        with pytest.raises(TargetError, match="shop"):
            await manager.connect_to_server("shop")
        await manager.connect_to_server("shop", shop())
        assert manager.get_connection_status("shop") == "connected" and await manager.list_tools("shop")

    use({"shop": {"url": "http://127.0.0.1:9/mcp"}}, work, lazy_connect=True)


@pytest.mark.in_turn
@pytest.mark.timeout(60)
def test_a_dead_child_process_is_reported_and_restarted() -> None:
    async def work(manager: MCPClientManager) -> None:
        assert await manager.ping_server("shop")
        with pytest.raises(TargetError, match="die on MCP server 'shop'"):
            await manager.execute_tool("shop", "die")
        assert manager.get_connection_status("shop") == "disconnected"
        assert await manager.ping_server("shop")

    use({"shop": {"command": sys.executable, "args": ["-m", "tests.targets.shop_server"], "cwd": ROOT, "timeout": 20_000}}, work)


def test_settings_use_the_given_name() -> None:
    async def work(manager: MCPClientManager) -> None:
        assert {tool.server for tool in await manager.get_tools()} == {"mine"}

    use({"mine": bare_shop()}, work)


def test_a_server_over_http_gets_token_and_headers() -> None:
    with http_shop() as (url, gate):
        entry = {"url": f"{url}/mcp", "accessToken": "sesame-123", "requestInit": {"headers": {"x-team": "a"}}}

        async def work(manager: MCPClientManager) -> None:
            assert "sesame" not in repr(manager.get_server_summaries())
            assert await manager.ping_server("shop")

        use({"shop": entry}, work)
    assert all(seen["authorization"] == "Bearer sesame-123" and seen["x-team"] == "a" for seen in gate.seen)


def test_servers_that_cannot_be_reached_are_all_named() -> None:
    async def work(manager: MCPClientManager) -> None:
        raise AssertionError("never entered")

    with pytest.raises(TargetError) as caught:
        use({"one": {"command": "no-such-program-1"}, "two": {"command": "no-such-program-2"}, "fine": shop()}, work)
    assert "'one'" in str(caught.value) and "'two'" in str(caught.value)
    with pytest.raises(TargetError, match="'one'"):
        use({"one": {"command": "no-such-program-1"}, "fine": shop()}, work)


@pytest.mark.parametrize("entry", [{}, {"command": 5}, {"url": "ftp://x"}, {"server": None}, {"server": object(), "colour": 1}])
def test_settings_that_cannot_work_are_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        MCPClientManager({"bad": entry})
