"""Google ADK: the events of a session, each with a content of Gemini's form, who wrote it and what it cost; in camel or snake case.

An event of the author `user` is a question. A partial event is a piece of a stream that a whole event follows. What an event's
`actions` do (state, artifacts, a transfer that the model called for) is not what the agent's tools do.

Tried with google-adk 1 and 2 (Python, `session.model_dump`) and @google/adk 0.2 (JavaScript).
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.messages.builder import Draft, Entries, Fields, Opened, list_with_paths, not_a_message_error, read_role
from proctor.evidence.messages.gemini import ROLES, add_parts, add_searches
from proctor.evidence.shared.conversation import Message, Role
from proctor.evidence.shared.truncated_conversations import mark_earlier
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, text_or_none

_EVENT_KEYS = frozenset(
    (
        *(
            "invocationId",
            "invocation_id",
            "actions",
            "nodeInfo",
            "node_info",
            "longRunningToolIds",
            "long_running_tool_ids",
            "id",
            "timestamp",
        ),
        *("turnComplete", "turn_complete", "finishReason", "finish_reason", "errorCode", "error_code", "errorMessage", "error_message"),
        *("interrupted", "customMetadata", "custom_metadata", "branch", "cacheMetadata", "cache_metadata", "citationMetadata"),
        *(
            "citation_metadata",
            "avgLogprobs",
            "avg_logprobs",
            "logprobsResult",
            "logprobs_result",
            "inputTranscription",
            "input_transcription",
        ),
        *(
            "liveSessionResumptionUpdate",
            "live_session_resumption_update",
            "interactionId",
            "interaction_id",
            "isolationScope",
            "environmentId",
        ),
        *("liveSessionId", "live_session_id", "turnCompleteReason", "turn_complete_reason", "environment_id", "isolation_scope"),
    )
)
_SESSION_KEYS = frozenset(("id", "appName", "app_name", "userId", "user_id", "state", "events", "lastUpdateTime", "last_update_time"))


def is_own_message(event: dict[str, Any]) -> bool:
    """Return whether an entry can only be an event of ADK."""
    return (
        isinstance(event.get("author"), str)
        and any(key in event for key in ("invocationId", "invocation_id", "actions"))
        and "role" not in event
    )


def open_session(document: dict[str, Any]) -> Opened | None:
    """Find the events of a session."""
    events = document.get("events")
    if not isinstance(events, list) or not any(is_own_message(dict_or_empty(event)) for event in events):
        return None
    beside = {key: value for key, value in document.items() if key not in _SESSION_KEYS}
    return Opened(entries=list_with_paths(events, "$.events"), beside=beside)


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read events in order."""
    found: list[Message] = []
    streaming: str | None = None
    for at, entry in entries:
        if entry.get("partial") is True:
            streaming = at
            continue
        message = _read_event(entry, at, unknowns)
        if message is not None:
            found.append(message)
            streaming = None
    _weigh_compactions(entries, unknowns)
    if streaming is not None:
        Draft("assistant", streaming, unknowns).mark_everything(streaming, "a partial event that no whole one follows")
    return found


def _weigh_compactions(entries: Entries, unknowns: Unknowns) -> None:
    """Doubt a session whose compactions sum up events that are not in it: a compaction leaves them there."""
    times = [entry["timestamp"] for _, entry in entries if isinstance(entry.get("timestamp"), (int, float)) and entry.get("content")]
    for at, entry in entries:
        compaction = dict_or_empty(entry.get("actions")).get("compaction")
        start = find_first(dict_or_empty(compaction), "startTimestamp", "start_timestamp")
        if compaction and not (isinstance(start, (int, float)) and any(time <= start for time in times)):
            mark_earlier(unknowns, f"{at}.actions: a compaction of events that are not here")


def _read_event(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message | None:
    fields = Fields(entry, at, unknowns)
    author = fields.take("author")
    if not isinstance(author, str):
        raise not_a_message_error(at, "an ADK session", "an event has an author")
    fields.take("partial")
    content = fields.take_object("content")
    role: Role = "user" if author == "user" else "assistant"
    if content is not None:
        told = read_role(content.take("role") or ("user" if author == "user" else "model"), content.at, ROLES, "an ADK session")
        # Gemini gives results the role `user`; written by an agent they are what its tools answered.
        role = told if author == "user" or told != "user" else "tool"
    draft = Draft(role, at, unknowns)
    if content is not None:
        add_parts(draft, content)
        content.close()
        if role == "tool" and not draft.results:
            draft.role = "assistant"
    draft.usage = fields.take_usage("usageMetadata", "usage_metadata")
    draft.model = text_or_none(fields.take("modelVersion", "model_version"))
    add_searches(draft, fields)
    # In a live session the agent speaks instead of writing, and the transcription is what it said.
    spoken = dict_or_empty(fields.take("outputTranscription", "output_transcription")).get("text")
    if role == "assistant" and not draft.texts:
        draft.add_text(spoken, at)
    fields.close(_EVENT_KEYS, role=role)
    # An event without words or tools (a change of state, an end) is no message; a tool that answers is none of the user's.
    is_empty = content is None or not list_of(dict_or_empty(entry.get("content")).get("parts"))
    return None if is_empty and not draft.texts and not draft.calls and draft.usage is None else draft.build()
