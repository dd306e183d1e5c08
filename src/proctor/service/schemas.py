"""JSON Schemas of fields: derived from declared types, and values checked against them."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from msgspec import Meta

from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.show import kind_of, nearest, show

Schema = dict[str, Json]
"""A JSON Schema of one value, without references."""
_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array"}
_WORDS = {
    "string": "text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}


def derive_schema(hint: Any) -> Schema:
    """Return the schema of a declared type (`service/resource.py`): of the first one that is not null, with its description."""
    metas: list[Meta] = []
    while get_origin(hint) in (Annotated, Union, types.UnionType):
        parts = [part for part in get_args(hint) if part is not type(None)]
        metas += [part for part in parts if isinstance(part, Meta)]
        # An annotation may name the values of a text: `Annotated[str, Outcome]`.
        hint = next((part for part in parts if get_origin(part) is Literal), parts[0])
    described = {
        "description": next((meta.description for meta in metas if meta.description), None),
        "examples": next((meta.examples for meta in metas if meta.examples), None),
        "maxLength": next((meta.max_length for meta in metas if meta.max_length is not None), None),
    }
    if get_origin(hint) is Literal:
        schema: Schema = {"type": "string", "enum": list(get_args(hint))}
    else:
        schema = {"type": _TYPES.get(get_origin(hint) or hint, "object")}
        if schema["type"] == "array":
            schema["items"] = without_limits(derive_schema(get_args(hint)[0]))
    return {**schema, **{name: value for name, value in described.items() if value is not None}}


def without_limits(schema: Schema) -> Schema:
    """Return a schema without limits and descriptions."""
    copied_keys = {key: value for key, value in schema.items() if key in ("type", "enum", "additionalProperties")}
    return {**copied_keys, "items": without_limits(schema["items"])} if "items" in schema else copied_keys


def list_kinds(schema: Schema) -> list[str]:
    """Return the types of the values that fit a schema."""
    kinds: Json = schema.get("type", list(_WORDS))
    return [kinds] if isinstance(kinds, str) else kinds


def check_value(value: Json, schema: Schema) -> Json:
    """Return a value that fits a schema; a whole number may have been written with a decimal point. Raises `ValueError`."""
    kinds = list_kinds(schema)
    if not any(_has_kind(value, kind) for kind in kinds):
        raise ValueError(f"expected {' or '.join(_WORDS[kind] for kind in kinds)}, got {kind_of(value)}")
    if isinstance(value, float) and "number" not in kinds:
        value = int(value)
    if "enum" in schema and value not in schema["enum"]:
        raise ValueError(describe_wrong_word(value, [str(word) for word in schema["enum"]]))
    if isinstance(value, str):
        least, most = schema.get("minLength", 0), schema.get("maxLength")
        if (most is not None and not least <= len(value) <= most) or (least and not value.strip()):
            raise ValueError(f"expected {least} to {most} characters, got {len(value)}")
    elif isinstance(value, list) and "items" in schema:
        if len(cast(list[Json], value)) > schema.get("maxItems", len(value)):
            raise ValueError(f"expected at most {schema['maxItems']} entries, got {len(value)}")
        for entry in cast(list[Json], value):
            check_value(entry, schema["items"])
    elif is_number(value):
        least, above, most = schema.get("minimum"), schema.get("exclusiveMinimum"), schema.get("maximum")
        # So that NaN, which compares with nothing, is outside every limit.
        is_within = (least is None or least <= value) and (above is None or above < value) and (most is None or value <= most)
        if not is_within:
            bounds = (("at least", least), ("above", above), ("at most", most))
            expected = " and ".join(f"{word} {bound:,g}" for word, bound in bounds if bound is not None)
            raise ValueError(f"expected {expected}, got {show(value, 40)}")
    return value


def _has_kind(value: Json, kind: str) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "number":
            return is_number(value)
        case "integer":
            is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return is_whole and not isinstance(value, bool)
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case _:
            return value is None


def describe_wrong_word(value: Json, words: list[str]) -> str:
    """Return what is wrong with a value that is none of some words, with the nearest of them."""
    near = nearest(str(value), words)
    return f"expected one of {', '.join(words)}, got {show(value, 60)}" + (f"; nearest: {', '.join(near)}" if near else "")
