"""Anthropic messages, and the stream of a run of the Claude Agent SDK or of Claude Code. Tried with anthropic 0.7x."""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.evidence.messages.envelope import Entries, MessageFormat, Opened, list_parts, list_with_paths, open_answer, read_all, without
from proctor.evidence.shared.conversation import mark_earlier, mark_end, mark_later
from proctor.evidence.shared.message import Message
from proctor.evidence.shared.usage import find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.unrecognised import check_object, mark_kind
from proctor.evidence.values.access import dict_or_empty, list_of, split_words, text_or_none
from proctor.model.evidence import Json
from proctor.model.json_values import is_number

# A long turn stops with `pause_turn` and is continued by another request, so the run is not over.
_PAUSES = ("pause_turn", "compaction")


def _is_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Anthropic's; LangChain has the same blocks, but its messages have a type instead of a role."""
    kinds = [kind for block in list_parts(message) if isinstance(kind := block.get("type"), str)]
    own = ("thinking", "redacted_thinking", "tool_use")
    return "role" in message and any(kind in own or kind.endswith(("_tool_use", "tool_result")) for kind in kinds)


def _open_answer(document: dict[str, Any]) -> Opened | None:
    if document.get("type") != "message" or document.get("role") != "assistant" or "stop_reason" not in document:
        return None
    answer = without(document, "messages", "tools", "case")
    return open_answer(document, "$", answer, *(answer.keys() - {"id", "model", "usage"}))


def _read_messages(entries: Entries, unknowns: Unknowns) -> list[Message]:
    found = read_all(entries, unknowns)
    for at, entry in entries:
        # While a message is streaming, the field exists and is null.
        if "stop_reason" in entry and entry["stop_reason"] is None:
            mark_later(unknowns, f"{at}.stop_reason: none yet, so the run was not over")
    if entries and entries[-1][1].get("stop_reason") in _PAUSES:
        mark_end(unknowns, f"{entries[-1][0]}.stop_reason", entries[-1][1]["stop_reason"])
    return found


# Claude Agent SDK and Claude Code

_SPEAKING = ("assistant", "user")
_SILENT = split_words("""
    system stream_event summary progress tool_progress tool_use_summary rate_limit_event auth_status keep_alive file-history-snapshot
    queue-operation ai-title last-prompt prompt_suggestion
    """)
_KNOWN = split_words("""
    type message subtype is_error result parent_tool_use_id usage modelUsage permission_denials structured_output tool_use_result
    toolUseResult isSidechain isMeta isSynthetic isCompactSummary errors
    """)
_NO_TURN = ("isMeta", "isSynthetic", "isCompactSummary")


def _is_entry(entry: dict[str, Any]) -> bool:
    """Return whether an entry can only be one of this stream: a message in an envelope, or the end of a run."""
    kind = entry.get("type")
    if kind in _SPEAKING:
        return "role" not in entry and dict_or_empty(entry.get("message")).get("role") == kind
    return kind == "result" and isinstance(entry.get("subtype"), str) and "num_turns" in entry


def _open_stream(document: Json) -> Opened | None:
    entries = list_of(document.get("messages") if isinstance(document, dict) else document)
    if not any(_is_entry(dict_or_empty(entry)) for entry in entries):
        return None
    ends = [entry for entry in map(dict_or_empty, entries) if entry.get("type") == "result"]
    first, unknowns = dict_or_empty(entries[0]), Unknowns()
    # The stream of a run does not repeat the user's message; its first entry describes the session.
    is_whole = first.get("type") == "system" and first.get("subtype") == "init"
    spoken = sum(dict_or_empty(entry).get("type") in _SPEAKING for entry in entries)
    if is_whole and not ends:
        mark_later(unknowns, "$: the stream has no entry of type result, so it was cut")
    # Some versions count answers, others count all messages including the first.
    elif ends and is_number(turns := ends[-1].get("num_turns")) and turns > spoken + 1:
        mark_earlier(unknowns, f"$: the end of the run counts {turns} turns, and {spoken} messages are recorded")
    return Opened(
        entries=list_with_paths(entries, "$.messages" if isinstance(document, dict) else "$"),
        rest=without(dict_or_empty(document), "messages"),
        # A session with several runs has an end for each.
        usage=find_usage(ends[0]) if len(ends) == 1 else None,
        is_whole=is_whole,
        error=_find_error(ends[-1]) if ends else None,
        unknowns=unknowns,
    )


