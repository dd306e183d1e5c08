"""Microsoft Agent Framework (Python and .NET), Semantic Kernel, AutoGen and AG2.

Functions of Semantic Kernel belong to plugins: `Shop-refund`. AG2 records a chat from one side, so `assistant` may be the customer: the
first speaker asks. Tried with agent-framework 1, Microsoft.Extensions.AI, semantic-kernel 1, autogen-agentchat 0.7, ag2 0.9.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.messages.envelope import Entries, MessageFormat, Opened, list_parts, list_with_paths, open_list, read_all, without
from proctor.evidence.shared.blocks import IN_BLOCKS, RAISES_IN_BLOCKS, Draft, read_counts
from proctor.evidence.shared.conversation import Message, Role, mark_earlier
from proctor.evidence.shared.message_reader import fill, find_role, mark_role
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.fields import CONTENT_PARTS
from proctor.evidence.unknowns.unrecognised import check_fields, mark_kind
from proctor.evidence.values.access import dict_or_empty, find_first, split_words, text_or_none
from proctor.evidence.values.text import as_text
from proctor.model.evidence import Json
from proctor.model.show import kind_of, show

# Agent Framework

_STORES = ("state.in_memory.messages", "chat_message_store_state.messages", "storeState.messages", "message_store_state.messages")
_RESPONSES = ("agent_response", "agent_run_response", "chat_response")


def _is_framework_message(message: dict[str, Any]) -> bool:
    typed = all("type" in part or "$type" in part for part in list_parts(message, "contents"))
    return isinstance(message.get("contents"), list) and "role" in message and typed


def _open_session(document: dict[str, Any]) -> Opened | None:
    kind = document.get("type")
    if kind == "session" and "session_id" in document and not dict_or_empty(document.get("state")).get("in_memory"):
        stored = document.get("service_session_id")
        where = f": the service stores them under {show(stored, 60)[1:-1]}" if isinstance(stored, str) else ""
        raise EvidenceError(f"$: a session of Agent Framework without messages{where}; write the response's to_dict() instead")
    opened = open_list(document, _is_framework_message, *_STORES, drop=("type",))
    if opened is not None or (kind not in _RESPONSES and "responseId" not in document):
        return opened
    opened = open_list(document, _is_framework_message, "messages", drop=("usage_details", "usage", "type", "text"))
    if opened is None:
        return None
    usage = read_counts(find_first(document, "usage_details", "usage"), "$.usage_details", opened.unknowns)
    # The response of an agent has every message of its run, and never the question; that of a model has one step.
    return msgspec.structs.replace(opened, usage=usage, is_whole=kind != "chat_response")


def _read_framework(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages of Agent Framework; summarised messages stay in the list and are marked as such."""
    summarised = {_read_annotation(entry, "_summarized_by_summary_id") for _, entry in entries} - {None}
    for at, entry in entries:
        is_summary = _read_annotation(entry, "_summary_of_message_ids", "_summary_of_group_ids")
        if is_summary and text_or_none(entry.get("message_id")) not in summarised:
            mark_earlier(unknowns, f"{at}: a summary of messages that are not in the list")
    return read_all(entries, unknowns, RAISES_IN_BLOCKS)


def _read_annotation(entry: dict[str, Any], *keys: str) -> str | bool | None:
    noted = dict_or_empty(entry.get("additional_properties"))
    found = find_first({**noted, **dict_or_empty(noted.get("_group"))}, *keys)
    return found if isinstance(found, str) else bool(found) or None


# Semantic Kernel


def _is_kernel_message(message: dict[str, Any]) -> bool:
    return (message.get("content_type") == "message" and "items" in message) or (
        isinstance(message.get("Items"), list) and "Role" in message
    )


# AutoGen: messages and events of agents, and messages of its models.

_USERS = ("user", "user_proxy", "human")
_SPOKEN = split_words("TextMessage StopMessage HandoffMessage MultiModalMessage ToolCallSummaryMessage UserMessage AssistantMessage")
_SILENT = split_words(
    "ThoughtEvent UserInputRequestedEvent MemoryQueryEvent ModelClientStreamingChunkEvent SelectSpeakerEvent SelectorEvent SystemMessage"
)
_RESULTS = ("ToolCallExecutionEvent", "FunctionExecutionResultMessage")
_TYPES = _SPOKEN | _SILENT | {"ToolCallRequestEvent", *_RESULTS}
_KNOWN = frozenset(("type", "source", "content", "tool_calls", "results", "models_usage", "context", "target", "thought", "id"))


def _is_autogen_message(message: dict[str, Any]) -> bool:
    return _is_type(message.get("type")) and "role" not in message


def _is_type(kind: Json) -> bool:
    return isinstance(kind, str) and (kind in _TYPES or kind.startswith("StructuredMessage"))


