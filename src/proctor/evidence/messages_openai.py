"""OpenAI: chat messages, chat completions, and the items of the Responses API.

Chat: `tool_calls[].function` with arguments as JSON text (`function_call` before tools existed), results in messages of role `tool`.
Responses: `function_call` and `function_call_output` items beside `message` items; what the assistant does without anyone
answering in between is one message. Tools the provider offers itself (`web_search_call`) are calls too, named without `_call`. Of
several choices the first counts.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.calls import PROTOCOL_ERROR, read_arguments, says_error
from proctor.evidence.conversation import Message, Result
from proctor.evidence.json_bytes import container_in
from proctor.evidence.messages_common import role_of, text_of_content
from proctor.evidence.shape import dict_of, first_of, list_of, text_or_none
from proctor.evidence.usage import read_usage
from proctor.model.evidence import Json, ToolCall

_ITEM_TYPES = (
    "function_call",
    "function_call_output",
    "mcp_call",
    "reasoning",
    "item_reference",
    "custom_tool_call",
    "custom_tool_call_output",
)
_HOSTED = (
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "computer_call",
    "local_shell_call",
    "shell_call",
    "apply_patch_call",
)
"""Tools the provider offers itself. Their arguments are an `action`, or stand in the item under the names of `_HOSTED_ARGUMENTS`."""
_HOSTED_ARGUMENTS = ("queries", "code", "operation")
_HOSTED_OUTPUTS = ("computer_call_output", "local_shell_call_output", "shell_call_output", "apply_patch_call_output")
_SILENT = ("mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "compaction")
_ITEM_PARTS = ("output_text", "input_text", "refusal")


def is_completion(document: dict[str, Any]) -> bool:
    """Whether this is the answer of the chat endpoint."""
    return document.get("object") == "chat.completion" or (
        isinstance(document.get("choices"), list) and any("message" in dict_of(choice) for choice in document["choices"])
    )


def is_response(document: dict[str, Any]) -> bool:
    """Whether this is the answer of the Responses endpoint."""
    return document.get("object") == "response" or (
        isinstance(document.get("output"), list) and any(is_item(entry) for entry in document["output"])
    )


def marks_chat(message: dict[str, Any]) -> bool:
    """Whether a message can only be OpenAI's chat format."""
    calls = list_of(message.get("tool_calls"))
    return any("function" in dict_of(call) for call in calls) or "function_call" in message or message.get("role") == "developer"


def is_item(entry: Json) -> bool:
    """Whether an entry can only be an item of the Responses API."""
    item = dict_of(entry)
    if item.get("type") in (*_ITEM_TYPES, *_HOSTED, *_HOSTED_OUTPUTS, *_SILENT):
        return True
    parts = list_of(item.get("content"))
    return (
        item.get("type") == "message" and "role" in item and (not parts or any(dict_of(part).get("type") in _ITEM_PARTS for part in parts))
    )


def read_chat(messages: list[dict[str, Any]]) -> list[Message]:
    """Chat messages."""
    return [_chat(message) for message in messages]


def completion_messages(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The answer in a chat completion."""
    choices = [dict_of(choice) for choice in list_of(document.get("choices"))]
    return [dict_of(choices[0].get("message"))] if choices else []


def response_items(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Input and output of a response, in order."""
    given = document.get("input")
    before = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else list_of(given)
    return [item for item in [*before, *list_of(document.get("output"))] if isinstance(item, dict)]


def read_items(items: list[dict[str, Any]]) -> list[Message]:
    """Items of the Responses API."""
    found: list[Message] = []
    for item in items:
        message = _item(item)
        if message is None:
            continue
        if message.role == "assistant" and found and found[-1].role == "assistant":
            found[-1] = _joined(found[-1], message)
        else:
            found.append(message)
    return found


def _chat(message: dict[str, Any]) -> Message:
    role = role_of(message.get("role"))
    text = text_of_content(message.get("content"))
    if role == "tool":
        result = Result(id=text_or_none(message.get("tool_call_id")), name=text_or_none(message.get("name")), value=container_in(text))
        return Message(role="tool", results=(result,))
    calls = [_call(dict_of(call)) for call in list_of(message.get("tool_calls"))]
    if isinstance(message.get("function_call"), dict):
        calls.append(_call({"function": message["function_call"]}))
    return Message(role=role, text=text, calls=tuple(call for call in calls if call is not None), usage=read_usage(message.get("usage")))


def _call(call: dict[str, Any]) -> ToolCall | None:
    function = dict_of(call.get("function")) or dict_of(call.get("custom")) or call
    name = text_or_none(function.get("name"))
    if name is None:
        return None
    arguments = first_of(function, "arguments", "input", "args")
    return ToolCall(
        name=name,
        arguments=read_arguments(arguments),
        server=text_or_none(call.get("server_label")),
        id=text_or_none(first_of(call, "id", "call_id")),
    )


def _item(item: dict[str, Any]) -> Message | None:
    kind = item.get("type")
    if kind in ("function_call", "custom_tool_call", "mcp_call"):
        call = _call({**item, "id": item.get("call_id") or item.get("id")})
        if call is None:
            return None
        return Message(role="assistant", calls=(call,), results=_own_result(item, call))
    if kind in _HOSTED:
        return _hosted(item)
    if kind in ("function_call_output", "custom_tool_call_output", *_HOSTED_OUTPUTS):
        value = text_of_content(item.get("output"))
        return Message(role="tool", results=(Result(id=text_or_none(item.get("call_id")), value=container_in(value)),))
    if kind in ("message", None) and "role" in item:
        return Message(role=role_of(item.get("role")), text=text_of_content(item.get("content")))
    return None


def _hosted(item: dict[str, Any]) -> Message:
    action = item.get("action")
    arguments = action if isinstance(action, dict) else {key: item[key] for key in _HOSTED_ARGUMENTS if item.get(key) is not None}
    failed = item.get("status") == "failed"
    call = ToolCall(
        name=str(item["type"]).removesuffix("_call"),
        arguments=arguments,
        result=first_of(item, "results", "outputs", "result"),
        error="the call failed" if failed else None,
        error_kind=PROTOCOL_ERROR if failed else None,
        id=text_or_none(first_of(item, "call_id", "id")),
    )
    return Message(role="assistant", calls=(call,))


def _own_result(item: dict[str, Any], call: ToolCall) -> tuple[Result, ...]:
    # A call the provider made itself (MCP) carries what came of it.
    if item.get("type") != "mcp_call":
        return ()
    failed = says_error(item.get("error"))
    error, kind = (item["error"], PROTOCOL_ERROR) if failed else (None, None)
    return (Result(id=call.id, name=call.name, value=container_in(item.get("output")), error=error, kind=kind),)


def _joined(before: Message, after: Message) -> Message:
    texts = [text for text in (before.text, after.text) if text is not None]
    return Message(
        role="assistant", text="".join(texts) if texts else None, calls=before.calls + after.calls, results=before.results + after.results
    )
