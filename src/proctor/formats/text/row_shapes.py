"""A fast path that builds the case of a row from the case of the first row.

All cases of one template are alike: they differ only in texts and values that contain placeholders. The template and the case of the first
row show where, so the case of another row is a copy with a few fields replaced. If a field does not accept the value of a row, or a claim
would be invalid, the full reader handles the row and reports the problem.

The cells of a text file are text, unless `types` sets another type. An empty cell of any other type is null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from proctor.checks.registry import CheckEntry, Registry
from proctor.checks.vacuous import find_vacuous
from proctor.errors import SpecError
from proctor.expressions.text_form import write_text_form
from proctor.formats.text.located import Located, Reading
from proctor.formats.text.placeholders import make_filler
from proctor.model.case import Assertion, Case
from proctor.model.evidence import Json
from proctor.model.problem import Origin
from proctor.model.scratch import Scratch
from proctor.model.show import show
from proctor.model.typed import convert_to

Fill = Callable[[Mapping[str, Json]], Json]
Label = Callable[[CheckEntry, msgspec.Struct], str]
_MEMBERS: dict[str, tuple[str, type]] = {
    **{key: (key, str) for key in ("input", "name", "description")},
    **{key: (key, dict) for key in ("tags", "context")},
    "body": ("custom_body", object),
}
"""Members of a case that a row may change: the field of the case, and the type of its values."""


class _ClaimShape(msgspec.Struct, frozen=True):
    """How a claim differs from row to row."""

    first: Assertion
    entry: CheckEntry
    fields: tuple[tuple[str, Any, Fill], ...]
    has_label: bool


class RowShape:
    """Builds the case of a row from the case of the first row."""

    def __init__(self, first: Case, registry: Registry, label: Label) -> None:
        self._first = first
        self._registry = registry
        self._label = label
        self._members: list[tuple[str, type, Fill, Mapping[str, Json]]] = []
        self._claims: list[Assertion | _ClaimShape] = []

    def make(self, case_id: str, values: Mapping[str, Json], origin: Origin, *, checked: bool) -> Case | None:
        """Return the case of a row; None if the reader must read it. A row that was `checked` before is not checked again."""
        changes: dict[str, Json] = {"id": case_id, "origin": origin}
        for field, kind, fill, own in self._members:
            value = fill(values)
            if not isinstance(value, kind):
                return None
            changes[field] = {**own, **value} if kind is dict else value
        if any(isinstance(each, _ClaimShape) for each in self._claims):
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
        """Learn how a claim differs between rows; returns whether that is known."""
        if make_filler(node) is None:
            self._claims.append(first)
            return True
        entry = self._registry.get(first.check)
        value = node.get(first.check)
        if value is None or any(make_filler(member) is not None for key, member in node.members() if key != first.check):
            return False
        types = {field.encode_name: (field.name, field.type) for field in msgspec.structs.fields(entry.spec)}
        members = dict(value.members()) if value.is_object else {entry.shorthand or "": value}
        fields: list[tuple[str, Any, Fill]] = []
        for key, member in members.items():
            fill = make_filler(member)
            if fill is not None:
                if key not in types:
                    return False
                fields.append((*types[key], fill))
        self._claims.append(_ClaimShape(first, entry, tuple(fields), node.get("label") is not None))
        return True

    def add_member(self, key: str, node: Located, shared: Mapping[str, Mapping[str, Json]]) -> bool:
        """Learn how a member of the case differs between rows; returns whether that is known."""
        fill = make_filler(node)
        if fill is None or key == "id":
            return True
        field, kind = _MEMBERS.get(key, ("", str))
        if not field or (kind is dict and not node.is_object):
            return False
        self._members.append((field, kind, fill, shared.get(key, {})))
        return True


def learn_shape(
    template: Located, first: Case, shared: Mapping[str, Mapping[str, Json]], registry: Registry, label: Label
) -> RowShape | None:
    """Return the shape of a template from the case of its first row; None if the reader must read every row."""
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


def _fits(kind: Any, value: Json) -> bool:
    """Return whether a field accepts a value unchanged."""
    try:
        read = convert_to(value, kind)
    except msgspec.ValidationError:
        return False
    # A null may mean something else than the value null: the reader knows.
    return type(read) is type(value) and read == value and (value is not None or kind is Any)


TYPES = ("text", "number", "integer", "boolean", "json")
NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?\Z")
_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_MOST_DIGITS = 300


def convert_cells(values: Mapping[str, Json], types: Mapping[str, str], reading: Reading, place: Located) -> dict[str, Json]:
    """Return the values of a row converted to their types; an invalid cell is a problem."""
    converted = dict(values)
    for column, kind in types.items():
        if column not in converted:
            continue
        try:
            converted[column] = convert_cell(converted[column], kind)
        except ValueError as error:
            reading.error(place, f"column {column!r}: {error}", code="bad_cell")
    return converted


def convert_cell(value: Json, kind: str) -> Json:
    """Return a value converted to another type; raises `ValueError` that describes an invalid value."""
    if kind == "text":
        return write_text_form(value)
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text:
        return None
    if kind == "json":
        return _read_json(text)
    if kind == "boolean":
        if text.lower() not in _WORDS:
            raise ValueError(f"expected true or false, found {show(value, 60)}")
        return _WORDS[text.lower()]
    if not NUMBER.match(text) or len(text) > _MOST_DIGITS:
        raise ValueError(f"expected a number, found {show(value, 60)}")
    number = float(text)
    if number.is_integer() and ("." not in text and "e" not in text.lower()):
        return int(text)
    if kind == "integer":
        raise ValueError(f"expected a whole number, found {show(value, 60)}")
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"expected a number, found {show(value, 60)}")
    return number


def _read_json(text: str) -> Json:
    def refuse(name: str) -> Json:
        raise ValueError(f"{name} is not JSON")

    def build(members: list[tuple[str, Json]]) -> Json:
        built = dict(members)
        if len(built) < len(members):
            twice = next(key for number, (key, _) in enumerate(members) if any(key == other for other, _ in members[:number]))
            raise ValueError(f"duplicate key {show(twice, 60)} in one object")
        return built

    try:
        return json.loads(text, parse_constant=refuse, object_pairs_hook=build)
    except json.JSONDecodeError as error:
        raise ValueError(f"expected JSON, found {show(text, 60)} ({error.msg} at character {error.pos + 1})") from None
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


# A data file of a suite: columns, and rows with their positions.
# `sources/tables/open.py` opens the files and passes a `DataSource`. A suite without a file, or one that was sent to a service, has none
# and may name no files.


class Row(msgspec.Struct, frozen=True, gc=False):
    """One row of a data file."""

    values: dict[str, Json]
    """By column."""
    origin: Origin
    """The file, and the line on which the row begins; for a sheet or a Parquet file the row number."""


class TableOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a suite for reading a file."""

    sheet: str | None = None
    """The sheet of an Excel file; left out: the first."""
    split: str | None = None
    """The split of a data set; left out: the only one."""
    delimiter: str | None = None
    """The delimiter of a CSV file; by default a comma, for `.tsv` a tab."""
    limit: int | None = None
    """The maximum number of rows; by default all."""


class Table(Protocol):
    """A data file that is read row by row."""

    @property
    def file(self) -> str:
        """The path of the file, as messages show it."""
        ...

    @property
    def stem(self) -> str:
        """The name of the file without folder and ending."""
        ...

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The columns of every row; None if each row has its own keys."""
        ...

    def choose_columns(self, names: Sequence[str]) -> None:
        """Read only these columns, if the file format allows that."""
        ...

    def rows(self) -> Iterator[Row]:
        """Yield every row from the first; raises `InputError` if the file cannot be read further."""
        ...


class Spool(Protocol):
    """Spooled pieces of bytes, for data that does not fit in memory, read back one by one."""

    def append(self, piece: bytes) -> None:
        """Append a piece."""
        ...

    def read(self, index: int) -> bytes:
        """Return a piece by its number from 0."""
        ...


class DataSource(Scratch, Protocol):
    """Opens the files that a suite names, and stores facts about very many rows."""

    @property
    def held(self) -> int | None:
        """The number of cases of one file in memory; None means the default."""
        ...

    def open(self, name: str, options: TableOptions) -> Table:
        """Open a file; raises `InputError` if it must not or cannot be read."""
        ...

    def make_spool(self) -> Spool:
        """Return an empty spool."""
        ...
