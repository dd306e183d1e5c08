"""JSON-like values as YAML that people like to read.

Only what every YAML 1.2 reader agrees on: block style, short things in flow style on one line, plain words where a word cannot be
mistaken for anything else, and JSON-quoted text everywhere else.
"""

from __future__ import annotations

import functools
import re

import msgspec

from proctor.model.evidence import Json

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[ ./-]{1,2}[A-Za-z0-9_]+)*")
_KEY = re.compile(r"[$A-Za-z_][$A-Za-z0-9_.-]*")
# `yes`, `no`, `on` and `y` are text in YAML 1.2 and booleans to readers of 1.1; in quotes they are text to both.
_RESERVED = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"})
_WIDTH = 100
"""Columns of a written file."""


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
                or (len(item) == 1 and _is_small(item) and len(_write_flow(item)) + indent + 2 <= _WIDTH)
            ):
                lines.extend(_write_entry(f"{pad}-", item, indent + 2))
            else:
                inner = _write_block(item, indent + 2)
                inner[0] = f"{pad}- {inner[0].lstrip()}"
                lines.extend(inner)
        return lines
    return [pad + _write_flow(value)]


def _write_entry(head: str, item: Json, indent: int) -> list[str]:
    # What is too large for one line is not written on one to find that out: only what is small can fit.
    if not isinstance(item, (dict, list, tuple)) or not item:
        return [f"{head} {_write_flow(item)}"]
    if _is_small(item):
        line = f"{head} {_write_flow(item)}"
        if len(line) <= _WIDTH:
            return [line]
    return [head, *_write_block(item, indent)]


def _is_small(value: Json) -> bool:
    """Return whether a value reads well on one line: nothing nested beyond one level of small things."""
    if isinstance(value, dict):
        return all(not isinstance(item, (dict, list, tuple)) or _is_flat(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return all(not isinstance(item, (dict, list, tuple)) for item in value)
    return True


def _is_flat(value: Json) -> bool:
    items = value.values() if isinstance(value, dict) else value
    return all(not isinstance(item, (dict, list, tuple)) for item in items)


def _write_flow(value: Json) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_write_key(key)}: {_write_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_write_flow(item) for item in value) + "]"
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and value.lower() not in _RESERVED else _quote(value)
    return msgspec.json.encode(value).decode()


@functools.lru_cache(maxsize=256)  # a document repeats few keys
def _write_key(key: str) -> str:
    return key if _KEY.fullmatch(key) and key.lower() not in _RESERVED else _quote(key)


def _quote(text: str) -> str:
    # JSON text is a valid double-quoted scalar, but for what YAML counts as unprintable or as a line break.
    try:
        encoded = msgspec.json.encode(text).decode("utf-8")
    except UnicodeEncodeError:
        import json  # only half of a surrogate pair, which no UTF-8 can hold, needs it

        encoded = json.dumps(text, ensure_ascii=False)
    return re.sub("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]", lambda found: f"\\u{ord(found.group()):04x}", encoded)
