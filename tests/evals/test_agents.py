"""Agents under eval: the loop, its ends, and no exceptions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from proctor.errors import SpecError
from proctor.evals.agents.client_manager import MCPClientManager
from proctor.evals.agents.messages import write_sdk_messages
from proctor.evals.agents.prompt_result import PromptResult
from proctor.evals.agents.prompting import has_tool_call, step_count_is
from proctor.evals.agents.test_agent import MockAgent, TestAgent
from proctor.evals.agents.tools import STUB, AgentTool
from proctor.llm.ports import ChatMessage, ChatReply, ChatRequest, ModelFault
from proctor.llm.scripted import ScriptedModel
from proctor.model.evidence import Json, ToolCall
from proctor.targets.mcp.results import CallResult
from tests.evals.agents import answering, calling, result, scripted
from tests.tables import rows
from tests.targets.mcp_twins import run
from tests.targets.shop_server import shop


def with_shop(work: Callable[[MCPClientManager], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with MCPClientManager({"shop": shop()}) as manager:
            return await work(manager)

    return run(main())


def ask(model: ScriptedModel, message: str = "Order 17?", agent_options: dict[str, Any] | None = None, **options: Any) -> PromptResult:
    async def work(manager: MCPClientManager) -> PromptResult:
        agent = TestAgent(tools=await manager.get_tools(), model=model, **(agent_options or {}))
        return await agent.prompt(message, **options)

    return with_shop(work)


def test_a_prompt_uses_tools_and_reports_everything() -> None:
    model = scripted(calling(("lookup_order", {"id": 17}), text="Let me look."), answering("Shipped."))
    found = ask(model, agent_options={"temperature": 0.5})
    assert not found.has_error() and found.text == "Shipped." and found.get_stop_reason() == "answered"
    assert found.tools_called() == ["lookup_order"] and found.get_tool_arguments("lookup_order") == {"id": 17}
    assert found.get_tool_calls()[0].result["structuredContent"]["status"] == "shipped"
    assert (found.input_tokens(), found.output_tokens(), found.total_tokens()) == (30, 7, 37)
    assert (found.get_provider(), found.get_model()) == ("scripted", "script")
    assert [message["role"] for message in found.get_messages()] == ["user", "assistant", "tool", "assistant"]
    assert found.get_messages()[1]["content"][1] == {
        "type": "tool-call", "toolCallId": "call_0", "toolName": "lookup_order", "input": {"id": 17},
    }  # fmt: skip
    latency = found.get_latency()
    assert 0 < latency.mcp_ms <= latency.e2e_ms and 0 <= latency.llm_ms <= latency.e2e_ms
    spans = found.get_spans()
    assert [(span["category"], span["stepIndex"]) for span in spans] == [("step", 0), ("llm", 0), ("tool", 0), ("step", 1), ("llm", 1)]
    assert [span.get("parentId") for span in spans] == [None, "span-0", "span-0", None, "span-3"]
    assert all(span["endMs"] > span["startMs"] and span["status"] == "ok" for span in spans)
    assert spans[2]["toolCallId"] == "call_0" and spans[2]["toolName"] == "lookup_order" and spans[2]["serverId"] == "shop"
    assert sum(span["totalTokens"] for span in spans if span["category"] == "llm") == 37
    assert found.get_messages()[2] == {
        "role": "tool",
        "content": [
            {
                "type": "tool-result",
                "toolCallId": "call_0",
                "toolName": "lookup_order",
                "output": {"type": "json", "value": found.get_tool_calls()[0].result},
            }
        ],
    }
    request = model.requests[0]
    assert request.messages[0].text == "You are a helpful assistant." and request.temperature == 0.5
    assert found.evidence.available_tools is not None and "lookup_order" in found.evidence.available_tools
    assert found.evidence.metadata["servers"][0]["version"] == "1.4.2"


@rows("conformance/mcpjam/prompts.yaml")
def test_a_prompt_shows_its_messages_and_spans_as_mcpjam_does(row: dict[str, Any]) -> None:
    def tool(name: str, answers: list[CallResult]) -> AgentTool:
        async def execute(arguments: dict[str, Any]) -> CallResult:
            return answers.pop(0)

        return AgentTool(name=name, execute=execute, server="ev")

    def tool_result(text: str, **more: Any) -> CallResult:
        return CallResult(result={"content": [{"type": "text", "text": text}], **more})

    tools = [
        tool("echo", [tool_result("Echo: hello"), tool_result("expected string", isError=True)]),
        tool("get-sum", [tool_result("The sum of 2 and 3 is 5.")]),
    ]
    calls = [("echo", {"message": "hello"}), ("get-sum", {"a": 2, "b": 3}), ("echo", {"message": 5}), ("nope", {})]
    last = ModelFault("bad_request", "bad thing") if row["given"]["fails"] else answering("done")
    found = run(TestAgent(tools=tools, model=scripted(calling(*calls, text="Let me see."), last)).prompt("go"))
    (answers,) = found.get_tool_messages()
    outputs = [part["output"] for part in answers["content"]]
    spans = found.get_spans()
    assert (
        {
            "roles": [message["role"] for message in found.get_messages()],
            "outputs": [output["type"] for output in outputs],
            "values": [output["value"] for output in outputs if output["type"] == "json"],
            "spans": [[span["category"], span["name"].split(": ")[-1], span["status"], span.get("stepIndex")] for span in spans],
            "messages": [[span.get("messageStartIndex"), span.get("messageEndIndex")] for span in spans],
        }
        == row["expect"]
        == row["original"]
    )
    parents = {span["id"]: span for span in spans if span["category"] == "step"}
    assert all(parents[span["parentId"]]["stepIndex"] == span["stepIndex"] for span in spans if "parentId" in span)


def test_an_answer_is_shown_only_with_its_own_call() -> None:
    messages = [
        ChatMessage(role="tool", text="Error: there is no tool", call_id="1", name="nope"),
        ChatMessage(role="tool", text="Echo", call_id="2", name="echo"),
    ]
    (message,) = write_sdk_messages(messages, [ToolCall(name="echo", result={"content": []})])
    assert [part["output"] for part in message["content"]] == [
        {"type": "error-text", "value": "there is no tool"},
        {"type": "json", "value": {"content": []}},
    ]


def test_nothing_is_carried_over_but_the_context() -> None:
    model = scripted(answering("One."), answering("Two."), answering("Three."))

    async def work(manager: MCPClientManager) -> None:
        agent = TestAgent(mcp_client_manager=manager, model=model)
        first = await agent.prompt("First")
        second = await agent.run("Second", context=first)
        await agent.prompt("Third", context=[first, second])
        assert [message.text for message in model.requests[0].messages[1:]] == ["First"]
        assert [message.text for message in model.requests[1].messages[1:]] == ["First", "One.", "Second"]
        assert [message.text for message in model.requests[2].messages[1:]] == ["First", "One.", "Second", "Two.", "Third"]
        assert [message["content"] for message in second.get_messages()] == ["Second", "Two."]
        assert [each.prompt for each in agent.get_prompt_history()] == ["First", "Second", "Third"]
        assert agent.with_options(temperature=1).get_prompt_history() == []
        agent.reset_prompt_history()
        assert agent.get_last_result() is None and agent.tools_called() == []

    with_shop(work)


def test_the_context_repeats_tool_calls_and_their_whole_results() -> None:
    model = scripted(calling(("flood", {"megabytes": 0}), ("lookup_order", {"id": 99})), answering("None."), answering("Yes."))

    async def work(manager: MCPClientManager) -> None:
        agent = TestAgent(mcp_client_manager=manager, model=model)
        first = await agent.prompt("Look")
        await agent.prompt("Sure?", context=first)
        sent, again = model.requests[1].messages, model.requests[2].messages
        assert again[: len(sent)] == sent
        (answers,) = first.get_tool_messages()
        assert [part["output"]["type"] for part in answers["content"]] == ["json", "json"], "results of one step are one message"
        assert answers["content"][1]["output"]["value"]["isError"] is True

    with_shop(work)


def test_a_tool_to_stop_at_is_not_executed_and_its_siblings_are() -> None:
    model = scripted(calling(("lookup_order", {"id": 17}), ("search", {"query": "tea"}), text="Looking."), answering("never"))
    found = ask(model, stop_after_tool_call="lookup_order")
    assert found.tools_called() == ["lookup_order", "search"] and not found.has_error()
    assert found.get_stop_reason() == "stop_after_tool_call" and found.text == "Looking." and len(model.requests) == 1
    stubbed, sibling = found.get_tool_calls()
    assert stubbed.result["content"][0]["text"] == STUB and "tea 1" in str(sibling.result)


@pytest.mark.parametrize("condition", [has_tool_call("search"), step_count_is(1), [step_count_is(5), has_tool_call("search")]])
def test_a_stop_condition_ends_the_prompt_after_its_step(condition: Any) -> None:
    model = scripted(calling(("search", {"query": "tea"})), answering("never"))
    found = ask(model, stop_when=condition)
    assert found.get_stop_reason() == "stop_when" and found.tools_called() == ["search"] and len(model.requests) == 1


def test_reaching_max_steps_ends_the_prompt_without_an_error() -> None:
    model = scripted(*[calling(("search", {"query": "tea"}), text=f"step {number}") for number in range(5)])
    found = ask(model, agent_options={"max_steps": 3})
    assert found.tools_called() == ["search"] * 3 and len(model.requests) == 3
    assert not found.has_error() and found.get_stop_reason() == "max_steps" and found.text == "step 2"


def test_a_provider_error_is_a_result() -> None:
    found = ask(scripted(ModelFault("rate_limited", "slow down")))
    assert found.get_error() == "slow down" and found.get_error_code() == "rate_limited"
    assert found.get_messages() == [{"role": "user", "content": "Order 17?"}] and found.tools_called() == []
    assert [(span["category"], span["status"]) for span in found.get_spans()] == [("step", "error"), ("llm", "error"), ("error", "error")]


def test_a_provider_error_after_tools_keeps_what_was_done() -> None:
    found = ask(scripted(calling(("lookup_order", {"id": 17}), text="Looking."), ModelFault("overloaded", "too busy")))
    assert found.has_error() and "too busy" in (found.get_error() or "") and found.get_error_code() == "overloaded"
    assert found.tools_called() == ["lookup_order"] and found.text == "Looking." and found.total_tokens() == 12
    assert [message["role"] for message in found.get_messages()] == ["user", "assistant", "tool"]


def test_a_model_that_raises_anything_is_a_result() -> None:
    def broken(request: ChatRequest) -> ChatReply:
        raise KeyError("oops")

    found = ask(ScriptedModel(broken))
    assert found.get_error() == "KeyError: 'oops'" and found.get_error_code() == "agent_failed"


def test_tool_errors_go_back_to_the_model() -> None:
    found = ask(scripted(calling(("lookup_order", {"id": 99}), ("no_such", {}), ("search", "tea")), answering("Sorry.")))
    assert not found.has_error() and [call.failed() for call in found.get_tool_calls()] == [True, True, True]
    assert [call.name for call in found.get_tool_calls()] == ["lookup_order", "no_such", "search"]


def test_a_timeout_keeps_completed_and_started_calls() -> None:
    started = time.monotonic()
    found = ask(scripted(calling(("lookup_order", {"id": 17}), ("hang", {}), text="Wait.")), timeout_ms=400)
    assert time.monotonic() - started < 5
    assert found.get_error() == "Operation timed out after 400ms" and found.get_error_code() == "timeout"
    assert found.tools_called() == ["lookup_order", "hang"] and found.text == "Wait."
    assert found.get_tool_calls()[1].failed() and 300 < found.e2e_latency_ms() < 3000


def test_a_model_that_never_answers_times_out() -> None:
    async def never(request: ChatRequest) -> ChatReply:
        await asyncio.Event().wait()
        raise AssertionError

    found = ask(ScriptedModel(never), timeout_ms=100)
    assert found.get_error() == "Operation timed out after 100ms" and found.llm_latency_ms() == 0


@pytest.mark.parametrize(
    "timeout", [30, {"total_ms": 30}, {"totalMs": 30, "stepMs": 60_000}, {"stepMs": 30}, {"step_ms": 30, "chunkMs": 5}]
)
def test_a_prompt_has_a_limit_as_a_whole_and_for_each_answer(timeout: Any) -> None:
    async def never(request: ChatRequest) -> ChatReply:
        await asyncio.Event().wait()
        raise AssertionError

    async def main() -> PromptResult:
        return await TestAgent(tools=[], model=ScriptedModel(never)).prompt("x", timeout=timeout, timeout_ms=50_000)

    ended = run(main())
    assert (ended.get_error(), ended.get_error_code()) == ("Operation timed out after 30ms", "timeout")


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), True, {"total": 5}, {"step_ms": 0}])
def test_an_invalid_limit_is_refused(timeout: Any) -> None:
    with pytest.raises(ValueError, match="timeout"):
        TestAgent(tools=[], model=scripted("hi")).prompt_sync("x", timeout=timeout)


def test_an_unknown_kind_of_call_ends_the_prompt_in_an_error() -> None:
    reply = ChatReply(finish="tool_calls", unread=('a tool call of the kind "custom"',))
    ended = TestAgent(tools=[], model=scripted(reply)).prompt_sync("x")
    assert ended.has_error() and '"custom", which is unrecognised' in (ended.get_error() or "")
    cut = TestAgent(tools=[], model=scripted(ChatReply(text="Hel", finish="length"))).prompt_sync("x")
    assert not cut.has_error() and cut.text == "Hel", "as the original"


def test_a_cancelled_prompt_is_in_the_history_and_stays_cancelled() -> None:
    async def work(manager: MCPClientManager) -> None:
        agent = TestAgent(mcp_client_manager=manager, model=scripted(calling(("search", {"query": "x"}), ("hang", {}))))
        task = asyncio.create_task(agent.prompt("Go"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await task
        last = agent.get_last_result()
        assert last is not None and last.tools_called() == ["search", "hang"] and last.has_error()

    with_shop(work)


@pytest.mark.parametrize(
    ("model", "error"),
    [
        ("just-a-name", "provider/model"),
        ("opnai/gpt", "nearest: 'openai'"),
        ("nowhere/x", "unknown provider"),
        ("openai/gpt", "needs an API key"),
    ],
)
def test_a_model_that_cannot_be_used_is_a_result(model: str, error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    found = run(TestAgent(tools=[], model=model).prompt("Hi"))
    assert found.has_error() and error in (found.get_error() or "") and found.get_error_code() == "bad_request"


def test_settings_can_be_read_and_changed() -> None:
    agent = TestAgent(tools=[], model="openai/org/some-model", api_key="sk-secret-1234")
    assert (agent.get_parsed_provider(), agent.get_parsed_model()) == ("openai", "org/some-model")
    assert "sk-secret" not in repr(agent) and agent.get_api_key() == "sk-secret-1234" and agent.get_max_steps() == 10
    agent.set_system_prompt("Be brief.")
    agent.set_temperature(2)
    other = agent.with_options(max_steps=3)
    assert (other.get_system_prompt(), other.get_temperature(), other.get_max_steps(), other.get_tools()) == ("Be brief.", 2, 3, [])
    with pytest.raises(ValueError, match="0 to 2"):
        agent.set_temperature(2.1)
    with pytest.raises(ValueError, match="at least 1"):
        TestAgent(tools=[], model="openai/x", max_steps=0)
    with pytest.raises(TypeError, match="max_step"):
        agent.with_options(max_step=3)
    with pytest.raises(TypeError, match="get_tools"):
        TestAgent(tools=["search"], model="openai/x")  # type: ignore[list-item]
    with pytest.raises(SpecError):
        TestAgent(tools=[], model="nothing").get_parsed_provider()


def test_two_tools_of_one_name_are_distinguished() -> None:
    def tool(server: str) -> AgentTool:
        async def execute(arguments: dict[str, Json]) -> CallResult:
            return CallResult(result={"content": [{"type": "text", "text": server}]})

        return AgentTool(name="find", server=server, execute=execute)

    model = scripted(calling(("left__find", {}), ("right__find", {})), answering("Both."))
    found = run(TestAgent(tools={"a": tool("left"), "b": tool("right")}, model=model).prompt("Go"))
    assert [(call.name, call.server) for call in found.get_tool_calls()] == [("find", "left"), ("find", "right")]


def test_a_tool_that_raises_is_a_failed_call() -> None:
    async def execute(arguments: dict[str, Json]) -> CallResult:
        raise ZeroDivisionError("by zero")

    model = scripted(calling(("divide", {})), answering("Sorry."))
    found = run(TestAgent(tools=[AgentTool(name="divide", execute=execute)], model=model).prompt("Go"))
    assert found.get_tool_calls()[0].error == "ZeroDivisionError: by zero" and found.text == "Sorry."


# --- mocks ------------------------------------------------------------------------------------------------------------------


def test_a_mock_answers_by_its_function_and_remembers() -> None:
    agent = TestAgent.mock(lambda message: result("search", text=message.upper()))
    assert isinstance(agent, MockAgent)
    found = run(agent.prompt("hello"))
    assert found.text == "HELLO" and agent.tools_called() == ["search"] and agent.get_last_result() is found
    clone = agent.with_options(temperature=1)
    assert clone.get_prompt_history() == [] and run(clone.run("x")).text == "X" and len(agent.get_prompt_history()) == 1


def test_a_mock_may_be_asynchronous_and_take_options() -> None:
    async def answer(message: str, options: Any) -> PromptResult:
        await asyncio.sleep(0)
        return result(text=f"{message} {options.stop_after_tool_call}")

    assert run(TestAgent.mock(answer).prompt("a", stop_after_tool_call=["b", "c"])).text == "a ('b', 'c')"


def test_exceptions_of_a_mock_are_raised() -> None:
    def broken(message: str) -> PromptResult:
        raise LookupError(message)

    with pytest.raises(LookupError, match="hello"):
        run(TestAgent.mock(broken).prompt("hello"))
    with pytest.raises(TypeError, match="PromptResult"):
        run(TestAgent.mock(lambda message: "text").prompt("x"))  # type: ignore[arg-type,return-value]


# --- not asynchronous -------------------------------------------------------------------------------------------------------


def test_blocking_twins_share_connections() -> None:
    with MCPClientManager({"shop": shop()}) as manager:
        agent = TestAgent(tools=manager.get_tools_sync(), model=scripted(calling(("lookup_order", {"id": 17})), answering("Shipped.")))
        assert agent.prompt_sync("Order 17?").text == "Shipped." and agent.tools_called() == ["lookup_order"]
        assert manager.execute_tool_sync("shop", "lookup_order", {"id": 18})["structuredContent"]["status"] == "open"
        assert manager.ping_server_sync("shop")
    assert manager.get_connection_status("shop") == "disconnected"


def test_blocking_inside_an_event_loop_is_refused() -> None:
    async def main() -> None:
        TestAgent.mock(lambda message: result()).prompt_sync("x")

    with pytest.raises(RuntimeError, match="use the asynchronous twin"):
        run(main())
