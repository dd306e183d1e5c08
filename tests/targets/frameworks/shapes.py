"""Doubles of the values that frameworks return: the classes, modules and fields of real ones, as seen in runs of the versions
that the readers name. The live tests (`tests/live/clients/test_framework_pages.py`) run the real packages.
"""

from __future__ import annotations

import datetime
import enum
import json
from collections.abc import Callable
from typing import Any

CALL_ID = "call_1"
TEXT = "Order 17 has shipped."
QUESTION = "Where is order 17?"
RESULT = {"id": 17, "status": "shipped"}
WHEN = datetime.datetime(2026, 11, 16, tzinfo=datetime.UTC)


def make(path: str, bases: tuple[str, ...] = (), methods: dict[str, Callable[..., Any]] | None = None, **fields: Any) -> Any:
    """An object of the class `package.module:Name`, which inherits from classes of these names, with pydantic's mark and these fields."""
    module, _, name = path.partition(":")
    parents = tuple(type(base, (), {"__module__": module}) for base in bases)
    one = type(name, parents, {"__module__": module, "__pydantic_fields__": {}, **(methods or {})})()
    vars(one).update(fields)
    return one


class Role(enum.StrEnum):
    """Frameworks represent roles as enumerations."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


# --- LangChain ---------------------------------------------------------------------------------------------------------------


def lc(kind: str, **fields: Any) -> Any:
    name = {"human": "HumanMessage", "ai": "AIMessage", "tool": "ToolMessage"}[kind]
    common = {"additional_kwargs": {}, "response_metadata": {}, "type": kind, "name": None, "id": f"{kind}-{fields.get('id', 0)}"}
    return make(f"langchain_core.messages.{kind}:{name}", ("BaseMessage",), **{**common, **fields})


def lc_conversation(order: int = 17) -> list[Any]:
    usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    call = {"name": "lookup_order", "args": {"id": order}, "id": f"call_{order}", "type": "tool_call"}
    return [
        lc("human", content=f"Where is order {order}?", id=f"h{order}"),
        lc("ai", content="", tool_calls=[call], invalid_tool_calls=[], usage_metadata=usage, id=f"a{order}"),
        lc(
            "tool",
            content=json.dumps({"id": order, "status": "shipped"}),
            name="lookup_order",
            tool_call_id=f"call_{order}",
            status="success",
            artifact=object(),
            id=f"t{order}",
        ),
        lc("ai", content=f"Order {order} has shipped.", tool_calls=[], invalid_tool_calls=[], usage_metadata=usage, id=f"b{order}"),
    ]


def langgraph_state() -> Any:
    return {"messages": lc_conversation()}


# --- OpenAI Agents -----------------------------------------------------------------------------------------------------------


def openai_run(**fields: Any) -> Any:
    items = [
        {"content": QUESTION, "role": "user"},
        {
            "arguments": '{"id": 17}',
            "call_id": CALL_ID,
            "name": "lookup_order",
            "type": "function_call",
            "id": "fc_1",
            "status": "completed",
        },
        {"call_id": CALL_ID, "output": json.dumps(RESULT), "type": "function_call_output"},
        {
            "id": "msg_1",
            "content": [{"annotations": [], "text": TEXT, "type": "output_text", "logprobs": []}],
            "role": "assistant",
            "status": "completed",
            "type": "message",
        },
    ]
    usage = make("agents.usage:Usage", input_tokens=100, output_tokens=10)
    known = {
        "final_output": TEXT,
        "raw_responses": [make("agents.items:ModelResponse", usage=usage)] * 2,
        "new_items": [],
        "interruptions": [],
    }
    return make("agents.result:RunResult", ("RunResultBase",), {"to_input_list": lambda self: items}, **{**known, **fields})


# --- Pydantic AI -------------------------------------------------------------------------------------------------------------


def pydantic_run(output: Any = TEXT) -> Any:
    messages = [
        {"parts": [{"content": QUESTION, "timestamp": WHEN.isoformat(), "part_kind": "user-prompt"}], "kind": "request"},
        {
            "parts": [{"tool_name": "lookup_order", "args": '{"id": 17}', "tool_call_id": CALL_ID, "part_kind": "tool-call"}],
            "usage": {"input_tokens": 100, "output_tokens": 10},
            "kind": "response",
        },
        {
            "parts": [
                {"tool_name": "lookup_order", "content": RESULT, "tool_call_id": CALL_ID, "part_kind": "tool-return", "outcome": "success"}
            ],
            "kind": "request",
        },
        {"parts": [{"content": TEXT, "part_kind": "text"}], "usage": {"input_tokens": 100, "output_tokens": 10}, "kind": "response"},
    ]
    return make("pydantic_ai.run:AgentRunResult", (), {"new_messages_json": lambda self: json.dumps(messages).encode()}, output=output)


# --- CrewAI ------------------------------------------------------------------------------------------------------------------


def openai_messages(tool: str = "lookup_order") -> list[dict[str, Any]]:
    call = {"id": CALL_ID, "type": "function", "function": {"name": tool, "arguments": '{"id": 17}'}}
    return [
        {"role": "system", "content": "You are Clerk."},
        {"role": "user", "content": f"\nCurrent Task: {QUESTION}"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": json.dumps(RESULT), "tool_call_id": CALL_ID, "name": tool},
        {"role": "assistant", "content": TEXT},
    ]


def crew_output(messages: list[Any] | None = None) -> Any:
    task = make("crewai.tasks.task_output:TaskOutput", raw=TEXT, messages=openai_messages() if messages is None else messages)
    usage = make(
        "crewai.types.usage_metrics:UsageMetrics", prompt_tokens=200, completion_tokens=20, total_tokens=220, successful_requests=2
    )
    return make("crewai.crews.crew_output:CrewOutput", raw=TEXT, pydantic=None, json_dict=None, tasks_output=[task], token_usage=usage)


# --- Agno --------------------------------------------------------------------------------------------------------------------


def agno_run(members: tuple[Any, ...] = (), tool: str = "lookup_order") -> Any:
    metrics = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    call = {"id": CALL_ID, "function": {"arguments": '{"id": 17}', "name": tool}, "type": "function"}
    old = {"role": "user", "content": "Hello", "from_history": True}
    messages = [
        {"role": "user", "content": "Hello", **old},
        {"role": "user", "content": QUESTION, "from_history": False},
        {"role": "assistant", "tool_calls": [call], "from_history": False, "metrics": metrics},
        {"role": "tool", "content": json.dumps(RESULT), "tool_call_id": CALL_ID, "tool_name": tool, "tool_call_error": False},
        {"role": "assistant", "content": TEXT, "from_history": False, "metrics": metrics},
    ]
    run = {"run_id": "r", "session_id": "s", "messages": messages, "model": "gpt-4o-mini", "status": "COMPLETED", "strange": {"new": 1}}
    return make("agno.run.agent:RunOutput", (), {"to_dict": lambda self: run}, content=TEXT, member_responses=list(members))


def agno_event(name: str, **fields: Any) -> Any:
    return make(f"agno.run.agent:{name}", ("BaseRunOutputEvent",), **fields)


# --- smolagents --------------------------------------------------------------------------------------------------------------


def smol_run() -> Any:
    def step(number: int, name: str, arguments: Any, observed: str | None) -> dict[str, Any]:
        call = {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        tokens = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
        timing = {"start_time": 1.0, "end_time": 2.0, "duration": 1.0}
        return {
            "step_number": number,
            "timing": timing,
            "tool_calls": [call],
            "observations": observed,
            "token_usage": tokens,
            "model_input_messages": [{"role": Role.USER, "raw": object()}],
        }

    steps = [
        {"task": QUESTION, "task_images": None},
        step(1, "lookup_order", {"id": 17}, json.dumps(RESULT)),
        step(2, "final_answer", {"answer": TEXT}, TEXT),
    ]
    return make("smolagents.agents:RunResult", output=TEXT, state="success", steps=steps)


# --- Strands -----------------------------------------------------------------------------------------------------------------


def strands_run(*, has_messages: bool = True, before: int = 1, **fields: Any) -> Any:
    def trace(name: str, message: Any = None, children: tuple[Any, ...] = ()) -> Any:
        return make("strands.telemetry.metrics:Trace", name=name, message=message if has_messages else None, children=list(children))

    use = {"toolUse": {"toolUseId": CALL_ID, "name": "lookup_order", "input": {"id": 17}}}
    result = {"toolResult": {"toolUseId": CALL_ID, "status": "success", "content": [{"text": json.dumps(RESULT)}]}}
    last = {"role": "assistant", "content": [{"text": TEXT}], "tracking_id": "t"}
    cycles = [
        trace(
            "Cycle 1",
            children=(
                trace("stream_messages", {"role": "assistant", "content": [use]}),
                trace("Tool: lookup_order", {"role": "user", "content": [result]}),
                trace("Recursive call"),
            ),
        ),
        trace("Cycle 2", children=(trace("stream_messages", last),)),
    ]
    earlier = trace("Cycle 1", children=(trace("stream_messages", {"role": "assistant", "content": [{"text": "Hello"}]}),))
    invocation = make(
        "strands.telemetry.metrics:AgentInvocation", cycles=[1, 2], usage={"inputTokens": 200, "outputTokens": 20, "totalTokens": 220}
    )
    metrics = make("strands.telemetry.metrics:EventLoopMetrics", traces=[earlier] * before + cycles, agent_invocations=[invocation])
    known = {"stop_reason": "end_turn", "message": last, "metrics": metrics, "interrupts": None, "structured_output": None}
    return make("strands.agent.agent_result:AgentResult", **{**known, **fields})


# --- LlamaIndex --------------------------------------------------------------------------------------------------------------


def llama_call(*, failed: bool = False) -> Any:
    output = make(
        "llama_index.core.tools.types:ToolOutput", content="it broke" if failed else str(RESULT), raw_output=dict(RESULT), is_error=failed
    )
    return make(
        "llama_index.core.agent.workflow.workflow_events:ToolCallResult",
        tool_name="lookup_order",
        tool_kwargs={"id": 17},
        tool_id=CALL_ID,
        tool_output=output,
    )


def llama_output(*, failed: bool = False) -> Any:
    answer = make("llama_index.core.base.llms.types:ChatMessage", content=TEXT)
    return make(
        "llama_index.core.agent.workflow.workflow_events:AgentOutput",
        response=answer,
        structured_response=None,
        tool_calls=[llama_call(failed=failed)],
    )


# --- AutoGen -----------------------------------------------------------------------------------------------------------------


def autogen_messages() -> list[Any]:
    usage = make("autogen_core.models._types:RequestUsage", prompt_tokens=100, completion_tokens=10)

    def message(kind: str, source: str, content: Any, spent: Any = None) -> Any:
        base = "BaseChatMessage" if kind == "TextMessage" else "BaseAgentEvent"
        fields = {"source": source, "models_usage": spent, "metadata": {}, "created_at": WHEN, "content": content, "type": kind}
        return make(f"autogen_agentchat.messages:{kind}", (base,), **fields)

    call = make("autogen_core._types:FunctionCall", id=CALL_ID, arguments='{"id": 17}', name="lookup_order")
    done = make(
        "autogen_core.models._types:FunctionExecutionResult",
        content=json.dumps(RESULT),
        name="lookup_order",
        call_id=CALL_ID,
        is_error=False,
    )
    return [
        message("TextMessage", "user", QUESTION),
        message("ToolCallRequestEvent", "shop", [call], usage),
        message("ToolCallExecutionEvent", "shop", [done]),
        message("TextMessage", "shop", TEXT, usage),
    ]


def autogen_result() -> Any:
    return make("autogen_agentchat.base._task:TaskResult", messages=autogen_messages(), stop_reason=None)


# --- AG2 ---------------------------------------------------------------------------------------------------------------------


def ag2_history() -> list[dict[str, Any]]:
    call = {"id": CALL_ID, "type": "function", "function": {"name": "lookup_order", "arguments": '{"id": 17}'}}
    return [
        {"content": QUESTION, "role": "user", "name": "user"},
        {"tool_calls": [call], "content": None, "role": "assistant"},
        {
            "content": json.dumps(RESULT),
            "tool_responses": [{"tool_call_id": CALL_ID, "role": "tool", "content": json.dumps(RESULT)}],
            "role": "tool",
            "name": "user",
        },
        {"content": TEXT, "role": "assistant", "name": "shop"},
        {"content": "", "role": "user", "name": "user"},
        {"content": TEXT, "role": "assistant", "name": "shop"},
    ]


def ag2_response() -> Any:
    return make("autogen.io.run_response:RunResponse", messages=ag2_history(), events=[])


# --- Google ADK --------------------------------------------------------------------------------------------------------------


def adk_events() -> list[Any]:
    def event(role: str, part: dict[str, Any], **fields: Any) -> Any:
        parts = [make("google.genai.types:Part", **{"text": None, "function_call": None, "function_response": None, **part})]
        content = make("google.genai.types:Content", role=role, parts=parts)
        actions = make("google.adk.events.event_actions:EventActions", state_delta={}, artifact_delta={}, compaction=None)
        known = {"author": "shop", "invocation_id": "e-1", "partial": None, "actions": actions}
        return make("google.adk.events.event:Event", content=content, **{**known, **fields})

    usage = make("google.genai.types:Usage", prompt_token_count=100, candidates_token_count=10, total_token_count=110)
    call = make("google.genai.types:FunctionCall", id=CALL_ID, args={"id": 17}, name="lookup_order", partial_args=None)
    response = make("google.genai.types:FunctionResponse", id=CALL_ID, name="lookup_order", response=dict(RESULT), parts=None)
    return [
        event("model", {"function_call": call}, usage_metadata=usage, model_version="gemini-2.5-flash"),
        event("user", {"function_response": response}),
        event("model", {"text": TEXT}, usage_metadata=usage),
    ]


# --- Haystack, Semantic Kernel, Agent Framework, DSPy ------------------------------------------------------------------------


def haystack_message(role: str, content: list[Any]) -> Any:
    written = {"role": role, "meta": {}, "name": None, "content": content}
    return make("haystack.dataclasses.chat_message:ChatMessage", (), {"to_dict": lambda self: written})


def haystack_result() -> Any:
    call = {"tool_name": "lookup_order", "arguments": {"id": 17}, "id": CALL_ID, "extra": None}
    answer = haystack_message("assistant", [{"text": TEXT}])
    messages = [
        haystack_message("user", [{"text": QUESTION}]),
        haystack_message("assistant", [{"tool_call": call}]),
        haystack_message("tool", [{"tool_call_result": {"result": json.dumps(RESULT), "origin": call, "error": False}}]),
        answer,
    ]
    return {"messages": messages, "step_count": 2, "exit_reason": "text", "last_message": answer}


def kernel_message(role: str, items: list[dict[str, Any]]) -> Any:
    written = {"metadata": {}, "content_type": "message", "role": role, "items": items}
    return make(
        "semantic_kernel.contents.chat_message_content:ChatMessageContent",
        (),
        {"model_dump_json": lambda self, **options: json.dumps(written)},
        content=next((item.get("text") for item in items), None),
    )


def kernel_response(*, has_history: bool = True) -> Any:
    call = {"metadata": {}, "content_type": "function_call", "id": CALL_ID, "name": "Shop-lookup_order", "arguments": '{"id": 17}'}
    done = {"metadata": {}, "content_type": "function_result", "id": CALL_ID, "name": "Shop-lookup_order", "result": json.dumps(RESULT)}
    answer = kernel_message("assistant", [{"metadata": {}, "content_type": "text", "text": TEXT}])
    messages = [
        kernel_message("user", [{"metadata": {}, "content_type": "text", "text": QUESTION}]),
        kernel_message("assistant", [call]),
        kernel_message("tool", [done]),
        answer,
    ]
    history = make("semantic_kernel.contents.chat_history:ChatHistory", messages=messages)
    thread = make("semantic_kernel.agents.chat_completion:ChatHistoryAgentThread", **({"_chat_history": history} if has_history else {}))
    return make("semantic_kernel.agents.agent:AgentResponseItem", message=answer, thread=thread)


def framework_response() -> Any:
    def message(role: str, **content: Any) -> Any:
        written = {"type": "message", "role": role, "contents": [content], "additional_properties": {}}
        return make("agent_framework._types:Message", (), {"to_dict": lambda self: written})

    messages = [
        message("assistant", type="function_call", call_id=CALL_ID, name="lookup_order", arguments='{"id": 17}'),
        message("tool", type="function_result", call_id=CALL_ID, result=json.dumps(RESULT)),
        message("assistant", type="text", text=TEXT),
    ]
    usage = {"input_token_count": 200, "output_token_count": 20}
    return make("agent_framework._types:AgentResponse", messages=messages, usage_details=usage, value=None)


def dspy_prediction(trajectory: dict[str, Any] | None = None, **outputs: Any) -> Any:
    steps = {
        "thought_0": "I look.",
        "tool_name_0": "lookup_order",
        "tool_args_0": {"id": 17},
        "observation_0": dict(RESULT),
        "thought_1": "Done.",
        "tool_name_1": "finish",
        "tool_args_1": {},
        "observation_1": "Completed.",
    }
    fields = {"trajectory": steps if trajectory is None else trajectory, "reasoning": "All is done.", **(outputs or {"answer": TEXT})}
    return make("dspy.primitives.prediction:Prediction", (), {"items": lambda self: fields.items()})


RETURNED: dict[str, Callable[[], Any]] = {
    "LangGraph": langgraph_state,
    "LangChain messages": lc_conversation,
    "OpenAI Agents": openai_run,
    "Pydantic AI": pydantic_run,
    "CrewAI": crew_output,
    "Agno": agno_run,
    "smolagents": smol_run,
    "Strands": strands_run,
    "LlamaIndex": llama_output,
    "AutoGen": autogen_result,
    "AG2": ag2_response,
    "Google ADK": adk_events,
    "Haystack": haystack_result,
    "Semantic Kernel": kernel_response,
    "Agent Framework": framework_response,
    "DSPy": dspy_prediction,
}
