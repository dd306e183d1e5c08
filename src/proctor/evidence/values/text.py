"""Finds the answer field of a response, and the JSON value of an answer.

Mibo documents both orders of keys, and that a response without them is the answer itself. A chat message (`role` and `content`) is its
content; any other value that is not text is written as compact JSON.
"""

from __future__ import annotations

from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, decode_embedded, write_as_text

HTTP_KEYS = ("text", "message", "content", "output", "answer", "response")
NODE_KEYS = ("text", "output", "message", "content", "response")

MAYBE_JSON = frozenset('{["-0123456789tfn \t\r\n')


def as_text(value: Json) -> str | None:
    """Return text as it is, anything else as compact JSON, and None for null."""
    return None if value is None else write_as_text(value)


def find_text(body: Json, keys: tuple[str, ...] = HTTP_KEYS) -> str | None:
    """Return the answer inside a response body, or with `NODE_KEYS` inside a node's output."""
    if isinstance(body, dict):
        for key in keys:
            value = body.get(key)
            if isinstance(value, dict) and "role" in value and isinstance(value.get("content"), str):
                return value["content"]
            if value is not None:
                return as_text(value)
    return as_text(body)


def parse_json(text: str | None) -> Json:
    """Return the JSON value of an answer, or None if it is not JSON."""
    if not text or not may_be_json(text):
        return None
    value = decode_embedded(text)
    return None if value is MISSING else value


def may_be_json(text: str) -> bool:
    """Return whether a text may be JSON by its first character, or is one of the three words that JSON has."""
    text = text.lstrip()
    return text.rstrip() in ("true", "false", "null") if text[:1] in "tfn" else text[:1] in MAYBE_JSON
