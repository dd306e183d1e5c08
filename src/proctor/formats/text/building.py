"""Builds typed values from a located document, driven by the type itself.

Any `msgspec.Struct` (usually a check's spec) is built from an object in the document: every unknown key, missing field and wrong kind of
value is reported at its position, all in one pass. Two shortcuts: one bare value means a list of one, and an integer written as `3.0` is
an integer.
"""

from __future__ import annotations

import functools

import msgspec
from msgspec import inspect as mi

from proctor.formats.text.located import Located, Reading
from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.show import nearest, show

UNUSABLE = object()
"""Returned if a value could not be built; the problem has been reported."""


@functools.cache
def describe_struct_type(struct: type[msgspec.Struct]) -> mi.StructType:
    """Return the description of a struct's fields."""
    info = mi.type_info(struct)
    assert isinstance(info, mi.StructType)
    return info


def build_struct(struct: type[msgspec.Struct], node: Located, reading: Reading, what: str) -> Json:
    """Return an instance of `struct` from an object; `UNUSABLE` after any problem."""
    return _build_struct(describe_struct_type(struct), node, reading, what)


def _build_struct(info: mi.StructType, node: Located, reading: Reading, what: str) -> Json:
    if node.value is True and not info.fields:
        # A struct without fields is switched on by true: `no_tools_called: true`.
        return info.cls()
    if reading.require_object(node, what) is None:
        return UNUSABLE
    fields = {field.encode_name: field for field in info.fields}
    problem_count = len(reading.problems)
    # The Python name is accepted too: `sender` for `from`, which is a keyword.
    reading.check_keys(node, (*fields, *(field.name for field in info.fields if field.name not in fields)), what)
    values: dict[str, Json] = {}
    for name, field in fields.items():
        member, other = node.get(name), node.get(field.name) if field.name != name else None
        if member is not None and other is not None:
            reading.error(other, f"{name} and {field.name} say the same in {what}")
        member = other if member is None else member
        if member is None:
            if field.required:
                reading.error(node, f"{what} needs {name!r}", code="missing_key", expected="the fields " + ", ".join(fields))
            continue
        values[field.name] = build(field.type, member, reading, f"{what} {name!r}")
    if reading.has_errors_since(problem_count) or any(v is UNUSABLE for v in values.values()):
        return UNUSABLE
    return info.cls(**values)


def build(info: mi.Type, node: Located, reading: Reading, what: str) -> Json:
    """Return a value of the described type; `UNUSABLE` after a problem."""
    match info:
        case mi.AnyType():
            return node.plain()
        case mi.StructType():
            return _build_struct(info, node, reading, what)
        case mi.LiteralType():
            return _build_literal(info, node, reading, what)
        case mi.VarTupleType() | mi.ListType():
            return _build_tuple(info.item_type, node, reading, what)
        case mi.DictType():
            if reading.require_object(node, what) is None:
                return UNUSABLE
            built = {key: build(info.value_type, item, reading, f"{what} {key!r}") for key, item in node.members()}
            return UNUSABLE if any(value is UNUSABLE for value in built.values()) else built
        case mi.UnionType():
            choices = [choice for choice in info.types if "Unset" not in type(choice).__name__]
            if node.value is None and any(isinstance(choice, mi.NoneType) for choice in choices):
                return None
            real = [choice for choice in choices if not isinstance(choice, mi.NoneType)]
            # If no choice fits, the first one builds it, so that the error names the expected kind.
            fitting = [choice for choice in real if _accepts_kind(choice, node)] or real
            return build(fitting[0], node, reading, what)
        case mi.StrType():
            value = reading.require_text(node, what)
        case mi.BoolType():
            value = reading.require_boolean(node, what)
        case mi.IntType():
            value = reading.require_integer(node, what)
        case mi.FloatType():
            value = reading.number(node, what)
        case _:
            raise TypeError(f"{what}: a suite cannot carry {info!r}")
    return UNUSABLE if value is None else value


def _build_literal(info: mi.LiteralType, node: Located, reading: Reading, what: str) -> Json:
    if node.value in info.values and isinstance(node.value, str):
        return node.value
    words = [str(value) for value in info.values]
    reading.error(
        node,
        f"{what}: {show(node.plain(), 60)} is not a known word here",
        nearest=nearest(str(node.value), words) if isinstance(node.value, str) else (),
        expected="one of " + ", ".join(words),
    )
    return UNUSABLE


def _build_tuple(item: mi.Type, node: Located, reading: Reading, what: str) -> Json:
    if not node.is_list:
        # A key without a value in YAML is null, which is more likely a mistake than a list of one null.
        if node.value is None:
            reading.error(node, f"{what}: expected a list, found null", code="wrong_type")
            return UNUSABLE
        single = build(item, node, reading, what)
        return UNUSABLE if single is UNUSABLE else (single,)
    built = [build(item, element, reading, f"{what} [{index}]") for index, element in enumerate(node.items())]
    return UNUSABLE if any(value is UNUSABLE for value in built) else tuple(built)


def _accepts_kind(info: mi.Type, node: Located) -> bool:
    if isinstance(info, (mi.IntType, mi.FloatType)):
        return is_number(node.value)
    return isinstance(info, mi.AnyType) or isinstance(node.value, _KINDS.get(type(info), ()))


_KINDS: dict[type[mi.Type], type] = {
    mi.StrType: str,
    mi.LiteralType: str,
    mi.BoolType: bool,
    mi.StructType: dict,
    mi.DictType: dict,
    mi.VarTupleType: list,
    mi.ListType: list,
}
"""The Python type of a value that fits a described type."""
