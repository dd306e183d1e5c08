"""Google's generateContent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.frameworks.wires import Said, event

_REASONS = {"": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}


def body(said: Said, parts: list[dict[str, Any]], *, done: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    found: dict[str, Any] = {"candidates": [candidate], "modelVersion": said.model, "responseId": f"resp-{said.number}"}
    if done:
        candidate["finishReason"] = _REASONS[said.step.end]
        found["usageMetadata"] = {
            "promptTokenCount": said.input_tokens,
            "candidatesTokenCount": said.output_tokens,
            "totalTokenCount": said.total,
        }
    return found


def call_parts(said: Said) -> list[dict[str, Any]]:
    return [
        {"functionCall": {"id": f"fc_{said.number}_{index}", "name": name, "args": arguments}}
        for index, (_, name, arguments) in enumerate(said.calls())
    ]


def whole(said: Said) -> dict[str, Any]:
    return body(said, call_parts(said) or [{"text": said.step.text}], done=True)


def stream(said: Said) -> Iterator[bytes]:
    if said.step.calls:
        yield event(whole(said))
        return
    pieces = list(said.pieces())
    for index, piece in enumerate(pieces):
        yield event(body(said, [{"text": piece}], done=index == len(pieces) - 1))
