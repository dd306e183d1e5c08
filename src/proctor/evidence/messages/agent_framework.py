"""Microsoft Agent Framework: messages with `contents`, in Python (`type: function_call`) and .NET (`$type: functionCall`).

Read are lists of messages, sessions with their history in memory, threads with a store of messages, and responses. A result with an
`exception` means that the tool raised. Calls that wait for approval are no calls yet.

Tried with agent-framework 1 (Python), a stored session; .NET's form as Microsoft.Extensions.AI writes it.
"""

from __future__ import annotations

from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.messages.envelope import Entries, Opened, list_parts, list_with_paths, read_all, without
from proctor.evidence.shared.blocks import RAISES_IN_BLOCKS, read_counts
from proctor.evidence.shared.conversation import Message
from proctor.evidence.shared.truncated_conversations import mark_earlier
from proctor.evidence.shared.usage import find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, find_first, text_or_none
from proctor.model.evidence import Json
from proctor.model.show import show

_RESPONSES = ("agent_response", "agent_run_response", "chat_response")


def is_own_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Agent Framework's."""
    typed = all("type" in part or "$type" in part for part in list_parts(message, "contents"))
    return isinstance(message.get("contents"), list) and "role" in message and typed


def open_session(document: dict[str, Any]) -> Opened | None:
    """Find the messages of a session, a thread or a response."""
    if document.get("type") == "session" and "session_id" in document and not dict_or_empty(document.get("state")).get("in_memory"):
        kept = document.get("service_session_id")
        where = f": the service keeps them under {show(kept, 60)[1:-1]}" if isinstance(kept, str) else ""
        raise EvidenceError(f"$: a session of Agent Framework without messages{where}; write the response's to_dict() instead")
    for path in (("state", "in_memory"), ("chat_message_store_state",), ("storeState",), ("message_store_state",)):
        holder: Json = document
        for step in path:
            holder = dict_or_empty(holder).get(step)
        listed = dict_or_empty(holder).get("messages")
        if isinstance(listed, list) and any(is_own_message(dict_or_empty(entry)) for entry in listed):
            return Opened(entries=list_with_paths(listed, f"$.{'.'.join(path)}.messages"), rest=without(document, path[0], "type"))
    listed = document.get("messages")
    if document.get("type") not in _RESPONSES and "responseId" not in document:
        return None
    if not isinstance(listed, list) or not any(is_own_message(dict_or_empty(entry)) for entry in listed):
        return None
    unknowns = Unknowns()
    usage = read_counts(find_first(document, "usage_details", "usage"), "$.usage_details", unknowns)
    return Opened(
        entries=list_with_paths(listed, "$.messages"),
        rest=without(document, "messages", "usage_details", "usage", "type", "text"),
        usage=usage or find_usage(document),
        unknowns=unknowns,
        # The response of an agent has every message of its run, and never the question; that of a model has one step.
        is_whole=document.get("type") != "chat_response",
    )


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages of Agent Framework."""
    summed_up = {_read_annotation(entry, "_summarized_by_summary_id") for _, entry in entries} - {None}
    for at, entry in entries:
        # What is summed up stays in the list and is marked as such.
        sums_up = _read_annotation(entry, "_summary_of_message_ids", "_summary_of_group_ids")
        if sums_up and text_or_none(entry.get("message_id")) not in summed_up:
            mark_earlier(unknowns, f"{at}: a summary of messages that are not in the list")
    return read_all(entries, unknowns, RAISES_IN_BLOCKS)


def _read_annotation(entry: dict[str, Any], *keys: str) -> str | bool | None:
    """Return the note that compaction left at a message."""
    noted = dict_or_empty(entry.get("additional_properties"))
    found = find_first({**noted, **dict_or_empty(noted.get("_group"))}, *keys)
    return found if isinstance(found, str) else bool(found) or None
