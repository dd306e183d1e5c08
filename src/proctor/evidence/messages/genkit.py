"""Genkit: messages of role `user`, `model`, `tool` with parts that are known by their one key: `text`, `toolRequest`, `toolResponse`.

A part of kind `custom` is what a provider gave and Genkit does not know either. Genkit does not say how a tool ended.

Tried with genkit 1 (JavaScript), `response.messages`.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.messages.builder import Draft, Entries, Fields, iterate_blocks, list_parts, read_role, require_key
from proctor.evidence.shared.conversation import Message, Role
from proctor.evidence.unknowns.account import Unknowns
from proctor.model.evidence import Json

_ROLES: dict[str, Role] = {"user": "user", "model": "assistant", "tool": "tool", "system": "system"}
_SILENT = ("media", "reasoning", "data", "resource")


def is_own_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Genkit's."""
    parts = list_parts(message, "content")
    return any("toolRequest" in part or "toolResponse" in part for part in parts) or (
        message.get("role") == "model" and bool(parts) and all("type" not in part for part in parts)
    )


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages of Genkit."""
    return [_read_message(entry, at, unknowns) for at, entry in entries]


def _read_message(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message:
    require_key(entry, at, "genkit messages", "content")
    fields = Fields(entry, at, unknowns)
    draft = Draft(read_role(fields.take("role"), at, _ROLES, "genkit messages"), at, unknowns)
    content: Json = fields.take("content")
    for part in iterate_blocks(draft, content, f"{at}.content"):
        _add_part(draft, part)
    fields.close(("metadata",), role=draft.role)
    return draft.build()


def _add_part(draft: Draft, part: Fields) -> None:
    if not any(key in part.left for key in ("text", "toolRequest", "toolResponse", *_SILENT)):
        draft.mark_everything(part.at, f"a part with the keys {', '.join(list(part.left)[:4])} is not understood")
        return
    draft.add_text(part.take("text"), part.at)
    request = part.take_object("toolRequest")
    if request is not None:
        draft.add_call(request.take("name"), request.take("input"), request.at, id=request.take("ref"))
        request.close(("partial",))
    response = part.take_object("toolResponse")
    if response is not None:
        draft.add_result(response.take("output"), response.at, id=response.take("ref"), name=response.take("name"))
        response.close(("content", "strategy"), role="tool")
    part.close((*_SILENT, "metadata"), role=draft.role)
