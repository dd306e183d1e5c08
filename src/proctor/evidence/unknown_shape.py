"""Describes a document that no format claims: its keys, the nearest known shape, and how to proceed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from proctor.errors import EvidenceError
from proctor.evidence.plain.record import CALLS, CARRYING, INPUTS
from proctor.model.evidence import Json
from proctor.model.show import describe_value, kind_of, nearest, shorten, show

_KEYS_SHOWN = 8
"""Keys of a document in the error about it."""


_ALIKE = 0.8
"""Share of letters that a key has in common with a known one: at 0.6, as elsewhere, `response` is like `spans`."""

_SPEAKERS = ("speaker", "role", "who")
_SENDERS = (*_SPEAKERS, "from", "sender", "author", "type")
_USERS = frozenset(("user", "human", "customer", "client", "caller", "visitor"))
_AGENTS = frozenset(("assistant", "agent", "bot", "ai", "model", "system"))
_LINES = "put the lines of one run into a list under `turns` or `messages`, or map them with `group` (evidence: {map: {group: ...}})"


class Shape(Protocol):
    """The part of a format that is needed here."""

    @property
    def name(self) -> str:
        """Its name for `--evidence-format`."""
        ...

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of this format."""
        ...


def is_conversation_line(entry: dict[str, Any]) -> bool:
    """Return whether a record is one line of a conversation: somebody speaks, and it is no exchange of input and answer."""
    senders = {key: entry[key].lower() for key in _SENDERS if isinstance(entry.get(key), str)}
    exchange = {*INPUTS, "turns", "nodes", "body", "state"}
    if not senders or not exchange.isdisjoint(entry):
        return False
    if not _USERS.isdisjoint(senders.values()):
        return True
    is_spoken = any(key in _SPEAKERS for key in senders) or not _AGENTS.isdisjoint(senders.values())
    return is_spoken and {*CALLS, "case", *(CARRYING - {"text"})}.isdisjoint(entry)


def conversation_line_error(entry: dict[str, Any]) -> EvidenceError:
    """Return the error for one line of a conversation, which is no answer of an agent."""
    key = next(key for key in _SENDERS if isinstance(entry.get(key), str))
    message = f"one line of a conversation ({key}: {show(entry[key], 40)}), not a run of an agent: {_LINES}"
    return EvidenceError(message, code="conversation_line")


def unknown_shape_error(value: Json, formats: Sequence[Shape]) -> EvidenceError:
    """Return the error for a document of no known shape."""
    lines = [f"no known form of evidence: {_describe_look(value)}"]
    close = _find_nearest(value, formats) if isinstance(value, dict) else []
    if close:
        lines.append("nearest: " + "; ".join(close))
    if (
        isinstance(value, dict)
        and value.get("type") in ("assistant", "user", "result", "system")
        and ("message" in value or "subtype" in value)
    ):
        lines.append("this may be a line of a run of the Claude Agent SDK: put all lines of a run into one list, such as with jq -s .")
    elif isinstance(value, dict) and not set(_SPEAKERS).isdisjoint(value):
        lines.append(f"this may be one line of a conversation: {_LINES}")
    elif isinstance(value, dict):
        lines.append(
            "a shape of your own: name its answer and calls with evidence: {map: ...}; `proctor describe evidence FILE` proposes it"
        )
    lines.append(f"known forms: {', '.join(entry.name for entry in formats)}; name one with --evidence-format")
    return EvidenceError("\n  ".join(lines), code="unknown_shape")


def _describe_look(value: Json) -> str:
    if isinstance(value, dict):
        return f"an object with the keys {_list_keys(value)}"
    if isinstance(value, list):
        kinds = list(dict.fromkeys(kind_of(entry) for entry in value))
        return f"a list of {len(value)} ({', '.join(kinds)})" if value else "an empty list"
    return describe_value(value, 60)


def _list_keys(keys: Iterable[str]) -> str:
    names = [show(shorten(key, 40)) for key in keys]
    more = len(names) - _KEYS_SHOWN
    return ", ".join(names[:_KEYS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _is_slip(key: str, known: str) -> bool:
    """Return whether a key may be a known one with a letter or two, or a separator, changed."""
    from difflib import SequenceMatcher  # costs a regex compile; only a mistake needs it

    return SequenceMatcher(None, key.lower()[:200], known.lower()).ratio() >= _ALIKE


def _find_nearest(document: dict[str, Json], formats: Sequence[Shape]) -> list[str]:
    # Reversed, so that of two formats with the same key the first in the list owns it.
    owner = {key: entry.name for entry in reversed(formats) for key in entry.keys}
    found: list[str] = []
    # Bounded, as each key is compared with all known ones.
    for key in list(document)[:50]:
        close = nearest(key, owner, most=1)
        if close and _is_slip(key, close[0]):
            found.append(f"{show(shorten(key, 40))} is like {show(close[0])} of {owner[close[0]]}")
    return found[:3]
