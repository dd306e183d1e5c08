"""Reads one message of any provider or framework, of a message list or a span."""

from __future__ import annotations

import functools
from typing import Any, cast

from proctor.evidence.shared.blocks import (
    PLAIN,
    REASONING,
    RESULT_ID,
    Dialect,
    Draft,
    carries_result,
    join_text_parts,
    list_written_blocks,
    read_counts,
)
from proctor.evidence.shared.message import Message, Role
from proctor.evidence.shared.usage import find_usage, read_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.unrecognised import CONTENT_PARTS, check_object, list_unrecognised, mark_kind
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, split_words, text_or_none
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Json
from proctor.model.show import kind_of, show

ROLES: dict[str, Role] = {
    word: cast(Role, role)
    for role, words in {
        "user": "user human humanmessage humanmessagechunk input",
        # `tool-call` and `tool-response` are roles of smolagents, the ones that end in `message` are LangChain's classes.
        "assistant": "assistant ai model aimessage aimessagechunk agent chatbot bot tool-call",
        "system": "system developer systemmessage systemmessagechunk instructions data",
        "tool": "tool function toolmessage toolmessagechunk functionmessage tool-response",
    }.items()
    for word in words.split()
}
CONTENT = ("parts", "blocks", "contents", "items", "Items", "_content", "content", "text")
_LISTS = ("parts", "blocks", "contents", "items", "Items")
CALL_LISTS = ("tool_calls", "toolCalls", "invalid_tool_calls", "toolInvocations")
# `invalid_tool_calls` are LangChain's calls with arguments that are not JSON: the model did request these tools.
RESULT_LISTS = ("tool_responses", "tool_results")
_USAGE = ("usage", "usage_metadata", "usageMetadata")
_HELD_USAGE = ("usage", "totalUsage", "Usage")
_FINISH = ("finish_reason", "finishReason", "stop_reason", "stopReason")
_MODEL = ("model_name", "model", "model_id", "modelId", "ai_model_id")
_HOLDERS = ("response_metadata", "meta", "_meta", "metadata", "Metadata", "provider_data")
_SAYING = frozenset((*CONTENT, *CALL_LISTS, *RESULT_LISTS, "function_call", "refusal", "audio", "message", "tool_call_chunks"))
_KNOWN = frozenset((*_SAYING, *_USAGE, *_FINISH, *_MODEL, *_HOLDERS, "format")) | split_words(
    "role _role Role name _name type kind id content_type additional_kwargs lc_kwargs lc_serializable lc_namespace artifact status state"
)
_MORE_KNOWN = split_words(
    "tool_calls function_call tool_outputs refusal audio name tool_call_id is_error lc_source reasoning_content parsed"
)
_MOVED = ("function_call", "refusal", "audio", "name", "tool_call_id", "is_error")
_CALLING = frozenset((*CALL_LISTS, "function_call", "tool_call_chunks"))
_TOOL_FIELDS = frozenset((*RESULT_ID, "name", "tool_name", "status", "type", "content", "response", "result", "output"))


@functools.lru_cache(maxsize=1024)
def find_role(word: str) -> Role | None:
    """Return the role that a word means; an enumeration may be printed with its class, `MessageRole.USER`."""
    return ROLES.get(word.lower().rpartition(".")[2])


def read_role(entry: dict[str, Any]) -> Json:
    """Return the word for the role of a message; .NET and enumerations use an object."""
    word = find_first(entry, "role", "_role", "Role")
    return find_first(word, "value", "label", "Label") or word if isinstance(word, dict) else word


def read_message(
    entry: dict[str, Any], at: str, unknowns: Unknowns, dialect: Dialect = PLAIN, default: Role | None = None
) -> Message | None:
    """Read one message, or return None and mark what it may contain if its role is not recognised."""
    draft = draft_message(entry, at, unknowns, dialect, default)
    return None if draft is None else draft.build()


def draft_message(entry: dict[str, Any], at: str, unknowns: Unknowns, dialect: Dialect, default: Role | None) -> Draft | None:
    """Read one message as `read_message` does, without building it."""
    word = read_role(entry)
    role = find_role(word) if isinstance(word, str) else default if word is None else None
    if role is None:
        mark_role(entry, word, at, unknowns, dialect)
        return None
    draft = Draft(role, at, unknowns, dialect)
    fill(draft, entry)
    return draft


