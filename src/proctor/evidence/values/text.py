"""Where the answer stands in a response, and what JSON an answer is.

The lookup order of an HTTP response is `text`, `message`, `content`, `output`, `answer`, `response`, else the whole response as
text; that of a workflow node's output is `text`, `output`, `message`, `content`, `response`, else the whole output. (Mibo
documents both; they differ.) A key that is null is passed over. A chat message (`role` and `content`) is its content; any other
value that is not text is written as compact JSON.
"""

from __future__ import annotations

from proctor.evidence.values.json_bytes import decode_embedded
from proctor.model.evidence import Json
from proctor.model.json_values import write_as_text
from proctor.model.missing import MISSING

HTTP_KEYS = ("text", "message", "content", "output", "answer", "response")
NODE_KEYS = ("text", "output", "message", "content", "response")

MAYBE_JSON = frozenset('{["-0123456789tfn \t\r\n')
"""First characters of a text that may be JSON; the cheapest test there is."""
_STARTS = frozenset('{["-0123456789')
_LETTERS = frozenset("tfn")
_WORDS = frozenset(("true", "false", "null"))


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
    """Return the JSON value that an answer consists of, or None if it is not JSON."""
    if not text or not may_be_json(text):
        return None
    value = decode_embedded(text)
    return None if value is MISSING else value


def may_be_json(text: str) -> bool:
    """Return whether the first character makes it worth parsing a text as JSON at all."""
    text = text.lstrip()
    first = text[:1]
    # Answers in words mostly begin with a letter, and of those only three words are JSON: this saves the attempt to parse.
    if first in _LETTERS:
        return text.rstrip() in _WORDS
    return first in _STARTS
