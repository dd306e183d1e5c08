"""The behaviour that every target guarantees, tested for each of them.

The runner relies only on these: evidence for the requested case, turns in order, attempts that do not mix, time limits, and no leaked
connections or tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.cassettes.ports import LIVE
from proctor.errors import TargetError
from proctor.llm.ports import ChatReply, ChatRequest
from proctor.model.attempt import Attempt
from proctor.model.evidence import Evidence, UserEnding
from proctor.runner.ports import Target
from proctor.targets.build import build_target
from proctor.targets.shared.faults import TargetFault
from tests.targets.loopback import Player, ReceivedRequest, Recorder, Reply, Server, attempt, serve
from tests.users.talks import case_with, speaker_of

HANG = "hang"
"""The message that no agent answers."""


async def hung() -> None:
    await asyncio.Event().wait()


async def agent_over_http(request: ReceivedRequest) -> Reply:
    if HANG in request.json["input"]:
        await hung()
    return Reply(body={"text": f"re {request.json['input']}"})


async def flowise(request: ReceivedRequest) -> Reply:
    question = request.json["question"]
    if HANG in question:
        await hung()
    return Reply(
        body={"text": f"re {question}", "question": question, "chatId": request.json["overrideConfig"]["sessionId"], "usedTools": []}
    )


class N8n:
    """Stores an execution for every trigger."""

    def __init__(self) -> None:
        self.executions: list[dict[str, Any]] = []

    async def __call__(self, request: ReceivedRequest) -> Reply:
        if request.method == "GET":
            return Reply(body={"data": self.executions})
        text = request.json["chatInput"]
        if HANG in text:
            await hung()
        received = [{"source": [], "data": {"main": [[{"json": {"headers": request.headers, "body": request.json}}]]}}]
        answered = [{"source": [{"previousNode": "Webhook"}], "data": {"main": [[{"json": {"output": f"re {text}"}}]]}}]
        run_data = {"Webhook": received, "Agent": answered}
        done = {
            "id": len(self.executions),
            "finished": True,
            "workflowId": "w",
            "startedAt": "2026-11-15T00:00:00Z",
            "data": {"resultData": {"runData": run_data}},
        }
        self.executions.insert(0, done)
        return Reply(body={"output": f"re {text}"})


async def function(message: str) -> str:
    if HANG in message:
        await hung()
    return f"re {message}"


@contextlib.asynccontextmanager
async def http_target() -> AsyncIterator[tuple[Target, Server | None]]:
    async with serve(agent_over_http) as server:
        yield build_target("it", {"type": "http", "url": server.url}), server


@contextlib.asynccontextmanager
async def flowise_target() -> AsyncIterator[tuple[Target, Server | None]]:
    async with serve(flowise) as server:
        yield build_target("it", {"type": "flowise", "url": server.url, "flow": "f"}), server


@contextlib.asynccontextmanager
async def n8n_target() -> AsyncIterator[tuple[Target, Server | None]]:
    async with serve(N8n()) as server:
        settings = {"type": "n8n", "webhook": f"{server.url}/webhook/x", "api": server.url, "api_key": "n8n-key", "poll_every_s": 0}
        yield build_target("it", settings), server


@contextlib.asynccontextmanager
async def callable_target() -> AsyncIterator[tuple[Target, Server | None]]:
    yield build_target("it", {"type": "callable", "function": f"{__name__}:function"}), None


@contextlib.asynccontextmanager
async def command_target() -> AsyncIterator[tuple[Target, Server | None]]:
    script = f'text=$(cat); case "$text" in *{HANG}*) sleep 1000;; esac; printf "re %s" "$text"'
    yield build_target("it", {"type": "command", "command": ["sh", "-c", script]}), None


class Model:
    """Repeats the last message of the user."""

    provider = "scripted"
    name = "parrot"

    async def complete(self, request: ChatRequest) -> ChatReply:
        text = request.messages[-1].text
        if HANG in text:
            await hung()
        return ChatReply(text=f"re {text}")

    async def close(self) -> None:
        pass


@contextlib.asynccontextmanager
async def mcp_target() -> AsyncIterator[tuple[Target, Server | None]]:
    from proctor.targets.mcp.agent import McpAgent  # loading `mcp` is slow
    from proctor.targets.mcp.servers import McpServers
    from tests.targets.mcp_twins import local_shop

    yield McpAgent("it", servers=McpServers([local_shop()]), model_for=lambda tape: Model()), None


MAKERS: dict[str, Callable[[], contextlib.AbstractAsyncContextManager[tuple[Target, Server | None]]]] = {
    "http": http_target,
    "flowise": flowise_target,
    "n8n": n8n_target,
    "callable": callable_target,
    "command": command_target,
    "mcp_agent": mcp_target,
}

every_live_target = pytest.mark.parametrize("kind", MAKERS)


def on(kind: str, work: Callable[[Target, Server | None], Awaitable[Any]]) -> Any:
    """Do something with an open target; afterwards no task and no connection may be left."""

    async def main() -> Any:
        async with MAKERS[kind]() as (target, server):
            await target.open()
            try:
                result = await work(target, server)
            finally:
                await target.close()
            # Tasks that finish by themselves get the time to; those that wait forever do not.
            for _ in range(200):
                if len(asyncio.all_tasks()) == 1 and not (server and server.open_connections):
                    break
                await asyncio.sleep(0.005)
            assert not server or server.open_connections == 0, "a connection was left open"
            assert asyncio.all_tasks() == {asyncio.current_task()}, "a task is still running"
            return result

    return asyncio.run(main())


@every_live_target
def test_a_target_has_the_name_it_was_given(kind: str) -> None:
    async def work(target: Target, server: Server | None) -> str:
        return target.name

    assert on(kind, work) == "it"


@every_live_target
def test_one_message_is_evidence_of_the_case(kind: str) -> None:
    async def work(target: Target, server: Server | None) -> Evidence:
        return await target.run(attempt("hello"), LIVE)

    evidence = on(kind, work)
    assert (evidence.case, evidence.input, evidence.text) == ("case-1", "hello", "re hello")
    assert evidence.turns is None or len(evidence.turns) == 1
    assert evidence.duration_ms is not None and evidence.duration_ms >= 0
    if kind != "mcp_agent":  # this target sends its ids nowhere
        assert (evidence.metadata["request_id"], evidence.metadata["session_id"]) == ("request-a-0001", "session-a-0001")


@every_live_target
def test_turns_are_in_order_in_the_evidence(kind: str) -> None:
    async def work(target: Target, server: Server | None) -> Evidence:
        return await target.run(attempt("one", "two", "three"), LIVE)

    evidence = on(kind, work)
    assert [(turn.input, turn.text) for turn in evidence.turns] == [(m, f"re {m}") for m in ("one", "two", "three")]
    assert all(turn.duration_ms is not None for turn in evidence.turns)
    assert evidence.text == "re three"


def with_user(*lines: str, timeout_s: float = 30.0, **user: Any) -> Attempt:
    """An attempt whose messages come from a scripted user."""
    case = case_with({"script": list(lines), **user})
    go = attempt("unused", timeout_s=timeout_s)
    return msgspec.structs.replace(go, case=case, speaker=speaker_of(case))


@every_live_target
def test_a_simulated_user_talks_until_its_ending_is_met(kind: str) -> None:
    async def work(target: Target, server: Server | None) -> Evidence:
        return await target.run(with_user("one", "two", "three", stop_when={"response_contains": "re two"}), LIVE)

    evidence = on(kind, work)
    assert [(turn.input, turn.text) for turn in evidence.turns] == [("one", "re one"), ("two", "re two")]
    assert (evidence.simulated_user.ended, evidence.simulated_user.turns) == ("done", 2)
    assert "the user was simulated (script): done after 2 turns" in evidence.account.notes
    if kind != "mcp_agent":
        assert [turn.metadata["request_id"] for turn in evidence.turns] == ["request-a-0001-1", "request-a-0001-2"]


@every_live_target
def test_a_conversation_of_one_turn_is_recorded_as_a_conversation(kind: str) -> None:
    async def work(target: Target, server: Server | None) -> Evidence:
        return await target.run(with_user("one"), LIVE)

    evidence = on(kind, work)
    assert [(turn.input, turn.text) for turn in evidence.turns] == [("one", "re one")]
    assert evidence.simulated_user.ended == "gave_up"


@every_live_target
def test_a_failing_user_is_a_fault_that_keeps_earlier_turns(kind: str) -> None:
    class Lost:
        def __init__(self) -> None:
            self.lines = iter(["one"])

        async def say_next(self, answer: Evidence | None) -> str | None:
            line = next(self.lines, None)
            if line is None:
                raise TargetError("no idea", code="bad_user_reply")
            return line

        def describe_ending(self) -> UserEnding:
            return UserEnding(played_by="scripted", turns=1)

    async def work(target: Target, server: Server | None) -> TargetFault:
        with pytest.raises(TargetFault) as caught:
            await target.run(msgspec.structs.replace(attempt("unused"), speaker=Lost()), LIVE)
        return caught.value

    fault = on(kind, work)
    assert (fault.code, fault.message, fault.safe) == ("bad_user_reply", "no idea", False)
    assert [turn.text for turn in fault.evidence.turns] == ["re one"]
    # Rechecked later, the run is still incomplete.
    assert (fault.evidence.error, fault.evidence.metadata["code"]) == ("no idea", "bad_user_reply")
    assert fault.evidence.simulated_user.ended is None


@every_live_target
def test_a_hanging_conversation_ends_at_its_time_limit(kind: str) -> None:
    async def work(target: Target, server: Server | None) -> Evidence:
        try:
            return await target.run(with_user("one", HANG, timeout_s=0.5), LIVE)
        except TargetFault as fault:
            assert fault.evidence is not None and fault.code == "timeout"
            return fault.evidence

    evidence = on(kind, work)
    assert evidence.error is not None and evidence.metadata["code"] == "timeout"
    assert evidence.simulated_user.ended is None


@every_live_target
def test_concurrent_attempts_do_not_mix(kind: str) -> None:
    async def work(target: Target, server: Server | None) -> list[Evidence]:
        goes = [attempt(f"m{n}", marker=f"{n:04}", id=f"case-{n}") for n in range(20)]
        return await asyncio.gather(*(target.run(go, LIVE) for go in goes))

    found = on(kind, work)
    assert [(evidence.case, evidence.text) for evidence in found] == [(f"case-{n}", f"re m{n}") for n in range(20)]


@every_live_target
def test_an_attempt_ends_at_its_time_limit_and_keeps_earlier_turns(kind: str) -> None:
    async def work(target: Target, server: Server | None) -> tuple[str, Evidence]:
        go = attempt("one", HANG, timeout_s=0.5)
        code: str
        try:
            evidence = await target.run(go, LIVE)
        except TargetFault as fault:
            assert fault.evidence is not None and "0.5 s" in fault.message
            code, evidence = fault.code, fault.evidence
        else:  # the agent loop is ours, so it observes being cut short
            assert evidence.error is not None
            code = evidence.metadata["code"]
        assert (await target.run(attempt("again"), LIVE)).text == "re again", "the target is as good as before"
        return code, evidence

    code, evidence = on(kind, work)
    assert code == "timeout"
    assert evidence.turns[0].text == "re one" and not any(turn.text for turn in evidence.turns[1:])


@every_live_target
def test_a_cancelled_attempt_leaves_no_connection(kind: str) -> None:
    async def work(target: Target, server: Server | None) -> None:
        task = asyncio.create_task(target.run(attempt(HANG), LIVE))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    on(kind, work)


@every_live_target
def test_a_target_can_be_opened_and_closed_repeatedly(kind: str) -> None:
    async def work(target: Target, server: Server | None) -> str | None:
        await target.open()
        await target.close()
        await target.close()
        await target.open()
        return (await target.run(attempt("hi"), LIVE)).text

    assert on(kind, work) == "re hi"


@every_live_target
def test_a_case_without_a_message_is_refused(kind: str) -> None:
    async def work(target: Target, server: Server | None) -> None:
        with pytest.raises(TargetError, match=r"'case-1' has (no input|neither input nor turns)"):
            await target.run(attempt(), LIVE)

    on(kind, work)


@pytest.mark.parametrize("kind", ["http", "flowise", "n8n"])
def test_a_replay_equals_the_recording_and_sends_nothing(kind: str) -> None:
    async def work(target: Target, server: Server | None) -> tuple[Evidence, Evidence]:
        assert server is not None
        tape = Recorder()
        go: Attempt = attempt("one", "two")
        recorded = await target.run(go, tape)
        sent = len(server.requests)
        player = Player(tape.exchanges)
        replayed = await target.run(go, player)
        assert len(server.requests) == sent and not player.left
        assert {exchange_kind for exchange_kind, *_ in tape.exchanges} == {"http"}
        return recorded, replayed

    recorded, replayed = on(kind, work)
    assert recorded == replayed


def test_a_recorded_target_gives_the_same_guarantees(tmp_path: Path) -> None:
    lines = [{"case": f"case-{n}", "text": f"re {n}", "duration_ms": 1} for n in range(20)]
    (tmp_path / "runs.jsonl").write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    target = build_target("it", {"type": "recorded", "evidence": ["runs.jsonl"]}, base=tmp_path)

    async def main() -> list[Evidence]:
        await target.open()
        await target.open()
        try:
            return await asyncio.gather(*(target.run(attempt("x", id=f"case-{n}"), LIVE) for n in range(20)))
        finally:
            await target.close()
            await target.close()

    found = asyncio.run(main())
    assert target.name == "it"
    assert [(evidence.case, evidence.text) for evidence in found] == [(f"case-{n}", f"re {n}") for n in range(20)]
