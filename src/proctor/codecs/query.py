"""The part of an address after `?`, and forms that are sent as a body: names and values, percent-encoded."""

from __future__ import annotations

import re
from collections.abc import Iterable

_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def decode_percent(text: str) -> str:
    """Return text with `%20` and the like replaced; bytes that are no UTF-8 become the replacement character."""
    if "%" not in text:
        return text
    # A lone surrogate cannot be encoded otherwise and must not raise here; decoding makes replacement characters of it.
    data = _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), text.encode("utf-8", "surrogatepass"))
    return data.decode("utf-8", "replace")


def encode_percent(text: str, keep: str = "") -> str:
    """Return text with everything but letters, digits, `-._~` and the characters to `keep` percent-encoded."""
    plain = _PLAIN | set(keep.encode())
    return "".join(chr(byte) if byte in plain else f"%{byte:02X}" for byte in text.encode("utf-8", "replace"))


def decode_query(text: str) -> tuple[tuple[str, str], ...]:
    """Return the names and values of a query or a form, in order; `+` is a space."""
    pairs: list[tuple[str, str]] = []
    for part in text.split("&"):
        if part:
            name, _, value = part.partition("=")
            pairs.append((decode_percent(name.replace("+", " ")), decode_percent(value.replace("+", " "))))
    return tuple(pairs)


def encode_query(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names and values as a query."""
    return "&".join(f"{encode_percent(name, ':')}={encode_percent(value, ':/,|')}" for name, value in pairs)
