"""Semantic Kernel: a `ChatHistory`, messages with `items` known by their `content_type` (Python) or `$type` (.NET, in capitals).

A function belongs to a plugin: `Shop-refund` in Python; the function's own name is an alias of the call. How a function ended is not
recorded: what it answered may tell.

Tried with semantic-kernel 1 (Python, `ChatHistory.model_dump`); .NET's form as its documentation shows it.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.messages.builder import EVERYTHING, MISSING, Draft, Entries, Fields, read_role, require_key
from proctor.evidence.shared.conversation import Message, Role
from proctor.evidence.shared.truncated_conversations import find_gap
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "tool": "tool", "system": "system", "developer": "system"}
_KEYS = frozenset(
    (
        "content_type",
        "name",
        "encoding",
        "status",
        "inner_content",
        "AuthorName",
        "MimeType",
        "InnerContent",
        "Encoding",
        "Source",
        "ModelId",
        "choice_index",
        "function_invoke_attempt",
    )
)
_ITEM_KEYS = frozenset(
    (
        *("metadata", "encoding", "inner_content", "ai_model_id", "index", "call_type", "plugin_name", "Metadata", "MimeType", "ModelId"),
        *("InnerContent", "PluginName", "style"),
    )
)
_SILENT = ("image", "file_reference", "annotation", "streaming_annotation", "audio", "binary", "reasoning", "ImageContent", "AudioContent")


def is_own_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Semantic Kernel's."""
    return (message.get("content_type") == "message" and "items" in message) or (
        isinstance(message.get("Items"), list) and "Role" in message
    )


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages of a chat history."""
    return [_read_message(entry, at, unknowns) for at, entry in entries]


def _read_message(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message:
    require_key(entry, at, "semantic-kernel messages", "items", "Items")
    fields = Fields(entry, at, unknowns)
    # .NET writes a role as an object with a label.
    role = fields.take("role", "Role")
    draft = Draft(read_role(dict_or_empty(role).get("Label", role), at, _ROLES, "semantic-kernel messages"), at, unknowns)
    for item in fields.take_objects("items", "Items"):
        _add_item(draft, item)
    metadata = fields.take_object("metadata", "Metadata")
    if metadata is not None:
        usage = metadata.take_usage("usage", "Usage")
        draft.usage = usage if draft.role == "assistant" else None
        told = find_gap("metadata", metadata.left)
        if told is not None:
            metadata.mark(EVERYTHING, f".{told}: {MISSING}")
    draft.model = text_or_none(fields.take("ai_model_id"))
    draft.end_with(fields.take("finish_reason"))
    fields.close(_KEYS, role=draft.role)
    return draft.build()


def _add_item(draft: Draft, item: Fields) -> None:
    kind: Json = item.take("content_type", "$type")
    role: Role | None = draft.role
    if kind in ("text", "TextContent"):
        draft.add_text(item.take("text", "Text"), item.at)
    elif kind in ("function_call", "FunctionCallContent"):
        role = None
        own, plugin = item.take_text("function_name", "FunctionName"), item.take_text("plugin_name", "PluginName")
        name = item.take("name") or (f"{plugin}-{own}" if plugin else own)
        draft.add_call(name, item.take("arguments", "Arguments"), item.at, id=item.take("id", "Id"), alias=own)
    elif kind in ("function_result", "FunctionResultContent"):
        role = "tool"
        id = item.take("id", "CallId")
        draft.add_result(
            decode_container(item.take("result", "Result")), item.at, id=id, name=item.take("name", "function_name", "FunctionName")
        )
    elif kind in _SILENT:
        return
    else:
        draft.mark_everything(item.at, f"an item of type {kind!r} is not understood")
        return
    item.close(_ITEM_KEYS, role=role)
