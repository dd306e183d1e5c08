"""What an uploaded state holds that must neither be kept nor shown, and how it is taken out of what came of verifying.

Criteria are decided on the state as it is: a field called `prior_authorization` is often the very thing that is to be verified. What is
kept of the state is redacted, and what the redaction took out is hidden in everything that is told of a criterion: in the values that were
found, in sentences that quote them, also where they are cut, and in what a judge is shown. What authors wrote themselves (`expected`,
`path`, `phrase`) stays: it stands in the criterion.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import cast

from proctor.cassettes.scrub import REDACTED
from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.show import show
from proctor.service.redaction import redact

_SHORTEST = 4
"""Characters. A shorter one would tear holes in ordinary words; it is hidden where it stands as a word of its own."""
_SHORTEST_WORD = 2
"""Characters. A single one says nothing, and would be found in every sentence; it is hidden only where it is all that was found."""
_SHORTEST_CUT = 3
"""Characters that are left of a value which was cut, to be known as its beginning or its end."""
_WIDEST = 2_000
"""Characters beside a cut that are looked at; what is told of a value is shorter."""
_AUTHORED = frozenset(("expected", "path", "phrase", "pointers", "criterion_id", "outcome", "code"))
"""What is told of a criterion that its author or the engine wrote."""
_DEEPEST = 100
"""Levels of JSON inside a text."""


class HiddenValues:
    """Values that are never told."""

    def __init__(self, values: Iterable[Json] = ()) -> None:
        # With its type: in Python `True == 1 == 1.0`, and a hidden 1 must not hide every `true`.
        self._exact = {(type(value), value) for value in values}
        texts = {value if isinstance(value, str) else show(value) for _, value in self._exact}
        # As it is, and as sentences and JSON quote it. Longest first: one may be part of another.
        spelt = {spelling for text in texts if len(text) >= _SHORTEST for spelling in (text, json.dumps(text)[1:-1], _quote(text))}
        # Not what is part of the mark itself: it would be found in every mark that was put in before.
        self._spelt = sorted((one for one in spelt if one not in REDACTED), key=lambda one: (-len(one), one))
        words = sorted(text for text in texts if _SHORTEST_WORD <= len(text) < _SHORTEST)
        self._words = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)") if words else None

    def __bool__(self) -> bool:
        return bool(self._exact)

    def hide_text(self, text: str) -> str:
        """Return a text without any of the values, nor the beginning or end of one that was cut."""
        for spelling in self._spelt:
            if spelling in text:
                text = text.replace(spelling, REDACTED)
        if self._words is not None:
            text = self._words.sub(REDACTED, text)
        return self._hide_cut(text) if "…" in text else text

    def hide(self, value: Json) -> Json:
        """Return JSON without any of the values in it; names of fields stay."""
        return redact(_rewrite(value, self._hide_leaf)) if self else value

    def hide_told(self, value: Json) -> Json:
        """Return what is told of a criterion without any of the values; only what was found and texts can hold one."""
        if not self:
            return value
        if isinstance(value, dict):
            fields = cast(dict[str, Json], value)
            return {name: self._hide_member(name, entry) for name, entry in fields.items()}
        if isinstance(value, list):
            return [self.hide_told(entry) for entry in cast(list[Json], value)]
        # A number that is not what was found is a score or a count.
        return redact(self.hide_text(value)) if isinstance(value, str) else value

    def _hide_member(self, name: str, value: Json) -> Json:
        if name in _AUTHORED:
            return value
        return self.hide(value) if name == "actual" else self.hide_told(value)

    def _hide_leaf(self, value: Json) -> Json:
        if (type(value), value) in self._exact:
            return REDACTED
        return self.hide_text(value) if isinstance(value, str) else value

    def _hide_cut(self, text: str) -> str:
        """Hide what is left of a value on either side of an ellipsis."""
        parts = text.split("…")
        last = len(parts) - 1
        for number, part in enumerate(parts):
            tail, head = part[-_WIDEST:], part[:_WIDEST][::-1]
            after = max((_count_shared(tail, spelling) for spelling in self._spelt), default=0) if number < last else 0
            before = max((_count_shared(head, spelling[::-1]) for spelling in self._spelt), default=0) if number else 0
            inner = part[before : max(before, len(part) - after)]
            parts[number] = f"{REDACTED if before else ''}{inner}{REDACTED if after else ''}"
        return "…".join(parts)


def _quote(text: str) -> str:
    return show(text, len(text))[1:-1]


def _count_shared(text: str, value: str) -> int:
    """Return how many characters at the end of a text are the beginning of a value, from so many on that this is no chance."""
    if value[:_SHORTEST_CUT] not in text:
        return 0
    for count in range(min(len(text), len(value)), _SHORTEST_CUT - 1, -1):
        if text.endswith(value[:count]):
            return count
    return 0


def find_hidden_values(given: Json, kept: Json) -> HiddenValues:
    """Return what redacting a value took out of it."""
    found: list[Json] = []
    waiting: list[tuple[Json, Json]] = [(given, kept)]
    while waiting:
        ours, clean = waiting.pop()
        if ours is clean:
            continue
        if isinstance(ours, dict) and isinstance(clean, dict) and ours.keys() == clean.keys():
            waiting.extend((member, clean[name]) for name, member in ours.items())
        elif isinstance(ours, list) and isinstance(clean, list):
            waiting.extend(zip(ours, clean, strict=True))
        elif isinstance(ours, str) and isinstance(clean, str) and clean != REDACTED:
            found.extend(piece for removed in _list_removed(ours, clean) for piece in _list_leaves(removed))
        elif type(ours) is not type(clean) or ours != clean:
            found.extend(_list_leaves(ours))
    return HiddenValues(found)


def _list_removed(text: str, clean: str) -> list[str]:
    """Return the pieces of a text in whose place `[redacted]` stands."""
    if text == clean:
        return []
    head, *others = clean.split(REDACTED)
    found: list[str] = []
    at = len(head)
    for number, following in enumerate(others):
        end = len(text) - len(following) if number == len(others) - 1 else text.find(following, at) if following else at
        if end < at:
            # Not to be told which; all of it is hidden then.
            return [text]
        found.append(text[at:end])
        at = end + len(following)
    # In a JSON text characters may be escaped which whoever reads it sees as they are.
    return [spelling for piece in found for spelling in {piece, _unescape(piece)}]


def _unescape(piece: str) -> str:
    try:
        return str(json.loads(f'"{piece}"'))
    except ValueError:
        return piece


def _list_leaves(value: Json) -> list[Json]:
    """Return the texts and numbers in a value; JSON that is written as a text is looked into."""
    found: list[Json] = []
    waiting: list[tuple[Json, int]] = [(value, 0)]
    while waiting:
        entry, depth = waiting.pop()
        if isinstance(entry, dict):
            waiting.extend((member, depth) for member in entry.values())
        elif isinstance(entry, list):
            waiting.extend((member, depth) for member in entry)
        elif isinstance(entry, str) and entry:
            found.append(entry)
            if entry.lstrip()[:1] in ("{", "[") and depth < _DEEPEST:
                inner = _read_json(entry)
                waiting.extend([(inner, depth + 1)] if inner is not None else [])
        elif is_number(entry):
            found.append(entry)
    return found


def _read_json(text: str) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _rewrite(value: Json, change: Callable[[Json], Json]) -> Json:
    """Return a value with every leaf changed, to any depth."""
    # With a stack of our own: what was uploaded may be nested deeper than Python can call.
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
