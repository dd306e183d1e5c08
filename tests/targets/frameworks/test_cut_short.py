"""A run stopped by a limit, or a truncated answer, looks complete except for the reason why it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proctor.targets.answers.json_answers import read_json_answer
from tests.targets.frameworks import shapes
from tests.targets.frameworks.test_frameworks import drive, fault_of, not_known

FORCED = "Now it's time you MUST give your absolute best final answer. You'll ignore all previous instructions."


def with_fields(value: Any, **fields: Any) -> Any:
    for name, member in fields.items():
        setattr(value, name, member)
    return value


def autogen_result(reason: str | None, messages: list[Any] | None = None) -> Any:
    return shapes.make("autogen_agentchat.base._task:TaskResult", messages=messages or shapes.autogen_messages(), stop_reason=reason)


def autogen_summary(rounds: int) -> list[Any]:
    """The messages of an agent that returns its tools' results as its answer, after so many tool calls."""
    question, request, done, _ = shapes.autogen_messages()
    fields = {"source": "shop", "models_usage": None, "metadata": {}, "created_at": shapes.WHEN, "content": "shipped"}
    more = {"type": "ToolCallSummaryMessage", "tool_calls": [], "results": []}
    return [
        question,
        *[request, done] * rounds,
        shapes.make("autogen_agentchat.messages:ToolCallSummaryMessage", ("BaseChatMessage",), **fields, **more),
    ]


def openai_answer(*texts: str) -> Any:
    return shapes.make("openai.types:Message", content=[shapes.make("openai.types:Text", text=text) for text in texts])


def openai_handled(answer: str, **fields: Any) -> Any:
    """A run whose last message differs from the last response of the model."""
    usage = shapes.make("agents.usage:Usage", input_tokens=100, output_tokens=10)
    response = shapes.make("agents.items:ModelResponse", usage=usage, output=[openai_answer(answer)])
    last = shapes.make("agents.items:MessageOutputItem", ("RunItemBase",), raw_item=openai_answer(shapes.TEXT))
    return shapes.openai_run(raw_responses=[response], new_items=[last], **fields)


def llama_cut(raw: Any) -> Any:
    return with_fields(shapes.llama_output(), raw=raw)


def llama_stopped() -> list[Any]:
    """The events of an agent that requested a second call, was stopped, and was made to answer."""
    requested = shapes.make("llama_index.core.tools:ToolSelection", tool_name="lookup_order", tool_kwargs={"id": 18}, tool_id="call_2")
    step = with_fields(shapes.llama_output(), tool_calls=[requested])
    last = shapes.llama_output()
    return [step, last, shapes.make("workflows.events:StopEvent", result=last)]


def kernel_stream(reason: str) -> list[Any]:
    piece = shapes.make("semantic_kernel.contents:StreamingChatMessageContent", content=shapes.TEXT, finish_reason=reason)
    return [with_fields(shapes.kernel_response(), message=piece)]


def langgraph_state(text: str) -> Any:
    messages = shapes.lc_conversation()
    messages[-1].content = text
    return {"messages": messages}


STOPPED: dict[str, tuple[Callable[[], Any], str]] = {
    "AutoGen, max_turns": (lambda: autogen_result("Maximum number of turns 2 reached."), "turns 2"),
    "AutoGen, max_messages": (lambda: autogen_result("Maximum number of messages 3 reached, current message count: 3"), "messages 3"),
    "AutoGen, a timeout": (lambda: autogen_result("Timeout of 5 seconds reached"), "Timeout"),
    "AutoGen, stopped from outside": (lambda: autogen_result("External termination requested"), "External"),
    "AutoGen, max_tool_iterations": (lambda: autogen_result(None, autogen_summary(2)), "max_tool_iterations"),
    "CrewAI, forced to answer": (
        lambda: shapes.crew_output([*shapes.openai_messages()[:-1], {"role": "user", "content": FORCED}, shapes.openai_messages()[-1]]),
        "max_iter",
    ),
    "CrewAI, an answer that no message holds": (lambda: shapes.crew_output(shapes.openai_messages()[:-1]), "max_iter"),
    "Haystack, max_agent_steps": (lambda: {**shapes.haystack_result(), "exit_reason": "max_agent_steps"}, "max_agent_steps"),
    "Haystack, a hook": (lambda: {"agent": {**shapes.haystack_result(), "exit_reason": "over budget"}}, "over budget"),
    "Haystack, ends with a tool": (lambda: {"messages": shapes.haystack_result()["messages"][:-1]}, "end with the result of a tool"),
    "LlamaIndex, a call that was never made": (lambda: iter(llama_stopped()), "max_iterations"),
    "LlamaIndex, cancelled": (
        lambda: iter([shapes.llama_output(), shapes.make("workflows.events:WorkflowCancelledEvent", ("StopEvent",))]),
        "cancelled",
    ),
    "OpenAI Agents, a handler": (lambda: openai_handled("I looked"), "error_handlers"),
    "OpenAI Agents, a handler of a stream": (lambda: shapes.openai_run(_max_turns_handled=True), "error_handlers"),
    "LangChain, model calls": (lambda: langgraph_state("Model call limits exceeded: run limit (2/2)"), "limit of model calls"),
    "LangChain, tool calls": (lambda: langgraph_state("'refund' tool call limit reached: run limit exceeded (3/2 calls)."), "tool calls"),
    "LangChain, bare text": (lambda: "Model call limits exceeded: run limit (2/2)", "limit of model calls"),
    "LangGraph, text in pieces": (lambda: iter(["Sorry, need more steps ", "to process this request."]), "recursion_limit"),
    "smolagents, parts of a message": (
        lambda: [{"type": "text", "text": "Error in generating final LLM output: the model is gone"}],
        "max_steps",
    ),
    "smolagents, bare text": (lambda: "Error in generating final LLM output: the model is gone", "max_steps"),
}


