"""Microsoft Agent Framework: messages with `contents`, in Python (`type: function_call`) and .NET (`$type: functionCall`).

Read are lists of messages, sessions with their history in memory, threads with a store of messages, and responses. A result that tells an
`exception` is a `protocol-error`: the tool raised. Calls that wait for approval are no calls yet.

Tried with agent-framework 1 (Python), a stored session; .NET's form as Microsoft.Extensions.AI writes it.
"""

from __future__ import annotations

from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.messages.builder import (
    EVERYTHING,
    Draft,
    Entries,
    Fields,
    Opened,
    list_parts,
    list_with_paths,
    read_role,
    read_usage_at,
    require_key,
)
from proctor.evidence.shared.calls import PROTOCOL_ERROR, says_error
from proctor.evidence.shared.conversation import Message, Role
from proctor.evidence.shared.truncated_conversations import is_running, mark_earlier, mark_end
from proctor.evidence.shared.usage import find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, find_first, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json, Usage
from proctor.model.show import show

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "tool": "tool", "system": "system", "developer": "system"}
_KEYS = frozenset(
    (
        *("type", "author_name", "authorName", "message_id", "messageId", "additional_properties", "additionalProperties", "created_at"),
        *("createdAt", "raw_representation", "annotations", "source_id"),
    )
)
_CONTENT_KEYS = frozenset(
    (
        *(
            "annotations",
            "additional_properties",
            "additionalProperties",
            "raw_representation",
            "id",
            "hosted",
            "items",
            "informational_only",
        ),
        *("informationalOnly", "protected_data", "protectedData", "user_input_request", "merge_mode"),
    )
)
_SILENT = (
    *(
        "textReasoning",
        "reasoning",
        "data",
        "uri",
        "hostedFile",
        "hostedVectorStore",
        "functionApprovalRequest",
        "functionApprovalResponse",
    ),
    *("userInputRequest", "userInputResponse", "toolApprovalRequest", "toolApprovalResponse", "oauthConsentRequest"),
)
_STATUS = ("completed", "in_progress", "incomplete", "failed", "searching", "interpreting", "generating", "calling")
_CALLS = (
    *("functionCall", "mcpServerToolCall", "searchToolCall", "codeInterpreterToolCall", "shellToolCall", "computerToolCall"),
    *("imageGenerationToolCall", "hostedToolCall", "webSearchToolCall", "fileSearchToolCall"),
)
_CALL_KEYS = ("image_id", "timeout_ms", "max_output_length", "pending_safety_checks", "acknowledged_safety_checks")
_RESPONSE_KEYS = frozenset(
    (
        *(
            "type",
            "messages",
            "response_id",
            "responseId",
            "created_at",
            "createdAt",
            "usage_details",
            "usage",
            "additional_properties",
            "agent_id",
        ),
        *(
            "agentId",
            "additionalProperties",
            "finish_reason",
            "finishReason",
            "continuation_token",
            "conversation_id",
            "conversationId",
            "modelId",
        ),
        *("model_id", "model", "text"),
    )
)


def is_own_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Agent Framework's."""
    parts = message.get("contents")
    typed = all("type" in part or "$type" in part for part in list_parts(message, "contents"))
    return isinstance(parts, list) and "role" in message and typed


def open_session(document: dict[str, Any]) -> Opened | None:
    """Find the messages of a session, a thread or a response."""
    if document.get("type") == "session" and "session_id" in document and not dict_or_empty(document.get("state")).get("in_memory"):
        # Refused here: as an unknown object the error would not say where the messages are.
        kept = document.get("service_session_id")
        where = f": the service keeps them under {show(kept, 60)[1:-1]}" if isinstance(kept, str) else ""
        raise EvidenceError(f"$: a session of Agent Framework without messages{where}; write the response's to_dict() instead")
    for path in (("state", "in_memory"), ("chat_message_store_state",), ("storeState",), ("message_store_state",)):
        holder: Json = document
        for step in path:
            holder = dict_or_empty(holder).get(step)
        listed = dict_or_empty(holder).get("messages")
        if isinstance(listed, list) and any(is_own_message(dict_or_empty(entry)) for entry in listed):
            _refuse_others(document, path)
            return Opened(entries=list_with_paths(listed, f"$.{'.'.join(path)}.messages"))
    listed = document.get("messages")
    if document.get("type") not in ("agent_response", "agent_run_response", "chat_response") and "responseId" not in document:
        return None
    if not isinstance(listed, list) or not any(is_own_message(dict_or_empty(entry)) for entry in listed):
        return None
    beside = {key: value for key, value in document.items() if key not in _RESPONSE_KEYS}
    unknowns = Unknowns()
    usage = _read_usage(find_first(document, "usage_details", "usage"), "$.usage_details", unknowns)
    return Opened(
        entries=list_with_paths(listed, "$.messages"),
        beside=beside,
        usage=usage or find_usage(document),
        unknowns=tuple(unknowns.unknown.items()),
        # The response of an agent has every message of its run, and never the question; that of a model has one step.
        is_whole=document.get("type") != "chat_response",
    )


