"""The quick way from a row to its case, once the first row was read in full.

All cases of one template are alike: they differ in the texts and values that hold placeholders. What can differ is known from the template
and from the case of the first row, so that the case of another row is that one with a few fields replaced. A row whose values are of
another kind than the fields take, or make a claim that cannot be used, is left to the reader, who reports the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import inspect as mi

from proctor.checks.registry import CheckEntry, Registry
from proctor.checks.vacuous import find_vacuous
from proctor.errors import SpecError
from proctor.formats.text.building import describe_struct_type
from proctor.formats.text.located import Located
from proctor.formats.text.placeholders import make_filler
from proctor.model.case import Assertion, Case
from proctor.model.evidence import Json
from proctor.model.problem import Origin

Fill = Callable[[Mapping[str, Json]], Json]
Label = Callable[[CheckEntry, msgspec.Struct], str]
_TEXTS = {"input": "input", "name": "name", "description": "description"}
_OBJECTS = ("tags", "context")


class _ClaimShape(msgspec.Struct, frozen=True):
    """How a claim differs from row to row."""

    first: Assertion
    entry: CheckEntry
    fields: tuple[tuple[str, mi.Type, Fill], ...]
    has_label: bool


class RowShape:
    """How the case of a row is made of the case of the first."""

    def __init__(self, first: Case, registry: Registry, label: Label) -> None:
        self._first = first
        self._registry = registry
        self._label = label
        self._texts: list[tuple[str, Fill]] = []
        self._objects: list[tuple[str, Fill, Mapping[str, Json]]] = []
        self._body: Fill | None = None
        self._claims: list[Assertion | _ClaimShape] = []
        self._changes_claims = False

    def make(self, case_id: str, values: Mapping[str, Json], origin: Origin, *, checked: bool) -> Case | None:
        """Return the case of a row; None where the reader has to look. A row that was `checked` before is not checked again."""
        changes: dict[str, Json] = {"id": case_id, "origin": origin}
        for field, fill in self._texts:
            value = fill(values)
            if not isinstance(value, str):
                return None
            changes[field] = value
        for field, fill, own in self._objects:
            value = fill(values)
            if not isinstance(value, dict):
                return None
            changes[field] = {**own, **value}
        if self._body is not None:
            changes["custom_body"] = self._body(values)
        if self._changes_claims:
            claims = [each if isinstance(each, Assertion) else self._make_claim(each, values, origin, checked) for each in self._claims]
            if None in claims:
                return None
            changes["assertions"] = tuple(claims)
        return msgspec.structs.replace(self._first, **changes)

    def _make_claim(self, shape: _ClaimShape, values: Mapping[str, Json], origin: Origin, checked: bool) -> Assertion | None:
        changes: dict[str, Json] = {}
        for name, kind, fill in shape.fields:
            value = fill(values)
            if not _fits(kind, value):
                return None
            changes[name] = value
        spec = msgspec.structs.replace(shape.first.spec, **changes)
        if not checked:
            try:
                # The values of this row may make an invalid claim: then the reader reads the row in full and reports why.
                self._registry.prepare(shape.entry.name, spec)
            except SpecError:
                return None
            if find_vacuous(shape.entry.name, spec) is not None:
                return None
        label = shape.first.label if shape.has_label else self._label(shape.entry, spec)
        place = shape.first.origin
        return msgspec.structs.replace(
            shape.first, spec=spec, label=label, origin=Origin(file=origin.file, line=origin.line, column=origin.column, path=place.path)
        )

    def add_claim(self, node: Located, first: Assertion) -> bool:
        """Learn how a claim differs; returns whether that is known."""
        if make_filler(node) is None:
            self._claims.append(first)
            return True
        entry = self._registry.get(first.check)
        value = node.get(first.check)
        if value is None or any(make_filler(member) is not None for key, member in node.members() if key != first.check):
            return False
        types = {field.encode_name: (field.name, field.type) for field in describe_struct_type(entry.spec).fields}
        members = dict(value.members()) if value.is_object else {entry.shorthand or "": value}
        fields: list[tuple[str, mi.Type, Fill]] = []
        for key, member in members.items():
            fill = make_filler(member)
            if fill is not None:
                if key not in types:
                    return False
                fields.append((*types[key], fill))
        self._claims.append(_ClaimShape(first, entry, tuple(fields), node.get("label") is not None))
        self._changes_claims = True
        return True

    def add_member(self, key: str, node: Located, shared: Mapping[str, Mapping[str, Json]]) -> bool:
        """Learn how a member of the case differs; returns whether that is known."""
        fill = make_filler(node)
        if fill is None or key == "id":
            return True
        if key in _TEXTS:
            self._texts.append((_TEXTS[key], fill))
        elif key in _OBJECTS and node.is_object:
            self._objects.append((key, fill, shared[key]))
        elif key == "body":
            self._body = fill
        else:
            return False
        return True


def learn_shape(
    template: Located, first: Case, shared: Mapping[str, Mapping[str, Json]], registry: Registry, label: Label
) -> RowShape | None:
    """Return the shape of a template from the case of its first row; None where the reader has to read every row."""
    if template.get("turns") is not None:
        return None
    shape = RowShape(first, registry, label)
    expect = template.get("expect")
    nodes = [] if expect is None else list(expect.items()) if expect.is_list else [expect]
    if len(nodes) != len(first.assertions):
        return None
    known = all(shape.add_claim(node, claim) for node, claim in zip(nodes, first.assertions, strict=True))
    members = ((key, node) for key, node in template.members() if key != "expect")
    return shape if known and all(shape.add_member(key, node, shared) for key, node in members) else None


def _fits(kind: mi.Type, value: Json) -> bool:
    """Return whether a value is taken by a field as it is: one that would be changed, or refused, is not."""
    match kind:
        case mi.AnyType():
            return True
        case mi.StrType():
            return isinstance(value, str)
        case mi.BoolType():
            return isinstance(value, bool)
        case mi.IntType():
            return isinstance(value, int) and not isinstance(value, bool)
        case mi.DictType():
            return isinstance(value, dict) and isinstance(kind.value_type, mi.AnyType)
        case mi.UnionType():
            plain = [choice for choice in kind.types if not isinstance(choice, mi.NoneType) and "Unset" not in type(choice).__name__]
            return value is not None and len(plain) == 1 and _fits(plain[0], value)
        case _:
            return False
