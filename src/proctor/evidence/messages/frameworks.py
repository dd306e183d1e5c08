"""Haystack, Semantic Kernel, LlamaIndex, AG2, BeeAI and the AI SDK: how their messages are recognised, and what only they write.

Haystack's `error: true` means that the tool raised. Semantic Kernel's functions belong to plugins: `Shop-refund`. LlamaIndex keeps the
provider's calls in `additional_kwargs` as well. AG2 keeps the history of a chat from one side, so `assistant` may be the customer: who
begins the chat asks. BeeAI answers through the tool `final_answer`. The AI SDK has model messages (`tool-call`, `tool-result`), UI messages
(parts with call and result together), and Mastra's stored ones; its text that is only white space counts as none.

Tried with haystack-ai 2, semantic-kernel 1, llama-index-core 0.14, ag2 0.9, beeai-framework 0.1, ai 4 to 7, @mastra/core 1.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.messages.envelope import Entries, Opened, list_parts, list_with_paths, read_all, without
from proctor.evidence.shared.blocks import RAISES_IN_BLOCKS, Dialect, Draft
from proctor.evidence.shared.calls import PROTOCOL_ERROR
from proctor.evidence.shared.conversation import Message, Role
from proctor.evidence.shared.message_reader import fill, find_role, mark_role, read_message
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.unrecognised import list_calls
from proctor.evidence.values.access import dict_or_empty, list_of
from proctor.evidence.values.text import as_text
from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Json, ToolCall

# Haystack


def is_haystack_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Haystack's."""
    if "_role" in message and "_content" in message:
        return True
    if not isinstance(message.get("role"), str):
        return False
    parts = list_parts(message, "content")
    tools = any("tool_call" in part or "tool_call_result" in part for part in parts)
    return (tools and not any("type" in part for part in parts)) or (isinstance(message.get("meta"), dict) and "content" in message)


