"""Claude Agent SDK and Claude Code: the stream of a run as a list, each entry an Anthropic message in an envelope.

`assistant` and `user` entries carry messages, `result` how the run ended and what it cost, the others tell about the session. One answer of
the model may come in several entries of the same message id, a block in each: they are one message. Entries of a subagent name the call
that started it; its tools ran too, and its words are not the answer. Lines of one run belong into one list (`jq -s . run.jsonl`).

Read as the documentation of the SDK shows `--output-format stream-json`; the files of sessions have the same messages.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.evidence.messages.envelope import Entries, Opened, list_with_paths, without
from proctor.evidence.messages.providers import read_anthropic
from proctor.evidence.shared.conversation import Message
from proctor.evidence.shared.truncated_conversations import mark_earlier, mark_later
from proctor.evidence.shared.usage import find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.unrecognised import check_fields, mark_kind
from proctor.evidence.values.access import dict_or_empty, text_or_none
from proctor.model.evidence import Json

_SPEAKING = ("assistant", "user")
_SILENT = frozenset(
    (
        *("system", "stream_event", "summary", "progress", "tool_progress", "tool_use_summary", "rate_limit_event", "auth_status"),
        *("keep_alive", "file-history-snapshot", "queue-operation", "ai-title", "last-prompt", "prompt_suggestion"),
    )
)
_KNOWN = frozenset(
    (
        *("type", "message", "subtype", "is_error", "result", "parent_tool_use_id", "usage", "modelUsage", "permission_denials"),
        *("structured_output", "tool_use_result", "toolUseResult", "isSidechain", "isMeta", "isSynthetic", "isCompactSummary", "errors"),
    )
)
_NO_TURN = ("isMeta", "isSynthetic", "isCompactSummary")
"""Fields of entries whose text is no question of the user."""


def is_own_message(entry: dict[str, Any]) -> bool:
    """Return whether an entry can only be one of this stream: a message in an envelope, or the end of a run."""
    kind = entry.get("type")
    if kind in _SPEAKING:
        return "role" not in entry and dict_or_empty(entry.get("message")).get("role") == kind
    return kind == "result" and isinstance(entry.get("subtype"), str) and "num_turns" in entry


def open_stream(document: Json) -> Opened | None:
    """Find the entries of a run; what it cost stands in its last one."""
    entries = document.get("messages") if isinstance(document, dict) else document
    if not isinstance(entries, list) or not any(isinstance(entry, dict) and is_own_message(entry) for entry in entries):
        return None
    ends = [entry for entry in entries if dict_or_empty(entry).get("type") == "result"]
    first = dict_or_empty(entries[0])
    # A session with several runs has an end for each.
    return Opened(
        entries=list_with_paths(entries, "$.messages" if isinstance(document, dict) else "$"),
        rest=without(document, "messages") if isinstance(document, dict) else {},
        usage=find_usage(ends[0]) if len(ends) == 1 else None,
        # The stream of a run does not repeat what was said to the agent; it begins with a word about the session.
        is_whole=first.get("type") == "system" and first.get("subtype") == "init",
        error=_find_error(ends[-1]) if ends else None,
    )


def _find_error(end: dict[str, Any]) -> str | None:
    """Return how the end of a run reports that it failed."""
    failed = end.get("subtype") != "success" or end.get("is_error") is True
    return f"the run ended with {end.get('subtype')}" if failed else None


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read the messages of the stream in order."""
    found: list[Message] = []
    for at, entry in _join_blocks(entries):
        kind = entry.get("type")
        if kind in (*_SPEAKING, "result"):
            check_fields(entry, _KNOWN, at, unknowns, has_answer=True)
        if kind in _SPEAKING and isinstance(entry.get("message"), dict):
            message = _read_message(entry, at, unknowns)
            if message is not None:
                found.append(message)
        elif kind == "result":
            _check_end(entry, at, found, unknowns)
        elif not isinstance(kind, str) or kind not in _SILENT:
            mark_kind(entry, str(kind), at, unknowns)
        if (entry.get("subtype") == "compact_boundary" or entry.get("isCompactSummary")) and not any(
            one.calls or one.text for one in found
        ):
            mark_earlier(unknowns, f"{at}: a compaction of messages that are not in the list")
    if any(entry.get("type") == "stream_event" for _, entry in entries) and not any(one.role == "assistant" for one in found):
        mark_later(unknowns, "$: pieces of a stream that no whole message follows")
    return found


def _join_blocks(entries: Entries) -> Entries:
    """Join the blocks of one answer that came one by one under the same id."""
    joined: Entries = []
    places: dict[str, int] = {}
    for at, entry in entries:
        message = dict_or_empty(entry.get("message"))
        id, blocks = text_or_none(message.get("id")), message.get("content")
        if entry.get("type") == "assistant" and id is not None and isinstance(blocks, list):
            # In place of the first: other entries (results, progress) may stand between the blocks of one answer.
            if id in places:
                first_at, first = joined[places[id]]
                whole = {**first["message"], **message, "content": [*first["message"]["content"], *blocks]}
                joined[places[id]] = (first_at, {**first, "message": whole})
                continue
            places[id] = len(joined)
        joined.append((at, entry))
    return joined


def _read_message(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message | None:
    inner = dict(entry["message"])
    if inner.get("stop_reason", "") is None:
        del inner["stop_reason"]  # the stream writes an answer down before it is over, and tells the end of the run apart
    read = read_anthropic([(f"{at}.message", inner)], unknowns)
    if not read:
        return None
    message = read[0]
    if entry.get("parent_tool_use_id") is None and entry.get("isSidechain") is not True:
        return msgspec.structs.replace(message, role="system") if any(entry.get(key) for key in _NO_TURN) else message
    # What a subagent was asked is no turn, and what it says is what its tool answers.
    return msgspec.structs.replace(message, role="assistant" if message.role == "assistant" else "tool", text=None)


def _check_end(entry: dict[str, Any], at: str, found: list[Message], unknowns: Unknowns) -> None:
    """Mark what the end of a run leaves open."""
    if _find_error(entry) is not None:
        mark_later(unknowns, f"{at}: the run failed ({entry.get('subtype')})")
    last = next((message for message in reversed(found) if message.role == "assistant"), None)
    if entry.get("structured_output") is not None:
        unknowns.mark("answer", f"{at}.structured_output: an answer in a given form, which is not read")
    told = entry.get("result")
    if isinstance(told, str) and told.strip() and (last is None or told.strip() not in (last.text or "")):
        unknowns.mark("answer", f"{at}.result: not what the last message says")
