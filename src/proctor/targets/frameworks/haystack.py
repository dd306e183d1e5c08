"""Haystack: the result of an agent (`{"messages": [...]}`), directly or under its name in a pipeline's result, messages, and chunks.

Tried with haystack-ai 3.4: `tests/frameworks/returns.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from proctor.model.evidence import Json
from proctor.targets.answers.plain_values import Unreadable
from proctor.targets.frameworks.base import (
    Framework,
    RunData,
    are_instances,
    call_member,
    find_entry,
    is_instance_of,
    list_members,
    read_member,
    take_items,
)
from proctor.targets.frameworks.simplify import Budget, list_fields, simplify

_ENDED = ("text", "length", "content_filter")  # the answer also shows the last two
_LAST_ONLY = "the replies of a generator show the last step only: return what the agent gives"


def read(value: object, budget: Budget) -> RunData | None:
    """Read the result of an agent or a pipeline, or one message."""
    if _is_message(value):
        return _read_messages([value], budget).mark_calls(_LAST_ONLY)
    if not isinstance(value, Mapping):
        return None
    messages = _list_messages(value, "messages")
    if messages is not None:
        return _check_exit(find_entry(value, "exit_reason"), _read_messages(messages, budget))
    parts = [member for _, member in list_fields(cast(object, value)) or () if isinstance(member, Mapping)]
    inner = [(listed, part) for part in parts if (listed := _list_messages(part, "messages")) is not None]
    if len(inner) > 1:
        raise Unreadable("several agents of the pipeline give messages: return what one of them gives")
    if inner:
        return _check_exit(find_entry(inner[0][1], "exit_reason"), _read_messages(inner[0][0], budget))
    replies = [listed for part in (value, *parts) if (listed := _list_messages(part, "replies")) is not None]
    return _read_messages(replies[-1], budget).mark_calls(_LAST_ONLY) if replies else None


def read_stream(items: list[object], budget: Budget) -> RunData | None:
    """Read a list of messages, or the chunks of a stream."""
    if are_instances(items, "haystack", "StreamingChunk"):
        return _read_chunks(items, budget)
    return _read_messages(items, budget) if items and all(_is_message(item) for item in items) else None


def _is_message(value: object) -> bool:
    return is_instance_of(value, "haystack", "ChatMessage")


def _list_messages(part: object, key: str) -> list[Any] | None:
    listed = find_entry(part, key)
    if not isinstance(listed, list) or not listed:
        return None
    messages = take_items(cast("list[object]", listed))
    return messages if all(_is_message(message) for message in messages) else None


def _read_messages(messages: list[Any], budget: Budget) -> RunData:
    written = [simplify(call_member(message, "to_dict"), budget, f"$[{at}]") for at, message in enumerate(messages)]
    return RunData(document=written, format="haystack", needs_message=True)


def _check_exit(reason: object, run: RunData) -> RunData:
    """Check why the agent stopped: it answered, its model was cut, a tool ended the run, or something else stopped it."""
    parts = [part for message in run.document for part in message.get("content") or () if isinstance(part, dict)]
    called = {find_entry(part.get("tool_call"), "tool_name") for part in parts}
    run.is_over = reason is not None and reason in called
    if isinstance(reason, str) and reason not in (*_ENDED, *called):
        run.mark_all(f"the agent was stopped before its end (`exit_reason` is {reason!r})")
    return run


FRAMEWORK = Framework(name="Haystack", page="haystack", packages=("haystack",), read=read, read_stream=read_stream)


# --- chunks of a stream ---------------------------------------------------------------------------------------------


def _read_chunks(chunks: list[object], budget: Budget) -> RunData:
    messages: list[dict[str, Any]] = []
    run = RunData(document=messages, format="haystack")
    answer = _Answer()
    for chunk in chunks:
        result = read_member(chunk, "tool_call_result")
        if result is not None:
            messages.extend(answer.close(run))
            answer = _Answer()
            written = simplify(call_member(result, "to_dict"), budget, "$.tool_call_result")
            messages.append({"role": "tool", "content": [{"tool_call_result": written}], "meta": {}, "name": None})
        elif read_member(chunk, "finish_reason") != "tool_call_results":
            if answer.finish is not None and (read_member(chunk, "content") or read_member(chunk, "tool_calls")):
                messages.extend(answer.close(run))
                answer = _Answer()
            answer.add(chunk, budget)
    messages.extend(answer.close(run))
    if not any("tool_call" in part or "tool_call_result" in part for message in messages for part in message["content"]):
        # The last answer of a run with tools looks like the only answer of a run without tools.
        run.mark_calls("these chunks show no call, and not whether they begin with the run: yield what the agent gives after them")
    if not messages or messages[-1]["role"] == "tool" or any("tool_call" in part for part in messages[-1]["content"]):
        run.mark_all("the stream did not come to its end")
    return run if messages else RunData(document={"text": ""}, unknowns=run.unknowns)


class _Answer:
    def __init__(self) -> None:
        self.finish: str | None = None
        self._pieces: list[str] = []
        self._calls: dict[object, dict[str, Any]] = {}
        self._usage: Json = None

    def add(self, chunk: object, budget: Budget) -> None:
        """Add one chunk."""
        piece = read_member(chunk, "content")
        if isinstance(piece, str):
            budget.spend(len(piece))
            self._pieces.append(piece)
        for delta in list_members(chunk, "tool_calls"):
            call = self._calls.setdefault(read_member(delta, "index"), {"tool_name": "", "arguments": "", "id": None})
            call["tool_name"] += read_member(delta, "tool_name") or ""
            call["arguments"] += read_member(delta, "arguments") or ""
            call["id"] = read_member(delta, "id") or call["id"]
        self.finish = read_member(chunk, "finish_reason") or self.finish
        self._usage = simplify(find_entry(read_member(chunk, "meta"), "usage"), budget, "$.meta.usage") or self._usage

    def close(self, run: RunData) -> list[dict[str, Any]]:
        """Return the answer as a message, or None if no chunk had content."""
        text = "".join(self._pieces)
        if self.finish is None and (text or self._calls):
            run.mark_calls("these chunks are not all that was streamed: an answer has no end (`finish_reason`)")
        elif self.finish == "tool_calls" and not self._calls:
            run.mark_calls("these chunks are not all that was streamed: the chunks of calls are missing")
        content: list[Json] = [{"text": text}] if text else []
        content.extend({"tool_call": call} for call in self._calls.values())
        meta = {"finish_reason": self.finish, "usage": self._usage}
        return [{"role": "assistant", "content": content, "meta": meta, "name": None}] if content else []
