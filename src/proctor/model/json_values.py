"""What is done with any JSON value, whoever it comes from."""

from __future__ import annotations

import msgspec

from proctor.model.evidence import Json


def write_as_text(value: Json) -> str:
    """Return a text as it is, and anything else as compact JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def drop_nulls(value: Json) -> Json:
    """Return a value without the members that are null, at every depth."""
    if isinstance(value, dict):
        return {key: drop_nulls(member) for key, member in value.items() if member is not None}
    return [drop_nulls(member) for member in value] if isinstance(value, list) else value


def join_surrogates(text: str) -> str:
    """Return a text that can be written: two halves of a character side by side become one, and a lone half becomes U+FFFD."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def write_document(value: object) -> bytes:
    """Return a value as a JSON document for people: indented, with a line break at its end."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
