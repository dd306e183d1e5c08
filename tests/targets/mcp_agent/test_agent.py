"""Our agent loop: the input of the model, the recording, and how a run ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from proctor.cassettes.cassette import Player, Recorder
from proctor.cassettes.ports import LIVE
from proctor.errors import SpecError, TargetError
from proctor.llm.ports import ChatReply, ChatRequest, ModelFault
from proctor.llm.scripted import ScriptedModel as Scripted
from proctor.llm.taped import TapedModel
from proctor.model.case import Case, Turn
from proctor.model.evidence import Evidence, Json, Usage
from proctor.runner.ports import Target
from proctor.targets.mcp.agent import AgentSettings, McpAgent, build_mcp_agent
from proctor.targets.mcp.results import bound_result, cut_middle, plain_result, text_for_model
from proctor.targets.mcp.servers import McpServers
from proctor.targets.mcp.settings import Bearer, ServerSettings, read_servers
from tests.targets.mcp_twins import ScriptedModel, attempt, bare_shop, calls, local_shop, run

HI = ChatReply(text="Hi!", usage=Usage(input_tokens=1))
DONE = ChatReply(text="It was shipped.", usage=Usage(input_tokens=30, output_tokens=5), model="script-1")


class MemoryTape:
    """Records every exchange, and returns them in order when it replays."""

    def __init__(self, exchanges: list[tuple[str, Json, Json]] | None = None) -> None:
        self.replaying = exchanges is not None
        self.exchanges = exchanges or []

    async def exchange(self, kind: str, request: Json, send: Callable[[], Awaitable[Json]]) -> Json:
        request = json.loads(msgspec.json.encode(request))
        if self.replaying:
            was_kind, was_request, answer = self.exchanges.pop(0)
            assert (was_kind, was_request) == (kind, request)
            return answer
        answer = json.loads(msgspec.json.encode(await send()))
        self.exchanges.append((kind, request, answer))
        return answer


def drive(
    model: ScriptedModel,
    *servers: ServerSettings,
    case: Case | None = None,
    tape: Any = LIVE,
    offline: bool = False,
    timeout_s: float = 20.0,
    **settings: Any,
) -> Evidence:
    async def main() -> Evidence:
        agent = McpAgent(
            "agent",
            servers=McpServers(servers or (local_shop(),), waits_s=(), offline=offline),
            model_for=lambda _tape: model,
            settings=AgentSettings(**settings),
        )
        target: Target = agent
        await target.open()
        try:
            return await target.run(attempt(case, timeout_s=timeout_s), tape)
        finally:
            await target.close()

    return run(main())


def test_tools_are_called_in_order_and_the_last_text_is_the_answer() -> None:
    model = ScriptedModel(
        calls(
            ("lookup_order", {"id": 17}),
            ("search", {"query": "tea", "limit": 2}),
            text="Let me look.",
            usage=Usage(input_tokens=10, output_tokens=2),
        ),
        DONE,
    )
    evidence = drive(model, system="You are a shop.")
    assert evidence.case == "refund" and evidence.text == "It was shipped." and evidence.error is None
    assert evidence.tool_calls is not None
    first, second = evidence.tool_calls
    assert (first.name, first.arguments, first.server, first.aliases) == ("lookup_order", {"id": 17}, "shop", ("shop:lookup_order",))
    assert first.result["structuredContent"]["status"] == "shipped" and not first.failed() and first.duration_ms is not None
    assert second.name == "search"
    assert evidence.usage == Usage(input_tokens=40, output_tokens=7)
    assert evidence.metadata["model"] == "script-1" and evidence.metadata["model_calls"] == 2
    assert evidence.metadata["servers"] == [{"id": "shop", "name": "shop", "version": "1.4.2", "protocol": "2026-07-28"}]
    assert [message["role"] for message in evidence.metadata["messages"]] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert msgspec.json.decode(msgspec.json.encode(evidence), type=Evidence).text == evidence.text


def test_the_model_sees_system_prompt_tools_and_results() -> None:
    model = ScriptedModel(calls(("search", {"query": "tea", "limit": 2})), DONE)
    drive(model, system="You are a shop.", temperature=0.0, max_tokens=77, seed=5)
    first, again = model.requests
    assert [message.role for message in first.messages] == ["system", "user"]
    assert (first.temperature, first.max_tokens, first.seed) == (0.0, 77, 5)
    tool = next(tool for tool in first.tools if tool.name == "search")
    assert tool.description == "Search the catalogue." and tool.schema["required"] == ["query"]
    result = json.loads(again.messages[-1].text)
    assert [part["text"] for part in result["content"]] == ["tea 1", "tea 2"] and result["structuredContent"] == {
        "result": ["tea 1", "tea 2"]
    }
    assert again.messages[-1].call_id == "call_0"


def test_a_conversation_continues_over_its_turns() -> None:
    case = Case(id="talk", turns=(Turn(input="Hello"), Turn(input="Order 18?")), context={"U": 1}, timezone="Europe/Berlin")
    model = ScriptedModel(
        ChatReply(text="Hi!", usage=Usage(input_tokens=1)), calls(("lookup_order", {"id": 18})), ChatReply(text='{"total": 120}')
    )
    evidence = drive(model, case=case)
    assert evidence.input == ["Hello", "Order 18?"] and evidence.body == {"total": 120}
    assert evidence.turns is not None
    assert [(turn.input, turn.text, len(turn.tool_calls or ())) for turn in evidence.turns] == [
        ("Hello", "Hi!", 0),
        ("Order 18?", '{"total": 120}', 1),
    ]
    assert [message.text for message in model.requests[1].messages] == ["Hello", "Hi!", "Order 18?"]
    assert evidence.context == {"U": 1} and evidence.timezone == "Europe/Berlin"
    assert evidence.turns[0].usage == Usage(input_tokens=1) and evidence.turns[1].usage is None


def test_a_result_marked_as_failed_is_a_tool_error() -> None:
    model = ScriptedModel(calls(("lookup_order", {"id": 99})), DONE)
    evidence = drive(model)
    assert evidence.tool_calls is not None
    (call,) = evidence.tool_calls
    assert call.error_kind == "content-error" and "no order 99" in call.error and call.result["isError"] is True
    assert json.loads(model.requests[1].messages[-1].text) == call.result, "the model gets the whole result, including the failure"
    assert evidence.error is None


def test_an_unknown_tool_is_reported_to_the_model_and_recorded() -> None:
    model = ScriptedModel(calls(("lookup_orders", {"id": 17})), DONE)
    evidence = drive(model)
    assert evidence.tool_calls is not None
    (call,) = evidence.tool_calls
    assert (call.name, call.server, call.error_kind) == ("lookup_orders", None, "protocol-error")
    assert call.error == 'there is no tool "lookup_orders"; nearest: lookup_order'
    assert model.requests[1].messages[-1].text == f"Error: {call.error}"
    assert evidence.text == "It was shipped."


@pytest.mark.parametrize("arguments", ["{not json", [17], 17, "", True])
def test_invalid_arguments_are_reported_to_the_model_and_recorded(arguments: Any) -> None:
    tape = MemoryTape()
    model = ScriptedModel(calls(("lookup_order", arguments)), DONE)
    evidence = drive(model, tape=tape)
    assert evidence.tool_calls is not None
    (call,) = evidence.tool_calls
    assert call.arguments == arguments and call.error_kind == "protocol-error" and "not a JSON object" in call.error
    assert [request["method"] for _, request, _ in tape.exchanges] == ["tools/list"]


def test_null_arguments_are_an_empty_object() -> None:
    evidence = drive(ScriptedModel(calls(("picture", None)), DONE))
    assert evidence.tool_calls is not None and evidence.tool_calls[0].arguments == {} and not evidence.tool_calls[0].failed()


def test_the_turn_limit_has_its_own_code() -> None:
    model = ScriptedModel(calls(("search", {"query": "tea"}), text="Still looking"))
    evidence = drive(model, max_turns=3)
    assert (evidence.error, evidence.metadata["code"]) == ("max_turns reached", "max_turns")
    assert len(model.requests) == 3 and evidence.tool_calls is not None and len(evidence.tool_calls) == 3
    assert evidence.text == ""


def test_the_turn_limit_counts_over_the_whole_case() -> None:
    case = Case(id="talk", turns=tuple(Turn(input=str(number)) for number in range(5)))
    evidence = drive(ScriptedModel(DONE), case=case, max_turns=3)
    assert evidence.metadata["code"] == "max_turns"
    assert evidence.turns is not None and [turn.text for turn in evidence.turns] == ["It was shipped."] * 3 + [""]


def test_an_answer_at_the_turn_limit_is_an_answer() -> None:
    evidence = drive(ScriptedModel(calls(("search", {"query": "tea"})), DONE), max_turns=2)
    assert evidence.error is None and evidence.text == "It was shipped."


def test_an_empty_reply_ends_the_turn() -> None:
    evidence = drive(ScriptedModel(ChatReply(text="")))
    assert evidence.text == "" and evidence.tool_calls == () and evidence.error is None


@pytest.mark.parametrize(
    ("reply", "unknown"),
    [
        (ChatReply(text="Hel", finish="length"), {"answer"}),
        (ChatReply(text="", finish="content_filter"), {"answer"}),
        (ChatReply(text="I cannot do that.", finish="content_filter"), set()),
        (ChatReply(text="Hello.", finish="other"), {"answer"}),
        (ChatReply(text="", finish="tool_calls"), {"answer", "tool_calls"}),
        (ChatReply(text="Hello.", unread=('a tool call of the kind "custom"',)), {"answer", "tool_calls"}),
        (ChatReply(text="Hel", unread=("an answer that a content filter has cut",)), {"answer"}),
        (ChatReply(text="Hello."), set()),
    ],
)
def test_an_incomplete_reply_leaves_its_missing_parts_unknown(reply: ChatReply, unknown: set[str]) -> None:
    evidence = drive(ScriptedModel(reply))
    assert evidence.account is not None and evidence.account.reader == "mcp agent"
    assert set(evidence.account.unknown) == unknown


def test_an_aborted_run_marks_missing_evidence_unknown() -> None:
    evidence = drive(ScriptedModel(calls(("search", {"query": "tea"})), ModelFault("bad_answer", "no JSON")))
    why = "the run did not finish: the model failed: no JSON"
    assert evidence.account is not None and evidence.account.unknown == {"answer": why, "tool_calls": why}


def test_an_unknown_tool_ends_the_run_if_configured() -> None:
    model = ScriptedModel(calls(("lookup_orders", {"id": 17}), ("search", {"query": "tea"})), DONE)
    evidence = drive(model, unknown_tools="end")
    message = 'there is no tool "lookup_orders"; nearest: lookup_order'
    assert (evidence.error, evidence.metadata["code"]) == (message, "unknown_tool")
    assert [call.name for call in evidence.tool_calls or ()] == ["lookup_orders"] and len(model.requests) == 1


def test_tools_of_the_same_name_on_two_servers_stay_separate() -> None:
    model = ScriptedModel(calls(("eu__lookup_order", {"id": 17}), ("lookup_order", {"id": 17})), DONE)
    evidence = drive(model, local_shop("eu"), local_shop("us"))
    assert {"eu__lookup_order", "us__lookup_order"} <= {tool.name for tool in model.requests[0].tools}
    assert evidence.tool_calls is not None
    known, unknown = evidence.tool_calls
    assert (known.name, known.server, known.aliases) == ("lookup_order", "eu", ("eu:lookup_order",)) and not known.failed()
    assert known.goes_by("lookup_order") and known.goes_by("eu:lookup_order") and not known.goes_by("us:lookup_order")
    assert unknown.server is None and unknown.failed()
    assert evidence.available_tools is not None
    assert {"lookup_order", "eu:lookup_order", "us:lookup_order"} <= {*evidence.available_tools}


def test_a_case_may_name_the_servers_it_uses() -> None:
    model = ScriptedModel(DONE)
    case = Case(id="one", input="Hi", settings={"mcp_servers": [{"id": "us"}]})
    evidence = drive(model, local_shop("eu"), local_shop("us"), case=case)
    assert [each["id"] for each in evidence.metadata["servers"]] == ["us"]
    assert "lookup_order" in {tool.name for tool in model.requests[0].tools}
    with pytest.raises(TargetError, match="unknown MCP server 'uk'"):
        drive(model, local_shop("us"), case=Case(id="one", input="Hi", settings={"mcp_servers": ["uk"]}))


def test_fifty_megabytes_are_cut_for_model_and_evidence() -> None:
    model = ScriptedModel(calls(("flood", {"megabytes": 50})), DONE)
    evidence = drive(model, result_limit=5_000)
    shown = model.requests[1].messages[-1].text
    assert len(shown) < 5_200 and "characters cut by proctor" in shown
    assert len(msgspec.json.encode(evidence)) < 250_000
    assert "characters cut by proctor" in evidence.metadata["messages"][2]["text"]


def test_attachments_are_sent_with_the_first_message_only() -> None:
    picture = {"type": "image", "media_type": "image/png", "data": "QUJD" * 500, "name": "a.png", "path": "files/a.png"}
    case = Case(id="see", turns=(Turn(input="What is this?"), Turn(input="Sure?")), settings={"attachments": [picture]})
    model = ScriptedModel(DONE)
    evidence = drive(model, case=case)
    (attachment,) = model.requests[0].messages[0].attachments
    assert (attachment.media_type, attachment.data, attachment.name) == ("image/png", "QUJD" * 500, "a.png")
    assert model.requests[1].messages[-1].attachments == ()
    assert b"QUJDQUJD" not in msgspec.json.encode(evidence)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (Case(id="a"), "neither input nor turns"),
        (Case(id="a", custom_body={"x": 1}), "custom body"),
        (Case(id="a", input="x", settings={"attachments": [{"media_type": "image/png", "path": "x.png"}]}), "was not loaded"),
    ],
)
def test_a_case_this_agent_cannot_run_is_refused(case: Case, words: str) -> None:
    with pytest.raises(TargetError, match=words):
        drive(ScriptedModel(DONE), case=case)


def test_an_unreachable_model_is_a_fault_before_any_observation() -> None:
    with pytest.raises(ModelFault) as caught:
        drive(ScriptedModel(ModelFault("rate_limited", "slow down")))
    assert caught.value.code == "rate_limited" and caught.value.safe


def test_a_model_failure_after_tool_calls_aborts_the_run() -> None:
    evidence = drive(ScriptedModel(calls(("search", {"query": "tea"})), ModelFault("bad_answer", "no JSON")))
    assert evidence.error == "the model failed: no JSON" and evidence.metadata["code"] == "bad_answer"
    assert evidence.tool_calls is not None and len(evidence.tool_calls) == 1 and evidence.text is None


def test_a_timed_out_attempt_keeps_its_evidence() -> None:
    evidence = drive(ScriptedModel(calls(("search", {"query": "tea"}), ("hang", {}))), timeout_s=0.5)
    message = "the run took longer than 0.5 s, while the tool 'hang' of the MCP server 'shop' was being called"
    assert (evidence.error, evidence.metadata["code"]) == (message, "timeout")
    assert evidence.tool_calls is not None and [call.name for call in evidence.tool_calls] == ["search", "hang"]
    assert evidence.tool_calls[1].failure_kind() == "protocol-error" and "unknown" in str(evidence.tool_calls[1].error)
    assert evidence.turns is not None and evidence.turns[0].text is None


def test_a_dying_server_aborts_only_its_case() -> None:
    async def main() -> tuple[Evidence, Evidence]:
        model = ScriptedModel(calls(("search", {"query": "tea"}), ("die", {})), calls(("search", {"query": "tea"})), DONE)
        agent = McpAgent("agent", servers=McpServers([bare_shop()], waits_s=()), model_for=lambda _tape: model)
        await agent.open()
        try:
            return await agent.run(attempt(), LIVE), await agent.run(attempt(), LIVE)
        finally:
            await agent.close()

    broken, fine = run(main())
    assert broken.metadata["code"] == "server_gone" and broken.error is not None and "exit code 3" in broken.error
    assert broken.tool_calls is not None and [call.failed() for call in broken.tool_calls] == [False, True]
    assert fine.error is None and fine.text == "It was shipped."


def test_a_replay_gives_the_same_evidence_without_a_server() -> None:
    def model() -> ScriptedModel:
        return ScriptedModel(calls(("search", {"q": 17}), ("hangs", {}), ("search", {"q": 99})), DONE)

    tape = MemoryTape()
    live = drive(model(), bare_shop(), tape=tape)
    assert [kind for kind, _, _ in tape.exchanges] == ["tool"] * 3
    nowhere = ServerSettings(id="shop", command="no-such-program-anywhere")
    again = drive(model(), nowhere, tape=MemoryTape(list(tape.exchanges)), offline=True)

    def timeless(evidence: Evidence) -> Any:
        def without(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: without(each) for key, each in value.items() if key not in ("duration_ms", "ts")}
            return [without(each) for each in value] if isinstance(value, list) else value

        return without(json.loads(msgspec.json.encode(evidence)))

    assert timeless(again) == timeless(live)


def test_the_model_is_made_for_the_tape_of_the_attempt() -> None:
    tapes: list[Any] = []

    def model_for(tape: Any) -> ScriptedModel:
        tapes.append(tape)
        return ScriptedModel(DONE)

    tape = MemoryTape()

    async def main() -> None:
        agent = McpAgent("agent", servers=McpServers([]), model_for=model_for)
        await agent.open()
        evidence = await agent.run(attempt(), tape)
        await agent.close()
        assert evidence.available_tools == () and agent.name == "agent"

    run(main())
    assert tapes == [tape]


def test_a_reply_can_depend_on_the_request() -> None:
    def reply(request: ChatRequest) -> ChatReply:
        return ChatReply(text=f"You wrote {request.messages[-1].text}")

    assert drive(ScriptedModel(reply)).text == "You wrote Where is order 17?"


def test_the_model_gets_the_whole_result() -> None:
    whole = {"content": [{"type": "image", "data": "QUJD" * 100, "mimeType": "image/png"}], "structuredContent": {"a": 1}, "isError": True}
    assert json.loads(text_for_model(whole)) == whole
    assert "cut by proctor" in text_for_model(whole, limit=100)


def test_a_result_of_many_texts_is_limited_as_a_whole() -> None:
    many = {"content": [{"type": "text", "text": "x" * 90}] * 1000, "isError": True}
    small = bound_result(many, 100)
    assert len(msgspec.json.encode(small)) < 400 and small["isError"] is True
    assert "cut by proctor" in small["content"][0]["text"]
    assert bound_result({"a": 1}, 100) == {"a": 1}


def test_only_protocol_fields_are_dropped_from_a_result() -> None:
    meta = {"io.modelcontextprotocol/serverInfo": {"name": "s"}, "trace": "1"}
    assert plain_result({"content": [], "_meta": meta, "resultType": "complete"}) == {"content": [], "_meta": {"trace": "1"}}


def test_a_cut_text_keeps_both_ends_and_counts_the_rest() -> None:
    text = cut_middle("a" * 500 + "b" * 500, 100)
    assert text.startswith("a" * 75) and text.endswith("b" * 25) and "900 of 1,000 characters" in text
    assert cut_middle("short", 100) == "short"


def test_an_agent_is_built_from_a_file() -> None:
    described = {
        "type": "mcp_agent",
        "model": "main",
        "system": "You are a shop.",
        "max_turns": 4,
        "servers": {"eu": {"url": "http://h/mcp", "auth": {"type": "bearer", "token": "t"}}, "us": {"command": "shop", "args": ["-x"]}},
    }
    agent = build_mcp_agent(described, name="shop", model_for=lambda _tape: ScriptedModel(DONE))
    assert agent.name == "shop"
    eu, us = read_servers(described["servers"])
    assert (eu.id, eu.transport, eu.auth) == ("eu", "http", Bearer(token="t"))
    assert (us.id, us.transport, us.args) == ("us", "stdio", ("-x",))
    assert read_servers([{"id": "eu", "url": "http://h/mcp"}])[0].transport == "http"


@pytest.mark.parametrize(
    ("described", "words", "field"),
    [
        ({"sistem": "x"}, "unknown field `sistem`", None),
        ({"max_turns": "three"}, "Expected `int`, got `str`", "max_turns"),
        ({"max_turns": 0}, "at least 1", "max_turns"),
        ({"servers": "x"}, "expected a list of MCP servers, found text", "servers"),
        ({"servers": ["x"]}, "found text", "servers.0"),
        ({"servers": [{"id": "a"}]}, "needs 'command'", "servers.0"),
        ({"servers": {"a": {"url": "h"}}}, "needs an http:// or https:// 'url'", "servers.a"),
        ({"servers": [{"id": "a", "url": "http://h/", "auth": {"type": "magic"}}]}, "Invalid value 'magic'", "servers.0.auth.type"),
        ({"servers": [{"id": "a", "url": "http://h/", "auth": {"type": "bearer"}}]}, "missing required field `token`", "servers.0.auth"),
        ({"servers": [{"id": "a", "cmd": "x"}]}, "unknown field `cmd`", "servers.0"),
    ],
)
def test_mistakes_in_a_file_are_named(described: dict[str, Any], words: str, field: str | None) -> None:
    with pytest.raises(SpecError) as caught:
        build_mcp_agent(described, name="shop", model_for=lambda _tape: ScriptedModel(DONE))
    assert words in str(caught.value) and caught.value.field == field


def test_a_run_is_recorded_and_replayed_by_a_cassette(tmp_path: Any) -> None:
    def script() -> Any:
        return Scripted([calls(("search", {"q": 1}), ("die", {})), DONE])

    async def drive_on(tape: Any, server: ServerSettings, *, offline: bool) -> Evidence:
        model = script()
        agent = McpAgent("a", servers=McpServers([server], waits_s=(), offline=offline), model_for=lambda tape: TapedModel(model, tape))
        await agent.open()
        try:
            return await agent.run(attempt(), tape)
        finally:
            await agent.close()

    with Recorder(tmp_path / "run.cassette") as recorder:
        live = run(drive_on(recorder.scope("refund"), bare_shop(), offline=False))
    player = Player(tmp_path / "run.cassette")
    nowhere = ServerSettings(id="shop", command="no-such-program-anywhere")
    again = run(drive_on(player.scope("refund"), nowhere, offline=True))
    assert live.metadata["code"] == again.metadata["code"] == "server_gone"
    assert live.tool_calls is not None and again.tool_calls is not None
    assert [(call.name, call.result, call.error) for call in again.tool_calls] == [
        (call.name, call.result, call.error) for call in live.tool_calls
    ]
    assert player.list_unused() == ()


def test_attempts_share_a_server_and_cancelling_one_has_no_effect_on_others() -> None:
    async def main() -> list[Any]:
        def model(_tape: Any) -> ScriptedModel:
            return ScriptedModel(calls(("search", {"q": 1})), DONE)

        def stuck(_tape: Any) -> ScriptedModel:
            return ScriptedModel(calls(("hang", {})), DONE)

        servers = McpServers([bare_shop()], waits_s=())
        agent, hanging = McpAgent("a", servers=servers, model_for=model), McpAgent("b", servers=servers, model_for=stuck)
        await agent.open()
        try:
            lost = asyncio.create_task(hanging.run(attempt(), LIVE))
            await asyncio.sleep(0.05)
            lost.cancel()
            found = await asyncio.gather(*(agent.run(attempt(), LIVE) for _ in range(20)))
            assert (await asyncio.gather(lost, return_exceptions=True))[0].__class__ is asyncio.CancelledError
            return found
        finally:
            await agent.close()

    assert [evidence.text for evidence in run(main())] == ["It was shipped."] * 20
