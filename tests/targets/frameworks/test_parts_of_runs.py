"""A function that returns part of a run, or picks events out of its stream, leaves the other calls unknown."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from proctor.model.evidence import Evidence
from proctor.targets.shared.faults import TargetFault
from tests.targets.frameworks import shapes
from tests.targets.frameworks.test_frameworks import drive, not_known


def names(evidence: Evidence) -> list[str]:
    return [call.name for call in evidence.tool_calls or ()]


# --- streams with missing events ----------------------------------------------------------------------------------------------


def llama_events() -> list[Any]:
    """The events of llama-index-core 0.14: the last output receives the calls of the whole run when the run is over."""
    where = "llama_index.core.agent.workflow.workflow_events"
    requested = {"tool_name": "lookup_order", "tool_kwargs": {"id": 17}, "tool_id": shapes.CALL_ID}
    step = shapes.make(
        f"{where}:AgentOutput",
        response=shapes.make("llama_index.core.base.llms.types:ChatMessage", content=None),
        structured_response=None,
        tool_calls=[shapes.make("llama_index.core.llms.llm:ToolSelection", **requested)],
    )
    last = shapes.llama_output()
    return [
        shapes.make(f"{where}:AgentInput", input=[]),
        shapes.make(f"{where}:AgentStream", delta="Order"),
        step,
        shapes.make(f"{where}:ToolCall", **requested),
        shapes.llama_call(),
        shapes.make(f"{where}:AgentStream", delta="Order"),
        last,
        shapes.make("workflows.events:StopEvent", result=last),
    ]


def agno_events() -> list[Any]:
    tool = shapes.make(
        "agno.models.response:ToolExecution", tool_call_id="c", tool_name="lookup_order", tool_args={"id": 17}, result=dict(shapes.RESULT)
    )
    request = [shapes.agno_event("ModelRequestStartedEvent"), shapes.agno_event("ModelRequestCompletedEvent")]
    return [
        shapes.agno_event("RunStartedEvent"),
        *request,
        shapes.agno_event("ToolCallStartedEvent", tool=tool),
        shapes.agno_event("ToolCallCompletedEvent", tool=tool),
        *request,
        shapes.agno_event("RunContentEvent", content=shapes.TEXT),
        shapes.agno_event("RunCompletedEvent", content=shapes.TEXT),
    ]


def openai_events() -> list[Any]:
    """The events of openai-agents 0.24, without the many small ones of the model."""

    def completed(**item: Any) -> Any:
        response = shapes.make("openai.types.responses.response:Response", output=[shapes.make("openai:Item", **item)], usage=None)
        data = shapes.make("openai.types.responses:ResponseCompletedEvent", type="response.completed", response=response)
        return shapes.make("agents.stream_events:RawResponsesStreamEvent", data=data)

    def streamed(kind: str, written: dict[str, Any]) -> Any:
        raw = shapes.make("openai:Item", **written)
        item = shapes.make(
            f"agents.items:{kind}", ("RunItemBase",), {"to_input_item": lambda self: written}, raw_item=raw, tool_origin=None
        )
        return shapes.make("agents.stream_events:RunItemStreamEvent", item=item)

    _, call, result, answer = shapes.openai_run().to_input_list()
    return [
        shapes.make("agents.stream_events:AgentUpdatedStreamEvent", new_agent=object()),
        completed(type="function_call", call_id=shapes.CALL_ID),
        streamed("ToolCallItem", call),
        streamed("ToolCallOutputItem", result),
        completed(type="message", call_id=None),
        streamed("MessageOutputItem", answer),
    ]


def langgraph_pairs() -> list[Any]:
    places = [{"langgraph_step": step} for step in (1, 2, 3)]
    messages = shapes.lc_conversation()[1:]
    for message in messages:
        message.response_metadata = {"finish_reason": "stop"}
    return list(zip(messages, places, strict=True))


def langgraph_updates() -> list[Any]:
    asks, result, answer = shapes.lc_conversation()[1:]
    return [{"model": {"messages": [asks]}}, {"tools": {"messages": [result]}}, {"model": {"messages": [answer]}}]


def smol_steps() -> list[Any]:
    steps = [
        shapes.make("smolagents.memory:ActionStep", ("MemoryStep",), {"dict": lambda self, step=step: step})
        for step in shapes.smol_run().steps[1:]
    ]
    return [*steps, shapes.make("smolagents.memory:FinalAnswerStep", ("MemoryStep",), output=shapes.TEXT)]


def haystack_chunks() -> list[Any]:
    """The chunks of haystack-ai 3.4: the last one of an answer has the finish reason."""

    def chunk(content: str = "", finish: str | None = None, calls: tuple[Any, ...] = (), result: Any = None) -> Any:
        fields = {"content": content, "finish_reason": finish, "tool_calls": list(calls), "tool_call_result": result, "meta": {}}
        return shapes.make("haystack.dataclasses.streaming_chunk:StreamingChunk", **fields)

    origin = {"tool_name": "lookup_order", "arguments": {"id": 17}, "id": shapes.CALL_ID, "extra": None}
    done = {"result": json.dumps(shapes.RESULT), "origin": origin, "error": False}
    delta = shapes.make("haystack:ToolCallDelta", index=0, tool_name="lookup_order", arguments='{"id": 17}', id=shapes.CALL_ID)
    result = shapes.make("haystack.dataclasses.chat_message:ToolCallResult", (), {"to_dict": lambda self: done})
    return [
        chunk(calls=(delta,)),
        chunk(finish="tool_calls"),
        chunk(result=result),
        chunk(finish="tool_call_results"),
        chunk("Order 17 "),
        chunk("has shipped."),
        chunk(finish="stop"),
    ]


def ag2_events() -> list[Any]:
    """The events of ag2 1.2: the request follows everything that resulted from it."""

    def event(kind: str, at: float = 0.0, /, **fields: Any) -> Any:
        return shapes.make(f"ag2.events.types:{kind}", ("BaseEvent",), created_at=at, **fields)

    call = event("ToolCallEvent", 2.0, id=shapes.CALL_ID, name="lookup_order", arguments='{"id": 17}')
    given = shapes.make("ag2.tools.final:ToolResult", parts=[event("DataInput", data=dict(shapes.RESULT))])
    return [
        event("ModelResponse", 2.0, content=None, tool_calls=event("ToolCallsEvent", 2.0, calls=[call]), usage=None),
        event("ToolResultEvent", 3.0, parent_id=shapes.CALL_ID, name="lookup_order", error=None, result=given),
        event("ModelResponse", 4.0, content=shapes.TEXT, tool_calls=event("ToolCallsEvent", 4.0, calls=[]), usage=None),
        event("ModelRequest", 1.0, parts=[event("TextInput", content=shapes.QUESTION)]),
    ]


STREAMS: dict[str, Callable[[], list[Any]]] = {
    "LlamaIndex": llama_events,
    "Agno": agno_events,
    "OpenAI Agents": openai_events,
    "AutoGen": lambda: [*shapes.autogen_messages(), shapes.autogen_result()],
    "LangGraph messages": langgraph_pairs,
    "LangGraph updates": langgraph_updates,
    "smolagents": smol_steps,
    "Haystack": haystack_chunks,
    "AG2": ag2_events,
    "Google ADK": shapes.adk_events,
    "Strands": lambda: [{"data": "Order"}, {"result": shapes.strands_run()}],
}


def pick(events: list[Any]) -> Iterator[list[Any]]:
    """The events left if only some kinds are picked, or the first ones are missed."""
    kinds = list(dict.fromkeys(type(event).__name__ for event in events))
    for size in range(1, len(kinds)):
        for chosen in itertools.combinations(kinds, size):
            yield [event for event in events if type(event).__name__ in chosen]
    for begin in range(1, len(events)):
        yield events[begin:]


@pytest.mark.parametrize("name", STREAMS)
def test_a_whole_stream_shows_the_calls(name: str) -> None:
    evidence = drive(lambda message: iter(STREAMS[name]()))
    assert names(evidence) == ["lookup_order"] and evidence.text == shapes.TEXT
    assert [call.arguments for call in evidence.tool_calls or ()] == [{"id": 17}]
    assert "tool_calls" not in not_known(evidence), evidence.account


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_with_missing_events_shows_the_calls_or_leaves_them_unknown(name: str) -> None:
    events = STREAMS[name]()
    for chosen in pick(events):
        for returned in (iter(chosen), chosen):
            try:
                evidence = drive(lambda message, returned=returned: returned)
            except TargetFault:
                continue  # the reason names the type of the streamed events
            kinds = [type(event).__name__ for event in chosen]
            assert names(evidence) == ["lookup_order"] or "tool_calls" in not_known(evidence), kinds


def test_a_stream_of_an_agno_run_without_tools_shows_no_calls() -> None:
    events = [event for event in agno_events() if "Tool" not in type(event).__name__]
    assert drive(lambda message: iter([*events[:3], *events[5:]])).tool_calls == ()


def test_the_history_of_an_ag2_reply_shows_no_calls() -> None:
    events = ag2_events()[2:]

    async def get_events(self: Any) -> list[Any]:
        return events

    history = shapes.make("ag2.history:History", (), {"get_events": get_events})
    assert "tool_calls" not in not_known(drive(lambda message: shapes.make("ag2.agent:AgentReply", history=history)))
    assert "tool_calls" in not_known(drive(lambda message: iter(events)))


def test_a_llamaindex_output_with_a_tool_call_is_not_the_end() -> None:
    step = llama_events()[2]
    evidence = drive(lambda message: step)
    assert names(evidence) == ["lookup_order"] and {"tool_calls", "answer"} <= not_known(evidence)
    cut = llama_events()[:5]
    assert {"tool_calls", "answer"} <= not_known(drive(lambda message: iter(cut)))


def test_two_calls_with_one_id_stay_two() -> None:
    events = llama_events()
    events[4:5] = [shapes.llama_call(), shapes.llama_call()]
    events[6 + 1].tool_calls = [shapes.llama_call(), shapes.llama_call()]
    assert names(drive(lambda message: iter(events))) == ["lookup_order", "lookup_order"]


# --- lists with part of the messages ------------------------------------------------------------------------------------------

QUESTION = {"role": "user", "content": shapes.QUESTION}
ANSWERED = {"role": "assistant", "content": shapes.TEXT}
ASKS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "lookup_order", "arguments": '{"id": 17}'}}],
}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "shipped"}


def llama_message() -> Any:
    blocks = [{"block_type": "text", "text": shapes.TEXT}]
    return shapes.make("llama_index.core.base.llms.types:ChatMessage", role=shapes.Role.ASSISTANT, additional_kwargs={}, blocks=blocks)


CUT: dict[str, Callable[[], Any]] = {
    "the last message": lambda: [ANSWERED],
    "the last message in an envelope": lambda: {"messages": [ANSWERED]},
    "the last message without a list": lambda: ANSWERED,
    "the last message as a client of OpenAI writes it": lambda: {**ANSWERED, "refusal": None, "function_call": None, "tool_calls": None},
    "everything but the user message": lambda: [ASKS, RESULT, ANSWERED],
    "a message of LlamaIndex": lambda: [llama_message()],
    "a state of LangGraph": lambda: {"messages": shapes.lc_conversation()[-1:]},
    "a state of LangGraph without the user message": lambda: {"messages": shapes.lc_conversation()[1:]},
    "messages of Haystack": lambda: {"messages": shapes.haystack_result()["messages"][-1:]},
    "messages of Agent Framework": lambda: shapes.framework_response().messages[-1:],
    "a history of Semantic Kernel": lambda: shapes.make(
        "semantic_kernel.contents.chat_history:ChatHistory", messages=[shapes.kernel_response().message]
    ),
    "messages of AutoGen": lambda: [shapes.autogen_messages()[0], shapes.autogen_messages()[-1]],
    "a message of Strands": lambda: shapes.strands_run().message,
    "a result of Strands as a mapping": lambda: {
        "type": "agent_result",
        "message": {"role": "assistant", "content": [{"text": shapes.TEXT}]},
        "stop_reason": "end_turn",
        "checkpoint": None,
    },
    "a chat completion": lambda: {
        "id": "x",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": ANSWERED}],
    },
}


@pytest.mark.parametrize("name", CUT)
def test_part_of_the_messages_leaves_the_calls_unknown(name: str) -> None:
    evidence = drive(lambda message: CUT[name]())
    assert "tool_calls" in not_known(evidence)
    assert evidence.text == shapes.TEXT


def explain(make: Callable[[], Any]) -> str:
    account = drive(lambda message: make()).account
    assert account is not None
    return account.unknown["tool_calls"]


def test_the_reason_names_what_to_return_instead() -> None:
    explained = {name: explain(CUT[name]) for name in CUT}
    assert "`TaskResult`" in explained.pop("messages of AutoGen")
    assert all("return all messages of the run, or the framework's result itself" in why for why in explained.values())


def test_an_answer_with_the_sent_messages_is_complete() -> None:
    whole = {**CUT["a chat completion"](), "messages": [QUESTION]}
    assert "tool_calls" not in not_known(drive(lambda message: whole))


def test_a_message_with_a_tool_call_shows_only_that_call() -> None:
    evidence = drive(lambda message: ASKS)
    assert names(evidence) == ["lookup_order"] and "tool_calls" in not_known(evidence)


def test_calls_seen_in_a_part_count_as_done() -> None:
    assert names(drive(lambda message: [ASKS, RESULT, ANSWERED])) == ["lookup_order"]


@pytest.mark.parametrize("messages", [[QUESTION, ANSWERED], [QUESTION, ASKS, RESULT, ANSWERED]], ids=["without a call", "with a call"])
def test_messages_from_the_user_message_on_show_every_call(messages: list[dict[str, Any]]) -> None:
    for returned in (messages, {"messages": messages}):
        assert "tool_calls" not in not_known(drive(lambda message, returned=returned: returned))


@pytest.mark.parametrize("returned", [[QUESTION], {"messages": shapes.lc_conversation()[:1]}], ids=["openai", "LangGraph"])
def test_messages_that_end_with_the_user_message_show_nothing_of_the_agent(returned: Any) -> None:
    assert {"tool_calls", "answer"} <= not_known(drive(lambda message: returned))


def test_messages_of_the_previous_turn_do_not_count_for_this_turn() -> None:
    before = [QUESTION, ASKS, RESULT, ANSWERED]
    evidence = drive(lambda message: before, shapes.QUESTION, "And order 23?")
    assert "tool_calls" in not_known(evidence)
    assert "does not begin with the message of this turn" in str(evidence.account)


# --- Strands ------------------------------------------------------------------------------------------------------------------


def strands_with_two_tools(message_of_each: bool) -> Any:
    """Two tools at once, as in strands-agents 1.62: the trace of each tool has its own result, or one message has both."""
    run = shapes.strands_run(before=0)
    model, tool, _ = run.metrics.traces[0].children
    ids = ("call_1", "call_2")
    model.message = {
        "role": "assistant",
        "content": [{"toolUse": {"toolUseId": id, "name": "lookup_order", "input": {"id": 17}}} for id in ids],
    }
    results = [{"toolResult": {"toolUseId": id, "status": "success", "content": [{"text": json.dumps(shapes.RESULT)}]}} for id in ids]
    parts = [[one] for one in results] if message_of_each else [results, results]
    tools = [
        shapes.make("strands.telemetry.metrics:Trace", name=tool.name, message={"role": "user", "content": part}, children=[])
        for part in parts
    ]
    run.metrics.traces[0].children = [model, *tools]
    return run


@pytest.mark.parametrize("message_of_each", [True, False])
def test_two_tools_at_once_in_a_result_of_strands_are_both_known(message_of_each: bool) -> None:
    evidence = drive(lambda message: strands_with_two_tools(message_of_each))
    assert names(evidence) == ["lookup_order", "lookup_order"]
    assert all(call.result == shapes.RESULT for call in evidence.tool_calls or ())
    assert not_known(evidence) <= {"nodes", "state"}, evidence.account


def test_a_reused_strands_agent_is_noted() -> None:
    run = shapes.strands_run()
    run.metrics.agent_invocations = [*run.metrics.agent_invocations, *run.metrics.agent_invocations]
    account = drive(lambda message: run).account
    assert account is not None
    assert any(note.startswith("this agent was invoked 2 times") and "the last invocation only" in note for note in account.notes)