def mark_role(entry: dict[str, Any], word: Json, at: str, unknowns: Unknowns, dialect: Dialect = PLAIN) -> None:
    """Mark what a message of an unrecognised role may contain."""
    if not isinstance(word, str):
        unknowns.mark_parts(CONTENT_PARTS, f"{at}: a message without a role")
        return
    draft, has_content = Draft("assistant", at, Unknowns(), dialect), not _SAYING.isdisjoint(entry)
    fill(draft, entry)
    parts: list[Part] = [*draft.unknowns.unknown]
    if not has_content and any(isinstance(value, (dict, list)) and value for value in entry.values()):
        parts += CONTENT_PARTS
    if draft.calls or draft.results:
        parts += CALL_PARTS
    if "".join(draft.texts).strip():
        parts.append("answer")
    if has_content:
        parts.extend(("input", "turns"))
    unknowns.mark_unrecognised(parts, f"{at}: unrecognised role {show(word, 60)}")
    mark_kind(entry, word, at, unknowns)


def fill(draft: Draft, entry: dict[str, Any]) -> None:
    """Read the fields of a message into its draft."""
    at, unknowns, extra = draft.at, draft.unknowns, entry.get("additional_kwargs") or {}
    is_empty = _SAYING.isdisjoint(entry) and not (draft.role == "tool" and not _TOOL_FIELDS.isdisjoint(entry))
    # A span may omit the content of a message.
    if is_empty and (not draft.dialect.is_span or list_unrecognised(entry, _KNOWN)):
        draft.mark(at, "a message without content")
    if not draft.expect(extra, dict, "an object", f"{at}.additional_kwargs"):
        extra = {}
    # LangChain and LlamaIndex store provider fields here.
    moved = {key: extra[key] for key in _MOVED if extra.get(key) is not None and entry.get(key) is None} if extra else extra
    fields = {**entry, **moved} if moved else entry
    if not _CALLING.isdisjoint(fields) or extra:
        _add_listed_calls(draft, fields, extra)
    if draft.role == "tool" and not _holds_results(entry):
        if draft.dialect.results_in_blocks:
            draft.mark(at, "a message of a tool without a result", ("tool_results",))
            _add_content(draft, entry)
        else:
            _fill_result(draft, fields)
    else:
        _add_content(draft, entry)
        refusal, audio = fields.get("refusal"), fields.get("audio")
        if refusal not in draft.texts:
            draft.add_text(refusal, f"{draft.at}.refusal")
        if audio is not None and not "".join(draft.texts):
            if "transcript" not in dict_or_empty(audio):
                draft.mark(f"{draft.at}.audio", "expected an object with a transcript", ("answer",))
            draft.add_text(dict_or_empty(audio).get("transcript"), f"{draft.at}.audio")
    for key in RESULT_LISTS:
        for index, result in enumerate(list_of(entry.get(key))):
            draft.add_result(result, f"{at}.{key}[{index}]")
    if draft.role == "assistant" and not draft.dialect.is_span:
        _read_report(draft, entry, extra)
        draft.thinks = draft.thinks or any(entry.get(key) or extra.get(key) for key in REASONING)
    check_object(entry, _KNOWN, at, unknowns, has_answer=bool(draft.texts))
    check_object(extra, _MORE_KNOWN, f"{at}.additional_kwargs", unknowns, has_answer=True)
    if draft.role == "assistant" and not draft.calls and not draft.results and not "".join(draft.texts):
        unread = {key: holder[key] for holder, known in ((entry, _KNOWN), (extra, _MORE_KNOWN)) for key in list_unrecognised(holder, known)}
        for key, value in unread.items():
            if _holds_sentence(value, 3):
                unknowns.mark_unrecognised(("answer",), f"{at}: {show(key, 60)} of a message without text is not read")


def _holds_sentence(value: Json, depth: int) -> bool:
    """Return whether a value is or contains a text of several words, which may be an answer."""
    if isinstance(value, str):
        return " " in value
    return isinstance(value, dict) and depth > 0 and any(_holds_sentence(member, depth - 1) for member in value.values())


def _holds_results(entry: dict[str, Any]) -> bool:
    if not all(entry.get(key) is None for key in RESULT_LISTS):
        return True
    for key in CONTENT:
        value = entry.get(key)
        if isinstance(value, str) and value[:1] == "[":
            value = list_written_blocks(value)
        if any(carries_result(block) for block in list_of(value)):
            return True
    return False


