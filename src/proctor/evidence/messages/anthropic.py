"""Anthropic: messages whose content is a list of blocks, tools as `tool_use` and `tool_result`.

Results stand in user messages; such a message is a turn only if it also has text. `is_error` is a `content-error`. Tools the
provider runs itself (`server_tool_use`, `mcp_tool_use`) are calls too, with results in blocks that end in `_tool_result`.

Tried with anthropic 0.7x (Python and JavaScript); the blocks of server and MCP tools as its API reference shows them.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.messages.builder import (
    Draft,
    Entries,
    Fields,
    Opened,
    join_text_parts,
    list_with_paths,
    open_fields,
    read_role,
    require_key,
)
from proctor.evidence.shared.conversation import Message, Role
from proctor.evidence.shared.truncated_conversations import mark_earlier, mark_end, mark_later, weigh_edits
from proctor.evidence.shared.usage import find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, list_of, text_or_none
from proctor.model.evidence import Json

ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_MESSAGE_KEYS = frozenset(
    ("id", "type", "stop_sequence", "stop_details", "container", "context_management", "cache_control", "diagnostics")
)
# Anthropic stops a long turn with `pause_turn` and expects to be asked to go on, so the run is not over.
_PAUSES = ("pause_turn", "compaction")
_SILENT = ("thinking", "redacted_thinking", "image", "document", "search_result", "container_upload")
_ENVELOPE = frozenset(
    (
        *("max_tokens", "system", "temperature", "top_k", "top_p", "tool_choice", "stream", "stop_sequences", "thinking", "service_tier"),
        *("mcp_servers", "betas", "container", "context_management", "output_config", "output_format", "inference_geo", "_request_id"),
    )
)


def is_answer(document: dict[str, Any]) -> bool:
    """Return whether this is the answer of the messages endpoint."""
    return document.get("type") == "message" and document.get("role") == "assistant" and "stop_reason" in document


def open_answer(document: dict[str, Any]) -> Opened | None:
    """Find the message that an answer is, and what was sent, if that stands beside."""
    if not is_answer(document) or not isinstance(document.get("messages", []), list):
        return None
    sent = document.get("messages", [])
    answer = {key: value for key, value in document.items() if key not in ("messages", "tools", "case")}
    beside = {key: document[key] for key in ("tools", "case", "id", "model") if key in document}
    return Opened(
        entries=[*list_with_paths(sent, "$.messages"), ("$", answer)],
        beside=beside,
        usage=find_usage(document),
        model=text_or_none(document.get("model")),
    )


def is_own_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Anthropic's; LangChain keeps such blocks too, in messages that have a type instead of a role."""
    return "role" in message and any(is_tool_block(dict_or_empty(block).get("type")) for block in list_of(message.get("content")))


def is_tool_block(kind: Json) -> bool:
    """Return whether a block of this type is one of Anthropic's own."""
    return isinstance(kind, str) and (kind in ("thinking", "redacted_thinking") or _is_use(kind) or kind.endswith("tool_result"))


def list_harmless_keys() -> frozenset[str]:
    """Return the keys of a request that carry no messages."""
    return _ENVELOPE


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages with content blocks."""
    found: list[Message] = []
    calls = 0
    for at, entry in entries:
        found.append(_read_message(entry, at, unknowns))
        # Before this answer's own calls are counted: only what was made earlier can have been cleared.
        weigh_edits(entry.get("context_management"), at, calls, unknowns)
        calls += len(found[-1].calls)
    last = entries[-1] if entries else ("$", {})
    if last[1].get("stop_reason") in _PAUSES:
        mark_end(unknowns, f"{last[0]}.stop_reason", last[1]["stop_reason"])
    return found


def _read_message(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message:
    require_key(entry, at, "anthropic messages", "content")
    fields = Fields(entry, at, unknowns)
    draft = Draft(read_role(fields.take("role"), at, ROLES, "anthropic messages"), at, unknowns)
    content = fields.take("content")
    if isinstance(content, list):
        for index, block in enumerate(content):
            add_block(draft, block, f"{at}.content[{index}]")
    else:
        draft.add_text(content, f"{at}.content")
    draft.usage = fields.take_usage("usage")
    draft.model = text_or_none(fields.take("model"))
    # A message that is still streaming has the key already, and no reason yet.
    if "stop_reason" in entry and entry["stop_reason"] is None:
        mark_later(unknowns, f"{at}.stop_reason: none yet, so the run was not over")
    draft.end_with(fields.take("stop_reason"))
    fields.close(_MESSAGE_KEYS, role=draft.role)
    return draft.build()


def add_block(draft: Draft, value: Json, at: str) -> None:
    """Add one block of content."""
    block = open_fields(value, at, draft.unknowns)
    if block is None:
        return
    kind = block.take("type")
    if kind == "text":
        draft.add_text(block.take("text"), at)
        block.close(("citations", "cache_control", "index", "id"), role=draft.role)
    elif isinstance(kind, str) and _is_use(kind):
        draft.add_call(block.take("name"), block.take("input"), at, id=block.take("id"), server=block.take("server_name"))
        block.close(("cache_control", "caller", "index", "partial_json", "extras"))
    elif isinstance(kind, str) and kind.endswith("tool_result"):
        _add_result(draft, block, is_server=kind not in ("tool_result", "mcp_tool_result"))
    elif kind == "compaction":
        mark_earlier(draft.unknowns, f"{at}: a compaction stands for what was before it")
    elif kind not in _SILENT:
        draft.mark_everything(at, f"a block of type {kind!r} is not understood")


def _is_use(kind: str) -> bool:
    return kind == "tool_use" or kind.endswith("_tool_use")


def _add_result(draft: Draft, block: Fields, *, is_server: bool) -> None:
    content = block.take("content")
    value = join_text_parts(content) if isinstance(content, (str, list)) else content
    failed, told = block.take_flag("is_error"), None
    if is_server:
        # Tools the provider runs itself answer with types of their own: {"type": "web_search_tool_result_error", "error_code": ...}.
        kinds = [dict_or_empty(entry).get("type") for entry in (content if isinstance(content, list) else [content])]
        if not all(isinstance(kind, str) and kind.endswith(("result", "result_error")) for kind in kinds):
            block.mark(("tool_results",), ".content: what this tool answered is not understood")
        failed = failed or any(isinstance(kind, str) and kind.endswith("error") for kind in kinds)
        told = dict_or_empty(value).get("error_code") if failed else None
    draft.add_result(value, block.at, id=block.take("tool_use_id"), error=told, failed=failed)
    block.close(("cache_control", "caller", "index", "id"), role="tool")