def read_haystack(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages of Haystack; before 2.9 calls were kept in the metadata, which is not read."""
    for at, entry in entries:
        if list_calls(entry.get("meta") or entry.get("_meta")):
            unknowns.mark_unrecognised(CALL_PARTS, f"{at}.meta: calls in metadata are not read")
    return read_all(entries, unknowns, RAISES_IN_BLOCKS)


# Semantic Kernel


def is_kernel_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Semantic Kernel's."""
    return (message.get("content_type") == "message" and "items" in message) or (
        isinstance(message.get("Items"), list) and "Role" in message
    )


def read_kernel(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages of a chat history."""
    return read_all(entries, unknowns, _IN_BLOCKS)


# LlamaIndex


def is_llama_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be LlamaIndex's."""
    blocks = list_parts(message, "blocks")
    return isinstance(message.get("role"), str) and (
        any("block_type" in block for block in blocks) or ("additional_kwargs" in message and ("blocks" in message or "content" in message))
    )


def open_store(document: dict[str, Any]) -> Opened | None:
    """Find the messages of a chat store that holds one conversation."""
    stored = dict_or_empty(document.get("chat_store", document)).get("store")
    if not isinstance(stored, dict) or not stored or not all(isinstance(listed, list) for listed in stored.values()):
        return None
    if len(stored) > 1:
        raise EvidenceError(f"$.store: {len(stored)} conversations in one chat store; give one at a time")
    key, listed = next(iter(stored.items()))
    return Opened(entries=list_with_paths(listed, f"$.store.{key}"), rest=without(document, "store", "chat_store"))


# AG2


def is_ag2_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be AG2's."""
    return isinstance(message.get("role"), str) and isinstance(message.get("tool_responses"), list)


def is_ag2_history(entries: list[dict[str, Any]]) -> bool:
    """Return whether a chat of two is kept by one of them, so that `assistant` may be the one who asks."""
    named = [entry for entry in entries if isinstance(entry.get("name"), str)]
    return (
        len(named) == len(entries) > 1
        and entries[0].get("role") == "assistant"
        and entries[-1].get("role") == "user"
        and entries[0]["name"] != entries[-1]["name"]
    )


def read_ag2(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read a history of two."""
    named = [entry["name"] for _, entry in entries if entry.get("role") != "system" and entry.get("name") is not None]
    names = list(dict.fromkeys(name for name in named if isinstance(name, str)))
    if len(names) != 2 or not all(isinstance(name, str) for name in named):
        raise EvidenceError(f"$: expected a chat of two, each named in their messages; found {len(names)}")
    found: list[Message] = []
    for at, entry in entries:
        role = find_role(str(entry.get("role")))
        if role is None:
            mark_role(entry, entry.get("role"), at, unknowns)
            continue
        spoken: Role = (
            role if role == "system" else "user" if entry.get("name") == names[0] and not entry.get("tool_calls") else "assistant"
        )
        answers = entry.get("tool_responses") or role == "tool"
        draft = Draft("tool" if answers else spoken, at, unknowns)
        # The content of a message with responses repeats them.
        fill(draft, without(entry, "content") if entry.get("tool_responses") else entry)
        if answers and not entry.get("tool_responses"):
            draft.mark(at, "a message of a tool without its responses")
        found.append(draft.build())
    return found


# BeeAI

_ANSWER = "final_answer"
_IN_BLOCKS = Dialect(results_in_blocks=True)


def is_beeai_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be BeeAI's."""
    parts = list_parts(message, "content")
    return "role" in message and any(part.get("type") in ("tool-call", "tool-result") and "tool_name" in part for part in parts)


def read_beeai(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages of BeeAI: what `final_answer` is given is the answer, and no tool was called."""
    found: list[Message] = []
    for message in read_all(entries, unknowns, _IN_BLOCKS):
        results = tuple(result for result in message.results if result.name != _ANSWER)
        if message.role == "tool" and not results:
            continue
        text = message.text
        for call in message.calls:
            if call.name == _ANSWER and call.arguments is None:
                unknowns.mark("answer", "the arguments of final_answer, which are the answer, are not recorded")
            elif call.name == _ANSWER:
                text = (text or "") + (as_text(dict_or_empty(call.arguments).get("response", call.arguments)) or "")
        calls = tuple(call for call in message.calls if call.name != _ANSWER)
        found.append(msgspec.structs.replace(message, text=text, calls=calls, results=results))
    return found


# AI SDK

# JavaScript leaves out what is undefined.
_AI_SDK = Dialect(omits_arguments=True, results_in_blocks=True)
_CALLING = ("tool-call", "tool-result", "tool-error", "tool-approval-request", "tool-approval-response")


def is_ai_sdk_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be the AI SDK's or Mastra's."""
    if not isinstance(message.get("role"), str):
        return False
    content, parts = message.get("content"), message.get("parts")
    if isinstance(content, dict) and isinstance(content.get("parts"), list) and "format" in content:
        return True
    if isinstance(parts, list) and parts and all(isinstance(dict_or_empty(part).get("type"), str) for part in parts):
        return True
    if isinstance(message.get("toolInvocations"), list) or "providerOptions" in message:
        return True
    # BeeAI's blocks have the same types, with names in snake case.
    return any(
        (part.get("type") in _CALLING and "tool_name" not in part) or ("providerOptions" in part and "type" in part) or _is_tool(part)
        for part in list_parts(message, "content")
    )


def _is_tool(part: dict[str, Any]) -> bool:
    kind = part.get("type")
    return isinstance(kind, str) and "toolCallId" in part and (kind.startswith("tool-") or kind == "dynamic-tool")


def read_ai_sdk(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read model messages or UI messages."""
    found: list[Message] = []
    for at, entry in entries:
        message = read_message(entry, at, unknowns, _AI_SDK)
        if message is not None:
            blank = message.role != "user" and message.text is not None and not message.text.strip()
            found.append(msgspec.structs.replace(message, text=None) if blank else message)
    return found


def mark_failed_calls(calls: tuple[ToolCall, ...], spans: Json) -> tuple[ToolCall, ...]:
    """Mark calls that MCPJam's spans of category `tool` report as failed, where the messages do not."""
    marked = list(calls)
    for span in map(dict_or_empty, list_of(spans)):
        if span.get("category") == "tool" and span.get("status") == "error":
            index = _find_call_of_span(marked, span)
            if index is not None and not marked[index].failed():
                marked[index] = msgspec.structs.replace(marked[index], error="the call failed", error_kind=PROTOCOL_ERROR)
    return tuple(marked)


def _find_call_of_span(calls: list[ToolCall], span: dict[str, Any]) -> int | None:
    wanted = span.get("toolCallId")
    if wanted is not None:
        return next((index for index, call in enumerate(calls) if call.id == wanted), None)
    # A call that is marked already is skipped, so that two failed spans of one tool mark two calls.
    return next((index for index, call in enumerate(calls) if call.name == span.get("toolName") and not call.failed()), None)
