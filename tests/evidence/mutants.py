"""Documents with one unrecognised change: a renamed key, a value of another kind, a wrapped value, a changed word.

Only the path to the change is copied; the rest is shared with the original, so tens of thousands of them are cheap.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

Place = tuple[str | int, ...]
Mutation = tuple[str, Place, Callable[[Any], Any]]
"""What it is called, the place of the value it changes (for a renamed key: of the object), and how."""

WORDS = frozenset(("type", "role", "kind", "status", "event", "executionStatus", "key"))
"""Keys whose values are words of a closed list, or names: OTLP lists attributes by `key`."""
NAMING = ("tool-",)
"""How words begin that end in a name: with another letter they name another tool."""
JSON = "<json>"
"""The step into a text that is JSON."""

_BETWEEN = "\x1f"


class Named(int):
    """The place of an entry in a list, called by the entry's own `key`: so OTLP lists attributes."""

    def __new__(cls, index: int, name: str) -> Named:
        made = super().__new__(cls, index)
        made.name = name
        return made

    name: str

    def __str__(self) -> str:
        return self.name


def _step(index: int, member: Any) -> int:
    key = member.get("key") if isinstance(member, dict) and "value" in member else None
    return Named(index, key) if isinstance(key, str) else index


class Free:
    """Places whose values belong to the agent or have no fixed format: every value is valid there.

    A pattern is a path with `*` for one step and `**` for any number of them. `keys` are places whose own name is a value as well, `kinds`
    those where a value of another kind is one more value, `own` members of the agent's own documents, which get no names that are
    like no other: there these are just other members. `words` are those of an open list of words. `but` takes places out again.
    `texts` are texts that are read as the JSON they hold: changes are made in there, too, under the step `<json>`.
    `answer` is what the agent itself answered, `body` what counts as its JSON: a change inside changes the answer, and claims about it.
    """

    def __init__(
        self,
        values: tuple[str, ...] = (),
        *,
        keys: tuple[str, ...] = (),
        own: tuple[str, ...] = (),
        kinds: tuple[str, ...] = (),
        words: tuple[str, ...] = (),
        but: tuple[str, ...] = (),
        answer: tuple[str, ...] = (),
        body: tuple[str, ...] = (),
        texts: tuple[str, ...] = (),
    ) -> None:
        self._values, self._keys, self._kinds = _pattern(values), _pattern(keys), _pattern(kinds)
        self._own = _pattern(own)
        self._words, self._but = _pattern(words), _pattern(but)
        self._answer, self._body = _pattern(answer), _pattern(body)
        self._texts = _pattern(texts)

    def is_value_free(self, place: Place) -> bool:
        return self._found(self._values, place, inside=True) and not self._found(self._but, place)

    def is_key_free(self, place: Place) -> bool:
        return self._found(self._keys, place) or (self.is_value_free(place[:-1]) and not self._found(self._but, place))

    def is_word_free(self, place: Place) -> bool:
        return self._found(self._words, place)

    def is_own(self, place: Place) -> bool:
        return self._found(self._own, place)

    def is_read_as_json(self, place: Place) -> bool:
        return self._found(self._texts, place)

    def is_any_kind(self, place: Place) -> bool:
        return self._found(self._kinds, place)

    def is_answer(self, place: Place) -> bool:
        return self._found(self._answer, place, inside=True)

    def is_body(self, place: Place) -> bool:
        return self._found(self._body, place, inside=True)

    def _found(self, pattern: re.Pattern[str] | None, place: Place, inside: bool = False) -> bool:
        if pattern is None:
            return False
        text = _BETWEEN.join(map(str, place)) + _BETWEEN
        return (pattern.match(text) if inside else pattern.fullmatch(text)) is not None


def _pattern(paths: tuple[str, ...]) -> re.Pattern[str] | None:
    if not paths:
        return None
    step = {"*": f"[^{_BETWEEN}]+{_BETWEEN}", "**": f"(?:[^{_BETWEEN}]+{_BETWEEN})*"}
    written = ("".join(step.get(part, re.escape(part) + _BETWEEN) for part in path.split("/")) for path in paths)
    return re.compile("|".join(f"(?:{path})" for path in written))


def mutations(document: Any, free: Free) -> Iterator[Mutation]:
    """Every change of one place."""
    waiting: list[tuple[Place, Any]] = [((), document)]
    while waiting:
        place, value = waiting.pop()
        if place and place[-1] != JSON and not free.is_value_free(place):
            yield from _value_mutations(place, value, free)
        if isinstance(value, dict):
            for key, member in value.items():
                inner = (*place, key)
                if not free.is_key_free(inner):
                    for name in (f"{key}z",) if free.is_own(inner) else (f"{key}z", "unknown"):
                        yield f"rename to {name}", inner, lambda parent, key=key, name=name: _renamed(parent, key, name)
                waiting.append((inner, member))
        elif isinstance(value, list):
            waiting.extend(((*place, _step(index, member)), member) for index, member in enumerate(value))
        elif isinstance(value, str) and value[:1] in ("{", "[") and value[:2] != "{'" and free.is_read_as_json(place):
            waiting.append(((*place, JSON), json.loads(value)))


def _value_mutations(place: Place, value: Any, free: Free) -> Iterator[Mutation]:
    if value is None:
        return  # null is "not recorded" wherever it is read
    yield "wrap in an object", place, lambda value: {"unknown": value}
    yield "wrap in a list", place, lambda value: [value]
    for name in _OTHER_KINDS[type(value)] if not free.is_any_kind(place) else ():
        yield f"retype to {name}", place, _RETYPE[name]
    if place[-1] in WORDS and isinstance(value, str) and not free.is_word_free(place):
        if not value.startswith(NAMING):
            yield "another word", place, lambda value: f"{value}z"
        yield "an unrecognised word", place, lambda _: "unknown"


_OTHER_KINDS: dict[type, tuple[str, ...]] = {
    bool: ("text", "a number"),
    int: ("text",),
    float: ("text",),
    str: ("a number", "an object"),
    list: ("text", "a number", "an object"),
    dict: ("text", "a number", "a list"),
}
_RETYPE: dict[str, Callable[[Any], Any]] = {
    "text": json.dumps,
    "a number": lambda _: 7,
    "a list": lambda value: list(value.values()) if isinstance(value, dict) else [value],
    "an object": lambda value: {str(index): member for index, member in enumerate(value)} if isinstance(value, list) else {"value": value},
}


def _renamed(parent: dict[str, Any], key: str, name: str) -> dict[str, Any]:
    while name in parent:
        name += "_"
    return {name if known == key else known: value for known, value in parent.items()}


def apply(document: Any, mutation: Mutation) -> Any:
    """The document with one change."""
    name, place, change = mutation
    return _changed(document, place[:-1] if name.startswith("rename") else place, change)


def _changed(value: Any, place: Place, change: Callable[[Any], Any]) -> Any:
    if not place:
        return change(value)
    step, rest = place[0], place[1:]
    if isinstance(value, str) and step == JSON:
        return json.dumps(_changed(json.loads(value), rest, change))
    if isinstance(value, dict) and step in value:
        return {**value, step: _changed(value[step], rest, change)}
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return [*value[:step], _changed(value[step], rest, change), *value[step + 1 :]]
    raise LookupError(step)  # an earlier change took the place away


def at(document: Any, place: Place) -> Any:
    """The value at a place."""
    for step in place:
        document = json.loads(document) if step == JSON else document[step]
    return document


def describe(mutation: Mutation) -> str:
    """The description of a change."""
    return f"{mutation[0]} at {'.'.join(map(str, mutation[1]))}"
