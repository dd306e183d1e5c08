"""Claude Agent SDK and Claude Code: the stream of a run as a list, each entry an Anthropic message in an envelope.

`assistant` and `user` entries carry messages, `result` how the run ended and what it cost, the others tell about the session. One answer of
the model may come in several entries of the same message id, a block in each: they are one message. Entries of a subagent name the call
that started it; its tools ran too, and its words are not the answer. Lines of one run belong into one list (`jq -s . run.jsonl`).

Read as the documentation of the SDK shows `--output-format stream-json`; the files of sessions have the same messages.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.evidence.messages import anthropic as messages_anthropic
from proctor.evidence.messages.builder import Draft, Entries, Fields, Opened, list_with_paths
from proctor.evidence.shared.conversation import Message
from proctor.evidence.shared.truncated_conversations import mark_earlier, mark_later
from proctor.evidence.shared.usage import find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, text_or_none
from proctor.model.evidence import Json

_SPEAKING = ("assistant", "user")
_SILENT = frozenset(
    (
        *("system", "stream_event", "summary", "progress", "tool_progress", "tool_use_summary", "rate_limit_event", "auth_status"),
        *("keep_alive", "file-history-snapshot", "queue-operation", "ai-title", "last-prompt", "prompt_suggestion"),
    )
)
_KEYS = frozenset(
    (
        *(
            "type",
            "message",
            "subtype",
            "is_error",
            "result",
            "parent_tool_use_id",
            "session_id",
            "sessionId",
            "uuid",
            "parentUuid",
            "usage",
        ),
        *(
            "num_turns",
            "duration_ms",
            "duration_api_ms",
            "total_cost_usd",
            "modelUsage",
            "permission_denials",
            "structured_output",
            "errors",
            "timestamp",
        ),
        *("tool_use_result", "toolUseResult", "isReplay", "isSidechain", "cwd", "version", "gitBranch", "userType", "requestId", "agentId"),
        *("isMeta", "isSynthetic", "isCompactSummary", "slug", "error", "stop_reason", "fast_mode_state", "priority", "entrypoint"),
    )
)
"""Members of the envelopes that are read, or tell nothing of what was said and done."""
_NO_TURN = ("isMeta", "isSynthetic", "isCompactSummary")
"""Members of entries whose text nobody asked."""


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
    beside = {key: value for key, value in document.items() if key != "messages"} if isinstance(document, dict) else {}
    first = dict_or_empty(entries[0])
    # A session with several runs has an end for each.
    return Opened(
        entries=list_with_paths(entries, "$.messages" if isinstance(document, dict) else "$"),
        beside=beside,
        usage=find_usage(ends[0]) if len(ends) == 1 else None,
        # The stream of a run does not repeat what was said to the agent; it begins with a word about the session.
        is_whole=first.get("type") == "system" and first.get("subtype") == "init",
    )


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read the messages of the stream in order."""
    found: list[Message] = []
    for at, entry in _join_blocks(entries):
        kind = entry.get("type")
        if kind in (*_SPEAKING, "result"):
            Fields(entry, at, unknowns).close(_KEYS, role="user" if kind == "user" else "assistant")
        if kind in _SPEAKING and isinstance(entry.get("message"), dict):
            found.append(_read_message(entry, at, unknowns))
        elif kind == "result":
            _weigh_end(entry, at, found, unknowns)
        elif not isinstance(kind, str) or kind not in _SILENT:
            Draft("assistant", at, unknowns).mark_everything(at, f"an entry of type {kind!r} is not understood")
        if (entry.get("subtype") == "compact_boundary" or entry.get("isCompactSummary")) and not any(
            one.calls or one.text for one in found
        ):
            mark_earlier(unknowns, f"{at}: a compaction of messages that are not here")
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


def _read_message(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message:
    inner = dict(entry["message"])
    if inner.get("stop_reason", "") is None:
        del inner["stop_reason"]  # the stream writes an answer down before it is over, and tells the end of the run apart
    message = messages_anthropic.read([(f"{at}.message", inner)], unknowns)[0]
    if entry.get("parent_tool_use_id") is None and entry.get("isSidechain") is not True:
        return msgspec.structs.replace(message, role="system") if any(entry.get(key) for key in _NO_TURN) else message
    # What a subagent was asked is no turn, and what it says is what its tool answers.
    return msgspec.structs.replace(message, role="assistant" if message.role == "assistant" else "tool", text=None)


def _weigh_end(entry: dict[str, Any], at: str, found: list[Message], unknowns: Unknowns) -> None:
    """Doubt what the end of a run leaves open."""
    if entry.get("subtype") != "success" or entry.get("is_error") is True:
        mark_later(unknowns, f"{at}: the run broke off ({entry.get('subtype')})")
    last = next((message for message in reversed(found) if message.role == "assistant"), None)
    if entry.get("structured_output") is not None:
        unknowns.mark("answer", f"{at}.structured_output: an answer in a given form, which is not read")
    told = entry.get("result")
    if isinstance(told, str) and told.strip() and (last is None or told.strip() not in (last.text or "")):
        unknowns.mark("answer", f"{at}.result: not what the last message says")
