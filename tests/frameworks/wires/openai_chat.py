"""OpenAI's chat completions (also Mistral, Groq, Together and others with the same format)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.frameworks.wires import ModelReply, event, halves


def usage(reply: ModelReply) -> dict[str, Any]:
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.total,
        "prompt_tokens_details": {"cached_tokens": 20, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 2, "audio_tokens": 0},
    }


def head(reply: ModelReply, kind: str) -> dict[str, Any]:
    model = f"{reply.model}-2024-07-18" if reply.model == "gpt-4o-mini" else reply.model
    return {
        "id": f"chatcmpl-{reply.number}",
        "object": kind,
        "created": 1794700000 + reply.number,
        "model": model,
        "system_fingerprint": "fp_1",
        "service_tier": "default",
    }


def whole(reply: ModelReply, *, functions: bool = False) -> dict[str, Any]:
    """The response; with `functions` in the format before tools existed."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.step.text or None, "refusal": None}
    if reply.step.calls:
        message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for id, name, arguments in reply.calls()
        ]
    finish = reply.step.end or ("tool_calls" if reply.step.calls else "stop")
    if functions and reply.step.calls:
        message["function_call"] = message.pop("tool_calls")[0]["function"]
        finish = "function_call"
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return {**head(reply, "chat.completion"), "choices": [choice], "usage": usage(reply)}


def stream(reply: ModelReply, options: dict[str, Any]) -> Iterator[bytes]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return event({**head(reply, "chat.completion.chunk"), "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": None if reply.step.calls else ""})
    for index, (id, name, arguments) in enumerate(reply.calls()):
        if options.get("whole_calls"):
            yield chunk({"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": json.dumps(arguments)}}]})
            continue
        first, second = halves(json.dumps(arguments))
        yield chunk({"tool_calls": [{"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}]})
        yield chunk({"tool_calls": [{"index": index, "function": {"arguments": first}}]})
        yield chunk({"tool_calls": [{"index": index, "function": {"arguments": second}}]})
    if reply.step.text:
        for piece in reply.pieces():
            yield chunk({"content": piece})
    last = {
        **head(reply, "chat.completion.chunk"),
        "choices": [{"index": 0, "delta": {}, "finish_reason": reply.step.end or ("tool_calls" if reply.step.calls else "stop")}],
    }
    if options.get("always_usage"):
        last["usage"] = usage(reply)
    yield event(last)
    if (options.get("stream_options") or {}).get("include_usage"):
        yield event({**head(reply, "chat.completion.chunk"), "choices": [], "usage": usage(reply)})
    yield event("[DONE]")
