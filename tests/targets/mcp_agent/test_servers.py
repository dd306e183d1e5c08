"""Connecting to MCP servers: four transports, two eras, and every way in which a server can fail."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proctor.errors import TargetError
from proctor.targets.mcp import stdio as mcp_stdio
from proctor.targets.mcp.connection import Connection
from proctor.targets.mcp.results import Listing, RemoteTool
from proctor.targets.mcp.servers import LONGEST_NAME, McpServers, name_tools
from proctor.targets.mcp.settings import ApiKey, Bearer, ClientCredentials, ServerFault, ServerSettings
from tests.targets.mcp_twins import bare_shop, children, http_shop, local_shop, run, stdio_shop

VERSIONS = {"auto": "2026-07-28", "handshake": "2025-11-25", "stateless": "2026-07-28"}


async def ask(settings: ServerSettings) -> tuple[Any, Any, Any]:
    async with McpServers([settings], waits_s=()) as servers:
        listing = await servers.get_listing(settings.id)
        good = await servers.call_tool(settings.id, "lookup_order", {"id": 17}, request_id="req-9")
        bad = await servers.call_tool(settings.id, "lookup_order", {"id": 1})
        return listing, good, bad


def check_answers(listing: Any, good: Any, bad: Any, era: str) -> None:
    assert (listing.name, listing.version, listing.protocol) == ("shop", "1.4.2", VERSIONS[era])
    assert listing.tools[0].name == "lookup_order"
    assert listing.tools[0].schema["properties"]["id"]["type"] == "integer"
    assert good.error is None
    assert good.result["structuredContent"] == {"id": 17, "total": 9.5, "status": "shipped"}
    assert good.result["isError"] is False and "_meta" not in good.result
    assert bad.error is None and bad.result["isError"] is True
    assert "no order 1" in bad.result["content"][0]["text"]


@pytest.mark.parametrize("era", ["auto", "handshake", "stateless"])
def test_a_server_in_this_process_answers_in_both_eras(era: Any) -> None:
    check_answers(*run(ask(local_shop(era=era))), era)


@pytest.mark.parametrize("era", ["auto", "handshake"])
@pytest.mark.timeout(60)
def test_a_server_over_stdio_answers_in_both_eras(era: Any) -> None:
    check_answers(*run(ask(stdio_shop(era=era))), era)


def test_an_old_server_answers_over_server_sent_events() -> None:
    with http_shop(over_sse=True) as (url, gate):
        gate.accepted = {"Bearer t-12345"}
        check_answers(*run(ask(ServerSettings(id="shop", transport="sse", url=f"{url}/sse", auth=Bearer(token="t-12345")))), "handshake")
        assert [seen.get("x-request-id") for seen in gate.seen if "x-request-id" in seen] == ["req-9"]


@pytest.mark.parametrize("era", ["auto", "handshake"])
def test_a_server_over_http_answers_in_both_eras(era: Any) -> None:
    with http_shop() as (url, gate):
        check_answers(*run(ask(ServerSettings(id="shop", transport="http", url=f"{url}/mcp", era=era))), era)
        assert [seen.get("x-request-id") for seen in gate.seen if "x-request-id" in seen] == ["req-9"]


def test_servers_connect_concurrently() -> None:
    from mcp.server import Server

    async def main() -> None:
        all_there = asyncio.Barrier(3)

        @asynccontextmanager
        async def lifespan(_server: Any) -> AsyncIterator[None]:
            await all_there.wait()
            yield

        servers = [ServerSettings(id=f"s{number}", transport="in_process", server=Server("s", lifespan=lifespan)) for number in range(3)]
        async with McpServers(servers) as connected:
            assert connected.ids == ("s0", "s1", "s2")

    run(main())


class Paged:
    """A server whose tools come one per page."""

    def __init__(self, pages: int) -> None:
        from mcp.server import Server
        from mcp_types import ListToolsResult, Tool

        async def list_tools(_context: Any, params: Any) -> ListToolsResult:
            page = int(params.cursor) if params is not None and params.cursor else 0
            following = str((page + 1) % 7) if pages > 7 else str(page + 1) if page + 1 < pages else None
            return ListToolsResult(tools=[Tool(name=f"tool_{page}", input_schema={"type": "object"})], next_cursor=following)

        self.server: Any = Server("paged", on_list_tools=list_tools)


def test_all_pages_of_tools_are_listed() -> None:
    async def main() -> Any:
        async with McpServers([ServerSettings(id="p", transport="in_process", server=Paged(5).server)]) as servers:
            return await servers.get_listing("p")

    assert [tool.name for tool in run(main()).tools] == [f"tool_{number}" for number in range(5)]


def test_circular_pages_end() -> None:
    async def main() -> Any:
        async with McpServers([ServerSettings(id="p", transport="in_process", server=Paged(99).server)]) as servers:
            return await servers.get_listing("p")

    assert 7 <= len(run(main()).tools) <= 8


def fault_of(*settings: ServerSettings, waits_s: tuple[float, ...] = ()) -> TargetError:
    async def main() -> TargetError:
        with pytest.raises(TargetError) as caught:
            await McpServers(settings, waits_s=waits_s).open()
        return caught.value

    return run(main())


def python(code: str, **more: Any) -> ServerSettings:
    return ServerSettings(id="mine", command=sys.executable, args=("-c", code), **more)


def test_a_server_that_exits_at_once_is_reported_with_its_standard_error() -> None:
    fault = fault_of(python("import sys; print('starting', file=sys.stderr); sys.exit('no config file')"))
    assert isinstance(fault, ServerFault) and fault.code == "server_exited"
    assert "MCP server 'mine'" in str(fault) and "exit code 1" in str(fault)
    assert str(fault).endswith("starting\nno config file")


def test_a_server_that_exits_is_retried(tmp_path: Any) -> None:
    log = tmp_path / "starts"
    fault_of(python(f"open({str(log)!r}, 'a').write('x')"), waits_s=(0.01, 0.01, 0.01))
    assert log.read_text() == "xxxx"


def test_a_server_that_comes_up_late_is_reached_by_a_retry(tmp_path: Any) -> None:
    mark = tmp_path / "started"
    code = (
        f"import os, runpy, sys\nif not os.path.exists({str(mark)!r}):\n    open({str(mark)!r}, 'w'); sys.exit('too early')\n"
        "runpy.run_module('tests.targets.bare_server', run_name='__main__')"
    )
    settings = ServerSettings(id="shop", command=sys.executable, args=("-c", code), cwd=bare_shop().cwd)

    async def main() -> Any:
        async with McpServers([settings], waits_s=(0.01,)) as servers:
            return await servers.get_listing("shop")

    assert run(main()).name == "bare"


def test_a_server_killed_by_a_signal_names_it() -> None:
    assert "by signal 9" in str(fault_of(python("import os; os.kill(os.getpid(), 9)")))


def test_a_server_that_never_answers_is_a_timeout_without_a_retry() -> None:
    started = time.monotonic()
    fault = fault_of(python("print('Welcome!', flush=True)\nfor _ in open(0): pass", timeout_s=0.3), waits_s=(60.0,))
    assert isinstance(fault, ServerFault) and fault.code == "timeout"
    assert "did not answer within 0.3 s" in str(fault) and "Welcome!" in str(fault)
    assert time.monotonic() - started < 30


def test_a_missing_command_fails_at_once() -> None:
    fault = fault_of(ServerSettings(id="mine", command="no-such-program-anywhere"), waits_s=(60.0,))
    assert isinstance(fault, ServerFault) and fault.code == "command_not_found"
    assert "no-such-program-anywhere" in str(fault) and "No such file" in str(fault)


def test_every_failing_server_is_named_and_the_others_are_closed() -> None:
    fault = fault_of(bare_shop(), python("raise SystemExit(4)"), ServerSettings(id="gone", command="no-such-program-anywhere"))
    assert "'mine'" in str(fault) and "'gone'" in str(fault) and "'shop'" not in str(fault)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (ServerSettings(id="a"), "needs 'command'"),
        (ServerSettings(id="a", transport="http", url="ftp://user:pw@host/x?key=1"), "found 'ftp://host/x'"),
        (ServerSettings(id="a", transport="in_process"), "needs the server object"),
    ],
)
def test_incomplete_settings_are_refused(settings: ServerSettings, words: str) -> None:
    assert words in str(fault_of(settings))


def test_a_closed_port_is_unreachable() -> None:
    with http_shop() as (url, _):
        pass
    fault = fault_of(ServerSettings(id="mine", transport="http", url=f"{url}/mcp?key=hush"))
    assert isinstance(fault, ServerFault) and fault.code == "unreachable"
    assert f"{url}/mcp" in str(fault) and "hush" not in str(fault)


def test_requiring_the_stateless_era_refuses_an_older_server() -> None:
    fault = fault_of(bare_shop(era="stateless"))
    assert isinstance(fault, ServerFault) and fault.code == "protocol" and "speaks protocol 2025-11-25" in str(fault)


def test_a_server_of_the_handshake_era_is_detected() -> None:
    async def main() -> Any:
        async with McpServers([bare_shop()]) as servers:
            return await servers.get_listing("shop")

    listing = run(main())
    assert (listing.name, listing.version, listing.protocol) == ("bare", "0.9", "2025-11-25")


def test_a_hanging_tool_is_a_failed_call_and_the_server_continues() -> None:
    async def main() -> tuple[Any, Any]:
        async with McpServers([bare_shop()]) as servers:
            listing_first = await servers.get_listing("shop")
            assert listing_first.tools
            connection = servers.get_connection("shop")
            usual, connection.settings = connection.settings, bare_shop(timeout_s=0.2)
            hung = await servers.call_tool("shop", "hang", {})
            connection.settings = usual  # a busy machine may take longer to respond
            return hung, await servers.call_tool("shop", "search", {"query": "tea", "limit": 1})

    hung, fine = run(main())
    assert hung.error == "timed out after 0.2 s" and not hung.gone
    assert fine.result["content"][0]["text"].startswith("found")


@pytest.mark.parametrize("code", [-32000, -32001, -32600, -32603, 17])
def test_a_server_error_is_reported_with_its_message(code: int) -> None:
    async def main() -> tuple[Any, Any]:
        async with McpServers([bare_shop()]) as servers:
            refused = await servers.call_tool("shop", "refuse", {"code": code, "message": "not before noon"})
            return refused, await servers.call_tool("shop", "search", {"query": "tea"})

    refused, fine = run(main())
    assert (refused.error, refused.gone) == ("not before noon", False)
    assert fine.error is None, "the server is still there"


def test_a_result_without_content_has_none() -> None:
    async def main() -> Any:
        async with McpServers([bare_shop()]) as servers:
            return await servers.call_tool("shop", "structured", {})

    assert run(main()).result == {"content": [], "structuredContent": {"status": "shipped"}}


def test_a_server_that_dies_in_a_call_is_restarted_on_demand() -> None:
    async def main() -> None:
        async with McpServers([bare_shop()]) as servers:
            died = await servers.call_tool("shop", "die", {})
            assert died.gone and "ended with exit code 3" in str(died.error) and "the shop is open" in str(died.error)
            again = await servers.call_tool("shop", "search", {"query": "tea"})
            assert again.gone
            await servers.get_listing("shop")
            assert (await servers.call_tool("shop", "search", {"query": "tea"})).error is None

    run(main())


def test_an_http_server_that_stops_is_unavailable() -> None:
    async def main() -> Any:
        settings = None
        with http_shop() as (url, _):
            settings = ServerSettings(id="shop", transport="http", url=f"{url}/mcp")
            servers = McpServers([settings], waits_s=())
            await servers.open()
        try:
            return await servers.call_tool("shop", "search", {"query": "tea"})
        finally:
            await servers.close()

    lost = run(main())
    assert lost.gone and "'shop'" in lost.error


@pytest.mark.in_turn
@pytest.mark.timeout(60)
def test_fifty_megabytes_are_cut_visibly() -> None:
    async def main() -> Any:
        async with McpServers([stdio_shop()]) as servers:
            return await servers.call_tool("shop", "flood", {"megabytes": 50})

    text = run(main()).result["content"][0]["text"]
    assert len(text) < 101_000
    assert "49,900,000 of 50,000,000 characters cut by proctor" in text


def test_megabytes_over_http_are_cut_visibly() -> None:
    async def main(url: str) -> Any:
        async with McpServers([ServerSettings(id="shop", transport="http", url=url)]) as servers:
            return await servers.call_tool("shop", "flood", {"megabytes": 8})

    with http_shop() as (url, _):
        text = run(main(f"{url}/mcp")).result["content"][0]["text"]
    assert "7,900,000 of 8,000,000 characters cut by proctor" in text


@pytest.mark.parametrize("moment", [0.0, 0.05, 0.4])
def test_cancelling_while_connecting_leaves_no_child(moment: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_stdio, "GRACE_S", 0.3)

    async def main() -> None:
        task = asyncio.create_task(McpServers([bare_shop(), python("import time; time.sleep(60)")]).open())
        await asyncio.sleep(moment)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())


def test_cancelling_while_closing_still_ends_the_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_stdio, "GRACE_S", 0.3)
    stubborn = python(
        "import signal, sys, json\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "import runpy; runpy.run_module('tests.targets.bare_server', run_name='__main__')"
    )

    async def main() -> None:
        servers = McpServers([ServerSettings(id="s", command=stubborn.command, args=stubborn.args, cwd=bare_shop().cwd)])
        await servers.open()
        task = asyncio.create_task(servers.close())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())


def test_a_server_that_ignores_every_request_to_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_stdio, "GRACE_S", 0.3)
    code = "import signal, time, sys\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(1)"
    assert "did not answer" in str(fault_of(python(code, timeout_s=0.5)))


def test_children_of_a_server_end_with_it(tmp_path: Any) -> None:
    note = tmp_path / "pid"
    code = (
        f"import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\nsys.exit('left a child running')"
    )
    fault_of(python(code))
    pid = int(note.read_text())
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "Z":
                    return
        except OSError:
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} is still there: {children()}")


def test_secrets_are_never_shown() -> None:
    secret = "hunter2-hunter2"
    settings = bare_shop(env={"SHOP_TOKEN": secret, "SHOP_NAME": "corner shop"})

    async def main() -> Any:
        async with McpServers([settings]) as servers:
            return [await servers.call_tool("shop", "environment", {"name": name}) for name in ("SHOP_TOKEN", "SHOP_NAME")]

    hidden, shown = run(main())
    assert hidden.result["content"][0]["text"] == "SHOP_TOKEN=***"
    assert shown.result["content"][0]["text"] == "SHOP_NAME=corner shop"
    loud = python("import os, sys; sys.exit('bad token ' + os.environ['SHOP_TOKEN'])", env={"SHOP_TOKEN": secret})
    assert "bad token ***" in str(fault_of(loud)) and secret not in str(fault_of(loud))
    for value in (
        Bearer(token=secret),
        ApiKey(value=secret),
        ClientCredentials(token_url="http://h/t", client_id="c", client_secret=secret),
    ):
        holder = ServerSettings(id="a", transport="http", url="http://h/", auth=value, headers={"Authorization": f"Bearer {secret}"})
        assert secret not in repr(value) + repr(holder) and secret in holder.list_secrets()


def test_a_child_process_does_not_inherit_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "do-not-pass-on")

    async def main() -> Any:
        async with McpServers([bare_shop()]) as servers:
            return await servers.call_tool("shop", "environment", {"name": "OPENAI_API_KEY"})

    assert run(main()).result["content"][0]["text"] == "OPENAI_API_KEY="


def listing(server: str, *names: str) -> Listing:
    return Listing(server=server, tools=tuple(RemoteTool(name=name) for name in names))


def test_tools_of_the_same_name_are_offered_with_their_server() -> None:
    tools = name_tools([listing("eu", "lookup", "refund"), listing("us", "lookup")])
    assert [(tool.name, tool.server, tool.tool) for tool in tools] == [
        ("eu__lookup", "eu", "lookup"),
        ("refund", "eu", "refund"),
        ("us__lookup", "us", "lookup"),
    ]


def test_offered_names_are_unique_and_accepted_by_providers() -> None:
    long = "n" * 80
    tools = name_tools([listing("a", "files.read", "files/read", long, "a__x", "x"), listing("b", "x", long + "m")])
    names = [tool.name for tool in tools]
    assert len(set(names)) == len(names)
    assert all(len(name) <= LONGEST_NAME and name.replace("_", "").replace("-", "").isalnum() for name in names)
    assert names[:2] == ["files_read", "files_read_2"]


def test_duplicate_and_unknown_server_ids_are_refused() -> None:
    with pytest.raises(TargetError, match="the id 'shop'"):
        McpServers([local_shop(), local_shop()])

    async def main() -> None:
        with pytest.raises(TargetError, match="'shp'; nearest: 'shop'"):
            await McpServers([local_shop()]).get_listing("shp")

    run(main())


def test_a_connection_can_be_closed_twice_and_before_opening() -> None:
    async def main() -> None:
        connection = Connection(local_shop())
        await connection.close()
        await connection.get_listing()
        await connection.close()
        await connection.close()
        assert (await connection.call("search", {"query": "x"})).gone

    run(main())
