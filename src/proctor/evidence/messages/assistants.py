"""OpenAI Assistants: messages of a thread and steps of its runs.

Messages of a thread never tell of tools; the steps of a run do. Calls are known only if the steps of every run that wrote a message are
here. Lists come newest first, so they are put in order of `created_at`, and the steps of a run before its message. Read are lists of
messages and steps, the lists of the API (`{"object": "list", "data": [...]}`), and `{"messages": ..., "run_steps": ...}` of both.

Tried with openai 2 (`beta.threads.messages.list`, `beta.threads.runs.steps.list`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.messages.builder import (
    EVERYTHING,
    Draft,
    Entries,
    Fields,
    Opened,
    list_with_paths,
    not_a_message_error,
    read_role,
)
from proctor.evidence.messages.openai import ROLES
from proctor.evidence.shared.calls import PROTOCOL_ERROR
from proctor.evidence.shared.conversation import Message
from proctor.evidence.shared.truncated_conversations import is_running, mark_end
from proctor.evidence.shared.usage import read_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, list_of, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Json

_OBJECTS = ("thread.message", "thread.run.step")
_MESSAGE_KEYS = frozenset(
    (
        *("object", "id", "created_at", "completed_at", "incomplete_at", "incomplete_details", "thread_id", "run_id", "assistant_id"),
        *("attachments", "metadata", "status", "file_ids"),
    )
)
_STEP_KEYS = frozenset(
    (
        *("object", "id", "created_at", "completed_at", "cancelled_at", "expired_at", "expires_at", "failed_at", "thread_id", "run_id"),
        *("assistant_id", "metadata", "type", "last_error", "usage", "cancelled_at"),
    )
)


def is_own_message(entry: dict[str, Any]) -> bool:
    """Return whether an entry is a message of a thread or a step of a run."""
    return entry.get("object") in _OBJECTS


def open_lists(document: dict[str, Any]) -> Opened | None:
    """Find messages and steps in a list of the API, or in two of them."""
    if document.get("object") == "list" and any(is_own_message(dict_or_empty(entry)) for entry in list_of(document.get("data"))):
        beside = {key: value for key, value in document.items() if key not in ("object", "data", "first_id", "last_id", "has_more")}
        return Opened(entries=list_with_paths(document["data"], "$.data"), beside=beside, unknowns=_mark_other_pages(document, "$"))
    entries: list[tuple[str, Json]] = []
    unknowns: tuple[tuple[Part, str], ...] = ()
    keys = [key for key in ("messages", "run_steps", "steps") if key in document]
    for key in keys:
        inner = document[key]
        listed = inner.get("data") if isinstance(inner, dict) else inner
        if not isinstance(listed, list):
            return None
        entries.extend(list_with_paths(listed, f"$.{key}"))
        unknowns += _mark_other_pages(dict_or_empty(inner), f"$.{key}")
    if not any(is_own_message(dict_or_empty(entry)) for _, entry in entries):
        return None
    return Opened(entries=entries, beside={key: value for key, value in document.items() if key not in keys}, unknowns=unknowns)


def _mark_other_pages(listed: dict[str, Any], at: str) -> tuple[tuple[Part, str], ...]:
    # Pages may be in either order, so what is on the others could be anything.
    if listed.get("has_more") in (None, False):
        return ()
    return tuple((part, f"{at}.has_more: the list goes on elsewhere") for part in EVERYTHING)


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages and steps in the order in which they were made."""
    for at, entry in entries:
        if not is_own_message(entry):
            raise not_a_message_error(at, "assistants", "its object is neither thread.message nor thread.run.step")
        if isinstance(entry.get("created_at"), bool) or not isinstance(entry.get("created_at"), (int, float)):
            raise EvidenceError(f"{at}.created_at: expected a number")
        if is_running(entry.get("status")):
            mark_end(unknowns, f"{at}.status", entry["status"])
    steps_of = [entry.get("run_id") for _, entry in entries if entry["object"] == "thread.run.step"]
    steps_of = {run for run in steps_of if isinstance(run, str)}
    missing = next(
        (at for at, entry in entries if entry.get("role") == "assistant" and text_or_none(entry.get("run_id")) not in steps_of), None
    )
    if missing is not None or not steps_of:
        unknowns.mark_parts(
            CALL_PARTS,
            f"{missing or '$'}: messages of a thread do not tell of tools, and the steps of its run are not here",
        )
    told = {
        text_or_none(dict_or_empty(dict_or_empty(entry.get("step_details")).get("message_creation")).get("message_id")): entry.get("usage")
        for _, entry in entries
    }
    found: list[Message] = []
    for at, entry in _sort_entries(entries):
        message = _read_message(entry, at, unknowns) if entry["object"] == "thread.message" else _step(entry, at, unknowns)
        if message is not None:
            spent = read_usage(told.get(text_or_none(entry.get("id")))) if message.role == "assistant" else None
            found.append(message if spent is None else msgspec.structs.replace(message, usage=spent))
    if steps_of and not any(message.role == "assistant" and message.text is not None for message in found):
        unknowns.mark("answer", "$: steps of a run do not hold what was said, and the messages of the thread are not here")
    return found


