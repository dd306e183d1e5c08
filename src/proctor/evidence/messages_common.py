"""What the message formats of all providers share: roles, and text in content that may be a list of parts."""

from __future__ import annotations

from proctor.evidence.conversation import Role
from proctor.evidence.shape import first_of
from proctor.evidence.text import as_text
from proctor.model.evidence import Json

_ROLES: dict[str, Role] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
    "system": "system",
    "developer": "system",
}

# Tuples, not sets, wherever a value from a document is looked up: it may be a list, which no set can be asked for.
TEXT_PARTS = ("text", "output_text", "input_text", "refusal")


def role_of(value: Json) -> Role:
    """The role by any provider's name; one we do not know speaks for nobody."""
    return _ROLES.get(value.lower(), "system") if isinstance(value, str) else "system"


def text_of_content(content: Json) -> str | None:
    """The text of a message: itself, or its text parts together; nothing if it has none."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        return as_text(content)
    texts: list[str] = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and part.get("type", "text") in TEXT_PARTS:
            text = first_of(part, "text", "refusal")
            if isinstance(text, str):
                texts.append(text)
    return "".join(texts) if texts else None
