"""The form of every description: a name, a sentence, and fields as a user writes them."""

from __future__ import annotations

import msgspec
from msgspec import inspect as mi

from proctor.formats.native.schema import read_field_docs
from proctor.formats.text.building import describe_struct_type
from proctor.model.show import show


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field, key or argument."""

    name: str
    kind: str = ""
    default: str | None = None
    """The default as a user would write it; None if the field is required."""
    required: bool = False
    about: str = ""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """The description of one check, matcher, target and so on."""

    kind: str
    name: str
    summary: str
    fields: tuple[Field, ...] = ()
    example: str = ""
    notes: tuple[str, ...] = ()


def struct_fields(struct: type[msgspec.Struct]) -> tuple[Field, ...]:
    """The fields of a struct as a user writes them."""
    docs = read_field_docs(struct)
    return tuple(
        Field(
            name=field.encode_name,
            kind=kind_words(field.type),
            required=field.required,
            default=None if field.required else _write_default(field.default),
            about=docs.get(field.name, ""),
        )
        for field in describe_struct_type(struct).fields
    )


def _write_default(value: object) -> str | None:
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
