"""OpenAI's chat completions (also Mistral, Groq, Together and everyone who copied them)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.frameworks.wires import Said, event, halves


def usage(said: Said) -> dict[str, Any]:
    return {
        "prompt_tokens": said.input_tokens,
        "completion_tokens": said.output_tokens,
        "total_tokens": said.total,
        "prompt_tokens_details": {"cached_tokens": 20, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 2, "audio_tokens": 0},
    }


def head(said: Said, kind: str) -> dict[str, Any]:
    model = f"{said.model}-2024-07-18" if said.model == "gpt-4o-mini" else said.model
    return {
        "id": f"chatcmpl-{said.number}",
        "object": kind,
        "created": 1794700000 + said.number,
        "model": model,
        "system_fingerprint": "fp_1",
        "service_tier": "default",
    }


def whole(said: Said, *, functions: bool = False) -> dict[str, Any]:
    """The answer; with `functions` as it was before there were tools."""
    message: dict[str, Any] = {"role": "assistant", "content": said.step.text or None, "refusal": None}
    if said.step.calls:
        message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for id, name, arguments in said.calls()
        ]
    finish = said.step.end or ("tool_calls" if said.step.calls else "stop")
    if functions and said.step.calls:
        message["function_call"] = message.pop("tool_calls")[0]["function"]
        finish = "function_call"
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return {**head(said, "chat.completion"), "choices": [choice], "usage": usage(said)}


def stream(said: Said, options: dict[str, Any]) -> Iterator[bytes]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return event({**head(said, "chat.completion.chunk"), "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": None if said.step.calls else ""})
    for index, (id, name, arguments) in enumerate(said.calls()):
        if options.get("whole_calls"):
            yield chunk({"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": json.dumps(arguments)}}]})
            continue
        first, second = halves(json.dumps(arguments))
        yield chunk({"tool_calls": [{"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}]})
        yield chunk({"tool_calls": [{"index": index, "function": {"arguments": first}}]})
        yield chunk({"tool_calls": [{"index": index, "function": {"arguments": second}}]})
    if said.step.text:
        for piece in said.pieces():
            yield chunk({"content": piece})
    last = {
        **head(said, "chat.completion.chunk"),
        "choices": [{"index": 0, "delta": {}, "finish_reason": said.step.end or ("tool_calls" if said.step.calls else "stop")}],
    }
    if options.get("always_usage"):
        last["usage"] = usage(said)
    yield event(last)
    if (options.get("stream_options") or {}).get("include_usage"):
        yield event({**head(said, "chat.completion.chunk"), "choices": [], "usage": usage(said)})
    yield event("[DONE]")
