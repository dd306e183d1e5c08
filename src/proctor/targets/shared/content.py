"""Reads the bytes of an HTTP answer: a JSON value, a text, or nothing that can be read.

JSON is UTF-8 by its standard, whatever charset a header names; servers that name another one and mean it exist, so what is no JSON in
UTF-8 is looked at once more in the charset it names. Bytes that are all ASCII mean the same in both, unless the charset gives letters by
escapes (UTF-7, ISO-2022): then the charset it names is the one that counts.
"""

from __future__ import annotations

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.values.json_bytes import decode, exceeds_depth, too_deep_error
from proctor.model.evidence import Json


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer holds: `body` where it is JSON and no text, else `text`."""

    body: Json = None
    text: str | None = None
    json_text: bool = False
    """Whether `text` came as a JSON text, in quotes."""
    unread: str | None = None
    """Why the bytes are no text; `text` is then what can be shown of them."""


def read_content(data: bytes, charset: str | None) -> Content:
    """Read the bytes of an answer; `charset` is the one that its header names."""
    text, unread = _decode_text(data, charset or "utf-8")
    for candidate in _list_json_candidates(data, text if unread is None else None):
        try:
            value = decode(candidate)
        except EvidenceError as error:
            # It is JSON that cannot be used; taking it for text instead would hide that.
            if error.code in ("too_deep", "duplicate_key"):
                return Content(text=text, unread=error.message)
            continue
        if isinstance(value, str):
            return Content(text=value, json_text=True)
        if value is not None:
            return Content(text=text, unread=too_deep_error().message) if exceeds_depth(value) else Content(body=value)
    return Content(text=text, unread=unread)


def _list_json_candidates(data: bytes, text: str | None) -> list[bytes]:
    """Return the byte strings that may be JSON in UTF-8, the likelier first."""
    again = text.encode("utf-8", "replace") if text is not None else data
    if again == data:
        return [data]
    return [again, data] if data.isascii() else [data, again]


def _decode_text(data: bytes, charset: str) -> tuple[str, str | None]:
    """Return the text, and why the bytes are not one."""
    try:
        return data.decode(charset), None
    except LookupError:
        why = f"nobody knows its charset {charset[:40]!r}"
    except UnicodeError as error:
        at = f": byte 0x{data[error.start]:02x} at offset {error.start}" if isinstance(error, UnicodeDecodeError) else ""
        why = f"it is no text in {charset}{at}"
    return data.decode("utf-8", "replace"), why
