"""AutoGen: a `TaskResult` of an agent or a team, and the `Response` of an agent.

Tried with autogen-agentchat 0.7: `run`, and `run_stream`, which ends with the result.
"""

from __future__ import annotations

import re

import msgspec

from proctor.model.show import shorten
from proctor.targets.frameworks.base import Framework, RunData, are_instances, is_instance_of, join_texts, list_members, read_member
from proctor.targets.frameworks.simplify import Budget, simplify

# A team that ends with its own stop word, a handoff or an answer ends as intended.
_STOPPED = re.compile(
    r"Maximum number of (turns|messages) |Token usage limit reached|Timeout of .* reached|External termination requested|Max rounds "
)
_CALLING = ("ToolCallRequestEvent", "ToolCallExecutionEvent")


def read(value: object, budget: Budget) -> RunData | None:
    """Read the result of a task, the response of an agent, or one message."""
    if is_instance_of(value, "autogen_agentchat", "TaskResult"):
        run = _read_messages(list_members(value, "messages"), budget)
        reason = read_member(value, "stop_reason")
        if isinstance(reason, str) and _STOPPED.match(reason):
            run.mark_all(f"the team was stopped before its end: {shorten(reason, 120)}")
        return run
    if is_instance_of(value, "autogen_agentchat", "Response"):
        return _read_messages([*list_members(value, "inner_messages"), read_member(value, "chat_message")], budget)
    if is_instance_of(value, "autogen_agentchat", "BaseChatMessage"):
        why = "one message was returned, which shows the last step only: return the `TaskResult`"
        return _read_messages([value], budget).mark_calls(why)
    return None


def read_stream(items: list[object], budget: Budget) -> RunData | None:
    """Read a stream, which ends with the result, or a list of messages."""
    if not are_instances(items, "autogen_agentchat", "BaseChatMessage", "BaseAgentEvent"):
        return None
    events = [item for item in items if not is_instance_of(item, "autogen_agentchat", "ModelClientStreamingChunkEvent")]
    if not events:
        text = join_texts(items, "content", budget)
        return RunData(document={"text": text}).mark_calls("pieces of text show no calls: yield every item of `run_stream`")
    run = _read_messages(events, budget)
    if not any(is_instance_of(event, "autogen_agentchat", *_CALLING) for event in events):
        run.mark_calls("messages without any event of a tool may be picked out of a run with tools: yield the `TaskResult`, too")
    return run


def _read_messages(messages: list[object], budget: Budget) -> RunData:
    run = RunData(document=[], format="autogen")
    for at, message in enumerate(messages):
        message = simplify(message, budget, f"$[{at}]")
        spent = message.get("models_usage") if isinstance(message, dict) else None
        is_nothing = isinstance(spent, dict) and not spent.get("prompt_tokens") and not spent.get("completion_tokens")
        written = {**message, "models_usage": None} if is_nothing else message
        if is_instance_of(message, "autogen_agentchat", "StructuredMessage") and isinstance(written, dict):
            # A structured answer; its type is a property, not a field.
            run.body = written.get("content")
            common = {key: member for key, member in written.items() if key in ("source", "models_usage", "metadata", "created_at", "id")}
            written = {**common, "type": "TextMessage", "content": msgspec.json.encode(run.body).decode()}
        run.document.append(written)
    if _is_out_of_iterations(messages):
        run.mark_all("the agent was stopped at `max_tool_iterations`: its answer is what its last tools gave")
    return run


def _is_out_of_iterations(messages: list[object]) -> bool:
    """Return whether the last agent requested tools several times and then returned their results as its answer.

    An agent with one iteration does so by design; one with several answers in words of its own, unless it may not ask again.
    """
    if not messages or not is_instance_of(messages[-1], "autogen_agentchat", "ToolCallSummaryMessage"):
        return False
    requests = 0
    for message in reversed(messages[:-1]):
        if is_instance_of(message, "autogen_agentchat", "BaseChatMessage"):
            break
        requests += is_instance_of(message, "autogen_agentchat", "ToolCallRequestEvent")
    return requests > 1


FRAMEWORK = Framework(
    name="AutoGen",
    page="autogen",
    packages=("autogen_agentchat", "autogen_core", "autogen_ext"),
    read=read,
    read_stream=read_stream,
    has_stop_reason=False,
)
