"""n8n expressions in the parameters of a node, resolved by lookup alone.

A parameter that begins with `=` is an expression: text with parts in `{{ }}`. Resolved are plain paths:

    $json.a.b   $json["a"].b[0]   $input.item.json.a   $input.first().json.a
    $('Node').item.json.a   $('Node').first().json.a   $node["Node"].json.a

One part that fills the whole text keeps its JSON type. Everything else (calculations, functions, unknown nodes, absent values) stays as it
is written and is reported with the verdict. A node that got several items ran for each of them: its parameters are resolved for each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from proctor.evidence.values.text import as_text
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, Missing

_DEPTH = 32
"""Levels of parameters that are resolved; they are walked by recursion."""

_QUOTED = r"""(?:"([^"\\]*)"|'([^'\\]*)')"""
_CURRENT = re.compile(r"\$json|\$input\s*\.\s*(?:item|first\(\))\s*\.\s*json")
_NEW_NAMED = r"\$\(\s*" + _QUOTED + r"\s*\)\s*\.\s*(?:item|first\(\))"
_OLD_NAMED = r"\$node\s*(?:\[\s*" + _QUOTED + r"\s*\]|\.\s*([A-Za-z_$][\w$]*))"
_NAMED = re.compile(rf"(?:{_NEW_NAMED}|{_OLD_NAMED})\s*\.\s*json")
_STEP = re.compile(r"\s*(?:\??\.\s*([A-Za-z_$][\w$]*)|(?:\?\.)?\[\s*(?:" + _QUOTED + r"|(\d{1,9}))\s*\])")
_MAX_ITEMS = 1000
"""Items of a node for which its parameters are resolved."""


class Outputs(msgspec.Struct, frozen=True):
    """What expressions may refer to: items that `$json` can mean, nearest first, and the outputs of nodes by name."""

    current: Sequence[Json]
    named: Mapping[str, Json]
    first: Outputs | None = None
    """The same for the first item, where this is for another: what `first()` refers to."""


class Resolved(msgspec.Struct, frozen=True):
    """Parameters with what could be resolved, and a note for each expression left as written."""

    value: Json
    notes: tuple[str, ...] = ()
    more: tuple[Json, ...] = ()
    """The parameters of other items, where they differ."""


def resolve(parameters: Json, outputs: Outputs, *, only_parts: bool = False) -> Resolved:
    """Return parameters with every expression in them resolved; with `only_parts` an expression is only what contains a part in `{{ }}`."""
    notes: list[str] = []
    value = _resolve(parameters, outputs, "", notes, 0, "{{" if only_parts else "=")
    return Resolved(value, tuple(notes))


def resolve_for_items(
    parameters: Json, current: Sequence[Sequence[Json]], named: Mapping[str, Sequence[Json]], *, only_parts: bool = False
) -> Resolved:
    """Return the parameters of the first item, and what is different for other items; each source is given with all its items."""
    outputs = Outputs([items[0] for items in current], {name: items[0] for name, items in named.items()})
    first = resolve(parameters, outputs, only_parts=only_parts)
    # Every item has the same parameters then, so one is enough.
    if not has_expression(parameters):
        return first
    most = max((len(items) for items in (*current, *named.values())), default=1)
    more: dict[str, Json] = {}
    notes = dict.fromkeys(first.notes)
    for index in range(1, min(_MAX_ITEMS, most)):
        own = {name: _pick_item(items, index) for name, items in named.items()}
        resolved = resolve(parameters, Outputs([_pick_item(items, index) for items in current], own, outputs), only_parts=only_parts)
        notes.update(dict.fromkeys(resolved.notes))
        if resolved.value != first.value:
            # Each different value once: a thousand items mostly share a few. `repr` distinguishes 1 from true, which compare as equal.
            more[repr(resolved.value)] = resolved.value
    if most > _MAX_ITEMS:
        notes[f"the expressions in the parameters were resolved for {_MAX_ITEMS:,} of {most:,} items"] = None
        return Resolved(first.value, tuple(notes), (*more.values(), parameters))
    return Resolved(first.value, tuple(notes), tuple(more.values()))


def _pick_item(items: Sequence[Json], index: int) -> Json:
    # A source with fewer items is taken for one that all items share, such as the trigger.
    return items[index] if index < len(items) else items[0]


def has_expression(parameters: Json, depth: int = 0) -> bool:
    """Return whether an expression with a part in `{{ }}` is anywhere in parameters."""
    if isinstance(parameters, str):
        return parameters.startswith("=") and "{{" in parameters
    members = parameters.values() if isinstance(parameters, dict) else parameters if isinstance(parameters, list) else ()
    return depth < _DEPTH and any(has_expression(member, depth + 1) for member in members)


def _resolve(value: Json, outputs: Outputs, field: str, notes: list[str], depth: int, mark: str) -> Json:
    if isinstance(value, str):
        return _resolve_text(value, outputs, field, notes) if value.startswith("=") and mark in value else value
    if depth >= _DEPTH:
        return value
    if isinstance(value, dict):
        return {key: _resolve(member, outputs, f"{field}.{key}" if field else key, notes, depth + 1, mark) for key, member in value.items()}
    if isinstance(value, list):
        return [_resolve(member, outputs, f"{field}[{index}]", notes, depth + 1, mark) for index, member in enumerate(value)]
    return value


def _resolve_text(written: str, outputs: Outputs, field: str, notes: list[str]) -> Json:
    parts: list[Json] = []
    rest = written[1:]
    while True:
        before, opened, after = rest.partition("{{")
        if before:
            parts.append(before)
        if not opened:
            break
        inside, closed, rest = after.partition("}}")
        found = _look_up(inside.strip(), outputs) if closed else MISSING
        if isinstance(found, Missing):
            notes.append(f"parameter {field}: expression {written} was not resolved")
            return written
        parts.append(found)
    if len(parts) == 1:
        return parts[0]
    return "".join(as_text(part) or "" for part in parts)


def _look_up(expression: str, outputs: Outputs) -> Json | Missing:
    found = _CURRENT.match(expression) or _NAMED.match(expression)
    if found is None:
        return MISSING
    if outputs.first is not None and "first()" in found.group():
        outputs = outputs.first
    name = next((group for group in found.groups() if group is not None), None)
    # `$json` has no name.
    items = outputs.current if name is None else [outputs.named[name]] if name in outputs.named else []
    values = (_walk(item, expression, found.end()) for item in items)
    return next((value for value in values if value is not MISSING), MISSING)


def _walk(value: Json, expression: str, at: int) -> Json | Missing:
    while at < len(expression):
        step = _STEP.match(expression, at)
        if step is None:
            return MISSING
        name, double, single, index = step.groups()
        key = next((group for group in (name, double, single) if group is not None), None)
        if index is not None and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        elif key is not None and isinstance(value, dict) and key in value:
            value = value[key]
        else:
            return MISSING
        at = step.end()
    return value
