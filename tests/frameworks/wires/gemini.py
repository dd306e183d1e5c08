"""Google's generateContent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.frameworks.wires import ModelReply, event

_REASONS = {"": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}


def body(reply: ModelReply, parts: list[dict[str, Any]], *, done: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    found: dict[str, Any] = {"candidates": [candidate], "modelVersion": reply.model, "responseId": f"resp-{reply.number}"}
    if done:
        candidate["finishReason"] = _REASONS[reply.step.end]
        found["usageMetadata"] = {
            "promptTokenCount": reply.input_tokens,
            "candidatesTokenCount": reply.output_tokens,
            "totalTokenCount": reply.total,
        }
    return found


def call_parts(reply: ModelReply) -> list[dict[str, Any]]:
    return [
        {"functionCall": {"id": f"fc_{reply.number}_{index}", "name": name, "args": arguments}}
        for index, (_, name, arguments) in enumerate(reply.calls())
    ]


def whole(reply: ModelReply) -> dict[str, Any]:
    return body(reply, call_parts(reply) or [{"text": reply.step.text}], done=True)


def stream(reply: ModelReply) -> Iterator[bytes]:
    if reply.step.calls:
        yield event(whole(reply))
        return
    pieces = list(reply.pieces())
    for index, piece in enumerate(pieces):
        yield event(body(reply, [{"text": piece}], done=index == len(pieces) - 1))
