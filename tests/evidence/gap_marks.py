"""Message lists reduced to their end, and the marks that declare such a list incomplete."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Messages = list[Any]
Mark = Callable[[Messages], Any]
"""Adds a mark to a shortened list."""

NAMES = ("omitted_messages", "historyTruncated", "conversation_summary", "isCompacted", "has_more", "messagesCleared", "partial")
"""Unknown keys whose names indicate a gap, in any format."""
VALUES: tuple[Any, ...] = (3, True, "the user asked for a refund", {"before": 3}, ["m1"])


def at_last(*path: str, **members: Any) -> Mark:
    """Add members to the last message, inside of the objects on this path."""

    def mark(tail: Messages) -> Messages:
        return [*tail[:-1], _with(tail[-1], path, members)]

    return mark


def _with(entry: dict[str, Any], path: tuple[str, ...], members: dict[str, Any]) -> dict[str, Any]:
    if not path:
        return {**entry, **members}
    inner = entry.get(path[0])
    return {**entry, path[0]: _with(inner if isinstance(inner, dict) else {}, path[1:], members)}


def before(*messages: dict[str, Any]) -> Mark:
    """Put these messages first."""
    return lambda tail: [*messages, *tail]


def _response(**members: Any) -> Mark:
    return lambda tail: {"object": "response", "id": "r", "output": tail, **members}


def _next_to(**members: Any) -> Mark:
    return lambda tail: {"messages": tail, **members}


def _anthropic(**members: Any) -> Mark:
    return lambda tail: {"type": "message", "id": "m", "model": "claude", "stop_reason": "end_turn", **tail[-1], **members}


_TWO = {"index": 1, "message": {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "refund"}}]}}
_CLEARED = {"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 9}]}

OWN: dict[str, dict[str, Mark]] = {
    "openai": {"two choices": lambda tail: {"choices": [{"index": 0, "message": tail[-1]}, _TWO]}},
    "responses": {
        "a compaction item": before({"type": "compaction", "id": "c", "encrypted_content": "x"}),
        "an item in progress": before({"type": "reasoning", "summary": [], "status": "in_progress"}),
        "in progress": _response(status="in_progress"),
        "queued": _response(status="queued"),
        "a previous response": _response(previous_response_id="resp_1"),
        "a conversation": _response(conversation={"id": "conv_1"}),
    },
    "anthropic": {
        "a compaction block": before({"role": "assistant", "content": [{"type": "compaction", "content": "a refund"}]}),
        "cleared tool uses": _anthropic(context_management=_CLEARED),
        "an answer that only began": _anthropic(stop_reason=None),
        "a paused turn": _anthropic(stop_reason="pause_turn"),
    },
    "langchain": {
        "a summary": before({"type": "human", "content": "a refund", "additional_kwargs": {"lc_source": "summarization"}}),
        "a summary next to the list": _next_to(summary="a refund was made"),
        "a response in progress": before({"type": "ai", "content": "", "response_metadata": {"status": "in_progress"}}),
        "cleared tool uses": before({"type": "ai", "content": "", "response_metadata": {"context_management": _CLEARED}}),
    },
    "pydantic-ai": {
        "a compaction part": before({"kind": "request", "parts": [{"part_kind": "compaction", "content": "a refund"}]}),
        "a response in the middle": at_last(state="incomplete"),
        "a suspended response": at_last(state="suspended"),
    },
    "semantic-kernel": {"a reduced history": at_last("metadata", __summary__=True)},
    "agent-framework": {"a summary": at_last("additional_properties", "_group", _summary_of_message_ids=["m1"])},
    "agno": {
        "a run in progress": lambda tail: {"run_id": "r", "session_id": "s", "status": "RUNNING", "messages": tail},
        "a paused run": lambda tail: {"run_id": "r", "session_id": "s", "status": "PAUSED", "messages": tail},
    },
}
"""The marks that formats have of their own."""


def named_marks() -> Iterator[tuple[str, Mark]]:
    """Marks by name only, in the last message and next to the messages."""
    for index, name in enumerate(NAMES):
        value = VALUES[index % len(VALUES)]
        yield f"{name} in a message", at_last(**{name: value})
        yield f"{name} next to the list", _next_to(**{name: value})


def shortened(document: Any) -> Messages | None:
    """The question and the last message of a document's list, or None."""
    listed = document.get("messages") if isinstance(document, dict) else document
    if not isinstance(listed, list) or not listed or not all(isinstance(entry, dict) for entry in listed):
        return None
    question = next(entry for entry in listed if entry.get("role") != "system")
    return [question, listed[-1]]
