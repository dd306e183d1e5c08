"""Reads the arguments of a tool by its schema and reports all mistakes at once.

Models make certain mistakes all the time, and these are forgiven: names in snake_case, null for what is left out, JSON written as text
where an object or a list belongs, a whole number written with a decimal point.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import cast

from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.show import kind_of, nearest, show
from proctor.service.refusals import Refusal
from proctor.store.sql.compressed_json import from_json

AS_WRITTEN = frozenset(
    {"assertion", "assert", "config", "task_item", "scenario", "evidence", "axes", "metadata", "settings", "state", "credentials"}
)
"""Fields with user content."""

_HUMP = re.compile(r"(?<=[A-Za-z0-9])([A-Z])")
_DEEPEST = 12


def to_snake(name: str) -> str:
    """`taskId` as `task_id`."""
    return _HUMP.sub(lambda found: f"_{found[1].lower()}", name)


def to_camel(name: str) -> str:
    """`task_id` as `taskId`; a name that begins with `_` stays."""
    if name.startswith("_"):
        return name
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def camel(value: Json, depth: int = 0) -> Json:
    """Return a record of the service, or a page of them, in camelCase."""
    if depth > _DEEPEST:
        return value
    if isinstance(value, list):
        return [camel(entry, depth + 1) for entry in cast(list[Json], value)]
    if not isinstance(value, dict):
        return value
    fields = cast(dict[str, Json], value)
    # In a page `data` holds records; in a record it holds user content.
    is_page = "_meta" in fields
    return {to_camel(name): entry if _is_foreign(name, entry, is_page) else camel(entry, depth + 1) for name, entry in fields.items()}


def _is_foreign(name: str, entry: Json, is_page: bool) -> bool:
    if name == "data":
        return not is_page
    if name == "entities" and isinstance(entry, list):
        # Entities in the snapshot of a task have their fields next to their id.
        return any(not isinstance(one, dict) or "dataset_id" not in one for one in cast(list[Json], entry))
    return name in AS_WRITTEN


def camel_path(path: str) -> str:
    """Return the place of a mistake: `input_entity_id` as `inputEntityId`; deeper names belong to the author."""
    head, mark, rest = re.match(r"([^.\[]*)([.\[]?)(.*)", path, re.DOTALL).groups()  # type: ignore[union-attr]  # matches anything
    return f"{to_camel(head)}{mark}{rest}"


Schema = dict[str, Json]
_WORDS = {
    "string": "text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}
_LONGEST_JSON = 1_000_000
_MOST_NAMED = 50
"""Mistakes named in an answer."""


def read_arguments(
    given: Mapping[str, Json],
    properties: Mapping[str, Schema],
    *,
    allowed: Collection[str],
    required: Collection[str] = (),
    clears: bool = False,
    what: str,
) -> dict[str, Json]:
    """Return the arguments by the names of the service. `clears`: null is a value."""
    wrong: dict[str, list[str]] = {}
    found: dict[str, Json] = {}
    names = {to_snake(name): name for name in allowed}
    for written, value in given.items():
        name = names.get(to_snake(written))
        # The nearest name is searched per unknown name, of which there may be many.
        if name is None and len(wrong) >= _MOST_NAMED:
            continue
        if name is None:
            wrong[written] = [_unknown(written, allowed, properties, what)]
        elif to_snake(name) in found:
            wrong[name] = [f"given twice, also as {written!r}"]
        elif value is None and not (clears and _takes_null(properties[name])):
            if name in required or clears:
                wrong[name] = ["expected a value, got null"]
        else:
            try:
                found[to_snake(name)] = _read(value, properties[name])
            except ValueError as error:
                wrong[name] = [str(error)]
    for name in required:
        if to_snake(name) not in found and name not in wrong:
            wrong[name] = ["required"]
    if wrong:
        name, texts = next(iter(wrong.items()))
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise Refusal("VALIDATION_ERROR", f"{what} cannot be called like this: {name}: {texts[0]}{more}", fields=wrong)
    return found


def _unknown(written: str, allowed: Collection[str], properties: Mapping[str, Schema], what: str) -> str:
    if to_camel(to_snake(written)) in properties:
        return f"{what} does not take it; it takes {', '.join(allowed) or 'nothing'}"
    close = nearest(written, allowed)
    expected = f"nearest: {', '.join(close)}" if close else f"it takes {', '.join(allowed) or 'nothing'}"
    return f"unknown parameter of {what}; {expected}"


def _takes_null(schema: Schema) -> bool:
    return "type" not in schema or "null" in _kinds(schema)


def _kinds(schema: Schema) -> list[str]:
    kinds: Json = schema.get("type", list(_WORDS))
    return [kinds] if isinstance(kinds, str) else kinds


def _read(value: Json, schema: Schema) -> Json:
    kinds = _kinds(schema)
    # Models often send an object as JSON text; accepted where no text is expected.
    if isinstance(value, str) and "string" not in kinds and value.lstrip()[:1] in ("{", "[") and len(value) <= _LONGEST_JSON:
        try:
            value = from_json(value)
        except Exception:
            raise ValueError("it begins like JSON, but is none") from None
    if not any(_is(value, kind) for kind in kinds):
        raise ValueError(f"expected {' or '.join(_WORDS[kind] for kind in kinds)}, got {kind_of(value)}")
    if isinstance(value, float) and "number" not in kinds:
        value = int(value)
    words: list[Json] | None = schema.get("enum")
    if words is not None and value not in words:
        close = nearest(str(value), [str(word) for word in words])
        hint = f"; nearest: {', '.join(close)}" if close else ""
        raise ValueError(f"expected one of {', '.join(str(word) for word in words)}, got {show(value, 60)}{hint}")
    if is_number(value):
        _check_range(value, schema)
    return value


def _check_range(value: float, schema: Schema) -> None:
    least, most = schema.get("minimum"), schema.get("maximum")
    if (least is not None and value < least) or (most is not None and value > most):
        bounds = [f"at least {least}" if least is not None else "", f"at most {most}" if most is not None else ""]
        raise ValueError(f"expected {' and '.join(bound for bound in bounds if bound)}, got {show(value, 40)}")


def _is(value: Json, kind: str) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "number":
            return is_number(value)
        case "integer":
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return whole and not isinstance(value, bool)
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case _:
            return value is None


def texts(value: Json) -> list[str]:
    """The entries of a list that are texts."""
    return [entry for entry in cast(list[Json], value or []) if isinstance(entry, str)]
