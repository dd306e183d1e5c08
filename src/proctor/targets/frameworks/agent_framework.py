"""Microsoft Agent Framework: the response of an agent, and the updates of a stream.

The messages of a response are those of this run, without the input.

Tried with agent-framework-core 1.23: `run`, streamed and not.
"""

from __future__ import annotations

import sys

from proctor.targets.answers.plain_values import Unreadable, type_name
from proctor.targets.frameworks.base import (
    Framework,
    RunData,
    add_usage,
    are_instances,
    call_member,
    find_package,
    is_instance_of,
    list_members,
    read_member,
)
from proctor.targets.frameworks.simplify import Budget, simplify

_PACKAGE = "agent_framework"


def read(value: object, budget: Budget) -> RunData | None:
    """Read the response of an agent."""
    if not is_instance_of(value, _PACKAGE, "AgentResponse", "AgentRunResponse", "ChatResponse"):
        return None
    run = _read_messages(list_members(value, "messages"), budget)
    if read_member(value, "user_input_requests"):
        run.mark_all("the agent waits for a human (`user_input_requests`): what it would do then is unknown")
    if read_member(value, "continuation_token") is not None:
        run.mark_all("the run goes on elsewhere (`continuation_token`)")
    run.mark_end(read_member(value, "finish_reason"))
    spent = read_member(value, "usage_details")
    run.usage = None if spent is None else add_usage((spent,), "input_token_count", "output_token_count")
    run.add_body(read_member(value, "value"), budget, "$.value")
    return run


def read_stream(items: list[object], budget: Budget) -> RunData | None:
    """Read the updates of a stream, which the framework itself joins, or a list of messages."""
    if are_instances(items, _PACKAGE, "Message", "ChatMessage"):
        return _read_messages(items, budget, needs_message=True)
    if not are_instances(items, _PACKAGE, "AgentResponseUpdate", "AgentRunResponseUpdate"):
        return None
    module = sys.modules.get(find_package(items[0]))
    kind = getattr(module, "AgentResponse", None) or getattr(module, "AgentRunResponse", None)
    if kind is None:
        raise Unreadable(f"nothing puts updates of the type {type_name(items[0])} together")
    joined = call_member(kind, "from_updates" if hasattr(kind, "from_updates") else "from_agent_run_response_updates", items)
    run = read(joined, budget)
    if run is not None and not _is_whole(items):
        run.mark_calls("these are not all updates of the stream: an answer of the model has no end (`finish_reason`)")
    elif run is not None and not any(
        read_member(part, "type") == "function_call" for update in items for part in list_members(update, "contents")
    ):
        # The last answer of a run with tools looks like the only answer of a run without tools.
        run.mark_calls("these updates show no call, and not whether they begin with the run: return the stream itself")
    return run


def _is_whole(updates: list[object]) -> bool:
    """Return whether every answer of the model is complete; a filtered stream may lack the final update."""
    roles = [read_member(update, "role") for update in updates]
    answers = [update for update, role in zip(updates, roles, strict=True) if getattr(role, "value", role) != "tool"]
    response_ids = {read_member(update, "response_id") for update in answers}
    ended = {
        read_member(update, "response_id")
        for update in updates
        if read_member(update, "finish_reason") is not None
        or any(read_member(content, "type") == "usage" for content in list_members(update, "contents"))
    }
    return bool(ended) and response_ids - {None} <= ended


def _read_messages(messages: list[object], budget: Budget, *, needs_message: bool = False) -> RunData:
    written = [simplify(call_member(message, "to_dict"), budget, f"$[{at}]") for at, message in enumerate(messages)]
    return RunData(document=written, format="agent-framework", needs_message=needs_message)


FRAMEWORK = Framework(name="Microsoft Agent Framework", page="agent-framework", packages=(_PACKAGE,), read=read, read_stream=read_stream)
