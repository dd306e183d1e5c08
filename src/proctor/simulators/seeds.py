"""What the simulated systems read from a suite: seeds and steps. What cannot be used is a `SpecError` that names its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import cast

from proctor.errors import SpecError
from proctor.expressions.scope import NO_SCOPE
from proctor.matchers.compile import compile_expected, holds_matcher
from proctor.matchers.equal import find_difference
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, Missing, is_number
from proctor.model.show import kind_of, nearest, show

_ALIKE = 0.85
"""How much of two names is the same from which on one is a slip of the other."""


class NotHeld(SpecError):
    """A step names something that the system does not hold: whether it will is known only when the system is filled."""


def read_members(value: Json, known: Iterable[str], at: str = "", *, required: Iterable[str] = ()) -> dict[str, Json]:
    """Return an object whose members all are known."""
    if not isinstance(value, dict):
        raise SpecError(f"expected an object, found {kind_of(value)}", field=at or None)
    given = cast("dict[str, Json]", value)
    names = tuple(known)
    for name in given:
        if name not in names:
            raise SpecError(
                f"unknown key {show(name)}; there are {', '.join(names)}", field=join_place(at, name), nearest=nearest(name, names)
            )
    for name in required:
        if name not in given:
            raise SpecError(f"{name} is missing", field=at or None)
    return given


def read_condition(value: Json, at: str) -> dict[str, Json]:
    """Return the values that something must have: literals, matchers, or null for a value that is absent or null."""
    given = {} if value is None else read_members(value, value if isinstance(value, dict) else (), at)
    for name, wanted in given.items():
        if holds_matcher(wanted):
            compile_expected(wanted, field=join_place(at, name))
    return given


def holds_condition(wanted: Mapping[str, Json], find: Callable[[str], Json | Missing]) -> bool:
    """Return whether every value that `find` gives for a name is as wanted."""
    return all(_is_as_wanted(expected, find(name)) for name, expected in wanted.items())


def _is_as_wanted(expected: Json, actual: Json | Missing) -> bool:
    if expected is None or actual is MISSING:
        return expected is None and actual in (None, MISSING)
    if holds_matcher(expected):
        return compile_expected(expected).find_mismatch(actual, NO_SCOPE, "$") is None
    return find_difference(expected, actual) is None


def refuse_slips(given: Iterable[str], known: Iterable[str], at: str) -> None:
    """Refuse a name that is a slip of a known one, where others are an author's own."""
    from difflib import SequenceMatcher  # costs a regex compile

    names = tuple(known)
    for name in given:
        for one in names if name not in names else ():
            # Letters that changed places are alike, too. Less alike are `provider_name` and `provider_npi`, which are two things.
            if sorted(name) == sorted(one) or SequenceMatcher(None, name[:200], one).ratio() >= _ALIKE:
                raise SpecError(f"unknown key {show(name)}; did you mean {one}?", field=join_place(at, name), nearest=(one,))


def read_items(value: Json, at: str = "") -> Iterator[tuple[str, Json]]:
    """Yield the items of a list, each with its place; nothing is an empty list."""
    if value is None:
        return
    if not isinstance(value, list):
        raise SpecError(f"expected a list, found {kind_of(value)}", field=at or None)
    for index, item in enumerate(cast("list[Json]", value)):
        yield join_place(at, str(index)), item


def read_word(value: Json, at: str, *, default: str | None = None, among: Iterable[str] = ()) -> str:
    """Return text, or a number as text."""
    if value is None and default is not None:
        return default
    text = str(value) if is_number(value) else value
    if not isinstance(text, str) or (default is None and not text.strip()):
        raise SpecError(f"expected text, found {'nothing' if value is None else show(value)}", field=at)
    words = tuple(among)
    if words and text not in words:
        raise SpecError(f"expected one of {', '.join(words)}, found {show(text)}", field=at, nearest=nearest(text, words))
    return text


def read_flag(value: Json, at: str, *, default: bool = False) -> bool:
    """Return true or false."""
    if value is None:
        return default
    if not isinstance(value, bool):
        raise SpecError(f"expected true or false, found {show(value)}", field=at)
    return value


def refuse_doubles(names: Iterable[tuple[str, str]], what: str) -> None:
    """Refuse a name that comes twice in one seed; each comes with its place. Of two only one would be there."""
    seen: dict[str, str] = {}
    for at, name in names:
        if name in seen:
            raise SpecError(f"{what} {show(name)} is there twice; the first one is {seen[name]}", field=at)
        seen[name] = at


def join_place(at: str, name: str) -> str:
    """Return the place of a member."""
    return f"{at}.{name}" if at else name
