"""Agno: OpenAI's chat with Agno's own keys, alone or in the output of a run; `tool_call_error` tells a failed call.

A run's output holds the messages of its history too (`from_history`), so runs of one session in a list are one conversation, of which
each run adds what is not history. The answer is the content of the last run where it is text.

Tried with agno 2: `message.to_dict()` and `run.to_dict()`.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.messages.builder import Entries, Opened, list_with_paths, read_usage_at
from proctor.evidence.messages.openai import read_message
from proctor.evidence.shared.conversation import Message
from proctor.evidence.shared.truncated_conversations import mark_end, mark_later
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, list_of, text_or_none
from proctor.model.evidence import Json
from proctor.model.show import shorten, show

_OWN = (
    *("from_history", "stop_after_tool_call", "provider_data", "metrics", "tool_args", "add_to_agent_memory", "references", "citations"),
    *(
        "compressed_content",
        "redacted_reasoning_content",
        "videos",
        "files",
        "files_output",
        "image_output",
        "video_output",
        "audio_output",
    ),
    *("temporary", "event_id", "tool_name", "thinking", "context", "reasoning"),
)

_ENDED = ("COMPLETED", "completed")
_FAILED = ("ERROR", "error")
_RUN_KEYS = frozenset(
    (
        *("run_id", "agent_id", "agent_name", "team_id", "team_name", "session_id", "user_id", "parent_run_id", "workflow_id", "content"),
        *("content_type", "model", "model_provider", "model_provider_data", "session_state", "created_at", "status", "metrics", "messages"),
        *("tools", "requirements", "input", "events", "metadata", "reasoning_content", "reasoning_steps", "citations", "references"),
    )
)


def is_own_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Agno's."""
    return "role" in message and ("from_history" in message or "stop_after_tool_call" in message or "tool_call_error" in message)


def is_run(document: Json) -> bool:
    """Return whether this is the output of a run."""
    return isinstance(document, dict) and "run_id" in document and "session_id" in document and isinstance(document.get("messages"), list)


def open_runs(document: Json) -> Opened | None:
    """Find the messages of one run, or of the runs of one session in order."""
    runs = document if isinstance(document, list) else [document]
    if not runs or not all(is_run(run) for run in runs):
        return None
    if any(run["session_id"] != runs[0]["session_id"] for run in runs):
        raise EvidenceError("$: runs of several sessions in one list; give one session at a time")
    entries: list[tuple[str, Json]] = []
    for index, run in enumerate(runs):
        at = f"$[{index}]" if isinstance(document, list) else "$"
        strange = [key for key, value in run.items() if key not in _RUN_KEYS and value not in (None, [], {}, "", False)]
        if strange:
            raise EvidenceError(f"{at}.{strange[0]}: this key of a run of Agno is not understood")
        found = list_with_paths(run["messages"], f"{at}.messages")
        # The first run keeps what it was given as history: nobody else tells of it.
        entries.extend((place, entry) for place, entry in found if index == 0 or dict_or_empty(entry).get("from_history") is not True)
    waiting = {call_id for run in runs for call_id in find_waiting(run)}
    entries = [(place, _without_calls(entry, waiting)) for place, entry in entries]
    unknowns = list(_find_gaps(runs[-1], f"$[{len(runs) - 1}]" if isinstance(document, list) else "$").unknown.items())
    made = {text_or_none(dict_or_empty(call).get("id")) for _, entry in entries for call in list_of(dict_or_empty(entry).get("tool_calls"))}
    kept = {text_or_none(dict_or_empty(call).get("tool_call_id")) for run in runs for call in list_of(run.get("tools"))}
    if kept - made - set(waiting):
        unknowns.append(("tool_calls", "$.tools: a call stands here that no message makes"))
    return Opened(
        entries=entries, model=runs[-1].get("model") if isinstance(runs[-1].get("model"), str) else None, unknowns=tuple(unknowns)
    )


def _find_gaps(run: dict[str, Any], at: str) -> Unknowns:
    unknowns, status = Unknowns(), run.get("status")
    waiting, content = list(find_waiting(run).values()), run.get("content")
    if waiting:
        mark_later(unknowns, f"{at}.status: {show(status, 40)}: the run waits before it calls {', '.join(dict.fromkeys(waiting))}")
    elif status in _FAILED and isinstance(content, str) and content:
        mark_later(unknowns, f"{at}.status: {show(status, 40)}, so the run was not over: {shorten(content, 200)}")
    elif status is not None and status not in _ENDED:
        mark_end(unknowns, f"{at}.status", status)
    return unknowns


def find_waiting(run: dict[str, Any]) -> dict[str | None, str]:
    """Return the calls that were asked for and wait for somebody, by their ids: none of them was made."""
    tools = [dict_or_empty(call) for call in list_of(run.get("tools"))]
    return {text_or_none(tool.get("tool_call_id")): str(tool.get("tool_name")) for tool in tools if is_waiting(tool.get)}


def is_waiting(look: Callable[[str], Any]) -> bool:
    """Return whether a call waits for a confirmation, for input or for somebody else who makes it; `look` gives its members."""
    asks = (look("requires_confirmation") and look("confirmed") is None) or (look("requires_user_input") and not look("answered"))
    return bool(asks or look("external_execution_required")) and look("result") is None


def _without_calls(entry: Json, ids: Container[str | None]) -> Json:
    calls = list_of(dict_or_empty(entry).get("tool_calls"))
    kept = [call for call in calls if text_or_none(dict_or_empty(call).get("id")) not in ids]
    return entry if len(kept) == len(calls) else {**dict_or_empty(entry), "tool_calls": kept}


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages of Agno."""
    found: list[Message] = []
    for at, entry in entries:
        message = read_message({key: value for key, value in entry.items() if key != "metrics"}, at, unknowns, "agno messages", *_OWN)
        usage = read_usage_at(entry.get("metrics"), f"{at}.metrics", unknowns) if message.role == "assistant" else None
        found.append(Message(role=message.role, text=message.text, calls=message.calls, results=message.results, usage=usage))
    return found
