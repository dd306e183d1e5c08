"""Agno: OpenAI's chat with Agno's own fields, alone or in the output of a run; `tool_call_error` reports a failed call.

A run's output holds the messages of its history too (`from_history`), so runs of one session in a list are one conversation, of which
each run adds what is not history. Calls that wait for a confirmation were not made.

Tried with agno 2: `message.to_dict()` and `run.to_dict()`.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.messages.envelope import Entries, Opened, list_with_paths, read_all, without
from proctor.evidence.shared.conversation import Message
from proctor.evidence.shared.truncated_conversations import mark_end, mark_later
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.endings import read_status
from proctor.evidence.unknowns.unrecognised import check_fields
from proctor.evidence.values.access import dict_or_empty, list_of, text_or_none
from proctor.model.evidence import Json
from proctor.model.show import shorten, show

_RUN_KNOWN = frozenset(("messages", "tools", "status", "content", "input", "events", "metrics", "session_state", "requirements", "model"))


def is_own_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Agno's."""
    return "role" in message and ("from_history" in message or "stop_after_tool_call" in message or "tool_call_error" in message)


def open_runs(document: Json) -> Opened | None:
    """Find the messages of one run, or of the runs of one session in order."""
    runs = document if isinstance(document, list) else [document]
    if not runs or not all(_is_run(run) for run in runs):
        return None
    if any(run["session_id"] != runs[0]["session_id"] for run in runs):
        raise EvidenceError("$: runs of several sessions in one list; give one session at a time")
    unknowns = Unknowns()
    entries: list[tuple[str, Json]] = []
    waiting = {call_id for run in runs for call_id in find_waiting(run)}
    for index, run in enumerate(runs):
        at = f"$[{index}]" if isinstance(document, list) else "$"
        check_fields(run, _RUN_KNOWN, at, unknowns)
        for place, entry in list_with_paths(run["messages"], f"{at}.messages"):
            # The first run keeps what it was given as history: no other run records it.
            if index == 0 or dict_or_empty(entry).get("from_history") is not True:
                entries.append((place, _without_calls(entry, waiting)))
    error = _check_status(runs[-1], f"$[{len(runs) - 1}]" if isinstance(document, list) else "$", unknowns)
    made = {text_or_none(dict_or_empty(call).get("id")) for _, entry in entries for call in list_of(dict_or_empty(entry).get("tool_calls"))}
    listed = {text_or_none(dict_or_empty(call).get("tool_call_id")) for run in runs for call in list_of(run.get("tools"))}
    if listed - made - waiting:
        unknowns.mark("tool_calls", "$.tools: a call is listed here that no message makes")
    return Opened(entries=entries, model=text_or_none(runs[-1].get("model")), unknowns=unknowns, error=error)


def _is_run(document: Json) -> bool:
    return isinstance(document, dict) and "run_id" in document and "session_id" in document and isinstance(document.get("messages"), list)


def _check_status(run: dict[str, Any], at: str, unknowns: Unknowns) -> str | None:
    """Mark what a run leaves open that waits or goes on, and return why it failed."""
    status, content, waiting = run.get("status"), run.get("content"), find_waiting(run)
    ended = read_status(status)
    if waiting:
        names = ", ".join(dict.fromkeys(waiting.values()))
        mark_later(unknowns, f"{at}.status: {show(status, 40)}: the run waits before it calls {names}")
    elif ended == "failed":
        return shorten(content, 200) if isinstance(content, str) and content else f"status: {show(status, 40)}"
    elif status is not None and ended != "ok":
        mark_end(unknowns, f"{at}.status", status)
    return None


def find_waiting(run: dict[str, Any]) -> dict[str | None, str]:
    """Return the calls that were asked for and wait for somebody, by their ids: none of them was made."""
    tools = [dict_or_empty(call) for call in list_of(run.get("tools"))]
    return {text_or_none(tool.get("tool_call_id")): str(tool.get("tool_name")) for tool in tools if is_waiting(tool.get)}


def is_waiting(look: Callable[[str], Any]) -> bool:
    """Return whether a call waits for a confirmation, for input or for somebody else who makes it; `look` gives its fields."""
    asks = (look("requires_confirmation") and look("confirmed") is None) or (look("requires_user_input") and not look("answered"))
    return bool(asks or look("external_execution_required")) and look("result") is None


def _without_calls(entry: Json, ids: Container[str | None]) -> Json:
    calls = list_of(dict_or_empty(entry).get("tool_calls"))
    kept = [call for call in calls if text_or_none(dict_or_empty(call).get("id")) not in ids]
    return entry if len(kept) == len(calls) else {**dict_or_empty(entry), "tool_calls": kept}


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages of Agno, whose `metrics` hold the tokens; `tool_args` and `tool_name` of a result repeat the call."""
    plain = [(at, {**without(entry, "metrics", "tool_args"), "usage": entry.get("metrics")}) for at, entry in entries]
    return read_all(plain, unknowns)
