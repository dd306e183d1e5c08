"""The message that an event of a span carries, and events that could carry what nobody reads."""

from __future__ import annotations

import re

from proctor.evidence.otlp.spans import Span, SpanEvent
from proctor.evidence.traces import vocabulary as names
from proctor.evidence.values.access import dict_or_empty, find_first
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json


def read_event_message(event: SpanEvent) -> Json:
    """Return the message an event carries, or None if it carries none or its content was not captured."""
    role = names.EVENT_ROLES.get(event.name)
    if role is None and event.name not in names.EVENT_SAID:
        return None
    content = decode_container(find_first(event.attributes, *names.EVENT_CONTENT))
    if isinstance(content, dict) and ("role" in content or "tool_calls" in content or "content" in content or "message" in content):
        inner = decode_container(content.get("message")) if "message" in content else content
        if inner is not None and not isinstance(inner, (dict, str)):
            return {"role": role or "assistant", "content": inner}
        if isinstance(inner, dict) and isinstance(inner.get("content"), dict) and "parts" in inner["content"]:
            inner = inner["content"]  # Gemini
        return (
            inner
            if isinstance(inner, dict) and "role" in inner
            else {"role": role or "assistant", **dict_or_empty(inner)}
            if inner
            else None
        )
    if isinstance(content, list) and content and "role" in dict_or_empty(content[0]):
        return content
    calls = event.attributes.get("tool_calls")
    if content is None and calls is None:
        return None
    id = find_first(event.attributes, "id", "tool_call_id")
    return {
        "role": role or "assistant",
        "content": content,
        **({"tool_calls": calls} if calls is not None else {}),
        **({"tool_call_id": id} if id else {}),
    }


_OF_CALLS = re.compile(r"tool|function|handoff|invo[ck]|\baction", re.IGNORECASE)


def list_strange_events(span: Span) -> list[str]:
    """Return the names of events that nobody reads and that could tell of a call."""
    return [event.name for event in span.events if not event.name.startswith(names.EVENTS_BESIDE) and _speaks_of_calls(event)]


def _speaks_of_calls(event: SpanEvent) -> bool:
    return _OF_CALLS.search(event.name) is not None or any(_OF_CALLS.search(key) for key in event.attributes)
