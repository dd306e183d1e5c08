"""OpenAI's Responses API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.frameworks.wires import ModelReply, event, halves

_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}


def items(reply: ModelReply) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {
            "id": f"fc_{reply.number}_{index}",
            "type": "function_call",
            "status": "completed",
            "call_id": id,
            "name": name,
            "arguments": json.dumps(arguments),
        }
        for index, (id, name, arguments) in enumerate(reply.calls())
    ]
    if reply.step.text:
        content = [{"type": "output_text", "text": reply.step.text, "annotations": [], "logprobs": []}]
        status = "incomplete" if reply.step.end else "completed"
        found.append({"id": f"msg_{reply.number}", "type": "message", "status": status, "role": "assistant", "content": content})
    return found


def whole(reply: ModelReply, request: dict[str, Any], *, done: bool = True) -> dict[str, Any]:
    usage = {
        "input_tokens": reply.input_tokens,
        "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 0},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": reply.total,
    }
    return {
        "id": f"resp_{reply.number}",
        "object": "response",
        "created_at": 1794700000 + reply.number,
        "status": "incomplete" if done and reply.step.end else "completed" if done else "in_progress",
        "error": None,
        "incomplete_details": {"reason": _REASONS[reply.step.end]} if done and reply.step.end else None,
        "instructions": request.get("instructions"),
        "metadata": {},
        "model": f"{reply.model}-2024-07-18" if reply.model == "gpt-4o-mini" else reply.model,
        "output": items(reply) if done else [],
        "parallel_tool_calls": True,
        "previous_response_id": request.get("previous_response_id"),
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": request.get("tool_choice") or "auto",
        "tools": request.get("tools") or [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": usage if done else None,
    }


def stream(reply: ModelReply, request: dict[str, Any]) -> Iterator[bytes]:
    number = iter(range(1000))

    def send(kind: str, **fields: Any) -> bytes:
        return event({"type": kind, "sequence_number": next(number), **fields}, kind)

    yield send("response.created", response=whole(reply, request, done=False))
    yield send("response.in_progress", response=whole(reply, request, done=False))
    for index, item in enumerate(items(reply)):
        if item["type"] == "function_call":
            place = {"item_id": item["id"], "output_index": index}
            yield send("response.output_item.added", output_index=index, item={**item, "arguments": "", "status": "in_progress"})
            for half in halves(item["arguments"]):
                yield send("response.function_call_arguments.delta", delta=half, **place)
            yield send("response.function_call_arguments.done", arguments=item["arguments"], name=item["name"], **place)
        else:
            place = {"item_id": item["id"], "output_index": index, "content_index": 0}
            part = item["content"][0]
            yield send("response.output_item.added", output_index=index, item={**item, "content": [], "status": "in_progress"})
            yield send("response.content_part.added", part={**part, "text": ""}, **place)
            for piece in reply.pieces():
                yield send("response.output_text.delta", delta=piece, logprobs=[], **place)
            yield send("response.output_text.done", text=part["text"], logprobs=[], **place)
            yield send("response.content_part.done", part=part, **place)
        yield send("response.output_item.done", output_index=index, item=item)
    yield send("response.incomplete" if reply.step.end else "response.completed", response=whole(reply, request))