def _find_error(end: dict[str, Any]) -> str | None:
    failed = end.get("subtype") != "success" or end.get("is_error") is True
    return f"the run ended with {end.get('subtype')}" if failed else None


def _read_stream(entries: Entries, unknowns: Unknowns) -> list[Message]:
    found: list[Message] = []
    for at, entry in _join_blocks(entries):
        kind = entry.get("type")
        if kind in (*_SPEAKING, "result"):
            check_object(entry, _KNOWN, at, unknowns, has_answer=True)
        if kind in _SPEAKING and isinstance(entry.get("message"), dict):
            found.extend(_read_entry(entry, at, unknowns))
        elif kind == "result":
            if _find_error(entry) is not None:
                mark_later(unknowns, f"{at}: the run failed ({entry.get('subtype')})")
            if entry.get("structured_output") is not None:
                unknowns.mark("answer", f"{at}.structured_output: an answer in a given form, which is not read")
            result, last = entry.get("result"), next((one.text for one in reversed(found) if one.role == "assistant"), None)
            if isinstance(result, str) and result.strip() and result.strip() not in (last or ""):
                unknowns.mark("answer", f"{at}.result: differs from the last message")
        elif not isinstance(kind, str) or kind not in _SILENT:
            mark_kind(entry, str(kind), at, unknowns)
        is_compaction = entry.get("subtype") == "compact_boundary" or entry.get("isCompactSummary")
        if is_compaction and not any(message.calls or message.text for message in found):
            mark_earlier(unknowns, f"{at}: a compaction of messages that are not in the list")
    if any(entry.get("type") == "stream_event" for _, entry in entries) and not any(message.role == "assistant" for message in found):
        mark_later(unknowns, "$: pieces of a stream without the whole message")
    return found


def _join_blocks(entries: Entries) -> Entries:
    """Join the blocks of one answer that came one by one under the same id."""
    joined: Entries = []
    places: dict[str, int] = {}
    for at, entry in entries:
        message = dict_or_empty(entry.get("message"))
        id, blocks = text_or_none(message.get("id")), message.get("content")
        if entry.get("type") == "assistant" and id is not None and isinstance(blocks, list):
            # At the position of the first: other entries (results, progress) may be between the blocks of one answer.
            if id in places:
                first_at, first = joined[places[id]]
                merged = {**first["message"], **message, "content": [*first["message"]["content"], *blocks]}
                joined[places[id]] = (first_at, {**first, "message": merged})
                continue
            places[id] = len(joined)
        joined.append((at, entry))
    return joined


def _read_entry(entry: dict[str, Any], at: str, unknowns: Unknowns) -> list[Message]:
    inner = dict(entry["message"])
    if inner.get("stop_reason", "") is None:
        del inner["stop_reason"]  # the stream writes an answer before it is over, and reports the end of the run separately
    read = _read_messages([(f"{at}.message", inner)], unknowns)
    if entry.get("parent_tool_use_id") is None and entry.get("isSidechain") is not True:
        is_turn = not any(entry.get(key) for key in _NO_TURN)
        return read if is_turn else [msgspec.structs.replace(message, role="system") for message in read]
    # The task of a subagent is not a turn, and its text is the result of its tool.
    return [msgspec.structs.replace(message, role="assistant" if message.role == "assistant" else "tool", text=None) for message in read]


# fmt: off
FORMATS = (
    MessageFormat("anthropic", "Anthropic messages or an answer", _is_message, _read_messages, _open_answer, ("messages", "content")),
    MessageFormat("claude", "the stream of a run of the Claude Agent SDK or of Claude Code, as a list", _is_entry, _read_stream,
                  _open_stream, opens_lists=True),
)
