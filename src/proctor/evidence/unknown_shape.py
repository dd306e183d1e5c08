"""Describe a document that no format claims: what it looks like, and which known shape is nearest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from proctor.errors import EvidenceError
from proctor.model.evidence import Json
from proctor.model.show import describe_value, kind_of, nearest, shorten, show

_KEYS_SHOWN = 8
"""Keys of a document in the error about it."""


_ALIKE = 0.8
"""Share of letters that a key has in common with a known one: at 0.6, where names are proposed elsewhere, `response` is like `spans`."""


class Shape(Protocol):
    """As much of a format as this page needs."""

    @property
    def name(self) -> str:
        """What `--evidence-format` takes."""
        ...

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys that tell this format."""
        ...


def unknown_shape_error(value: Json, formats: Sequence[Shape]) -> EvidenceError:
    """Return the error for a document nobody knows."""
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
    lines.append(f"known forms: {', '.join(entry.name for entry in formats)}; name one with --evidence-format")
    lines.append("for a log in a format of your own, run `proctor describe evidence FILE` for a proposed mapping")
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
    """Return whether somebody may have meant a key: but for a letter or two, or a mark between words, it is the same."""
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
