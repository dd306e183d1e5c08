"""The scripted model's replies in the formats of OpenAI chat completions, OpenAI Responses, Anthropic messages and Gemini.

The model knows the running scenario; it finds turn and step in the conversation that the framework sends, so that
a framework which forgets a tool result is caught by its own recording.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Ask:
    """One requested tool call."""

    id: str
    name: str
    arguments: Json


@dataclass(frozen=True)
class Reply:
    """One step of the model: tool calls or the answer, and its token counts."""

    number: int
    turn: int
    step: int
    calls: list[Ask] = field(default_factory=list[Ask])
    text: str | None = None

    @property
    def input_tokens(self) -> int:
        return 100 + 10 * self.step

    @property
    def output_tokens(self) -> int:
        return 10 + self.step


def plan_reply(turns: list[Json], position: tuple[int, int], number: int, prefix: str) -> Reply:
    """Return the scripted reply at a position (turn, step) of the conversation."""
    turn, step = position
    script = turns[turn]
    if step < len(script["steps"]):
        calls = [Ask(f"{prefix}_{number}_{i}", name, arguments) for i, (name, arguments) in enumerate(script["steps"][step])]
        return Reply(number, turn, step, calls)
    return Reply(number, turn, step, text=script["text"])


def _locate(marks: Iterator[str]) -> tuple[int, int]:
    """Count user turns, and since the last one the distinct rounds of tool calls."""
    turn, rounds = -1, set[str]()
    for mark in marks:
        if mark == "user":
            turn, rounds = turn + 1, set()
        else:
            rounds.add(mark)
    return max(turn, 0), len(rounds)


def locate_in_chat(body: Json) -> tuple[int, int]:
    """Return turn and step of a chat completions request."""

    def marks() -> Iterator[str]:
        for index, message in enumerate(body["messages"]):
            if message["role"] == "user":
                yield "user"
            elif message["role"] == "assistant":
                # Some frameworks merge the calls of several rounds into one message; the round is in the id that the model gave.
                for call in message.get("tool_calls") or []:
                    yield call["id"].split("_")[1] if call["id"].startswith("call_") else str(index)

    return _locate(marks())


def locate_in_responses(body: Json) -> tuple[int, int]:
    """Return turn and step of a Responses request; the round of a call is in its id."""
    items = body["input"]
    if isinstance(items, str):
        return 0, 0

    def marks() -> Iterator[str]:
        for item in items:
            if item.get("role") == "user":
                yield "user"
            elif item.get("type") in ("function_call", "item_reference"):
                call_id = item.get("call_id") or item.get("id") or ""
                if call_id.startswith(("call_", "fc_")):
                    yield call_id.split("_")[1]

    return _locate(marks())


def locate_in_anthropic(body: Json) -> tuple[int, int]:
    """Return turn and step of an Anthropic messages request."""

    def marks() -> Iterator[str]:
        for index, message in enumerate(body["messages"]):
            content = message["content"]
            kinds = {"text"} if isinstance(content, str) else {part["type"] for part in content}
            if message["role"] == "user" and "text" in kinds and "tool_result" not in kinds:
                yield "user"
            elif message["role"] == "assistant" and "tool_use" in kinds:
                yield str(index)

    return _locate(marks())


def locate_in_gemini(body: Json) -> tuple[int, int]:
    """Return turn and step of a Gemini generateContent request."""

    def marks() -> Iterator[str]:
        for index, content in enumerate(body["contents"]):
            parts = content["parts"]
            if any("functionCall" in part for part in parts):
                yield str(index)
            elif content.get("role") in ("user", None) and any("text" in part for part in parts):
                yield "user"

    return _locate(marks())


def _chat_usage(reply: Reply) -> Json:
    total = reply.input_tokens + reply.output_tokens
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": total,
        "prompt_tokens_details": {"cached_tokens": 20},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }


def _chat_head(reply: Reply, kind: str) -> Json:
    return {
        "id": f"chatcmpl-{reply.number}",
        "object": kind,
        "created": 1794744000 + reply.number,
        "model": "gpt-4o-mini-2024-07-18",
        "service_tier": "default",
        "system_fingerprint": "fp_1",
    }


def _chat_calls(reply: Reply) -> list[Json]:
    return [{"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}} for c in reply.calls]


def speak_chat(reply: Reply, body: Json) -> Json | list[tuple[str | None, Json | str]]:
    """Answer a chat completions request, whole or as chunks."""
    finish = "tool_calls" if reply.calls else "stop"
    if not body.get("stream"):
        message: Json = {"role": "assistant", "content": reply.text, "refusal": None}
        if reply.calls:
            message["tool_calls"] = _chat_calls(reply)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return _chat_head(reply, "chat.completion") | {"choices": [choice], "usage": _chat_usage(reply)}
    deltas: list[Json] = [{"role": "assistant", "content": None if reply.calls else ""}]
    for index, call in enumerate(_chat_calls(reply)):
        arguments = call["function"]["arguments"]
        deltas.append({"tool_calls": [{"index": index, **call, "function": {**call["function"], "arguments": ""}}]})
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": part}}]} for part in _halve(arguments)]
    deltas += [{"content": part} for part in _halve(reply.text or "")]
    head = _chat_head(reply, "chat.completion.chunk")
    chunks = [head | {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]} for delta in deltas]
    chunks.append(head | {"choices": [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": finish}]})
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append(head | {"choices": [], "usage": _chat_usage(reply)})
    return [*((None, chunk) for chunk in chunks), (None, "[DONE]")]


def _halve(text: str) -> list[str]:
    """Cut a text into two chunks, as in a stream."""
    middle = len(text) // 2
    return [part for part in (text[:middle], text[middle:]) if part]


def _responses_items(reply: Reply) -> list[Json]:
    if reply.calls:
        return [
            {
                "type": "function_call",
                "id": c.id.replace("call", "fc"),
                "call_id": c.id,
                "name": c.name,
                "arguments": json.dumps(c.arguments),
                "status": "completed",
            }
            for c in reply.calls
        ]
    part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
    return [{"type": "message", "id": f"msg_{reply.number}", "role": "assistant", "status": "completed", "content": [part]}]


def _responses_document(reply: Reply, body: Json) -> Json:
    return {
        "id": f"resp_{reply.number}",
        "object": "response",
        "created_at": 1794744000 + reply.number,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": {},
        "model": "gpt-4o-mini-2024-07-18",
        "output": _responses_items(reply),
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": body.get("tools") or [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": reply.input_tokens,
            "input_tokens_details": {"cached_tokens": 20},
            "output_tokens": reply.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 2},
            "total_tokens": reply.input_tokens + reply.output_tokens,
        },
    }


def speak_responses(reply: Reply, body: Json) -> Json | list[tuple[str | None, Json | str]]:
    """Answer a Responses request, whole or as events."""
    document = _responses_document(reply, body)
    if not body.get("stream"):
        return document
    started = document | {"status": "in_progress", "output": [], "usage": None}
    events: list[Json] = [{"type": "response.created", "response": started}, {"type": "response.in_progress", "response": started}]
    for index, item in enumerate(document["output"]):
        where = {"item_id": item["id"], "output_index": index}
        if item["type"] == "function_call":
            events.append(
                {"type": "response.output_item.added", "output_index": index, "item": item | {"arguments": "", "status": "in_progress"}}
            )
            events += [{"type": "response.function_call_arguments.delta", **where, "delta": part} for part in _halve(item["arguments"])]
            events.append({"type": "response.function_call_arguments.done", **where, "name": item["name"], "arguments": item["arguments"]})
        else:
            part = item["content"][0]
            spot = {**where, "content_index": 0}
            events.append(
                {"type": "response.output_item.added", "output_index": index, "item": item | {"content": [], "status": "in_progress"}}
            )
            events.append({"type": "response.content_part.added", **spot, "part": part | {"text": ""}})
            events += [{"type": "response.output_text.delta", **spot, "delta": piece, "logprobs": []} for piece in _halve(part["text"])]
            events.append({"type": "response.output_text.done", **spot, "text": part["text"], "logprobs": []})
            events.append({"type": "response.content_part.done", **spot, "part": part})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": document})
    return [(event["type"], event | {"sequence_number": number}) for number, event in enumerate(events)]


def speak_anthropic(reply: Reply, body: Json) -> Json | list[tuple[str | None, Json | str]]:
    """Answer an Anthropic messages request, whole or as events."""
    blocks: list[Json] = [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.arguments} for c in reply.calls] or [
        {"type": "text", "text": reply.text}
    ]
    stop = "tool_use" if reply.calls else "end_turn"
    usage = {
        "input_tokens": reply.input_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": reply.output_tokens,
    }
    head: Json = {"id": f"msg_{reply.number}", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5"}
    whole = head | {"content": blocks, "stop_reason": stop, "stop_sequence": None, "usage": usage}
    if not body.get("stream"):
        return whole
    events: list[Json] = [
        {"type": "message_start", "message": whole | {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 1}}}
    ]
    for index, block in enumerate(blocks):
        empty = block | ({"input": {}} if block["type"] == "tool_use" else {"text": ""})
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        if block["type"] == "tool_use":
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in _halve(json.dumps(block["input"]))]
        else:
            deltas = [{"type": "text_delta", "text": part} for part in _halve(block["text"])]
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append(
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": reply.output_tokens}}
    )
    events.append({"type": "message_stop"})
    return [(event["type"], event) for event in events]


def speak_gemini(reply: Reply, streamed: bool) -> Json | list[tuple[str | None, Json | str]]:
    """Answer a Gemini request, whole or as chunks."""
    calls = [{"functionCall": {"id": c.id, "name": c.name, "args": c.arguments}} for c in reply.calls]

    def document(parts: list[Json], last: bool) -> Json:
        candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
        counts = {
            "promptTokenCount": reply.input_tokens,
            "candidatesTokenCount": reply.output_tokens,
            "totalTokenCount": reply.input_tokens + reply.output_tokens,
        }
        if last:
            candidate["finishReason"] = "STOP"
        return {
            "candidates": [candidate],
            "usageMetadata": counts,
            "modelVersion": "gemini-2.5-flash",
            "responseId": f"resp_{reply.number}",
        }

    if not streamed:
        return document(calls or [{"text": reply.text}], last=True)
    if calls:
        return [(None, document(calls, last=True))]
    pieces = _halve(reply.text or "")
    return [(None, document([{"text": piece}], last=index == len(pieces) - 1)) for index, piece in enumerate(pieces)]
