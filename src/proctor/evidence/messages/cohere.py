"""Cohere: version 2, as OpenAI's chat with a `tool_plan` and results in documents; version 1, a `chat_history` with roles in capitals.

A plan is not part of the text. Version 1 has no ids: results name the call they answer.

Tried with cohere 5 (`ClientV2`), messages and responses.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.messages.builder import Draft, Entries, Fields, Opened, list_with_paths, read_role, read_usage_at
from proctor.evidence.messages.openai import read_message
from proctor.evidence.shared.conversation import Message, Role
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, list_of

_OLD_ROLES: dict[str, Role] = {"USER": "user", "CHATBOT": "assistant", "TOOL": "tool", "SYSTEM": "system"}


def is_own_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Cohere's."""
    if isinstance(message.get("role"), str) and message["role"] in _OLD_ROLES and ("message" in message or "tool_results" in message):
        return True
    has_document = any(
        dict_or_empty(part).get("type") == "document" and "document" in dict_or_empty(part) for part in list_of(message.get("content"))
    )
    return "tool_plan" in message or (message.get("role") == "tool" and has_document)


def open_answer(document: dict[str, Any]) -> Opened | None:
    """Find the message in an answer of version 2, and what was sent, if that stands beside."""
    message = document.get("message")
    if not isinstance(message, dict) or "finish_reason" not in document or not isinstance(document.get("messages", []), list):
        return None
    unknowns = Unknowns()
    # Beside `tokens` stand `billed_units`, which leave out what Cohere does not charge for.
    counted = dict_or_empty(document.get("usage")).get("tokens")
    usage = read_usage_at(counted, "$.usage.tokens", unknowns)
    entries = [
        *list_with_paths(document.get("messages", []), "$.messages"),
        ("$.message", {**message, "finish_reason": document["finish_reason"]}),
    ]
    beside = {
        key: value for key, value in document.items() if key not in ("message", "messages", "finish_reason", "usage", "logprobs", "prompt")
    }
    return Opened(entries=entries, beside=beside, usage=usage, unknowns=tuple(unknowns.unknown.items()))


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages of either version."""
    return [
        _read_old_message(entry, at, unknowns)
        if entry.get("role") in tuple(_OLD_ROLES)
        else read_message(entry, at, unknowns, "cohere messages", "tool_plan")
        for at, entry in entries
    ]


def _read_old_message(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message:
    fields = Fields(entry, at, unknowns)
    draft = Draft(read_role(fields.take("role"), at, _OLD_ROLES, "cohere messages"), at, unknowns)
    draft.add_text(fields.take("message"), f"{at}.message")
    for call in fields.take_objects("tool_calls"):
        draft.add_call(call.take("name"), call.take("parameters"), call.at)
        call.close(("generation_id",))
    for result in fields.take_objects("tool_results"):
        draft.add_result(result.take("outputs"), result.at, name=dict_or_empty(result.take("call")).get("name"))
        result.close(role="tool")
    fields.close(role=draft.role)
    return draft.build()
