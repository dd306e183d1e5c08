"""Writes JSON-like values as readable YAML.

Only constructs that every YAML 1.2 reader agrees on: block style, short values in flow style on one line, plain words if they are
unambiguous, and JSON-quoted text everywhere else.
"""

from __future__ import annotations

import functools
import re

import msgspec

from proctor.model.evidence import Json

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[ ./-]{1,2}[A-Za-z0-9_]+)*")
_KEY = re.compile(r"[$A-Za-z_][$A-Za-z0-9_.-]*")
# `yes`, `no`, `on` and `y` are text in YAML 1.2 and booleans in 1.1; in quotes they are text in both.
_RESERVED = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"})
_WIDTH = 100
"""The maximum line width of a written file."""


def to_yaml(value: Json) -> str:
    """Return the document, ending in a line break."""
    return "\n".join(_write_block(value, 0)) + "\n"


def _write_block(value: Json, indent: int) -> list[str]:
    pad = " " * indent
    if isinstance(value, dict) and value:
        lines: list[str] = []
        for key, item in value.items():
            lines.extend(_write_entry(f"{pad}{_write_key(key)}:", item, indent + 2))
        return lines
    if isinstance(value, (list, tuple)) and value:
        lines = []
        for item in value:
            if (
                not isinstance(item, dict)
                or not item
                or (len(item) == 1 and _is_small(item) and len(write_flow(item)) + indent + 2 <= _WIDTH)
            ):
                lines.extend(_write_entry(f"{pad}-", item, indent + 2))
            else:
                inner = _write_block(item, indent + 2)
                inner[0] = f"{pad}- {inner[0].lstrip()}"
                lines.extend(inner)
        return lines
    return [pad + write_flow(value)]


def _write_entry(head: str, item: Json, indent: int) -> list[str]:
    # A large value is not formatted on one line just to measure it: only a small one can fit.
    if not isinstance(item, (dict, list, tuple)) or not item:
        return [f"{head} {write_flow(item)}"]
    if _is_small(item):
        line = f"{head} {write_flow(item)}"
        if len(line) <= _WIDTH:
            return [line]
    return [head, *_write_block(item, indent)]


def _is_small(value: Json, levels: int = 2) -> bool:
    """Return whether a value is readable on one line: a list of plain values, or an object of plain values and lists or objects of them."""
    if not isinstance(value, (dict, list, tuple)):
        return True
    inner = levels - 1 if isinstance(value, dict) else 0
    return levels > 0 and all(_is_small(item, inner) for item in (value.values() if isinstance(value, dict) else value))


def write_flow(value: Json) -> str:
    """Return a value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_write_key(key)}: {write_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(write_flow(item) for item in value) + "]"
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and value.lower() not in _RESERVED else _quote(value)
    return msgspec.json.encode(value).decode()


@functools.lru_cache(maxsize=256)  # a document repeats few keys
def _write_key(key: str) -> str:
    return key if _KEY.fullmatch(key) and key.lower() not in _RESERVED else _quote(key)


def _quote(text: str) -> str:
    # JSON text is a valid double-quoted scalar, except for characters that YAML treats as unprintable or as line breaks.
    try:
        encoded = msgspec.json.encode(text).decode("utf-8")
    except UnicodeEncodeError:
        import json  # only a lone surrogate, which UTF-8 cannot represent, needs it

        encoded = json.dumps(text, ensure_ascii=False)
    return re.sub("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]", lambda match: f"\\u{ord(match.group()):04x}", encoded)
