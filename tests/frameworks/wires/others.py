"""Ollama's chat, Cohere's second chat API and Bedrock's Converse."""

from __future__ import annotations

import binascii
import json
import struct
from collections.abc import Iterator
from typing import Any

from tests.frameworks.wires import ModelReply, event, halves


def ollama(reply: ModelReply, streamed: bool) -> Iterator[bytes]:
    def line(message: dict[str, Any], done: bool) -> bytes:
        found: dict[str, Any] = {
            "model": reply.model,
            "created_at": "2026-11-01T00:00:00Z",
            "message": {"role": "assistant", **message},
            "done": done,
        }
        if done:
            counts = {"prompt_eval_count": reply.input_tokens, "eval_count": reply.output_tokens}
            found |= {"done_reason": "stop", "total_duration": 9000000, "load_duration": 1000000, **counts}
        return json.dumps(found).encode() + b"\n"

    calls = [{"id": id, "function": {"name": name, "arguments": arguments}} for id, name, arguments in reply.calls()]
    if not streamed:
        yield line({"content": reply.step.text, **({"tool_calls": calls} if calls else {})}, True)
        return
    if calls:
        yield line({"content": "", "tool_calls": calls}, False)
    else:
        for piece in reply.pieces():
            yield line({"content": piece}, False)
    yield line({"content": ""}, True)


def cohere_usage(reply: ModelReply) -> dict[str, Any]:
    counts = {"input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens}
    return {"billed_units": counts, "tokens": counts}


def cohere(reply: ModelReply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant"}
    if reply.step.calls:
        message["tool_plan"] = "I will use the tools."
        message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for id, name, arguments in reply.calls()
        ]
    else:
        message["content"] = [{"type": "text", "text": reply.step.text}]
    finish = "TOOL_CALL" if reply.step.calls else "COMPLETE"
    return {"id": f"cohere-{reply.number}", "message": message, "finish_reason": finish, "usage": cohere_usage(reply)}


def cohere_stream(reply: ModelReply) -> Iterator[bytes]:
    def send(kind: str, **fields: Any) -> bytes:
        return event({"type": kind, **fields}, kind)

    yield send(
        "message-start",
        id=f"cohere-{reply.number}",
        delta={"message": {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": []}},
    )
    for index, (id, name, arguments) in enumerate(reply.calls()):
        start = {"id": id, "type": "function", "function": {"name": name, "arguments": ""}}
        yield send("tool-call-start", index=index, delta={"message": {"tool_calls": start}})
        for half in halves(json.dumps(arguments)):
            yield send("tool-call-delta", index=index, delta={"message": {"tool_calls": {"function": {"arguments": half}}}})
        yield send("tool-call-end", index=index)
    if reply.step.text:
        yield send("content-start", index=0, delta={"message": {"content": {"type": "text", "text": ""}}})
        for piece in reply.pieces():
            yield send("content-delta", index=0, delta={"message": {"content": {"text": piece}}})
        yield send("content-end", index=0)
    finish = "TOOL_CALL" if reply.step.calls else "COMPLETE"
    yield send("message-end", delta={"finish_reason": finish, "usage": cohere_usage(reply)})


def bedrock_usage(reply: ModelReply) -> dict[str, int]:
    return {"inputTokens": reply.input_tokens, "outputTokens": reply.output_tokens, "totalTokens": reply.total}


def bedrock(reply: ModelReply) -> dict[str, Any]:
    content: list[dict[str, Any]] = [
        {"toolUse": {"toolUseId": f"tooluse_{reply.number}_{index}", "name": name, "input": arguments}}
        for index, (_, name, arguments) in enumerate(reply.calls())
    ] or [{"text": reply.step.text}]
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "tool_use" if reply.step.calls else "end_turn",
        "usage": bedrock_usage(reply),
        "metrics": {"latencyMs": 7},
    }


def frame(kind: str, payload: dict[str, Any]) -> bytes:
    """One message of the event stream encoding of AWS: lengths, headers, payload, checksums."""
    headers = b""
    for key, value in ((":event-type", kind), (":content-type", "application/json"), (":message-type", "event")):
        headers += bytes([len(key)]) + key.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
    data = json.dumps(payload).encode()
    prelude = struct.pack(">II", 12 + len(headers) + len(data) + 4, len(headers))
    message = prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + data
    return message + struct.pack(">I", binascii.crc32(message))


def bedrock_stream(reply: ModelReply) -> Iterator[bytes]:
    yield frame("messageStart", {"role": "assistant"})
    for index, (_, name, arguments) in enumerate(reply.calls()):
        start = {"toolUse": {"toolUseId": f"tooluse_{reply.number}_{index}", "name": name}}
        yield frame("contentBlockStart", {"contentBlockIndex": index, "start": start})
        for half in halves(json.dumps(arguments)):
            yield frame("contentBlockDelta", {"contentBlockIndex": index, "delta": {"toolUse": {"input": half}}})
        yield frame("contentBlockStop", {"contentBlockIndex": index})
    if reply.step.text:
        for piece in reply.pieces():
            yield frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": piece}})
        yield frame("contentBlockStop", {"contentBlockIndex": 0})
    yield frame("messageStop", {"stopReason": "tool_use" if reply.step.calls else "end_turn"})
    yield frame("metadata", {"usage": bedrock_usage(reply), "metrics": {"latencyMs": 7}})
