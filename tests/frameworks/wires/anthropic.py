"""Anthropic's messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.frameworks.wires import ModelReply, event, halves


def whole(reply: ModelReply) -> dict[str, Any]:
    content: list[dict[str, Any]] = [
        {"type": "tool_use", "id": f"toolu_{reply.number}_{index}", "name": name, "input": arguments}
        for index, (_, name, arguments) in enumerate(reply.calls())
    ]
    if reply.step.text:
        content.append({"type": "text", "text": reply.step.text})
    usage = {
        "input_tokens": reply.input_tokens,
        "output_tokens": reply.output_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "service_tier": "standard",
    }
    return {
        "id": f"msg_{reply.number}",
        "type": "message",
        "role": "assistant",
        "model": f"{reply.model}-20250929" if reply.model == "claude-sonnet-4-5" else reply.model,
        "content": content,
        "stop_reason": "tool_use" if reply.step.calls else "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }


def stream(reply: ModelReply) -> Iterator[bytes]:
    full = whole(reply)

    def send(kind: str, **fields: Any) -> bytes:
        return event({"type": kind, **fields}, kind)

    start = {**full, "content": [], "stop_reason": None, "usage": {**full["usage"], "output_tokens": 1}}
    yield send("message_start", message=start)
    for index, block in enumerate(full["content"]):
        if block["type"] == "tool_use":
            yield send("content_block_start", index=index, content_block={**block, "input": {}})
            for half in halves(json.dumps(block["input"])):
                yield send("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": half})
        else:
            yield send("content_block_start", index=index, content_block={"type": "text", "text": ""})
            for piece in reply.pieces():
                yield send("content_block_delta", index=index, delta={"type": "text_delta", "text": piece})
        yield send("content_block_stop", index=index)
    yield send(
        "message_delta", delta={"stop_reason": full["stop_reason"], "stop_sequence": None}, usage={"output_tokens": reply.output_tokens}
    )
    yield send("message_stop")