def _sort_entries(entries: Entries) -> Entries:
    """Return messages in the order in which they were written, each after the steps of the run that wrote it."""
    messages = _sort_oldest_first([placed_entry for placed_entry in entries if placed_entry[1]["object"] == "thread.message"])
    steps = _sort_oldest_first([placed_entry for placed_entry in entries if placed_entry[1]["object"] == "thread.run.step"])
    by_run: dict[str | None, Entries] = {}
    for step in steps:
        by_run.setdefault(text_or_none(step[1].get("run_id")), []).append(step)
    ordered: Entries = []
    for at, entry in messages:
        run = text_or_none(entry.get("run_id"))
        if run is not None:
            ordered.extend(by_run.pop(run, []))
        ordered.append((at, entry))
    return [*ordered, *(step for left in by_run.values() for step in left)]


def _sort_oldest_first(entries: Entries) -> Entries:
    # Times are whole seconds and sorting is stable: turned round first, entries of one second keep the order in which they were made.
    if entries and entries[0][1]["created_at"] > entries[-1][1]["created_at"]:
        entries = entries[::-1]
    return sorted(entries, key=lambda placed_entry: placed_entry[1]["created_at"])


def _read_message(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message:
    fields = Fields(entry, at, unknowns)
    draft = Draft(read_role(fields.take("role"), at, ROLES, "assistants"), at, unknowns)
    for part in fields.take_objects("content"):
        kind = part.take("type")
        if kind == "text":
            text = part.take("text")
            draft.add_text(dict_or_empty(text).get("value", text), part.at)
        elif kind == "refusal":
            draft.add_text(part.take("refusal"), part.at)
        elif kind not in ("image_file", "image_url"):
            draft.mark_everything(part.at, f"a part of type {kind!r} is not understood")
    fields.close(_MESSAGE_KEYS, role=draft.role)
    return draft.build()


def _step(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message | None:
    fields = Fields(entry, at, unknowns)
    details = fields.take_object("step_details")
    kind = details.take("type") if details is not None else None
    status = fields.take_word("status", ("completed", "in_progress", "failed", "cancelled", "expired"))
    draft = Draft("assistant", at, unknowns)
    fields.close(_STEP_KEYS)
    if details is None or kind not in ("tool_calls", "message_creation"):
        draft.mark_everything(at, f"a step of type {kind!r} is not understood")
        return None
    # The step only says that a message was written; the message itself is in the thread.
    if kind == "message_creation":
        return None
    for call in details.take_objects("tool_calls"):
        _add_call(draft, call, failed=status in ("failed", "cancelled", "expired"))
    details.close()
    draft.usage = read_usage(entry.get("usage"))
    return draft.build()


def _add_call(draft: Draft, call: Fields, *, failed: bool) -> None:
    kind, id = call.take("type"), call.take("id")
    inner = call.take_object(kind) if isinstance(kind, str) else None
    if inner is None:
        draft.mark_everything(call.at, f"a call of type {kind!r} is not understood")
        return
    name = inner.take("name") if kind == "function" else kind
    given = inner.take("arguments", "input")
    draft.add_call(name, given, call.at, id=id)
    output = decode_container(inner.take("output", "outputs", "results"))
    if output is not None or kind != "function":
        draft.add_result(output, call.at, id=id, name=name, failed=failed, kind=PROTOCOL_ERROR)
    inner.close(("ranking_options",))
    call.close(("index",))
