"""Semantic Kernel: the response of an agent with its thread, a chat history, and messages.

The thread of a chat completion agent has the history, which shows the calls; other threads are stored by a service, and a single message
shows the last step only.

Tried with semantic-kernel 1.45: `get_response`, `invoke`, `invoke_stream` of a `ChatCompletionAgent`.
"""

from __future__ import annotations

import json
from typing import Any

from proctor.targets.answers.plain_values import Unreadable, type_name
from proctor.targets.frameworks.base import LOOKS_WHOLE, Framework, RunData, are_instances, is_instance_of, list_members, read_member
from proctor.targets.frameworks.simplify import Budget

_PACKAGE = "semantic_kernel"
_RAISED = ("An error occurred while invoking the function",)
_LAST_ONLY = "one message was returned, which shows the last step only: return the response with its thread, or the `ChatHistory`"


def read(value: object, budget: Budget) -> RunData | None:
    """Read a response, a history or a message."""
    if is_instance_of(value, _PACKAGE, "AgentResponseItem"):
        return _read_responses([value], budget)
    if is_instance_of(value, _PACKAGE, "ChatHistory"):
        return _read_messages(list_members(value, "messages"), budget, needs_message=True)
    if is_instance_of(value, _PACKAGE, "ChatMessageContent"):
        return _read_messages([value], budget).mark_calls(_LAST_ONLY)
    return None


def read_stream(items: list[object], budget: Budget) -> RunData | None:
    """Read the responses of `invoke`, or a list of messages."""
    if are_instances(items, _PACKAGE, "AgentResponseItem"):
        return _read_responses(items, budget)
    if are_instances(items, _PACKAGE, "StreamingChatMessageContent"):
        text = "".join(str(read_member(item, "content") or "") for item in items)
        run = RunData(document={"text": text}).mark_calls(_LAST_ONLY)
        for item in items:
            run.mark_end(read_member(item, "finish_reason"))
        return run
    if are_instances(items, _PACKAGE, "ChatMessageContent"):
        # `invoke` yields the answers; the history has the calls before them.
        return _read_messages(items, budget, needs_message=True)
    return None


def _read_responses(items: list[object], budget: Budget) -> RunData:
    history = read_member(read_member(items[-1], "thread"), "_chat_history")
    if is_instance_of(history, _PACKAGE, "ChatHistory") and list_members(history, "messages"):
        return _check_chunks(items, _read_messages(list_members(history, "messages"), budget))
    texts = [str(read_member(read_member(item, "message"), "content") or "") for item in items]
    is_streamed = is_instance_of(read_member(items[-1], "message"), _PACKAGE, "StreamingChatMessageContent")
    run = RunData(document={"text": "".join(texts) if is_streamed else texts[-1]})
    run.mark_calls("the thread of this agent keeps no history here, so its calls are unknown")
    return _check_chunks(items, run)


def _check_chunks(items: list[object], run: RunData) -> RunData:
    """Check why the model stopped: the history of a stream lacks the reason, but one of the last chunks may have it."""
    messages = [read_member(item, "message") for item in items]
    chunks = [message for message in messages if is_instance_of(message, _PACKAGE, "StreamingChatMessageContent")]
    reason = next((reason for chunk in reversed(chunks) if (reason := read_member(chunk, "finish_reason")) is not None), None)
    run.mark_end(reason)
    if chunks and reason is None:
        run.notes = [*run.notes, f"a stream of Semantic Kernel does not record why its model stopped: {LOOKS_WHOLE}"]
    return run


def _read_messages(messages: list[Any], budget: Budget, *, needs_message: bool = False) -> RunData:
    written: list[Any] = []
    for message in messages:
        text = message.model_dump_json(exclude_none=True)
        budget.spend(len(text) if isinstance(text, str) else 0)
        try:
            written.append(json.loads(text))
        except (TypeError, ValueError):
            raise Unreadable(f"{type_name(message)}.model_dump_json() is no JSON") from None
    run = RunData(document={"messages": written}, format="semantic-kernel", needs_message=needs_message)
    for item in (item for message in written for item in message.get("items") or ()):
        name = item.get("function_name") if item.get("content_type") == "function_call" else None
        if name is not None and name == item.get("plugin_name"):
            # An agent used as a plugin is a function and a plugin of the same name.
            run.mark_calls(f"{name} is an agent of its own, whose calls are not in the history")
    return run


FRAMEWORK = Framework(
    name="Semantic Kernel", page="semantic-kernel", packages=(_PACKAGE,), read=read, read_stream=read_stream, raised=_RAISED
)
