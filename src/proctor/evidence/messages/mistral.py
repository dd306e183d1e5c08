"""Mistral: OpenAI's chat with `prefix`, in snake case (Python) or camel case (TypeScript); and the entries of its conversations.

Entries: `message.input`, `message.output`, `function.call`, `function.result`, `tool.execution` (tools that Mistral runs itself, named by
`name`) and `agent.handoff`, which says who speaks from now on.

Tried with mistralai 1 (Python), messages of `chat.complete`.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.messages.builder import Draft, Entries, Fields, join_text_parts, not_a_message_error, read_role
from proctor.evidence.messages.openai import ROLES, add_content, read_message
from proctor.evidence.shared.conversation import Message, Role
from proctor.evidence.unknowns.account import Unknowns

_ENTRY_TYPES = ("message.input", "message.output", "function.call", "function.result", "tool.execution", "agent.handoff")
_ENTRY_KEYS = frozenset(
    (
        "object",
        "id",
        "created_at",
        "createdAt",
        "completed_at",
        "completedAt",
        "agent_id",
        "agentId",
        "model",
        "prefix",
        "confirmation_status",
    )
)


def is_own_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Mistral's."""
    kind = message.get("type")
    return (isinstance(kind, str) and kind in _ENTRY_TYPES) or ("role" in message and ("prefix" in message or "toolCalls" in message))


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages, or entries of a conversation."""
    found: list[Message] = []
    for at, entry in entries:
        if entry.get("type") in _ENTRY_TYPES:
            found.append(_read_entry(entry, at, unknowns))
        elif "role" in entry:
            found.append(read_message(entry, at, unknowns, "mistral messages"))
        else:
            raise not_a_message_error(at, "mistral messages", "it has neither a role nor a type of entry")
    return found


def _read_entry(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message:
    fields = Fields(entry, at, unknowns)
    kind = fields.take("type")
    role: Role = "tool" if kind == "function.result" else "system" if kind == "agent.handoff" else "assistant"
    if kind in ("message.input", "message.output"):
        role = read_role(fields.take("role") or ("user" if kind == "message.input" else "assistant"), at, ROLES, "mistral messages")
    draft = Draft(role, at, unknowns)
    harmless = set(_ENTRY_KEYS)
    match kind:
        case "message.input" | "message.output":
            add_content(draft, fields.take("content"), f"{at}.content")
        case "function.call":
            draft.add_call(fields.take("name"), fields.take("arguments"), at, id=fields.take("tool_call_id", "toolCallId"))
        case "function.result":
            draft.add_result(join_text_parts(fields.take("result")), at, id=fields.take("tool_call_id", "toolCallId"))
        case "tool.execution":
            name = fields.take("name", "function")
            # One entry tells the call and what came of it, and its own id joins the two.
            draft.add_call(name, fields.take("arguments"), at, id=entry.get("id"))
            draft.add_result(fields.take("info"), at, id=entry.get("id"), name=name)
        case _:
            harmless |= {"previous_agent_id", "previousAgentId", "previous_agent_name", "previousAgentName"}
            harmless |= {"next_agent_id", "nextAgentId", "next_agent_name", "nextAgentName"}
    fields.close(harmless, role=role)
    return draft.build()
