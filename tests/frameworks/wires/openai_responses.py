"""OpenAI's Responses API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.frameworks.wires import Said, event, halves

_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}


def items(said: Said) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {
            "id": f"fc_{said.number}_{index}",
            "type": "function_call",
            "status": "completed",
            "call_id": id,
            "name": name,
            "arguments": json.dumps(arguments),
        }
        for index, (id, name, arguments) in enumerate(said.calls())
    ]
    if said.step.text:
        content = [{"type": "output_text", "text": said.step.text, "annotations": [], "logprobs": []}]
        status = "incomplete" if said.step.end else "completed"
        found.append({"id": f"msg_{said.number}", "type": "message", "status": status, "role": "assistant", "content": content})
    return found


def whole(said: Said, request: dict[str, Any], *, done: bool = True) -> dict[str, Any]:
    usage = {
        "input_tokens": said.input_tokens,
        "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 0},
        "output_tokens": said.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": said.total,
    }
    return {
        "id": f"resp_{said.number}",
        "object": "response",
        "created_at": 1794700000 + said.number,
        "status": "incomplete" if done and said.step.end else "completed" if done else "in_progress",
        "error": None,
        "incomplete_details": {"reason": _REASONS[said.step.end]} if done and said.step.end else None,
        "instructions": request.get("instructions"),
        "metadata": {},
        "model": f"{said.model}-2024-07-18" if said.model == "gpt-4o-mini" else said.model,
        "output": items(said) if done else [],
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


def stream(said: Said, request: dict[str, Any]) -> Iterator[bytes]:
    number = iter(range(1000))

    def send(kind: str, **fields: Any) -> bytes:
        return event({"type": kind, "sequence_number": next(number), **fields}, kind)

    yield send("response.created", response=whole(said, request, done=False))
    yield send("response.in_progress", response=whole(said, request, done=False))
    for index, item in enumerate(items(said)):
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
            for piece in said.pieces():
                yield send("response.output_text.delta", delta=piece, logprobs=[], **place)
            yield send("response.output_text.done", text=part["text"], logprobs=[], **place)
            yield send("response.content_part.done", part=part, **place)
        yield send("response.output_item.done", output_index=index, item=item)
    yield send("response.incomplete" if said.step.end else "response.completed", response=whole(said, request))
