"""Haystack: `ChatMessage.to_dict`, whose content is a list of blocks known by their one key; and the generation before, with `_content`.

A result names the call it answers (`origin`); `error: true` says that the tool raised, a `protocol-error`. The oldest form has text as
its content beside `meta`.

Tried with haystack-ai 2: `ChatMessage.to_dict` of today, and the form with underscores of 2.9 to 2.12.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.messages.builder import (
    Draft,
    Entries,
    Fields,
    iterate_blocks,
    join_text_parts,
    list_parts,
    read_role,
    require_key,
)
from proctor.evidence.shared.calls import PROTOCOL_ERROR
from proctor.evidence.shared.conversation import Message, Role
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import find_first, text_or_none
from proctor.model.evidence import Json

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "tool": "tool", "system": "system", "function": "tool"}
_BLOCKS = ("text", "tool_call", "tool_call_result")
_SILENT = ("image", "file", "reasoning")


def is_own_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Haystack's."""
    if "_role" in message and "_content" in message:
        return True
    if not isinstance(message.get("role"), str):
        return False
    parts = list_parts(message, "content")
    tools = any("tool_call" in part or "tool_call_result" in part for part in parts)
    return (tools and not any("type" in part for part in parts)) or (isinstance(message.get("meta"), dict) and "content" in message)


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages of Haystack."""
    return [_read_message(entry, at, unknowns) for at, entry in entries]


def _read_message(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message:
    require_key(entry, at, "haystack messages", "content", "_content")
    fields = Fields(entry, at, unknowns)
    draft = Draft(read_role(fields.take("role", "_role"), at, _ROLES, "haystack messages"), at, unknowns)
    content: Json = fields.take("content", "_content")
    for block in iterate_blocks(draft, content, f"{at}.content"):
        _add_block(draft, block)
    meta = fields.take_object("meta", "_meta")
    if meta is not None:
        draft.usage = meta.take_usage("usage")
        draft.model = text_or_none(meta.left.get("model"))
        draft.end_with(find_first(meta.left, "finish_reason", "stop_reason"))
        _add_old_calls(draft, meta)
    fields.close(("name", "_name"), role=draft.role)
    return draft.build()


def _add_old_calls(draft: Draft, meta: Fields) -> None:
    # Before 2.9 calls stood in the meta data of OpenAI's generator, or as JSON text.
    for key in ("tool_calls", "function_call"):
        if meta.left.get(key):
            draft.mark_everything(f"{meta.at}.{key}", "calls in meta data are not understood")


def _add_block(draft: Draft, block: Fields) -> None:
    if not any(key in block.left for key in (*_BLOCKS, *_SILENT)):
        draft.mark_everything(block.at, f"a block with the keys {', '.join(list(block.left)[:4])} is not understood")
        return
    draft.add_text(block.take("text"), block.at)
    call = block.take_object("tool_call")
    if call is not None:
        draft.add_call(call.take("tool_name"), call.take("arguments"), call.at, id=call.take("id"))
        call.close(("extra",))
    result = block.take_object("tool_call_result")
    if result is not None:
        origin = result.take_object("origin")
        failed = result.take_flag("error")
        id, name = (None, None) if origin is None else (origin.take("id"), origin.take("tool_name"))
        draft.add_result(join_text_parts(result.take("result")), result.at, id=id, name=name, failed=failed, kind=PROTOCOL_ERROR)
        result.close(role="tool")
    block.close(_SILENT, role=draft.role)