def _refuse_others(document: dict[str, Any], path: tuple[str, ...]) -> None:
    known = (
        path[0],
        "type",
        "session_id",
        "service_session_id",
        "service_thread_id",
        "conversationId",
        "aiContextProviderState",
        "stateBag",
    )
    strange = [key for key, value in document.items() if key not in known and value not in (None, {}, [], "")]
    inner = dict_or_empty(document.get(path[0]))
    if len(path) == 1:
        strange.extend(f"{path[0]}.{key}" for key, value in inner.items() if key not in ("messages", "type") and value)
    if strange:
        raise EvidenceError(f"$.{strange[0]}: this key beside the messages of Agent Framework is not understood")


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages of Agent Framework."""
    summed_up = {_read_annotation(entry, "_summarized_by_summary_id") for _, entry in entries} - {None}
    for at, entry in entries:
        # What is summed up stays in the list and is marked as such.
        if (
            _read_annotation(entry, "_summary_of_message_ids", "_summary_of_group_ids")
            and text_or_none(entry.get("message_id")) not in summed_up
        ):
            mark_earlier(unknowns, f"{at}: a summary of messages that are not here")
    return [_read_message(entry, at, unknowns) for at, entry in entries]


def _read_annotation(entry: dict[str, Any], *keys: str) -> str | bool | None:
    """Return the note that compaction left at a message."""
    noted = dict_or_empty(entry.get("additional_properties"))
    found = find_first({**noted, **dict_or_empty(noted.get("_group"))}, *keys)
    return found if isinstance(found, str) else bool(found) or None


def _read_message(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message:
    require_key(entry, at, "agent-framework messages", "contents")
    fields = Fields(entry, at, unknowns)
    role = fields.take("role")
    draft = Draft(read_role(dict_or_empty(role).get("value", role), at, _ROLES, "agent-framework messages"), at, unknowns)
    for part in fields.take_objects("contents"):
        _add_content(draft, part)
    fields.close(_KEYS, role=draft.role)
    return draft.build()


def _add_content(draft: Draft, part: Fields) -> None:
    named = part.take("$type", "type")
    # Python writes these types in snake case and .NET in camel case; one form serves both.
    kind = _to_camel_case(named) if isinstance(named, str) else None
    if kind is not None:
        kind = kind.removesuffix("Content")
    role: Role | None = draft.role
    if kind == "text":
        draft.add_text(part.take("text"), part.at)
    elif kind == "usage":
        draft.usage = _read_usage(part.take("usage_details", "details", "usageDetails"), part.at, draft.unknowns)
    elif kind == "error":
        part.mark(("answer",), ": the answer broke off with an error")
        return
    elif kind is not None and kind.endswith("Call"):
        role = None
        _add_call(draft, part, kind)
    elif kind is not None and kind.endswith("Result"):
        role = "tool"
        _add_result(draft, part)
    elif kind in _SILENT:
        return
    else:
        draft.mark_everything(part.at, f"content of type {named!r} is not understood")
        return
    part.close(_CONTENT_KEYS, role=role)


def _add_call(draft: Draft, part: Fields, kind: str) -> None:
    id, status = part.take("call_id", "callId"), part.take_word("status", _STATUS, EVERYTHING)
    if is_running(status):
        mark_end(draft.unknowns, f"{part.at}.status", status)
    name = part.take("name", "tool_name", "toolName")
    if name is None and kind not in ("functionCall", "mcpServerToolCall"):
        name = _to_snake_case(kind.removesuffix("Call").removesuffix("Tool"))
    given = part.take("arguments", "inputs", "commands", "actions")
    draft.add_call(name, given, part.at, id=id, server=part.take("server_name", "serverName"))
    if kind not in _CALLS:
        part.mark(("tool_arguments", "tool_results"), f": content of type {kind!r} is not wholly understood")
    part.take("exception")
    for key in _CALL_KEYS:
        part.take(key)


def _add_result(draft: Draft, part: Fields) -> None:
    told, status = part.take("exception"), part.take_word("status", _STATUS)
    result = decode_container(part.take("result", "output", "outputs", "screenshot"))
    failed = says_error(told) or status == "failed"
    error = (told if isinstance(told, str) else "the tool raised an error") if failed else None
    name = part.take("tool_name", "toolName", "name")
    draft.add_result(result, part.at, id=part.take("call_id", "callId"), name=name, error=error, kind=PROTOCOL_ERROR)
    for key in _CALL_KEYS:
        part.take(key)


def _to_snake_case(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _to_camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _read_usage(value: Json, at: str, unknowns: Unknowns) -> Usage | None:
    told = dict_or_empty(value)
    names = {"input_token_count": "input_tokens", "inputTokenCount": "input_tokens", "output_token_count": "output_tokens"}
    names |= {"outputTokenCount": "output_tokens", "total_token_count": "total_tokens", "totalTokenCount": "total_tokens"}
    return read_usage_at({names.get(key, key): count for key, count in told.items()}, at, unknowns) if told else None
