"""LlamaIndex: `ChatMessage` with `blocks` known by their `block_type`, and what the model's provider left in `additional_kwargs`.

A call that stands in a block and in `additional_kwargs` is one call. Results are messages of role `tool`, which does not say how the tool
ended. Read are lists of messages and chat stores with one conversation.

Tried with llama-index-core 0.14 (`model_dump`), and the form before blocks (`content` beside `additional_kwargs`).
"""

from __future__ import annotations

from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.messages.builder import (
    Draft,
    Entries,
    Fields,
    Opened,
    iterate_objects,
    join_text_parts,
    list_with_paths,
    read_role,
    require_key,
)
from proctor.evidence.messages.openai import add_untold_calls
from proctor.evidence.shared.conversation import Message, Role
from proctor.evidence.shared.usage import read_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, list_of
from proctor.model.evidence import Json

_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "model": "assistant",
    "chatbot": "assistant",
    "tool": "tool",
    "function": "tool",
    "system": "system",
    "developer": "system",
}
_SILENT = ("image", "audio", "video", "document", "thinking", "cache", "citable", "citation", "cite")
_MORE_KEYS = frozenset(
    (
        *(
            "name",
            "prompt_tokens",
            "completion_tokens",
            "total_tokens",
            "refusal",
            "reasoning_content",
            "thinking",
            "annotations",
            "citations",
        ),
        *("thinking_signature", "thought_signatures", "stop_reason", "id", "is_error"),
    )
)


def is_own_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be LlamaIndex's."""
    blocks = [dict_or_empty(block) for block in list_of(message.get("blocks"))]
    return isinstance(message.get("role"), str) and (
        any("block_type" in block for block in blocks) or ("additional_kwargs" in message and ("blocks" in message or "content" in message))
    )


def open_store(document: dict[str, Any]) -> Opened | None:
    """Find the messages of a chat store that holds one conversation."""
    store = document.get("chat_store", document)
    kept = dict_or_empty(store).get("store")
    if not isinstance(kept, dict) or not kept or not all(isinstance(listed, list) for listed in kept.values()):
        return None
    if len(kept) > 1:
        raise EvidenceError(f"$.store: {len(kept)} conversations in one chat store; give one at a time")
    key, listed = next(iter(kept.items()))
    known = ("store", "class_name", "chat_store", "chat_store_key", "token_limit")
    return Opened(
        entries=list_with_paths(listed, f"$.store.{key}"), beside={name: value for name, value in document.items() if name not in known}
    )


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages of LlamaIndex."""
    return [_read_message(entry, at, unknowns) for at, entry in entries]


def _read_message(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message:
    require_key(entry, at, "llama-index messages", "blocks", "content")
    fields = Fields(entry, at, unknowns)
    draft = Draft(read_role(fields.take("role"), at, _ROLES, "llama-index messages"), at, unknowns)
    more = fields.take_object("additional_kwargs") or Fields({}, f"{at}.additional_kwargs", unknowns)
    blocks, content = fields.take_list("blocks"), fields.take("content")
    if draft.role == "tool":
        value = join_text_parts([_read_text(block) for block in blocks]) if blocks else join_text_parts(content)
        name = more.left.get("name")
        draft.add_result(value, at, id=more.take("tool_call_id"), name=name, failed=more.take_flag("is_error"))
        _mark_strange_blocks(draft, blocks)
    else:
        _add_blocks(draft, blocks)
        if not blocks:
            draft.add_text(content, f"{at}.content")
        add_untold_calls(draft, more)
        old = more.take_object("function_call")
        if old is not None:
            draft.add_call(old.take("name"), old.take("arguments"), old.at)
        # LlamaIndex spreads the counts of tokens among what the provider left behind.
        draft.usage = read_usage(dict(more.left))
    more.close(_MORE_KEYS, role=draft.role)
    fields.close(("name", "id"), role=draft.role)
    return draft.build()


def _read_text(block: Json) -> Json:
    inner = dict_or_empty(block)
    return {"text": inner["text"]} if inner.get("block_type") == "text" and "text" in inner else block


def _mark_strange_blocks(draft: Draft, blocks: list[Json]) -> None:
    for index, block in enumerate(blocks):
        if dict_or_empty(block).get("block_type") not in ("text", *_SILENT):
            draft.unknowns.mark("tool_results", f"{draft.at}.blocks[{index}]: a block of this kind is not understood")


def _add_blocks(draft: Draft, blocks: list[Json]) -> None:
    for block in iterate_objects(blocks, f"{draft.at}.blocks", draft.unknowns):
        kind = block.take("block_type")
        if kind == "text":
            draft.add_text(block.take("text"), block.at)
            block.close(role=draft.role)
        elif kind == "tool_call":
            draft.add_call(block.take("tool_name"), block.take("tool_kwargs"), block.at, id=block.take("tool_call_id"))
            block.close()
        elif kind not in _SILENT:
            draft.mark_everything(block.at, f"a block of type {kind!r} is not understood")
