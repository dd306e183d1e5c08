"""Mutations of valid documents that keep most of their structure, so that faults reach deep code."""

from __future__ import annotations

import copy
import gzip
import random
from typing import Any

HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**53, 2**63, 2**64, -(2**63), 10**30, 10**400, 0.0, -0.0, 1e-320, 1e308, 0.1),
    *("", " ", "\0", "a", "ä", "\ud83d", "😀", "\u2028", "\ufeff", "null", "true", "NaN", "1e999", "-", "{}", "[]", '{"a": 1}', "[[[["),
    *("${HOME}", "{{x}}", "$", "$.a", "$..*", "$[?@.a == 1]", "(a+)+$", "[", "\\", "(?<x>", "^(?:a|aa)+$", "../../etc/passwd"),
    *("http://127.0.0.1/", "2026-02-30", "2026-11-16T10:00:00Z", "TODAY()", "DATE_ADD(TODAY(), 1e9, 'days')", "REPEAT('a', 1000000)"),
    *("a" * 10_000, "(" * 500, "a.b.c", "PT1H", "1,2", [], {}, [[]], [{}], {"": ""}, {"a": {"a": {"a": {}}}}, [None], {"type": "x"}),
    *({"matcher": "regex", "value": "(a*)*b"}, {"$ref": "#"}),
)
"""Values that some reader somewhere did not expect."""

CRUMBS = (b"\xff" * 5, b"\x80" * 10 + b"\x01", b"\0", b"\x0a\x00" * 100, b"{", b"]", b'"', b"\n")

Place = tuple[Any, Any]
"""A list or an object, and the index or the key in it."""


class Mutator:
    """Makes changed documents; the same seed makes the same ones."""

    def __init__(self, seed: int, good: list[Any]) -> None:
        self._random = random.Random(seed)
        self._good = good

    def document(self) -> Any:
        """A good document with one to four changes; sometimes none of it is left."""
        changed = {"": copy.deepcopy(self._random.choice(self._good))}
        for _ in range(self._random.choice((1, 1, 1, 2, 2, 3, 4))):
            self._change(changed)
        return changed[""]

    def data(self, good: list[bytes]) -> bytes:
        """Good bytes with some of them changed, cut out, doubled, or taken from others."""
        pick = self._random
        changed = bytearray(pick.choice(good))
        for _ in range(pick.choice((1, 1, 2, 4, 8))):
            start = pick.randrange(len(changed) + 1)
            end = min(len(changed), start + pick.choice((1, 1, 2, 4, 16, 100)))
            match pick.randrange(5):
                case 0:
                    changed[start:end] = pick.randbytes(end - start)
                case 1:
                    del changed[start:end]
                case 2:
                    changed[start:start] = changed[start:end] * pick.choice((1, 2, 50))
                case 3:
                    other = pick.choice(good)
                    at = pick.randrange(len(other) + 1)
                    changed[start:end] = other[at : at + pick.choice((4, 40, 400))]
                case _:
                    changed[start:end] = pick.choice(
                        (b"\xff" * 5, b"\x80" * 10 + b"\x01", b"\0", b"\x0a\x00" * 100, b"{", b"]", b'"', b"\n")
                    )
        return bytes(changed)

    def packed(self, data: bytes) -> bytes:
        """The same as gzip, whole or broken: cut, changed, in several members, or with trailing bytes."""
        whole = gzip.compress(data, 1)
        match self._random.randrange(6):
            case 0:
                return whole[: self._random.randrange(len(whole))]
            case 1:
                return self.data([whole])
            case 2:
                half = len(data) // 2
                return gzip.compress(data[:half], 1) + gzip.compress(data[half:], 1)
            case 3:
                return whole + self._random.randbytes(8)
            case 4:
                return gzip.compress(whole, 1)
            case _:
                return whole

    def choice(self, values: Any) -> Any:
        """One of these."""
        return self._random.choice(values)

    def _change(self, whole: dict[str, Any]) -> None:
        pick = self._random
        holder, key = self._place(whole)
        value = holder[key]
        match pick.randrange(10):
            case 0 | 1 | 2:
                holder[key] = copy.deepcopy(pick.choice(HOSTILE))
            case 3 if holder is not whole:
                del holder[key]
            case 4 if isinstance(holder, dict) and holder is not whole:
                holder[self._key()] = holder.pop(key)
            case 5:
                other = self._place({"": pick.choice(self._good)})
                holder[key] = copy.deepcopy(other[0][other[1]])
            case 6:
                holder[key] = self._wrapped(value)
            case 7 if isinstance(holder, list):
                holder[key:key] = [copy.deepcopy(value) for _ in range(pick.choice((1, 3, 200)))]
            case 8 if isinstance(value, str):
                at = pick.randrange(len(value) + 1)
                holder[key] = value[:at] + str(pick.choice(HOSTILE))[:200] + value[at + pick.randrange(3) :]
            case _ if isinstance(value, dict):
                value[self._key()] = copy.deepcopy(pick.choice(HOSTILE))
            case _:
                holder[key] = copy.deepcopy(pick.choice(HOSTILE))

    def _wrapped(self, value: Any) -> Any:
        match self._random.randrange(4):
            case 0:
                return [value]
            case 1:
                return {self._key(): value}
            case 2:
                for _ in range(self._random.choice((5, 150, 400))):
                    value = [value]
                return value
            case _:
                return str(value)[:10_000]

    def _key(self) -> str:
        holder, key = self._place({"": self._random.choice(self._good)})
        return key if isinstance(holder, dict) else self._random.choice(("type", "id", "", "a.b", "__class__", "0"))

    def _place(self, whole: dict[str, Any]) -> Place:
        """Somewhere in a document, deep places as likely as others."""
        holder: Any = whole
        key: Any = ""
        while isinstance(holder[key], (dict, list)) and holder[key] and self._random.random() < 0.8:
            holder = holder[key]
            key = self._random.choice(list(holder)) if isinstance(holder, dict) else self._random.randrange(len(holder))
        return holder, key
