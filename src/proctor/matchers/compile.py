"""Compiles expected values once, for many comparisons.

A literal equals itself, with three additions at any depth: `"*"` means any present value, lists compare in any order, and an object can be
a matcher. An object is a matcher if its key `matcher` is text, or if all its keys begin with `$`. An unknown matcher or key is rejected
with the nearest name; an object that only looks like a matcher is written as `{$object: {...}}`. Several `$` matchers in one object must
all fit: `{$gte: 1, $lt: 5}`.
"""

from __future__ import annotations

from proctor.errors import SpecError
from proctor.matchers.expected import Expected, Object, Optional, Present, Scalar
from proctor.matchers.form import Form, Matcher
from proctor.matchers.lists import DEEPEST, MatcherList, PlainList
from proctor.matchers.mismatch import Mismatch
from proctor.matchers.ordering import ORDER_MATCHERS
from proctor.matchers.structures import STRUCTURE_MATCHERS, TEXT_MATCHERS, AllOf
from proctor.model.evidence import Json
from proctor.model.show import kind_of, nearest

__all__ = ["MATCHERS", "Expected", "Mismatch", "compile_expected", "holds_matcher"]

WILDCARD = "*"
_LOOKED_THROUGH = 200
"""The maximum number of levels of an expected value that are searched for matchers."""
MATCHERS: dict[str, Matcher] = {entry.name: entry for entry in (*STRUCTURE_MATCHERS, *TEXT_MATCHERS, *ORDER_MATCHERS)}
"""Every matcher, by name; the reference pages are made from this table."""
_SHORT_EXTRAS = (
    "$optional",
    "$expr",
    *(f"${key}" for entry in MATCHERS.values() for key in entry.keys if key not in ("value", "variants")),
)


def compile_expected(value: Json, *, field: str = "value") -> Expected:
    """Return an expected value ready to compare; an invalid part raises `SpecError` with a dotted field."""
    return _compile(value, field, 0)


def holds_matcher(value: Json) -> bool:
    """Return whether a value is or contains an object that reads as a matcher."""
    level: list[Json] = [value]
    for _ in range(_LOOKED_THROUGH):
        following: list[Json] = []
        for entry in level:
            if isinstance(entry, dict):
                if isinstance(entry.get("matcher"), str) or (entry and all(isinstance(key, str) and key.startswith("$") for key in entry)):
                    return True
                following.extend(entry.values())
            elif isinstance(entry, list):
                following.extend(entry)
        if not following:
            return False
        level = following
    return False


def _compile(value: Json, field: str, depth: int) -> Expected:
    if depth > DEEPEST:
        raise SpecError(f"an expected value nested more than {DEEPEST} deep", field=field)
    if isinstance(value, dict):
        if isinstance(value.get("matcher"), str):
            return _compile_worded(value, field, depth)
        # All keys, not just some: `{"$ref": ..., "type": ...}` is an ordinary object of a JSON Schema.
        if value and all(key.startswith("$") for key in value):
            return _compile_short(value, field, depth)
        return Object(value, {key: _compile(item, f"{field}.{key}", depth + 1) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        elements = tuple(_compile(item, f"{field}.{index}", depth + 1) for index, item in enumerate(value))
        return (PlainList if all(element.plain for element in elements) else MatcherList)(list(value), elements)
    if value == WILDCARD:
        return Present(value)
    return Scalar(value, plain=True)


def _compile_worded(value: dict[str, Json], field: str, depth: int) -> Expected:
    name = value["matcher"]
    if (entry := MATCHERS.get(name)) is None:
        raise SpecError(
            f"unknown matcher {name!r}; expected one of {', '.join(MATCHERS)}",
            field=f"{field}.matcher",
            nearest=nearest(name, MATCHERS),
            hint="an object that is no matcher but has this key is written {matcher: object, value: {...}}",
        )
    allowed = ("matcher", "optional", *entry.keys)
    for key in value:
        if key not in allowed:
            raise SpecError(
                f"unknown key {key!r} in matcher {name!r}; expected {', '.join(allowed)}",
                field=f"{field}.{key}",
                nearest=nearest(key, allowed),
            )
    keys = {key: item for key, item in value.items() if key not in ("matcher", "optional")}
    form = Form(name=name, keys=keys, places={key: f"{field}.{key}" for key in value}, field=field, raw=value)
    return _compile_optional(_build(entry, form, depth), value, "optional", field)


def _compile_short(value: dict[str, Json], field: str, depth: int) -> Expected:
    named = [key[1:] for key in value if key[1:] in MATCHERS]
    if "$expr" in value:
        named.append("exact")
    owners: dict[str, list[str]] = {name: [] for name in named}
    for key in value:
        if key == "$optional" or key == "$expr" or key[1:] in MATCHERS:
            continue
        # These three are already carried by the matcher's own key or `$expr`; written out they would be given twice.
        takers = [name for name in named if key[1:] in MATCHERS[name].keys and key[1:] not in ("value", "variants", "expression")]
        if not takers:
            known = (*(f"${name}" for name in MATCHERS), *_SHORT_EXTRAS)
            others = f" next to {', '.join(f'${name}' for name in named)}" if named and key in known else ""
            raise SpecError(
                f"unknown matcher {key!r}{others}",
                field=f"{field}.{key}",
                nearest=() if others else nearest(key, known),
                hint="an object whose keys really begin with $ is written {$object: {...}}",
            )
        for name in takers:
            owners[name].append(key)
    if not named:
        raise SpecError(f"{', '.join(value)} needs a matcher next to it", field=field)
    parts = [_compile_short_one(name, value, owners[name], field, depth) for name in named]
    return _compile_optional(parts[0] if len(parts) == 1 else AllOf(value, tuple(parts)), value, "$optional", field)


def _compile_short_one(name: str, value: dict[str, Json], extras: list[str], field: str, depth: int) -> Expected:
    entry = MATCHERS[name]
    main = f"${name}" if f"${name}" in value else "$expr"
    argument, place = value[main], f"{field}.{main}"
    keys: dict[str, Json] = {}
    places: dict[str, str] = {}
    if main == "$expr":
        keys["expression"], places["expression"] = argument, place
    elif name == "any":
        if argument is not True:
            raise SpecError(f"$any takes only true, found {kind_of(argument)}", field=place)
    # Only for matchers that accept an expression; for others `{$expr: ...}` is a nested matcher.
    elif "expression" in entry.keys and isinstance(argument, dict) and set(argument) == {"$expr"}:
        keys["expression"], places["expression"] = argument["$expr"], f"{place}.$expr"
    else:
        key = "variants" if "variants" in entry.keys else "value"
        keys[key], places[key] = argument, place
    for extra in extras:
        keys[extra[1:]], places[extra[1:]] = value[extra], f"{field}.{extra}"
    return _build(entry, Form(name=name, keys=keys, places=places, field=field, raw=value), depth)


def _build(entry: Matcher, form: Form, depth: int) -> Expected:
    built = entry.build(form, lambda value, field: _compile(value, field, depth + 1))
    built.plain = False  # Written as a matcher, so its text is not its value.
    return built


def _compile_optional(inner: Expected, value: dict[str, Json], key: str, field: str) -> Expected:
    wanted = value.get(key, False)
    if not isinstance(wanted, bool):
        raise SpecError(f"{key!r} must be true or false, found {kind_of(wanted)}", field=f"{field}.{key}")
    return Optional(inner, value) if wanted else inner
