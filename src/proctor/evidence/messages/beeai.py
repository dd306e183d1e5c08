"""BeeAI: messages whose parts are of type `tool-call` and `tool-result`, as the AI SDK's, with names in snake case.

`final_answer` is how a BeeAI agent answers: what it is given is the answer, and no tool was called. A failed tool is told in words only.

Tried with beeai-framework 0.1 (Python), the messages of an agent's memory.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.messages.builder import Draft, Entries, Fields, iterate_blocks, join_text_parts, read_role, require_key
from proctor.evidence.shared.calls import read_arguments
from proctor.evidence.shared.conversation import Message, Role
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, list_of
from proctor.evidence.values.text import as_text

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "tool": "tool", "system": "system"}
_ANSWER = "final_answer"


def is_own_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be BeeAI's."""
    parts = [dict_or_empty(part) for part in list_of(message.get("content"))]
    return "role" in message and any(part.get("type") in ("tool-call", "tool-result") and "tool_name" in part for part in parts)


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages of BeeAI."""
    return [message for at, entry in entries if (message := _read_message(entry, at, unknowns)) is not None]


def _read_message(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message | None:
    require_key(entry, at, "beeai messages", "content")
    fields = Fields(entry, at, unknowns)
    draft = Draft(read_role(fields.take("role"), at, _ROLES, "beeai messages"), at, unknowns)
    content = fields.take("content")
    for part in iterate_blocks(draft, content, f"{at}.content"):
        _add_part(draft, part)
    fields.close(("id", "meta"), role=draft.role)
    # What `final_answer` gave back was left out, and nothing is left of its message.
    return None if draft.role == "tool" and not draft.results else draft.build()


def _add_part(draft: Draft, part: Fields) -> None:
    kind = part.take("type")
    if kind == "text":
        draft.add_text(part.take("text"), part.at)
        part.close(role=draft.role)
    elif kind == "tool-call":
        name, given = part.take("tool_name"), part.take("args")
        if name == _ANSWER:
            answer = read_arguments(given)
            draft.add_text(as_text(dict_or_empty(answer).get("response", answer)), part.at)
            part.take("id")
        else:
            draft.add_call(name, given, part.at, id=part.take("id"))
        part.close()
    elif kind == "tool-result":
        name, id, value = part.take("tool_name"), part.take("tool_call_id"), join_text_parts(part.take("result"))
        if name != _ANSWER:
            draft.add_result(value, part.at, id=id, name=name)
        part.close(role="tool")
    elif kind not in ("image_url", "file"):
        draft.mark_everything(part.at, f"a part of type {kind!r} is not understood")
