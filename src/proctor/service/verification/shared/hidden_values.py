"""Secret values of an uploaded state, and how they are removed from results.

Criteria are decided on the original state: a field such as `prior_authorization` is often what is verified. The stored state is redacted,
and the removed values are hidden in results: in actual values, in sentences that quote them, also truncated, and in material for a judge.
What authors wrote (`expected`, `path`, `phrase`) is not hidden.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import cast

from proctor.cassettes.entries import REDACTED
from proctor.cassettes.redaction import redact
from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.show import show

_SHORTEST = 4
"""Characters. A shorter value is hidden only as a separate word."""
_SHORTEST_WORD = 2
"""Characters. A single one is hidden only if it is the whole value."""
_SHORTEST_CUT = 3
"""Remaining characters by which a truncated value is recognised."""
_WIDEST = 2_000
"""Characters next to a truncation that are searched."""
_AUTHORED = frozenset(("expected", "path", "phrase", "pointers", "criterion_id", "outcome", "code"))
"""Keys of a result that the author or the engine wrote."""
_DEEPEST = 100
"""Levels of JSON inside a text."""


class HiddenValues:
    """Values that are never shown."""

    def __init__(self, values: Iterable[Json] = ()) -> None:
        # With the type: `True == 1 == 1.0` in Python, and a hidden 1 must not hide every `true`.
        self._exact = {(type(value), value) for value in values}
        texts = {value if isinstance(value, str) else show(value) for _, value in self._exact}
        # Each text verbatim, and as JSON and sentences quote it.
        long_texts = [text for text in texts if len(text) >= _SHORTEST]
        forms = {form for text in long_texts for form in (text, json.dumps(text)[1:-1], show(text, len(text))[1:-1])}
        # Longest first, since one may be part of another. A part of `[redacted]` itself would match in every redacted place.
        self._forms = sorted((form for form in forms if form not in REDACTED), key=lambda form: (-len(form), form))
        words = sorted(text for text in texts if _SHORTEST_WORD <= len(text) < _SHORTEST)
        self._words = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)") if words else None

    def __bool__(self) -> bool:
        return bool(self._exact)

    def hide_text(self, text: str) -> str:
        """Return a text without the values, also if truncated."""
        for spelling in self._forms:
            if spelling in text:
                text = text.replace(spelling, REDACTED)
        if self._words is not None:
            text = self._words.sub(REDACTED, text)
        return self._hide_cut(text) if "…" in text else text

    def hide(self, value: Json) -> Json:
        """Return JSON without the values; keys stay."""
        return redact(_rewrite(value, self._hide_leaf)) if self else value

    def hide_result(self, value: Json) -> Json:
        """Return the result of a criterion without the values; only actual values and texts can contain one."""
        if not self:
            return value
        if isinstance(value, dict):
            fields = cast(dict[str, Json], value)
            return {
                name: entry if name in _AUTHORED else self.hide(entry) if name == "actual" else self.hide_result(entry)
                for name, entry in fields.items()
            }
        if isinstance(value, list):
            return [self.hide_result(entry) for entry in cast(list[Json], value)]
        # Other numbers are scores or counts.
        return redact(self.hide_text(value)) if isinstance(value, str) else value

    def _hide_leaf(self, value: Json) -> Json:
        if (type(value), value) in self._exact:
            return REDACTED
        return self.hide_text(value) if isinstance(value, str) else value

    def _hide_cut(self, text: str) -> str:
        """Hide the rest of a value on either side of an ellipsis."""
        parts = text.split("…")
        last = len(parts) - 1
        for number, part in enumerate(parts):
            tail, head = part[-_WIDEST:], part[:_WIDEST][::-1]
            after = max((_count_shared(tail, spelling) for spelling in self._forms), default=0) if number < last else 0
            before = max((_count_shared(head, spelling[::-1]) for spelling in self._forms), default=0) if number else 0
            inner = part[before : max(before, len(part) - after)]
            parts[number] = f"{REDACTED if before else ''}{inner}{REDACTED if after else ''}"
        return "…".join(parts)


def _count_shared(text: str, value: str) -> int:
    """Return the length of the common part of a text's end and a value's start, if long enough."""
    if value[:_SHORTEST_CUT] not in text:
        return 0
    for count in range(min(len(text), len(value)), _SHORTEST_CUT - 1, -1):
        if text.endswith(value[:count]):
            return count
    return 0


def find_hidden_values(original: Json, redacted: Json) -> HiddenValues:
    """Return the values that redaction removed."""
    removed_values: list[Json] = []
    waiting: list[tuple[Json, Json]] = [(original, redacted)]
    while waiting:
        ours, clean = waiting.pop()
        if ours is clean:
            continue
        if isinstance(ours, dict) and isinstance(clean, dict) and ours.keys() == clean.keys():
            waiting.extend((member, clean[name]) for name, member in ours.items())
        elif isinstance(ours, list) and isinstance(clean, list):
            waiting.extend(zip(ours, clean, strict=True))
        elif isinstance(ours, str) and isinstance(clean, str) and clean != REDACTED:
            removed_values.extend(piece for removed in _list_removed(ours, clean) for piece in _list_leaves(removed))
        elif type(ours) is not type(clean) or ours != clean:
            removed_values.extend(_list_leaves(ours))
    return HiddenValues(removed_values)


def _list_removed(text: str, clean: str) -> list[str]:
    """Return the pieces of a text that `[redacted]` replaced."""
    if text == clean:
        return []
    head, *others = clean.split(REDACTED)
    pieces: list[str] = []
    at = len(head)
    for number, following in enumerate(others):
        end = len(text) - len(following) if number == len(others) - 1 else text.find(following, at) if following else at
        if end < at:
            # Ambiguous: hide all of it.
            return [text]
        pieces.append(text[at:end])
        at = end + len(following)
    # A JSON text may escape characters that its reader decodes.
    return [spelling for piece in pieces for spelling in {piece, _unescape(piece)}]


def _unescape(piece: str) -> str:
    try:
        return str(json.loads(f'"{piece}"'))
    except ValueError:
        return piece


def _list_leaves(value: Json) -> list[Json]:
    """Return the texts and numbers in a value, including JSON inside texts."""
    leaves: list[Json] = []
    waiting: list[tuple[Json, int]] = [(value, 0)]
    while waiting:
        entry, depth = waiting.pop()
        if isinstance(entry, dict):
            waiting.extend((member, depth) for member in entry.values())
        elif isinstance(entry, list):
            waiting.extend((member, depth) for member in entry)
        elif isinstance(entry, str) and entry:
            leaves.append(entry)
            if entry.lstrip()[:1] in ("{", "[") and depth < _DEEPEST:
                inner = _read_json(entry)
                waiting.extend([(inner, depth + 1)] if inner is not None else [])
        elif is_number(entry):
            leaves.append(entry)
    return leaves


def _read_json(text: str) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _rewrite(value: Json, change: Callable[[Json], Json]) -> Json:
    """Return a value with every leaf changed."""
    # An explicit stack, since uploads may be nested deeper than Python's recursion limit.
    root: list[Json] = [value]
    waiting: list[dict[str, Json] | list[Json]] = [root]
    while waiting:
        holder = waiting.pop()
        places = list(holder.items()) if isinstance(holder, dict) else list(enumerate(holder))
        for place, member in places:
            if isinstance(member, (dict, list)):
                holder[place] = copied = member.copy()  # type: ignore[index]  # a name of an object, a position of a list
                waiting.append(copied)
            else:
                holder[place] = change(member)  # type: ignore[index]  # as above
    return root[0]