@pytest.mark.parametrize("name", STOPPED)
def test_a_run_stopped_by_a_limit_has_unknown_answer_and_calls(name: str) -> None:
    evidence = drive(lambda message: STOPPED[name][0]())
    assert {"tool_calls", "answer"} <= not_known(evidence)
    assert evidence.account is not None and STOPPED[name][1] in " ".join(evidence.account.unknown.values())


CUT: dict[str, Callable[[], Any]] = {
    "Agent Framework": lambda: with_fields(shapes.framework_response(), finish_reason="length"),
    "Agent Framework, filtered": lambda: with_fields(shapes.framework_response(), finish_reason="content_filter"),
    "LlamaIndex": lambda: llama_cut({"choices": [{"finish_reason": "length"}]}),
    "LlamaIndex, an object": lambda: llama_cut(shapes.make("anthropic.types:Message", stop_reason="max_tokens")),
    "LlamaIndex, Gemini": lambda: llama_cut({"candidates": [{"finish_reason": "MAX_TOKENS"}]}),
    "Semantic Kernel, streamed": lambda: iter(kernel_stream("length")),
    "Strands, filtered": lambda: shapes.strands_run(stop_reason="content_filtered"),
}


@pytest.mark.parametrize("name", CUT)
def test_a_truncated_answer_is_unknown_and_earlier_calls_are_known(name: str) -> None:
    evidence = drive(lambda message: CUT[name]())
    assert "answer" in not_known(evidence) and "tool_calls" not in not_known(evidence)


WHOLE: dict[str, Callable[[], Any]] = {
    "AutoGen, a team that ends by its word": lambda: autogen_result("Text 'shipped' mentioned"),
    "AutoGen, one iteration": lambda: autogen_result(None, autogen_summary(1)),
    "CrewAI, a tool that answers": lambda: with_fields(
        shapes.crew_output(shapes.openai_messages()[:-1]).tasks_output[0], raw=shapes.openai_messages()[-2]["content"]
    ),
    "Haystack, a tool that ends the run": lambda: {
        **shapes.haystack_result(),
        "messages": shapes.haystack_result()["messages"][:-1],
        "exit_reason": "lookup_order",
    },
    "OpenAI Agents": lambda: openai_handled(shapes.TEXT),
    "LlamaIndex": lambda: llama_cut({"choices": [{"finish_reason": "stop"}]}),
    "Semantic Kernel, streamed": lambda: iter(kernel_stream("stop")),
    "Agent Framework": lambda: with_fields(shapes.framework_response(), finish_reason="stop"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_completed_run_shows_every_call(name: str) -> None:
    assert "tool_calls" not in not_known(drive(lambda message: WHOLE[name]()))


def test_a_failed_workflow_is_the_error_of_the_case() -> None:
    broken = shapes.make("workflows.events:WorkflowFailedEvent", ("StopEvent",), exception=ValueError("the model is gone"))
    fault = fault_of(lambda message: iter([shapes.llama_output(), broken]))
    assert fault.code == "agent_failed" and "the model is gone" in fault.message


def test_an_answer_that_mentions_a_limit_is_an_answer() -> None:
    answer = "Your tool call limit reached: thirty days. " + "I am sorry. " * 40
    assert "answer" not in not_known(drive(lambda message: answer))
    assert "answer" not in not_known(drive(lambda message: "Agent stopped due to the strike at the airport, your flight is cancelled."))


@pytest.mark.parametrize("make", [shapes.autogen_result, shapes.crew_output, shapes.agno_run, shapes.ag2_response])
def test_a_missing_finish_reason_of_the_model_is_noted(make: Callable[[], Any]) -> None:
    account = drive(lambda message: make()).account
    assert account is not None and any("does not report why its model stopped" in note for note in account.notes)


@pytest.mark.parametrize("calls", [[], [{"toolCallId": "c", "toolName": "lookup_order", "input": {"id": 17}}]])
def test_ai_sdk_text_and_calls_are_those_of_the_last_step(calls: list[Any]) -> None:
    evidence = read_json_answer({"text": "Done.", "toolCalls": calls})
    assert evidence is not None and evidence.account is not None
    assert "last step" in evidence.account.unknown["tool_calls"]
    # The text of a result is its answer, even if its last step called a tool.
    assert "answer" not in evidence.account.unknown


def test_custom_calls_in_that_spelling_are_complete() -> None:
    evidence = read_json_answer({"text": "Done.", "toolCalls": [{"name": "lookup_order", "arguments": {"id": 17}}]})
    assert evidence is not None and [call.name for call in evidence.tool_calls or ()] == ["lookup_order"]
    assert evidence.account is None or "tool_calls" not in evidence.account.unknown
