"""AG2 Classic (ag2 before version 1, and AutoGen 0.2): a `ChatResult`, the response of `run`, or its events.

In a group chat, every participant except the initiator is part of the agent.

Tried with ag2 0.9: `tests/frameworks/returns.yaml`.
"""

from __future__ import annotations

from typing import Any, cast

from proctor.targets.answers.plain_values import Unreadable
from proctor.targets.frameworks.base import Framework, RunData, is_instance_of, list_members, read_member, take_items
from proctor.targets.frameworks.simplify import Budget, simplify

_RESPONSES = ("RunResponse", "AsyncRunResponse")


def read(value: object, budget: Budget) -> RunData | None:
    """Read the result of a chat."""
    if is_instance_of(value, "autogen", "ChatResult"):
        return _read_history(list_members(value, "chat_history"), read_member(value, "summary"), budget)
    if is_instance_of(value, "autogen", *_RESPONSES):
        # The public name of an asynchronous response is a coroutine, which is not awaited here.
        name = "_messages" if is_instance_of(value, "autogen", "AsyncRunResponse") else "messages"
        listed = read_member(value, name)
        if not isinstance(listed, (list, tuple)) or not listed:
            raise Unreadable("its events were not read: call `response.process()` before you return it")
        return _read_history(take_items(cast("list[object]", listed)), None, budget)
    return None


def read_stream(items: list[object], budget: Budget) -> RunData | None:
    """Read the events of `run`, which end with the history."""
    ended = [item for item in items if is_instance_of(item, "autogen", "RunCompletionEvent")]
    return _read_history(list_members(read_member(ended[-1], "content"), "history"), None, budget) if len(ended) == 1 else None


def _read_history(history: list[Any], summary: object, budget: Budget) -> RunData:
    written: list[Any] = [simplify(message, budget, f"$[{at}]") for at, message in enumerate(history)]
    if not written:
        return RunData(document={"text": summary if isinstance(summary, str) else ""}).mark_all("the chat has no history")
    written = _name_two(written)
    # A silent participant sends an empty message so that the chat continues or ends; that is not a question.
    messages = [
        entry for entry in written if entry.get("content") not in (None, "") or entry.get("tool_calls") or entry.get("tool_responses")
    ]
    if len({entry.get("name") for entry in messages} - {None}) < 2:
        unnamed = [{key: member for key, member in entry.items() if key != "name"} for entry in messages]
        return RunData(document=unnamed, format="openai").mark_calls("the chat names no agent")
    return RunData(document=messages, format="ag2")


def _name_two(history: list[Any]) -> list[Any]:
    """Give all participants except the one who asks the same name, if there are several or if tools are called without a name."""
    asker = history[0].get("name") or "user"
    named = [{**history[0], "name": asker}, *history[1:]]
    names = {entry.get("name") for entry in named} - {None}
    if len(names) == 2 and all(entry.get("name") for entry in named):
        return named
    only = next(iter(names - {asker}), "agents") if len(names) == 2 else "agents"
    return [_drop_none_text(entry) if entry.get("name") == asker else {**_drop_none_text(entry), "name": only} for entry in named]


def _drop_none_text(entry: dict[str, Any]) -> dict[str, Any]:
    # In group chats, a message with only calls has this word as content.
    return {**entry, "content": None} if entry.get("tool_calls") and entry.get("content") == "None" else entry


FRAMEWORK = Framework(
    name="AG2 Classic",
    page="ag2-classic",
    packages=("autogen",),
    read=read,
    read_stream=read_stream,
    raised=("Error: ",),
    has_stop_reason=False,
)
