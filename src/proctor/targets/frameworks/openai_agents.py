"""OpenAI Agents SDK: a `RunResult`, or a `RunResultStreaming` whose stream was read to its end.

The items are those that `to_input_list()` gives, in the form of the Responses API. A tool that runs its own agent shows as one call:
what the inner agent did is not in the result. A run that waits for an approval is not over.

Tried with openai-agents 0.24, over the Responses API and over chat completions.
"""

from __future__ import annotations

from typing import cast

from proctor.model.evidence import Json
from proctor.targets.answers.plain_values import Unreadable
from proctor.targets.frameworks.base import (
    LOOKS_WHOLE,
    Framework,
    RunData,
    add_usage,
    are_instances,
    call_member,
    is_instance_of,
    join_texts,
    list_members,
    read_member,
    take_items,
)
from proctor.targets.frameworks.simplify import Budget, simplify

_RAISED = ("An error occurred while running the tool.",)
_CUT_OFF = ("response.incomplete", "response.failed")
_EVENTS = ("RawResponsesStreamEvent", "RunItemStreamEvent", "AgentUpdatedStreamEvent")


def read(value: object, budget: Budget) -> RunData | None:
    """Read the result of a run."""
    if not is_instance_of(value, "agents", "RunResultBase", "RunResult", "RunResultStreaming"):
        return None
    items = call_member(value, "to_input_list")
    if not isinstance(items, list):
        raise Unreadable("to_input_list() gives no list")
    run = RunData(
        document=[_drop_nulls(simplify(item, budget, f"$[{index}]")) for index, item in enumerate(take_items(cast("list[object]", items)))],
        format="responses",
    )
    answer = read_member(value, "final_output")
    run.add_body(answer, budget, "$.final_output")
    responses = [read_member(response, "usage") for response in list_members(value, "raw_responses")]
    run.usage = add_usage(responses, "input_tokens", "output_tokens")
    if read_member(value, "interruptions"):
        run.mark_all("the run waits for an approval (`interruptions`): what it would do then is unknown")
    if is_instance_of(value, "agents", "RunResultStreaming") and read_member(value, "is_complete") is not True:
        run.mark_all("the stream of the run was not read to its end")
    if read_member(value, "_cancel_mode") not in (None, "none"):
        run.mark_all("the run was cancelled")
    turn, most = read_member(value, "current_turn"), read_member(value, "max_turns")
    if isinstance(turn, int) and isinstance(most, int) and turn > most:
        run.mark_all(f"the run was stopped at max_turns ({most})")
    if any(read_member(response, "response_id") is None for response in list_members(value, "raw_responses")):
        # Chat completions only have text and calls; the SDK rejects incomplete responses.
        run.notes = [*run.notes, f"over chat completions OpenAI Agents does not record why its model stopped: {LOOKS_WHOLE}"]
    run.is_over = answer is not None
    if read_member(value, "_max_turns_handled") is True or _is_given_by_handler(value):
        run.mark_all("the run was stopped, and a handler of errors (`error_handlers`) gave the answer in place of the model")
    _mark_inner_agents(list_members(value, "new_items"), run)
    return run


def _is_given_by_handler(value: object) -> bool:
    """Return whether the last message of a run is in none of the model's answers."""
    items, responses = list_members(value, "new_items"), list_members(value, "raw_responses")
    if not items or not responses or not is_instance_of(items[-1], "agents", "MessageOutputItem"):
        return False
    texts = [_list_texts(item) for item in list_members(responses[-1], "output")]
    return _list_texts(read_member(items[-1], "raw_item")) not in texts


def _list_texts(item: object) -> list[object]:
    return [read_member(part, "text") or read_member(part, "refusal") for part in list_members(item, "content")]


def read_stream(items: list[object], budget: Budget) -> RunData | None:
    """Read the events of a stream, or a list of new items."""
    if are_instances(items, "agents", "RunItemBase"):
        return _read_items(items, budget, is_whole=any(is_instance_of(item, "agents", "ToolCallItem") for item in items))
    if not are_instances(items, "agents", *_EVENTS):
        return None
    raw = [read_member(item, "data") for item in items if is_instance_of(item, "agents", "RawResponsesStreamEvent")]
    ended = [read_member(data, "response") for data in raw if read_member(data, "type") == "response.completed"]
    run_items = [read_member(item, "item") for item in items if is_instance_of(item, "agents", "RunItemStreamEvent")]
    called = {read_member(read_member(item, "raw_item"), "call_id") for item in run_items}
    requested = {read_member(item, "call_id") for response in ended for item in list_members(response, "output")} - {None}
    # The model's responses contain every call: without them, filtered events may lack calls. A stream begins by naming the agent: without
    # that, earlier events may be missing.
    begins = is_instance_of(items[0], "agents", "AgentUpdatedStreamEvent")
    run = _read_items(run_items, budget, is_whole=begins and bool(ended) and requested <= called)
    is_alone = not any(part == "tool_calls" for part, _ in run.unknowns)
    if not run_items:
        deltas = [data for data in raw if read_member(data, "type") == "response.output_text.delta"]
        run.document, run.format = {"text": join_texts(deltas, "delta", budget)}, "plain"
    if is_alone:
        run.usage = add_usage([read_member(response, "usage") for response in ended], "input_tokens", "output_tokens")
    cut = next((read_member(data, "type") for data in raw if read_member(data, "type") in _CUT_OFF), None)
    if cut is not None:
        run.mark_all(f"an answer of the model did not come to its end ({cut})")
    if ended and any(read_member(item, "type") == "function_call" for item in list_members(ended[-1], "output")):
        run.mark_all("the run did not come to its end")
    return run


def _read_items(items: list[object], budget: Budget, *, is_whole: bool) -> RunData:
    written = [_drop_nulls(simplify(call_member(item, "to_input_item"), budget, f"$[{at}]")) for at, item in enumerate(items)]
    run = RunData(document=written, format="responses")
    if not is_whole:
        run.mark_calls("these are not all events or items of the run: return the result, or all events of `stream_events()`")
    _mark_inner_agents(items, run)
    return run


def _mark_inner_agents(items: list[object], run: RunData) -> None:
    for item in items:
        origin = read_member(read_member(item, "tool_origin"), "type")
        if getattr(origin, "value", origin) == "agent_as_tool":
            name = read_member(read_member(item, "raw_item"), "name") or "a tool"
            run.mark_calls(f"{name} runs an agent of its own, whose calls are not in the result")
            run.usage = None


def _drop_nulls(item: Json) -> Json:
    return {key: member for key, member in item.items() if member is not None} if isinstance(item, dict) else item


FRAMEWORK = Framework(name="OpenAI Agents", page="openai-agents", packages=("agents",), read=read, read_stream=read_stream, raised=_RAISED)
