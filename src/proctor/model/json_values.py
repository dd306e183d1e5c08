"""What is done with any JSON value, whoever it comes from."""

from __future__ import annotations

import msgspec

from proctor.model.evidence import Json

_encode_plain = msgspec.json.Encoder(order=None).encode


def write_as_text(value: Json) -> str:
    """Return a text as it is, and anything else as compact JSON. Raises `UnicodeEncodeError` for half a character."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def drop_nulls(value: Json) -> Json:
    """Return a value without the members that are null, at every depth."""
    if isinstance(value, dict):
        return {key: drop_nulls(member) for key, member in value.items() if member is not None}
    return [drop_nulls(member) for member in value] if isinstance(value, list) else value


def join_surrogates(text: str) -> str:
    """Return a text that can be written: two halves of a character side by side become one, and a lone half becomes U+FFFD."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def encode_strangers(value: object) -> bytes:
    """Encode a value that may hold text no UTF-8 can carry (half of a surrogate pair, which is then written as its escape)."""
    try:
        return _encode_plain(value)
    except UnicodeEncodeError:
        from json import dumps  # only such text needs it

        return dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def write_document(value: object) -> bytes:
    """Return a value as a JSON document for people, its texts may be anybody's: indented, with a line break at its end."""
    return indent_json(encode_strangers(value)) + b"\n"


def indent_json(data: bytes) -> bytes:
    """Return JSON in lines."""
    try:
        return msgspec.json.format(data, indent=2)
    except msgspec.DecodeError:
        from json import dumps, loads  # msgspec does not take the escape of half a character

        return dumps(loads(data), indent=2).encode()
