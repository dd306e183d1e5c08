"""Tools that the provider calls itself: OpenAI's and Anthropic's MCP connectors. One response is a whole turn, including the results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.frameworks.wires import ModelReply, event, openai_responses


def openai_items(reply: ModelReply) -> list[dict[str, Any]]:
    tools = [
        {"name": name, "input_schema": {"type": "object"}, "description": "", "annotations": None}
        for name in ("lookup_order", "refund", "search_docs")
    ]
    items: list[dict[str, Any]] = [{"id": f"mcpl_{reply.number}", "type": "mcp_list_tools", "server_label": "shop", "tools": tools}]
    for index, (name, arguments) in enumerate(reply.means.calls):
        output, error = reply.hosted[index]
        items.append(
            {
                "id": f"mcp_{reply.number}_{index}",
                "type": "mcp_call",
                "status": "failed" if error else "completed",
                "approval_request_id": None,
                "server_label": "shop",
                "name": name,
                "arguments": json.dumps(arguments),
                "output": None if error else json.dumps(output),
                "error": error,
            }
        )
    content = [{"type": "output_text", "text": reply.means.text, "annotations": [], "logprobs": []}]
    return [*items, {"id": f"msg_{reply.number}", "type": "message", "status": "completed", "role": "assistant", "content": content}]


def openai(reply: ModelReply, request: dict[str, Any]) -> dict[str, Any]:
    return {**openai_responses.whole(reply, request), "output": openai_items(reply)}


def openai_stream(reply: ModelReply, request: dict[str, Any]) -> Iterator[bytes]:
    number = iter(range(1000))

    def send(kind: str, **fields: Any) -> bytes:
        return event({"type": kind, "sequence_number": next(number), **fields}, kind)

    yield send("response.created", response=openai_responses.whole(reply, request, done=False))
    for index, item in enumerate(openai_items(reply)):
        yield send("response.output_item.added", output_index=index, item=item)
        if item["type"] == "message":
            place = {"item_id": item["id"], "output_index": index, "content_index": 0}
            yield send("response.content_part.added", part={**item["content"][0], "text": ""}, **place)
            yield send("response.output_text.delta", delta=reply.means.text, logprobs=[], **place)
            yield send("response.output_text.done", text=reply.means.text, logprobs=[], **place)
            yield send("response.content_part.done", part=item["content"][0], **place)
        yield send("response.output_item.done", output_index=index, item=item)
    yield send("response.completed", response=openai(reply, request))


def anthropic(reply: ModelReply) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    for index, (name, arguments) in enumerate(reply.means.calls):
        output, error = reply.hosted[index]
        id = f"mcptoolu_{reply.number}_{index}"
        content.append({"type": "mcp_tool_use", "id": id, "name": name, "server_name": "shop", "input": arguments})
        result = [{"type": "text", "text": error or json.dumps(output)}]
        content.append({"type": "mcp_tool_result", "tool_use_id": id, "is_error": bool(error), "content": result})
    content.append({"type": "text", "text": reply.means.text, "citations": None})
    usage = {
        "input_tokens": reply.input_tokens,
        "output_tokens": reply.output_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
    head = {"id": f"msg_{reply.number}", "type": "message", "role": "assistant", "model": f"{reply.model}-20250929"}
    return {**head, "content": content, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}


def anthropic_stream(reply: ModelReply) -> Iterator[bytes]:
    full = anthropic(reply)

    def send(kind: str, **fields: Any) -> bytes:
        return event({"type": kind, **fields}, kind)

    yield send("message_start", message={**full, "content": [], "stop_reason": None, "usage": {**full["usage"], "output_tokens": 1}})
    for index, block in enumerate(full["content"]):
        if block["type"] == "mcp_tool_use":
            yield send("content_block_start", index=index, content_block={**block, "input": {}})
            yield send("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": json.dumps(block["input"])})
        elif block["type"] == "text":
            yield send("content_block_start", index=index, content_block={**block, "text": ""})
            yield send("content_block_delta", index=index, delta={"type": "text_delta", "text": block["text"]})
        else:
            yield send("content_block_start", index=index, content_block=block)
        yield send("content_block_stop", index=index)
    yield send("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": reply.output_tokens})
    yield send("message_stop")