def _open_state(document: Json) -> Opened | None:
    if not isinstance(document, list):
        # `stop_reason` is a sentence about the condition that ended a team.
        state = open_list(document, _is_autogen_message, "llm_context.messages", drop=("type", "version"))
        return state or open_list(document, _is_autogen_message, "messages", drop=("stop_reason",))
    results = [dict_or_empty(result) for result in document]
    if not results or not all(result.keys() == {"messages", "stop_reason"} and _open_state(result) is not None for result in results):
        return None
    if len(results) > 1:
        raise EvidenceError("$: several results of AutoGen in one list may be several runs; give one at a time, or as JSON Lines")
    return Opened(entries=list_with_paths(results[0]["messages"], "$[0].messages"))


def _read_autogen(entries: Entries, unknowns: Unknowns) -> list[Message]:
    found: list[Message] = []
    made: set[str] = set()
    for at, entry in entries:
        kind = entry.get("type")
        if not _is_type(kind):
            mark_kind(entry, str(kind), at, unknowns)
            if not isinstance(kind, str) or entry.get("models_usage") is not None:
                unknowns.mark_unrecognised(CONTENT_PARTS, f"{at}: unrecognised kind {show(kind, 60)}")
        elif kind not in _SILENT:
            message = _read_autogen_message(entry, at, unknowns, made)
            found.append(message)
            made.update(call.id for call in message.calls if call.id is not None)
    return found


def _read_autogen_message(entry: dict[str, Any], at: str, unknowns: Unknowns, made: set[str]) -> Message:
    kind, source, content = entry["type"], entry.get("source"), entry.get("content")
    # An `AssistantMessage` is a model's, whatever its source is called; other messages differ by their source alone.
    from_user = kind == "UserMessage" or (source in _USERS and kind in _SPOKEN and kind != "AssistantMessage")
    role: Role = "tool" if kind in _RESULTS else "user" if from_user else "assistant"
    draft = Draft(role, at, unknowns)
    if not isinstance(source, str) and kind in _SPOKEN:
        draft.mark(f"{at}.source", "the message does not name its source")
    if kind == "ToolCallRequestEvent" or (kind == "AssistantMessage" and isinstance(content, list)):
        draft.add_calls(content, f"{at}.content")
    elif kind in _RESULTS and isinstance(content, list):
        for index, result in enumerate(content):
            draft.add_result(result, f"{at}.content[{index}]")
    elif kind.startswith("StructuredMessage"):
        draft.add_text(as_text(content), f"{at}.content")
    elif kind in _RESULTS or content is None:
        draft.mark(f"{at}.content", f"expected content, found {kind_of(content)}")
    else:
        for index, part in enumerate(content if isinstance(content, list) else [content]):
            # Pictures are objects with their data.
            if not (isinstance(part, dict) and ("data" in part or "url" in part)):
                draft.add_content(part, f"{at}.content[{index}]")
    if kind == "ToolCallSummaryMessage":
        # With the ids of earlier calls known they are not added again.
        draft.ids.update(made)
        draft.add_calls(entry.get("tool_calls"), f"{at}.tool_calls")
    draft.usage = read_counts(entry.get("models_usage"), f"{at}.models_usage", unknowns)
    check_fields(entry, _KNOWN, at, unknowns, has_answer=bool(draft.texts))
    return draft.build()


# AG2


def _is_ag2_message(message: dict[str, Any]) -> bool:
    return isinstance(message.get("role"), str) and isinstance(message.get("tool_responses"), list)


def is_ag2_history(entries: list[dict[str, Any]]) -> bool:
    """Return whether a chat of two is recorded by one of them, so that `assistant` may be the one who asks."""
    named = [entry for entry in entries if isinstance(entry.get("name"), str)]
    return (
        len(named) == len(entries) > 1
        and entries[0].get("role") == "assistant"
        and entries[-1].get("role") == "user"
        and entries[0]["name"] != entries[-1]["name"]
    )


def _read_ag2(entries: Entries, unknowns: Unknowns) -> list[Message]:
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
        responses = entry.get("tool_responses")
        if responses or role == "tool":
            role = "tool"
        elif role != "system":
            role = "user" if entry.get("name") == names[0] and not entry.get("tool_calls") else "assistant"
        draft = Draft(role, at, unknowns)
        # The content of a message with responses repeats them.
        fill(draft, without(entry, "content") if responses else entry)
        if role == "tool" and not responses:
            draft.mark(at, "a message of a tool without its responses")
        found.append(draft.build())
    return found


# fmt: off
FORMATS = (
    MessageFormat("agent-framework", "messages or a session of Microsoft Agent Framework", _is_framework_message, _read_framework,
                  _open_session),
    MessageFormat("semantic-kernel", "a Semantic Kernel chat history", _is_kernel_message, dialect=IN_BLOCKS),
    MessageFormat("autogen", "AutoGen messages, a task result or an agent's state", _is_autogen_message, _read_autogen, _open_state,
                  ("llm_context",), opens_lists=True),
    MessageFormat("ag2", "the history of a chat of AG2", _is_ag2_message, _read_ag2, extends=("openai",)),
)
