"""AG2 (and AutoGen 0.2): the history of a chat between two agents, as one of them keeps it.

Roles say who spoke from the keeper's side, so `assistant` may be the customer; names say who it was. Who begins the chat is the one
that asks. Tools are called by the other one, and run by whoever has them (`tool_responses`). A chat of more than two is refused.

Tried with ag2 0.9: `chat_result.chat_history`.
"""

from __future__ import annotations

from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.messages.builder import Draft, Entries, Fields, iterate_objects
from proctor.evidence.messages.openai import add_call, read_result_value
from proctor.evidence.shared.conversation import Message
from proctor.evidence.unknowns.account import Unknowns

_ROLES = ("assistant", "user", "tool", "function", "system")


def is_own_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be AG2's."""
    return isinstance(message.get("role"), str) and isinstance(message.get("tool_responses"), list)


def is_history(entries: list[dict[str, Any]]) -> bool:
    """Return whether a chat of two is kept by one of them, so that `assistant` may be the one who asks."""
    named = [entry for entry in entries if isinstance(entry.get("name"), str)]
    return (
        len(named) == len(entries) > 1
        and entries[0].get("role") == "assistant"
        and entries[-1].get("role") == "user"
        and entries[0]["name"] != entries[-1]["name"]
    )


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read a history of two."""
    named = [entry["name"] for _, entry in entries if entry.get("role") != "system" and entry.get("name") is not None]
    names = list(dict.fromkeys(name for name in named if isinstance(name, str)))
    if len(names) != 2 or not all(isinstance(name, str) for name in named):
        raise EvidenceError(f"$: expected a chat of two, each named in their messages; found {len(names)}")
    return [_read_message(entry, at, unknowns, names[0]) for at, entry in entries]


def _read_message(entry: dict[str, Any], at: str, unknowns: Unknowns, asker: str) -> Message:
    fields = Fields(entry, at, unknowns)
    role, name = fields.take("role"), fields.take("name")
    if role not in _ROLES:
        raise EvidenceError(f"{at}.role: {role!r} is no role of ag2 messages; known: {', '.join(_ROLES)}")
    responses, calls, content = fields.take_list("tool_responses"), fields.take_list("tool_calls"), fields.take("content")
    if responses or role in ("tool", "function"):
        draft = Draft("tool", at, unknowns)
        for answer in iterate_objects(responses, f"{at}.tool_responses", unknowns):
            draft.add_result(read_result_value(answer.take("content")), answer.at, id=answer.take("tool_call_id"), name=answer.take("name"))
            answer.close(("role",), role="tool")
        if not responses:
            draft.mark_everything(at, "a message of a tool without its responses")
    else:
        draft = Draft("system" if role == "system" else "user" if name == asker and not calls else "assistant", at, unknowns)
        draft.add_text(content, f"{at}.content")
        for index, value in enumerate(calls):
            add_call(draft, value, f"{at}.tool_calls[{index}]")
    fields.close(role=draft.role)
    return draft.build()