def _fill_result(draft: Draft, entry: dict[str, Any]) -> None:
    part = {key: value for key, value in entry.items() if key not in _KNOWN or key in _TOOL_FIELDS}
    if not draft.dialect.is_span:
        part.pop("id", None)  # the id of the message
    for key in CONTENT:
        value = entry.get(key)
        if isinstance(value, list) and value and all(isinstance(text, str) for text in value):
            part["content"] = "".join(value)
        elif key not in ("content", "text") and value is not None:
            part["content"] = join_text_parts(value)
    if "content" not in part and "text" in entry:
        part["content"] = entry["text"]
    is_named = find_first(part, *RESULT_ID, "name", "tool_name") is not None
    if not is_named and not isinstance(part.get("content"), str) and not draft.dialect.is_span:
        draft.mark(draft.at, "a result that names neither its call nor its tool, and is no text", ("tool_results",))
    draft.add_result(part, draft.at, "tool_message")


def _add_listed_calls(draft: Draft, entry: dict[str, Any], more: dict[str, Any]) -> None:
    at = draft.at
    for key in CALL_LISTS:
        draft.add_calls(entry.get(key), f"{at}.{key}")
    # Next to LangChain's own list, this is the same calls in the provider's spelling.
    draft.add_calls(more.get("tool_calls"), f"{at}.additional_kwargs.tool_calls", only_new=True)
    for index, item in enumerate(list_of(more.get("tool_outputs"))):
        draft.add_block(item, f"{at}.additional_kwargs.tool_outputs[{index}]")
    names, old = {call.name for call in draft.calls}, entry.get("function_call")
    # OpenAI's oldest form, which some write next to `tool_calls` for the same call.
    if old is not None and text_or_none(dict_or_empty(old).get("name")) not in names:
        draft.add_call(old, f"{at}.function_call", "function_call")
    for chunk in list_of(entry.get("tool_call_chunks")):
        name = dict_or_empty(chunk).get("name")
        if (name is None and not names) or (name and str(name) not in names):
            draft.mark(f"{at}.tool_call_chunks", "a piece of a call that is not in tool_calls", CALL_PARTS)


def _add_content(draft: Draft, entry: dict[str, Any]) -> None:
    for key in CONTENT:
        value, at = entry.get(key), f"{draft.at}.{key}"
        if value is None:
            continue
        if isinstance(value, dict) and isinstance(value.get("parts"), list):
            # Mastra stores content as an object with a format and parts.
            draft.add_calls(value.get("toolInvocations"), f"{at}.toolInvocations")
            _add_content(draft, value)
            draft.model = text_or_none(dict_or_empty(value.get("metadata")).get("modelId"))
            check_object(value, _KNOWN, at, draft.unknowns, has_answer=bool(draft.texts))
        elif not draft.dialect.is_span and (
            isinstance(value, dict) or (isinstance(value, str) and key in _LISTS and list_written_blocks(value) is None)
        ):
            draft.mark(at, f"expected blocks, found {kind_of(value)}")
        elif not (isinstance(value, str) and draft.texts):
            # Some formats repeat the text of their blocks in a second field.
            draft.add_content(value, at)
    if isinstance(entry.get("message"), str):
        draft.add_text(entry["message"], f"{draft.at}.message")


def _read_report(draft: Draft, entry: dict[str, Any], more: dict[str, Any]) -> None:
    holders = [holder for key in _HOLDERS if (holder := entry.get(key)) and isinstance(holder, dict)]
    parts = [entry, *holders]
    counts = (find_first(part, *(_USAGE if part is entry else _HELD_USAGE)) for part in parts)
    reported = next((count for count in counts if count is not None), None)
    if reported is not None:
        draft.usage = read_counts(reported, f"{draft.at}.usage", draft.unknowns)
    draft.usage = draft.usage or (find_usage(entry) if holders else None) or (read_usage(more) if more else None)
    if draft.model is None:
        draft.model = next((model for part in parts if (model := text_or_none(find_first(part, *_MODEL))) is not None), None)
    finish = next((reason for part in parts if (reason := find_first(part, *_FINISH)) is not None), None)
    draft.end_with(finish)
    draft.is_empty = finish is None and not draft.texts and not draft.results and not any(map(entry.get, (*CONTENT, "audio")))
