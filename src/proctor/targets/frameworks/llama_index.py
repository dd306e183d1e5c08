"""LlamaIndex: the output of an agent workflow, the response of a chat engine, messages, and the events of a stream.

An agent's output lists every call of the run with its result, but no token counts. In a stream, the output of each step lists the calls
that it requests. When the run is over, the last output, which requests none, gets the calls of the whole run. So the outputs alone show
every call, even if other events are missing.

Tried with llama-index-core 0.14: `FunctionAgent`, `ReActAgent` and `AgentWorkflow`, awaited and by `stream_events`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import cast

import msgspec

from proctor.evidence.shared.calls import CONTENT_ERROR
from proctor.model.evidence import Json
from proctor.targets.frameworks.base import Framework, RunData, find_entry, is_instance_of, list_members, read_member
from proctor.targets.frameworks.simplify import Budget, simplify

_NOT_OVER = "the last output asks for a tool, so the run goes on after it: return what `agent.run` gives, or yield all events"
_PACKAGES = ("llama_index", "llama_index_instrumentation", "workflows")


def read(value: object, budget: Budget) -> RunData | None:
    """Read an output, a response or a message."""
    if _is(value, "StopEvent") and not _is(value, "AgentOutput"):
        value = read_member(value, "result")
    if _is(value, "AgentOutput"):
        calls = _write_calls(value, budget)
        run = _read_output(value, calls, budget)
        if _waits_for_tool(calls) and not run.document["text"]:
            # A tool that answers directly provides the text; a step that only requests a tool has none.
            run.mark_all(_NOT_OVER)
        return run
    if _is(value, "AgentChatResponse", "StreamingAgentChatResponse"):
        calls = [_write_source(source, budget) for source in list_members(value, "sources")]
        return RunData(document={"text": read_member(value, "response"), "tool_calls": calls})
    if _is(value, "ChatMessage", "ChatResponse"):
        message = read_member(value, "message") if _is(value, "ChatResponse") else value
        why = "one message was returned, which shows the last step only: return what `agent.run` gives"
        return RunData(document={"text": read_member(message, "content")}).mark_calls(why)
    if is_instance_of(value, "llama_index", "Response", "PydanticResponse"):
        text = str(read_member(value, "response"))
        return RunData(document={"text": text}).mark_calls("the response of a query engine shows no calls")
    return None


def read_stream(items: list[object], budget: Budget) -> RunData | None:
    """Read messages, or the events of a run: each call with its result, and the output of each step."""
    if items and all(_is(item, "ChatMessage") for item in items):
        written = [simplify(item, budget, f"$[{at}]") for at, item in enumerate(items)]
        return RunData(document=written, format="llama-index", needs_message=True)
    # The last output may be repeated as the result of the run.
    results = [read_member(item, "result") if _is(item, "StopEvent") and not _is(item, "AgentOutput") else item for item in items]
    outputs = list({id(item): item for item in results if _is(item, "AgentOutput")}.values())
    if not outputs:
        return read(items[-1], budget) if items and _is(items[-1], "StopEvent") else None
    ended = [_write_call(item, budget) for item in items if _is(item, "ToolCallResult")]
    begun = [_write_call(item, budget) for item in items if _is(item, "ToolCall") and not _is(item, "ToolCallResult")]
    requested = [call for output in outputs[:-1] for call in _write_calls(output, budget)]
    last = _write_calls(outputs[-1], budget)
    run = _read_output(outputs[-1], _unite_calls(ended, last, begun, requested), budget)
    is_over = any(_is(item, "StopEvent") and not _is(item, "AgentOutput") for item in items)
    if not is_over and _waits_for_tool(last):
        run.mark_all(_NOT_OVER)
    elif any(_is(item, "WorkflowCancelledEvent", "WorkflowTimedOutEvent") for item in items):
        run.mark_all("the workflow was cancelled, or its time was up")
    elif _waits_for_tool(run.document["tool_calls"]):
        run.mark_all("a requested call was never made: the agent stopped at `max_iterations`")
    failed = next((item for item in items if _is(item, "WorkflowFailedEvent")), None)
    if failed is not None:
        run.failed = str(simplify(read_member(failed, "exception"), budget, "$.exception") or "it does not say which")
    return run


def _waits_for_tool(calls: list[dict[str, Json]]) -> bool:
    return any("result" not in call and "error" not in call for call in calls)


def _unite_calls(*lists: list[dict[str, Json]]) -> list[dict[str, Json]]:
    """Return each call once, even if several events contain it; the first one wins."""
    united: list[dict[str, Json]] = []
    for calls in lists:
        # Some models use one id for two calls of a tool, so calls are counted.
        known = Counter(_name_call(call) for call in united)
        for call in calls:
            name = _name_call(call)
            if known[name]:
                known[name] -= 1
            else:
                united.append(call)
    return united


def _name_call(call: dict[str, Json]) -> bytes:
    return msgspec.json.encode([call["id"], call["name"], call["arguments"]], order="sorted")


def _is(value: object, *names: str) -> bool:
    return any(is_instance_of(value, package, *names) for package in _PACKAGES)


def _read_output(output: object, calls: list[dict[str, Json]], budget: Budget) -> RunData:
    text = read_member(read_member(output, "response"), "content")
    run = RunData(document={"text": text if isinstance(text, str) else None, "tool_calls": calls})
    run.add_body(read_member(output, "structured_response"), budget, "$.structured_response")
    # The stop reason is only in the provider's own response, or in its last chunk.
    raw = read_member(output, "raw")
    for key in ("finish_reason", "stop_reason", "done_reason"):
        run.mark_end(_look_up(raw, key))
    for key in ("choices", "candidates"):
        choices = _look_up(raw, key)
        for choice in cast("list[object]", choices) if isinstance(choices, list) else ():
            run.mark_end(_look_up(choice, "finish_reason"))
    return run


def _look_up(value: object, key: str) -> object:
    return find_entry(value, key) if isinstance(value, Mapping) else read_member(value, key)


def _write_calls(output: object, budget: Budget) -> list[dict[str, Json]]:
    return [_write_call(call, budget) for call in list_members(output, "tool_calls")]


def _write_call(call: object, budget: Budget) -> dict[str, Json]:
    arguments = simplify(read_member(call, "tool_kwargs"), budget, "$.tool_kwargs")
    written: dict[str, Json] = {"name": read_member(call, "tool_name"), "arguments": arguments, "id": read_member(call, "tool_id")}
    output = read_member(call, "tool_output")
    return written if output is None else {**written, **_write_result(output, budget)}


def _write_source(source: object, budget: Budget) -> dict[str, Json]:
    given = simplify(read_member(source, "raw_input"), budget, "$.raw_input")
    arguments = given.get("kwargs", given) if isinstance(given, dict) else given
    return {"name": read_member(source, "tool_name"), "arguments": arguments, **_write_result(source, budget)}


def _write_result(output: object, budget: Budget) -> dict[str, Json]:
    if read_member(output, "is_error") is True:
        return {"error": str(read_member(output, "content") or "the tool failed"), "error_kind": CONTENT_ERROR}
    raw = read_member(output, "raw_output")
    is_plain = raw is None or isinstance(raw, (str, int, float, bool, list, tuple, dict))
    # If a result is a tool's own object, the text that the model saw replaces it.
    return {"result": simplify(raw if is_plain else read_member(output, "content"), budget, "$.tool_output")}


FRAMEWORK = Framework(name="LlamaIndex", page="llamaindex", packages=_PACKAGES, read=read, read_stream=read_stream)
