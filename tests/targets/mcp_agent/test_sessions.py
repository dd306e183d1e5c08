"""A session per attempt: no attempt sees another's changes in a server, and no process is left."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from proctor.cassettes.ports import LIVE
from proctor.errors import SpecError
from proctor.llm.ports import ChatReply, ChatRequest
from proctor.model.case import Case
from proctor.model.evidence import Evidence
from proctor.targets.mcp.agent import McpAgent
from proctor.targets.mcp.servers import MOST_LEAVING, McpServers
from proctor.targets.mcp.settings import ServerSettings, read_servers
from tests.targets.mcp_twins import ROOT, attempt, calls, children, run


def cart(id: str = "cart", *more: str, **settings: Any) -> ServerSettings:
    return ServerSettings(id=id, command=sys.executable, args=("-S", "-m", "tests.targets.bare_cart", *more), cwd=ROOT, **settings)


class Shopper:
    """A model that adds the requested item, reads the cart and returns its content."""

    provider, name = "scripted", "shopper"

    async def complete(self, request: ChatRequest) -> ChatReply:
        results = [message.text for message in request.messages if message.role == "tool"]
        if not results:
            return calls(("add", {"item": request.messages[0].text}))
        return calls(("show", {})) if len(results) == 1 else ChatReply(text=results[-1])

    async def close(self) -> None:
        pass


def agent(*servers: ServerSettings, model: Any = None, **settings: Any) -> McpAgent:
    return McpAgent("agent", servers=McpServers(servers, waits_s=(), **settings), model_for=lambda _tape: model or Shopper())


async def shop(target: McpAgent, item: str, **more: Any) -> Evidence:
    return await target.run(attempt(Case(id=item, input=item), **more), LIVE)


async def shop_together(target: McpAgent, items: str) -> list[Evidence]:
    await target.open()
    try:
        return await asyncio.gather(*(shop(target, item) for item in items))
    finally:
        await target.close()


def carts(found: list[Evidence]) -> list[str]:
    return [(evidence.tool_calls or ())[1].result["content"][0]["text"] for evidence in found]


def test_concurrent_attempts_have_their_own_carts() -> None:
    assert carts(run(shop_together(agent(cart()), "abcdef"))) == list("abcdef")


def test_attempts_can_share_a_session() -> None:
    found = carts(run(shop_together(agent(cart(session="shared")), "abc")))
    assert sorted(found[-1].split(", ")) == ["a", "b", "c"]


def test_sharing_is_set_per_server() -> None:
    async def work() -> list[list[str]]:
        target = agent(cart("own"), cart("all", session="shared"))
        async with target._servers as servers:
            seen: list[list[str]] = []
            for _ in range(2):
                async with servers.open_session() as session:
                    answers = [await session.call_tool(server, "pid", {}) for server in ("own", "own", "all")]
                    seen.append([answer.result["content"][0]["text"] for answer in answers])
            return seen

    (first, again, shared), (other, _, shared_too) = run(work())
    assert first == again != other and shared == shared_too


def test_the_first_attempt_uses_the_opened_session_and_tools_are_listed_once() -> None:
    async def work() -> tuple[set[int], set[int]]:
        target = agent(cart())
        await target.open()
        opened = children()
        async with target._servers.open_session() as session:
            await session.get_listing("cart")
            pid = (await session.call_tool("cart", "pid", {})).result["content"][0]["text"]
            during = children()
            assert {int(pid)} <= opened
        # The next one can list tools although no attempt is connected.
        async with target._servers.open_session() as session:
            assert [tool.name for tool in (await session.get_listing("cart")).tools] == ["add", "show", "pid", "hang", "half"]
        await target.close()
        return opened, during

    opened, during = run(work())
    assert opened == during


def test_an_attempt_without_calls_starts_no_server() -> None:
    class Silent(Shopper):
        async def complete(self, request: ChatRequest) -> ChatReply:
            return ChatReply(text="no need")

    async def work() -> None:
        target = agent(cart(), model=Silent())
        await target.open()
        before = children()
        for item in "abc":
            assert (await shop(target, item)).text == "no need"
        assert children() == before
        await target.close()

    run(work())


def test_a_session_closes_in_the_background_and_close_waits_for_it() -> None:
    async def work() -> float:
        target = agent(cart("cart", "slow"))
        await target.open()
        started = time.perf_counter()
        await shop(target, "a")
        took = time.perf_counter() - started
        await target.close()
        return took

    assert run(work()) < 0.5, "an attempt does not wait until its server has ended"


@pytest.mark.timeout(60)
def test_closing_sessions_are_limited() -> None:
    async def work() -> int:
        target = agent(cart())
        await target.open()
        most = 0
        for number in range(MOST_LEAVING + 4):
            await shop(target, str(number))
            most = max(most, len(target._servers._leaving))
        await target.close()
        return most

    assert run(work()) <= MOST_LEAVING


@pytest.mark.parametrize("when", [0.0, 0.05, 0.3])
def test_a_cancelled_attempt_leaves_no_process(when: float) -> None:
    class Stuck(Shopper):
        async def complete(self, request: ChatRequest) -> ChatReply:
            return calls(("hang", {}))

    async def work() -> None:
        target = agent(cart(), model=Stuck())
        await target.open()
        tasks = [asyncio.create_task(shop(target, item)) for item in "abc"]
        await asyncio.wait(tasks, timeout=when)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await target.close()

    run(work())


def test_a_timed_out_attempt_keeps_its_evidence_and_ends_its_process() -> None:
    class Stuck(Shopper):
        async def complete(self, request: ChatRequest) -> ChatReply:
            return calls(("add", {"item": "tea"})) if len(request.messages) == 1 else calls(("hang", {}))

    async def work() -> Evidence:
        target = agent(cart(), model=Stuck())
        await target.open()
        try:
            return await shop(target, "a", timeout_s=1.0)
        finally:
            await target.close()

    evidence = run(work())
    assert evidence.metadata["code"] == "timeout" and (evidence.tool_calls or ())[0].name == "add"


def test_a_server_that_cannot_restart_aborts_the_attempt(tmp_path: Path) -> None:
    script = tmp_path / "cart.py"
    script.write_text((Path(ROOT) / "tests/targets/bare_cart.py").read_text())

    async def work() -> list[Evidence]:
        target = agent(ServerSettings(id="cart", command=sys.executable, args=("-S", str(script))))
        await target.open()
        first = await shop(target, "a")
        script.write_text("raise SystemExit('closed for today')")
        second = await shop(target, "b")
        await target.close()
        return [first, second]

    first, second = run(work())
    assert first.error is None
    assert second.metadata["code"] == "server_gone" and "closed for today" in str(second.error)


def test_an_unknown_session_setting_is_refused() -> None:
    with pytest.raises(SpecError) as caught:
        read_servers([{"id": "a", "command": "b", "session": "case"}])
    assert caught.value.field == "servers.0.session"
    assert read_servers([{"id": "a", "command": "b", "session": "shared"}])[0].session == "shared"
