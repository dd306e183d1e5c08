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
from proctor.evidence.messages.envelope import Entries, Opened, list_with_paths, without
from proctor.evidence.shared.blocks import Draft
from proctor.evidence.shared.calls import PROTOCOL_ERROR
from proctor.evidence.shared.conversation import Message
from proctor.evidence.shared.message_reader import read_message
from proctor.evidence.shared.truncated_conversations import mark_end
from proctor.evidence.shared.usage import read_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.endings import read_status
from proctor.evidence.unknowns.fields import CONTENT_PARTS, Fields
from proctor.evidence.unknowns.unrecognised import mark_kind
from proctor.evidence.values.access import dict_or_empty, list_of, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text
from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Json

_OBJECTS = ("thread.message", "thread.run.step")
_KNOWN = frozenset(("object", "type", "status", "step_details", "usage", "role", "content", "created_at", "run_id", "id"))


def is_own_message(entry: dict[str, Any]) -> bool:
    """Return whether an entry is a message of a thread or a step of a run."""
    return entry.get("object") in _OBJECTS


def open_lists(document: dict[str, Any]) -> Opened | None:
    """Find messages and steps in a list of the API, or in two of them."""
    unknowns = Unknowns()
    if document.get("object") == "list" and any(is_own_message(dict_or_empty(entry)) for entry in list_of(document.get("data"))):
        _mark_other_pages(document, "$", unknowns)
        rest = without(document, "object", "data", "has_more", "first_id", "last_id")
        return Opened(entries=list_with_paths(document["data"], "$.data"), rest=rest, unknowns=unknowns)
    entries: list[tuple[str, Json]] = []
    keys = [key for key in ("messages", "run_steps", "steps") if key in document]
    for key in keys:
        inner = document[key]
        listed = inner.get("data") if isinstance(inner, dict) else inner
        if not isinstance(listed, list):
            return None
        entries.extend(list_with_paths(listed, f"$.{key}"))
        _mark_other_pages(dict_or_empty(inner), f"$.{key}", unknowns)
    if not any(is_own_message(dict_or_empty(entry)) for _, entry in entries):
        return None
    return Opened(entries=entries, rest=without(document, *keys), unknowns=unknowns)


def _mark_other_pages(listed: dict[str, Any], at: str, unknowns: Unknowns) -> None:
    # Pages may be in either order, so anything may be on the others.
    if listed.get("has_more") not in (None, False):
        unknowns.mark_parts(CONTENT_PARTS, f"{at}.has_more: the list goes on elsewhere")


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages and steps in the order in which they were made."""
    own: Entries = []
    for at, entry in entries:
        if not is_own_message(entry):
            unknowns.mark_unrecognised(CONTENT_PARTS, f"{at}: unrecognised kind {entry.get('object')!r}")
            mark_kind(entry, str(entry.get("object")), at, unknowns)
            continue
        if isinstance(entry.get("created_at"), bool) or not isinstance(entry.get("created_at"), (int, float)):
            raise EvidenceError(f"{at}.created_at: expected a number")
        if entry.get("status") != "incomplete" and read_status(entry.get("status")) == "running":
            mark_end(unknowns, f"{at}.status", entry["status"])
        own.append((at, entry))
    entries = own
    steps_of = [entry.get("run_id") for _, entry in entries if entry["object"] == "thread.run.step"]
    steps_of = {run for run in steps_of if isinstance(run, str)}
    missing = next(
        (at for at, entry in entries if entry.get("role") == "assistant" and text_or_none(entry.get("run_id")) not in steps_of), None
    )
    if missing is not None or not steps_of:
        unknowns.mark_parts(
            CALL_PARTS,
            f"{missing or '$'}: messages of a thread do not record tools, and the steps of its run are missing",
        )
    told = {
        text_or_none(dict_or_empty(dict_or_empty(entry.get("step_details")).get("message_creation")).get("message_id")): entry.get("usage")
        for _, entry in entries
    }
    found: list[Message] = []
    for at, entry in _sort_entries(entries):
        message = (
            read_message(without(entry, "object"), at, unknowns) if entry["object"] == "thread.message" else _step(entry, at, unknowns)
        )
        if message is not None:
            spent = read_usage(told.pop(text_or_none(entry.get("id")), None)) if message.role == "assistant" else None
            found.append(message if spent is None else msgspec.structs.replace(message, usage=spent))
    if any(usage is not None for message_id, usage in told.items() if message_id is not None):
        unknowns.mark("usage", "$: a step reports tokens of a message that is missing")
    if steps_of and not any(message.role == "assistant" and message.text is not None for message in found):
        unknowns.mark("answer", "$: steps of a run do not record what was said, and the messages of the thread are missing")
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


def _step(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message | None:
    fields = Fields(entry, at, unknowns)
    details = fields.take_object("step_details")
    kind = details.take("type") if details is not None else None
    status = read_status(entry.get("status"))
    draft = Draft("assistant", at, unknowns)
    fields.close(*_KNOWN)
    if entry.get("status") is not None and status is None:
        draft.mark(f"{at}.status", f"{entry['status']!r} is not recognised", ("tool_results",))
    if details is None or kind not in ("tool_calls", "message_creation"):
        draft.mark(at, f"unrecognised kind {kind!r} of a step")
        return None
    # The step only records that a message was written; the message itself is in the thread.
    if kind == "message_creation":
        return None
    for call in details.take_objects("tool_calls", parts=CALL_PARTS):
        _add_call(draft, call, failed=status == "failed")
    details.close("type")
    draft.usage = read_usage(entry.get("usage"))
    return draft.build()


def _add_call(draft: Draft, call: Fields, *, failed: bool) -> None:
    kind, id = call.take("type"), call.take("id")
    inner = call.take_object(kind, parts=CALL_PARTS) if isinstance(kind, str) else None
    if inner is None:
        draft.mark(call.at, f"unrecognised kind {kind!r} of a call", CALL_PARTS)
        return
    name = inner.take("name") if kind == "function" else kind
    known = kind != "function" or "arguments" in inner.value
    draft.append_call(name, inner.take("arguments", "input"), call.at, id=id, known=known)
    output = decode_container(inner.take("output", "outputs", "results"))
    if output is not None or kind != "function":
        error = (as_text(output) or "the tool reported an error") if failed else None
        draft.append_result(output, call.at, id=id, name=name, error=error, kind=PROTOCOL_ERROR)
    elif "output" not in inner.value:
        draft.mark(call.at, "a call without its output", ("tool_results",))
    inner.close()
    call.close()
