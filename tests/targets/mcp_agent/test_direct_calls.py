"""Tool calls that a case makes itself: the `toolCall` steps of MCPJam, over real connections."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from proctor.actions.running.run import RunOptions
from proctor.actions.running.run import drive as drive_suite
from proctor.actions.workspace.suites import parse_suite
from proctor.cassettes.cassette import Player, Recorder
from proctor.cassettes.ports import LIVE
from proctor.errors import TargetError
from proctor.llm.ports import ChatReply
from proctor.model.case import Case, Turn
from proctor.model.evidence import Evidence
from proctor.targets.mcp.agent import McpAgent
from proctor.targets.mcp.servers import McpServers
from proctor.targets.shared.conversation import direct_calls, messages_of
from tests.targets.mcp_twins import ScriptedModel, attempt, calls, local_shop, run

HI = ChatReply(text="Hi!")


def step(tool: str, arguments: dict[str, Any], after: int = 0, **more: Any) -> dict[str, Any]:
    return {"server": "shop", "tool": tool, "arguments": arguments, "after_prompts": after, **more}


def drive(model: ScriptedModel, case: Case, tape: Any = LIVE, offline: bool = False) -> Evidence:
    async def main() -> Evidence:
        agent = McpAgent("agent", servers=McpServers((local_shop(),), waits_s=(), offline=offline), model_for=lambda _: model)
        await agent.open()
        try:
            return await agent.run(attempt(case), tape)
        finally:
            await agent.close()

    return run(main())


def made(evidence: Evidence) -> list[tuple[str, Any, str | None]]:
    return [(call.name, call.arguments, call.id) for call in evidence.tool_calls or ()]


def test_calls_are_made_in_order_and_belong_to_the_previous_turn() -> None:
    case = Case(
        id="talk",
        turns=(Turn(input="Hello"), Turn(input="Order 18?")),
        settings={
            "direct_calls": [
                step("search", {"query": "tea"}, 0, id="s1"),
                step("lookup_order", {"id": 17}, 1, id="s3"),
                step("lookup_order", {"id": 99}, 2, id="s5"),
            ]
        },
    )
    model = ScriptedModel(HI, calls(("lookup_order", {"id": 18})), ChatReply(text="Open."))
    evidence = drive(model, case)
    assert made(evidence) == [
        ("search", {"query": "tea"}, "s1"),
        ("lookup_order", {"id": 17}, "s3"),
        ("lookup_order", {"id": 18}, "call_0"),
        ("lookup_order", {"id": 99}, "s5"),
    ]
    assert evidence.turns is not None and evidence.tool_calls is not None
    assert [[call.id for call in turn.tool_calls or ()] for turn in evidence.turns] == [["s3"], ["call_0", "s5"]]
    first, last = evidence.tool_calls[1], evidence.tool_calls[3]
    assert first.result["structuredContent"]["status"] == "shipped" and first.server == "shop" and first.duration_ms is not None
    assert (last.failure(), last.error_kind) == ("Error executing tool lookup_order: no order 99", "content-error")
    assert (evidence.text, evidence.error, evidence.metadata["direct_calls"]) == ("Open.", None, 3)
    # The model sees only its own call.
    assert [message.role for message in model.requests[-1].messages] == ["user", "assistant", "user", "assistant", "tool"]


def test_a_case_may_call_tools_without_messages() -> None:
    model = ScriptedModel()
    evidence = drive(model, Case(id="bare", settings={"direct_calls": [step("lookup_order", {"id": 17})]}))
    assert made(evidence) == [("lookup_order", {"id": 17}, None)]
    assert (evidence.input, evidence.text, evidence.turns, evidence.usage, evidence.error) == (None, None, None, None, None)
    assert not model.requests


def test_a_server_can_be_named_by_its_id() -> None:
    case = Case(id="bare", settings={"direct_calls": [step("search", {"query": "tea"}, server="The Shop", server_id="shop")]})
    assert [call.server for call in drive(ScriptedModel(), case).tool_calls or ()] == ["shop"]


def test_an_unknown_server_aborts_the_case() -> None:
    case = Case(id="x", input="Hello", settings={"direct_calls": [step("search", {"query": "tea"}, server="shpo")]})
    model = ScriptedModel(HI)
    evidence = drive(model, case)
    assert evidence.error == 'a toolCall step: there is no MCP server "shpo"; nearest: shop; known: shop'
    assert evidence.metadata["code"] == "unknown_server" and not model.requests


def test_an_unknown_tool_is_a_failed_call() -> None:
    evidence = drive(ScriptedModel(HI), Case(id="x", input="Hello", settings={"direct_calls": [step("serch", {})]}))
    assert evidence.tool_calls is not None
    assert evidence.tool_calls[0].failed() and evidence.text == "Hi!"


def test_a_replay_makes_no_call(tmp_path: Path) -> None:
    case = Case(id="refund", input="Hello", settings={"direct_calls": [step("lookup_order", {"id": 17}, 1)]})
    path = tmp_path / "tape.jsonl"
    with Recorder(path) as recorder:
        first = drive(ScriptedModel(HI), case, recorder.scope("refund", 0))
    player = Player(path)
    again = drive(ScriptedModel(HI), case, player.scope("refund", 0), offline=True)
    assert made(again) == made(first)
    assert [call.result for call in again.tool_calls or ()] == [call.result for call in first.tool_calls or ()]
    assert player.list_unused() == ()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([{"tool": "x"}], "missing required field `server`"),
        ("x", "Expected `array`"),
        ([step("x", {}, 2)], r"direct_calls\[0\].after_prompts: expected 0 to 1, found 2"),
        ([step("x", {}, -1)], "expected 0 to 1, found -1"),
    ],
)
def test_invalid_direct_calls_are_refused(given: Any, words: str) -> None:
    with pytest.raises(TargetError, match=words):
        direct_calls(Case(id="x", input="Hello", settings={"direct_calls": given}))


def test_a_target_without_servers_refuses_the_case() -> None:
    case = Case(id="x", input="Hello", settings={"direct_calls": [step("search", {"query": "tea"})]})
    with pytest.raises(TargetError) as caught:
        messages_of(attempt(case))
    assert caught.value.code == "unsupported_step"


SUITE = """\
{"schemaVersion": "1", "suite": {"id": "shop", "name": "Shop"}, "cases": [{"id": "direct", "title": "Direct", "steps": [
  {"id": "s1", "kind": "toolCall", "serverName": "shop", "toolName": "lookup_order", "arguments": {"id": 17}},
  {"id": "s2", "kind": "assert", "assertion": {"type": "toolCalledWith", "toolName": "lookup_order", "args": {"args": {"id": 17}}}},
  {"id": "s3", "kind": "prompt", "prompt": "Hello"},
  {"id": "s4", "kind": "toolCall", "serverName": "shop", "toolName": "lookup_order", "arguments": {"id": 99}},
  {"id": "s5", "kind": "assert", "assertion": {"type": "noToolErrors"}}
]}]}
"""


def test_the_calls_of_a_suite_file_are_evidence_for_its_assertions(tmp_path: Path) -> None:
    suite = parse_suite(SUITE, dialect="mcpjam", name="shop")
    agent = McpAgent("agent", servers=McpServers((local_shop(),), waits_s=()), model_for=lambda _: ScriptedModel(HI))
    live = asyncio.run(drive_suite(suite, RunOptions(trust=True), target=agent, home=tmp_path))
    (result,) = live.result.cases
    assert [(entry.check, verdict.outcome) for entry, verdict in zip(result.case.assertions, result.verdicts, strict=True)] == [
        (result.case.assertions[0].check, "pass"),
        ("no_tool_errors", "fail"),
    ]
    assert "no order 99" in result.verdicts[1].reason
