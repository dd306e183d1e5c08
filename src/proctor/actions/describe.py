"""What exists, in one shape for every kind: a name, a sentence, fields, an example.

The `describe` command and the reference pages are both written from here, so neither can fall behind the code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec import inspect as mi

from proctor.checks.registry import default_registry
from proctor.errors import InputError
from proctor.evidence.recognise import FORMATS
from proctor.expressions.functions import FUNCTIONS
from proctor.formats.building import type_of
from proctor.formats.field_docs import field_docs
from proctor.formats.native import ASSERTION_KEYS
from proctor.matchers.compile import MATCHERS
from proctor.model.show import nearest, show


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field, key or argument."""

    name: str
    kind: str = ""
    default: str | None = None
    """As it would be written; nothing when the field is required."""
    required: bool = False
    about: str = ""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that exists."""

    kind: str
    name: str
    summary: str
    fields: tuple[Field, ...] = ()
    example: str = ""
    notes: tuple[str, ...] = ()


DIALECT_SUMMARIES = {
    "native": "Our own format: `proctor: 1` at the top; the superset of the four dialects.",
    "mcplab": "MCPLab evaluation configs, test-case files and workspace folders (YAML).",
    "mibo": "Mibo test cases: one, a list, or `{test_cases: [...]}`; flat or record form (JSON).",
    "verial": "Verial tasks with criteria, benchmarks with tasks, or a list of criteria (JSON).",
    "mcpjam": "MCPJam suite files, or cases with `expectedToolCalls`, `matchOptions` and predicates (YAML or JSON).",
}


def checks() -> Iterable[Description]:
    """Every check, built in or from a plugin."""
    for entry in default_registry():
        notes = [f"`{entry.name}: value` is short for `{entry.name}: {{{entry.shorthand}: value}}`."] if entry.shorthand else []
        if entry.judged:
            notes.append("May need a judge.")
        if not entry.owner.startswith("proctor."):
            notes.append(f"From the plugin `{entry.owner}`.")
        yield Description(
            kind="checks",
            name=entry.name,
            summary=entry.summary,
            fields=_struct_fields(entry.spec),
            example=entry.example,
            notes=tuple(notes),
        )


def matchers() -> Iterable[Description]:
    """Every matcher."""
    for entry in sorted(MATCHERS.values(), key=lambda m: m.name):
        fields = tuple(Field(name=name, about=about) for name, about in entry.keys.items())
        example = f"{show(entry.short, 200)}\n{show(entry.example, 200)}"
        yield Description(kind="matchers", name=entry.name, summary=entry.summary, fields=fields, example=example)


def functions() -> Iterable[Description]:
    """Every function of the expression language."""
    for entry in sorted(FUNCTIONS.values(), key=lambda f: f.name):
        yield Description(kind="functions", name=entry.name, summary=entry.summary, example=entry.example, notes=(f"`{entry.signature}`",))


def formats() -> Iterable[Description]:
    """Every suite dialect."""
    for name, summary in DIALECT_SUMMARIES.items():
        yield Description(kind="formats", name=name, summary=summary, notes=(f"`--dialect {name}`",))


def evidence() -> Iterable[Description]:
    """Every shape of evidence."""
    for entry in FORMATS.values():
        yield Description(kind="evidence", name=entry.name, summary=entry.summary, notes=(f"`--evidence-format {entry.name}`",))


KINDS: dict[str, tuple[str, Callable[[], Iterable[Description]]]] = {
    "checks": ("the claims a suite can make", checks),
    "matchers": ("how an expected value is compared", matchers),
    "functions": ("what an expression can compute", functions),
    "formats": ("the suite dialects that can be read", formats),
    "evidence": ("the shapes of recorded runs that can be read", evidence),
}

ASSERTION_KEYS_NOTE = "Beside the check may stand: " + ", ".join(f"`{key}`" for key in ASSERTION_KEYS) + "."


def describe(kind: str, name: str | None = None) -> list[Description]:
    """All of a kind, or the one called `name`; raises `InputError` with the nearest word."""
    known = KINDS.get(kind) or KINDS.get(f"{kind}s")
    if known is None:
        raise _unknown("kind", kind, KINDS)
    found = list(known[1]())
    if name is None:
        return found
    for entry in found:
        if entry.name.lower() == name.lower():
            return [entry]
    raise _unknown(kind.removesuffix("s"), name, [entry.name for entry in found])


def _unknown(what: str, word: str, known: Iterable[str]) -> InputError:
    names = list(known)
    near = nearest(word, names)
    hint = f"; nearest: {', '.join(near)}" if near else f"; there are {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}"
    return InputError(f"unknown {what} {word!r}{hint}")


def _struct_fields(struct: type[msgspec.Struct]) -> tuple[Field, ...]:
    docs = field_docs(struct)
    return tuple(
        Field(
            name=field.encode_name,
            kind=kind_words(field.type),
            required=field.required,
            default=None if field.required else _default(field.default),
            about=docs.get(field.name, ""),
        )
        for field in type_of(struct).fields
    )


def _default(value: object) -> str | None:
    if value is msgspec.NODEFAULT or value is msgspec.UNSET or value is None:
        return None
    return show(value, 60)


def kind_words(info: mi.Type) -> str:
    """A type in the user's words."""
    match info:
        case mi.StrType():
            return "text"
        case mi.BoolType():
            return "true or false"
        case mi.IntType():
            return "whole number"
        case mi.FloatType():
            return "number"
        case mi.LiteralType():
            return " | ".join(f"`{value}`" for value in info.values)
        case mi.VarTupleType() | mi.ListType():
            return f"list of {kind_words(info.item_type)}"
        case mi.DictType():
            return "object" if isinstance(info.value_type, mi.AnyType) else f"object of {kind_words(info.value_type)}"
        case mi.StructType():
            return "{" + ", ".join(field.encode_name for field in info.fields) + "}"
        case mi.UnionType():
            kinds = [
                kind_words(choice) for choice in info.types if not isinstance(choice, mi.NoneType) and "Unset" not in type(choice).__name__
            ]
            return " or ".join(dict.fromkeys(kinds))
        case _:
            return "any value"
