"""The JSON Schema of the native format, generated from the registry so that it is always up to date.

Editors use it to complete and check a suite while it is written: put `# yaml-language-server: $schema=...` at the top of the file.
"""

from __future__ import annotations

import ast
import functools
import sys

import msgspec
from msgspec import inspect as mi

from proctor.checks.registry import CheckEntry, Registry
from proctor.formats.native.cases import ASSERTION_KEYS, CASE_KEYS
from proctor.formats.native.rows import BLOCK_KEYS
from proctor.formats.native.suite import SUITE_KEYS
from proctor.formats.native.systems import build_systems_schema
from proctor.formats.native.user import build_user_schema
from proctor.formats.text.building import describe_struct_type
from proctor.formats.text.located import MAX_WEIGHT
from proctor.formats.text.row_shapes import TYPES
from proctor.model.case import Capture, Scoring, Skip
from proctor.model.evidence import Json
from proctor.model.mapping import EvidenceSettings

# --- the sentence under a field, read back for reference pages, `describe` and the schema


@functools.cache
def read_field_docs(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Return the docstring of each field by name, including inherited ones; empty if there is no source."""
    docs: dict[str, str] = {}
    for each in reversed(struct.__mro__):
        if issubclass(each, msgspec.Struct) and each is not msgspec.Struct:
            docs |= _read_own_docs(each)
    return docs


def _read_own_docs(struct: type[msgspec.Struct]) -> dict[str, str]:
    import inspect  # only reference pages and `describe` come here

    module = sys.modules.get(struct.__module__)
    try:
        tree = ast.parse(inspect.getsource(module)) if module is not None else None
    # Installed without sources, or typed into a prompt: then only these sentences are missing.
    except (OSError, TypeError, SyntaxError):
        return {}
    for item in ast.walk(tree) if tree is not None else ():
        if isinstance(item, ast.ClassDef) and item.name == struct.__name__:
            docs: dict[str, str] = {}
            for field, following in zip(item.body, item.body[1:], strict=False):
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(field.target, ast.Name)
                    and isinstance(following, ast.Expr)
                    and isinstance(following.value, ast.Constant)
                    and isinstance(following.value.value, str)
                ):
                    docs[field.target.id] = " ".join(following.value.value.split())
            return docs
    return {}


DIALECT = "https://json-schema.org/draft/2020-12/schema"

_TEXT: dict[str, Json] = {"type": "string"}
_OBJECT: dict[str, Json] = {"type": "object"}

_ASSERTION_FIELDS: dict[str, Json] = {
    "id": {**_TEXT, "minLength": 1, "description": "A name for this assertion, unique in the case."},
    "label": {**_TEXT, "description": "What reports call this assertion."},
    "weight": {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": MAX_WEIGHT,
        "default": 1,
        "description": "How much it counts in a weighted score.",
    },
    "axis": {**_TEXT, "description": "The axis its score belongs to."},
    "required": {"type": "boolean", "default": False, "description": "If it fails, the case fails whatever the mean."},
    "advisory": {"type": "boolean", "default": False, "description": "Reported, but it never gates."},
    "when_missing": {
        "enum": ["fail", "error", "skip"],
        "description": "The outcome when the evidence was not recorded; left out: fail, or error for a claim that needs absence.",
    },
    "depends_on": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}], "description": "Skip this unless these passed."},
    "because": {**_TEXT, "description": "Why this is claimed: a note, or the rule and the recordings it was generated from."},
}


def build_native_schema(registry: Registry) -> dict[str, Json]:
    """Return the schema of a whole suite file."""
    # The schema is closed: editors would underline a key that the reader accepts and the schema lacks.
    assert set(_ASSERTION_FIELDS) == set(ASSERTION_KEYS)
    defs: dict[str, Json] = {
        "assertion": {
            "anyOf": [
                {"enum": [entry.name for entry in registry if not any(f.required for f in describe_struct_type(entry.spec).fields)]},
                *({"$ref": f"#/$defs/assert_{entry.name}"} for entry in registry),
            ]
        },
        "assertions": {"anyOf": [{"$ref": "#/$defs/assertion"}, {"type": "array", "items": {"$ref": "#/$defs/assertion"}}]},
        "case": _build_case_schema(),
        "user": build_user_schema(),
        "systems": build_systems_schema(),
        "rows": _build_rows_schema(),
        "turn": {
            "anyOf": [
                _TEXT,
                {**_make_closed_object({"input": _TEXT, "expect": {"$ref": "#/$defs/assertions"}}), "required": ["input"]},
            ]
        },
        "scoring": {"anyOf": [{"enum": ["boolean", "weighted"]}, build_type_schema(describe_struct_type(Scoring))]},
        "tags": {"anyOf": [_TEXT, _OBJECT, {"type": "array", "items": _TEXT}]},
    }
    for entry in registry:
        defs[f"assert_{entry.name}"] = _build_assertion_schema(entry)
    properties = _build_suite_properties()
    assert set(properties) == set(SUITE_KEYS)
    return {
        "$schema": DIALECT,
        "title": "proctor suite",
        "description": "A suite of cases for proctor, native format version 1.",
        **_make_closed_object(properties),
        "required": ["proctor", "cases"],
        "$defs": defs,
    }


def _build_suite_properties() -> dict[str, Json]:
    cases, rows = {"$ref": "#/$defs/case"}, {"$ref": "#/$defs/rows"}
    return {
        "proctor": {"const": 1, "description": "The version of the format."},
        "name": _TEXT,
        "description": _TEXT,
        "context": {**_OBJECT, "description": "Variables for every case."},
        "systems": {"$ref": "#/$defs/systems", "description": "Simulated systems for every case."},
        "timezone": {**_TEXT, "description": "An IANA zone, for dates."},
        "scoring": {"$ref": "#/$defs/scoring"},
        "tags": {"$ref": "#/$defs/tags"},
        "matrix": {
            "type": "object",
            "additionalProperties": {"anyOf": [{"type": "array", "minItems": 1}, {"type": "object", "minProperties": 1}]},
            "description": "Axes (models, prompts, targets, ...) with their values: every case once for each combination.",
        },
        "evidence": {
            **build_type_schema(describe_struct_type(EvidenceSettings), docs=read_field_docs(EvidenceSettings)),
            "description": "Where the evidence is in a log of your own format, and which parts of it are complete.",
        },
        "cases": {
            "anyOf": [
                {"type": "array", "items": {"anyOf": [cases, rows]}},
                rows,
                {"type": "object", "additionalProperties": cases},
            ]
        },
        "targets": _OBJECT,
        "default_target": _TEXT,
        "models": _OBJECT,
        "judge": _OBJECT,
        "settings": _OBJECT,
    }


def _build_case_schema() -> dict[str, Json]:
    properties: dict[str, Json] = {
        "id": {**_TEXT, "description": "Unique in the suite."},
        "name": _TEXT,
        "description": _TEXT,
        "input": {**_TEXT, "description": "The message to the agent."},
        "turns": {"type": "array", "items": {"$ref": "#/$defs/turn"}, "description": "The messages of a conversation, in order."},
        "user": {"$ref": "#/$defs/user"},
        "body": {"description": "A request body sent exactly as written."},
        "context": _OBJECT,
        "systems": {"$ref": "#/$defs/systems", "description": "The simulated systems that the agent works in."},
        "timezone": _TEXT,
        "tags": {"$ref": "#/$defs/tags"},
        "expect": {"$ref": "#/$defs/assertions", "description": "What must be true afterwards."},
        "extract": {
            "anyOf": [
                {"type": "object", "additionalProperties": _TEXT},
                {"type": "array", "items": build_type_schema(describe_struct_type(Capture))},
            ]
        },
        "scoring": {"$ref": "#/$defs/scoring"},
        "skip": {"anyOf": [{"type": "boolean"}, _TEXT, build_type_schema(describe_struct_type(Skip))]},
        "repeat": {"type": "integer", "minimum": 1},
        "pass_rate": {"type": "number", "minimum": 0, "maximum": 1},
        "settings": _OBJECT,
    }
    assert set(properties) == set(CASE_KEYS)
    return _make_closed_object(properties)


def _build_rows_schema() -> dict[str, Json]:
    """Return the schema of cases from data. A placeholder may stand for a value of any type, so only the keys of the template are known."""
    template = dict.fromkeys(CASE_KEYS, True)
    properties: dict[str, Json] = {
        "from": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}], "description": "A data file, relative to the suite."},
        "as": {**_make_closed_object(template), "description": "A case in which {column} is replaced by a value of the row."},
        "types": {"type": "object", "additionalProperties": {"enum": list(TYPES)}, "description": "The type of the cells of a column."},
        "prompt": {**_TEXT, "description": "The message of every test of a file of promptfoo, with {{variables}}."},
        "sheet": {**_TEXT, "description": "The sheet of an Excel file."},
        "split": {**_TEXT, "description": "The split of a data set."},
        "delimiter": {**_TEXT, "minLength": 1, "maxLength": 1, "description": "The delimiter of a CSV file."},
        "limit": {"type": "integer", "minimum": 1, "description": "The maximum number of rows."},
    }
    assert set(properties) == set(BLOCK_KEYS)
    return {**_make_closed_object(properties), "required": ["from"]}


def _build_assertion_schema(entry: CheckEntry) -> dict[str, Json]:
    full = build_type_schema(describe_struct_type(entry.spec), docs=read_field_docs(entry.spec))
    forms: list[Json] = [full]
    if entry.shorthand is not None:
        forms.append(build_type_schema(next(f.type for f in describe_struct_type(entry.spec).fields if f.name == entry.shorthand)))
    if not any(field.required for field in describe_struct_type(entry.spec).fields):
        forms.append({"type": "null"})
    if not describe_struct_type(entry.spec).fields:
        forms.append({"const": True})
    value = {"description": entry.summary, **(forms[0] if len(forms) == 1 else {"anyOf": forms})}
    return {**_make_closed_object({entry.name: value, **_ASSERTION_FIELDS}), "required": [entry.name]}


def build_type_schema(info: mi.Type, docs: dict[str, str] | None = None) -> dict[str, Json]:
    """Return the schema of one described type, as `building` accepts it."""
    match info:
        case mi.StructType():
            properties = {}
            for field in info.fields:
                schema = build_type_schema(field.type, read_field_docs(field.type.cls) if isinstance(field.type, mi.StructType) else None)
                properties[field.encode_name] = {**schema, "description": docs[field.name]} if docs and field.name in docs else schema
            return {**_make_closed_object(properties), "required": [field.encode_name for field in info.fields if field.required]}
        case mi.LiteralType():
            return {"enum": list(info.values)}
        case mi.VarTupleType() | mi.ListType():
            # One bare value means a list of one, as in `building`.
            item = build_type_schema(info.item_type)
            return {"anyOf": [{"type": "array", "items": item}, item]}
        case mi.DictType():
            return {"type": "object", "additionalProperties": build_type_schema(info.value_type)}
        case mi.UnionType():
            # A choice that accepts anything makes the others pointless.
            choices = [build_type_schema(choice) for choice in info.types if "Unset" not in type(choice).__name__]
            return choices[0] if len(choices) == 1 else {} if {} in choices else {"anyOf": choices}
        case mi.StrType():
            return {"type": "string"}
        case mi.BoolType():
            return {"type": "boolean"}
        case mi.IntType():
            return {"type": "integer"}
        case mi.FloatType():
            return {"type": "number"}
        case mi.NoneType():
            return {"type": "null"}
        case _:
            return {}


def _make_closed_object(properties: dict[str, Json]) -> dict[str, Json]:
    return {"type": "object", "additionalProperties": False, "properties": properties}
