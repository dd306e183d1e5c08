"""Which rows of a partition are read, and which columns beside the record: `--where` and `--by`, pushed down to the file.

In Parquet a row group is left out by its statistics where they tell that nothing in it fits; of the others the columns that the condition
asks for are read, and the records only where a row fits. JSON lines are decoded first. A row that is left out keeps its number: it stands
there as an empty record.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import msgspec

from proctor.errors import EvidenceError, InputError
from proctor.evidence.values.json_bytes import BOM, mend_surrogates
from proctor.model.evidence import Json
from proctor.sources.datasets.arrow_values import list_values
from proctor.sources.datasets.columns import Cell, cut_nanoseconds
from proctor.sources.datasets.files import DataFile, import_arrow
from proctor.sources.datasets.folder_keys import read_folder_keys
from proctor.sources.datasets.row_filter import (
    Both,
    Compare,
    Condition,
    Either,
    IsNull,
    Not,
    decide_row,
    describe_unknown,
    find_member,
    has_member,
    is_unlike,
    list_comparisons,
    list_names,
    may_hold,
    name_kind,
)

_decode = msgspec.json.Decoder().decode
LEFT_OUT = b""


_LOOKED_AT, _MOST_KEYS = 50, 200
"""Lines of a partition whose keys are remembered, and how many keys."""


class AskedNames:
    """The names that a condition asks JSON lines for: which of them no line had, and some of the keys that lines have instead."""

    def __init__(self, where: Condition, path: str) -> None:
        folder = read_folder_keys(path)
        self.missing = {name for name in list_names(where) if name not in folder}
        self.keys: dict[str, None] = {}
        self.lines = 0
        self.unlike: dict[str, int] = {}
        """How many lines have something else under a name than it is compared with."""
        self._comparisons = [one for one in dict.fromkeys(list_comparisons(where)) if one.name not in folder]

    def look_at(self, record: Json) -> None:
        """Note what one line has."""
        self.lines += 1
        unlike = {
            f"{one.name!r} with the {name_kind(one.value)} {one.value!r}"
            for one in self._comparisons
            if is_unlike(one, find_member(record, one.name))
        }
        for told in sorted(unlike):
            self.unlike[told] = self.unlike.get(told, 0) + 1
        if self.missing:
            self.missing = {name for name in self.missing if not has_member(record, name)}
            if self.lines <= _LOOKED_AT:
                _gather_keys(record, "", self.keys)


def _gather_keys(record: Json, before: str, keys: dict[str, None]) -> None:
    if isinstance(record, dict):
        for key, value in record.items():
            if len(keys) >= _MOST_KEYS:
                return
            keys.setdefault(f"{before}{key}"[:200])
            if not before:
                _gather_keys(value, f"{key}.", keys)


class RowChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of every row before it is decided."""

    where: Condition | None = None
    beside: tuple[str, ...] = ()
    """Columns that are read beside the record, as far as a file has them."""
    asked: AskedNames | None = None
    """Notes which names of `where` the lines of a partition have; nothing where nobody wants to know."""

    def list_beside(self, schema: Any) -> list[str]:
        """Return the columns to read beside the record."""
        names = set(schema.names)
        return [name for name in self.beside if name in names]


EVERYTHING = RowChoice()


def read_beside(batch: Any, names: Sequence[str]) -> Sequence[tuple[Json, ...]] | None:
    """Return the values of these columns for each row of a batch, None for a column that is not there; nothing where nobody asks."""
    if not names:
        return None
    there = set(batch.schema.names)
    found = cut_nanoseconds(batch.select([name for name in dict.fromkeys(names) if name in there]))
    return list(zip(*(list_values(found.column(name)) if name in there else [None] * batch.num_rows for name in names), strict=True))


def read_beside_lines(lines: Sequence[bytes], names: Sequence[str]) -> Sequence[tuple[Json, ...]] | None:
    """Return what stands under these names in every line; nothing where nobody asks."""
    if not names:
        return None
    none = (None,) * len(names)
    return [none if (record := decode_line(line)) is None else tuple(find_member(record, name) for name in names) for line in lines]


def list_fitting_files(files: Sequence[DataFile], where: Condition) -> list[DataFile]:
    """Return the files whose folders do not rule them out; raises `InputError` where none is left."""
    _refuse_unlike_keys(files, where)
    fitting = [file for file in files if may_hold(where, read_folder_keys(file.path))]
    if files and not fitting:
        keys = sorted({key for file in files for key in read_folder_keys(file.path)})
        raise InputError(f"--where: the folders ({', '.join(keys)}) of all {len(files):,} files rule them out")
    return fitting


def _refuse_unlike_keys(files: Sequence[DataFile], where: Condition) -> None:
    """Raise `InputError` where a key of folders is compared with what none of them is: no row could ever be read."""
    found = [read_folder_keys(file.path) for file in files]
    for one in list_comparisons(where):
        values = [value for keys in found if (value := keys.get(one.name)) is not None]
        if values and all(is_unlike(one, value) for value in values):
            raise InputError(
                f"--where: the folders have {one.name}={values[0]}, which cannot be compared with the {name_kind(one.value)} {one.value!r}"
            )


def require_names(where: Condition | None, schema: Any, path: str) -> None:
    """Raise `EvidenceError` where a Parquet file has not what a condition asks for, or has it in another type."""
    if where is None:
        return
    expression = make_expression(where, schema, read_folder_keys(path))
    try:
        # Asked of no rows at all: pyarrow compares the types all the same, and a mistake shows before anything is read.
        schema.empty_table().filter(expression)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise EvidenceError(f"--where: this cannot be asked of its columns: {error}", code="wrong_column_type") from error


class GroupFilter:
    """Decides which rows of the row groups of one Parquet file are read."""

    def __init__(self, source: Any, schema: Any, where: Condition, path: str) -> None:
        dataset = import_arrow("pyarrow.dataset")
        self._expression = make_expression(where, schema, read_folder_keys(path))
        options = dataset.ParquetFragmentScanOptions(page_checksum_verification=True)
        self._fragment = dataset.ParquetFileFormat(default_fragment_scan_options=options).make_fragment(source)
        fitting = self._fragment.subset(self._expression, schema=schema).row_groups
        self._fitting = frozenset(group.id for group in fitting)

    def find_rows(self, group: int) -> Any:
        """Return an array that is true for every row to read; None where there is none."""
        if group not in self._fitting:
            return None
        found = self._fragment.subset(row_group_ids=[group]).to_table(columns={"keep": self._expression}, use_threads=False)
        # Null is neither true nor false, and only what is true is read.
        keep = found.column("keep").combine_chunks().fill_null(False)
        return keep if keep.true_count else None


def drop_cells(cells: Sequence[Cell], keep: Any) -> Sequence[Cell]:
    """Return the records of a batch with those left out that are not to be read."""
    return [cell if kept else LEFT_OUT for cell, kept in zip(cells, keep.to_pylist(), strict=True)]


def drop_lines(lines: Sequence[bytes], where: Condition, path: str, asked: AskedNames | None = None) -> Sequence[bytes]:
    """Return lines with those left out that are not to be read; what is no JSON stays, to be told as what it is."""
    keys = read_folder_keys(path)
    return [line if not line or _fits_line(line, where, keys, asked) else LEFT_OUT for line in lines]


def _fits_line(line: bytes, where: Condition, keys: dict[str, str | None], asked: AskedNames | None) -> bool:
    record = decode_line(line)
    if asked is not None and record is not None:
        asked.look_at(record)
    return record is None or decide_row(where, lambda name: keys[name] if name in keys else find_member(record, name)) is True


def decode_line(line: bytes) -> Json:
    """Return what a line holds; None where it is empty, or no JSON. What readers of evidence mend is mended here, too."""
    line = line.removeprefix(BOM)
    try:
        return _decode(line) if line else None
    except RecursionError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Else a line would be read whatever the condition says.
        mended = mend_surrogates(line)
        return None if mended is None else _decode_mended(mended)


def _decode_mended(line: bytes) -> Json:
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def make_expression(where: Condition, schema: Any, keys: dict[str, str | None]) -> Any:
    """Return a condition as pyarrow has it. Raises `EvidenceError` for a column that is not there, or of another type."""
    for name in list_names(where):
        if name not in keys:
            _find_field(schema, name, keys)
    return _write(where, schema, keys)


def _write(where: Condition, schema: Any, keys: dict[str, str | None]) -> Any:
    arrow, compute = import_arrow("pyarrow"), import_arrow("pyarrow.compute")
    if isinstance(where, (Compare, IsNull)):
        if where.name in keys:
            # The key of a folder is the same for all rows of the file, so that it is decided here; null where nobody can say.
            return compute.scalar(arrow.scalar(decide_row(where, keys.get), arrow.bool_()))
        path, kind = _find_field(schema, where.name, keys)
        field = compute.field(*path)
        return field.is_null() if isinstance(where, IsNull) else _write_comparison(where, field, kind)
    if isinstance(where, Not):
        return ~_write(where.part, schema, keys)
    parts = [_write(part, schema, keys) for part in where.parts]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole & part if isinstance(where, Both) else whole | part
    assert isinstance(where, (Both, Either))
    return whole


def _write_comparison(where: Compare, field: Any, kind: Any) -> Any:
    types = import_arrow("pyarrow").types
    bare = kind.value_type if types.is_dictionary(kind) else kind
    if isinstance(where.value, (int, float)) and not isinstance(where.value, bool) and (types.is_integer(bare) or types.is_floating(bare)):
        return _write_number(where.sign, where.value, field, bare)
    return _SIGNS[where.sign](field, _fit_value(where, kind))


_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_BELOW = {"<": "<=", "<=": "<=", ">": ">", ">=": ">"}
_ABOVE = {"<": "<", "<=": "<", ">": ">=", ">=": ">="}
"""How a number compares that is itself none of the column's, by the one below or above it that is."""


def _write_number(sign: str, value: float, field: Any, kind: Any) -> Any:
    """Return a comparison of numbers as exact as ours: pyarrow makes one type of both, and gives up on a row that does not fit it."""
    arrow = import_arrow("pyarrow")
    near: int | float
    if arrow.types.is_integer(kind):
        signed = arrow.types.is_signed_integer(kind)
        least, most = (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1) if signed else (0, 2**kind.bit_width - 1)
        near = least if value < least else most if value > most else math.floor(value)
        told = arrow.scalar(near, kind)
    else:
        near = float(value)
        told = arrow.scalar(near)
    if near == value:
        return _SIGNS[sign](field, told)
    if sign in _BELOW:
        return _SIGNS[(_BELOW if near < value else _ABOVE)[sign]](field, told)
    # Equal to none of them; written so that null stays null.
    return (field != told) & (field == told) if sign == "=" else (field != told) | (field == told)


def _find_field(schema: Any, name: str, keys: dict[str, str | None]) -> tuple[tuple[str, ...], Any]:
    """Return the way to a column, dots going into structs, and its type."""
    if name in schema.names:
        return (name,), schema.field(name).type
    head, dot, rest = name.partition(".")
    if dot and head in schema.names:
        kind = schema.field(head).type
        way = [head]
        for part in rest.split("."):
            if not import_arrow("pyarrow").types.is_struct(kind) or kind.get_field_index(part) < 0:
                break
            way.append(part)
            kind = kind.field(part).type
        else:
            return tuple(way), kind
    raise EvidenceError(describe_unknown(name, [*map(str, schema.names), *keys]), code="missing_column")


def _fit_value(where: Compare, kind: Any) -> Any:
    """Return the value of a comparison as the column has it; one of two numbers is `_write_number`'s."""
    arrow = import_arrow("pyarrow")
    types, value = arrow.types, where.value
    if types.is_dictionary(kind):
        kind = kind.value_type
    try:
        if isinstance(value, str) and types.is_temporal(kind):
            return arrow.scalar(_read_moment(value, kind), kind)
        text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
        if isinstance(value, bool):
            fits = types.is_boolean(kind)
        else:
            fits = text if isinstance(value, str) else types.is_decimal(kind)
        if fits:
            # As a decimal number of its own digits: one with as many as the column has may not be enough for both.
            return arrow.scalar(Decimal(repr(value)) if types.is_decimal(kind) else value)
    except (ValueError, TypeError) as error:
        raise EvidenceError(
            f"--where: the column {where.name!r} is {kind}, and {value!r} is none: {error}", code="wrong_column_type"
        ) from error
    raise EvidenceError(
        f"--where: the column {where.name!r} is {kind}, which cannot be compared with the {name_kind(value)} {value!r}",
        code="wrong_column_type",
    )


def _read_moment(text: str, kind: Any) -> Any:
    types = import_arrow("pyarrow").types
    if types.is_date(kind):
        return date.fromisoformat(text)
    if types.is_time(kind):
        return time.fromisoformat(text)
    moment = datetime.fromisoformat(text)
    if getattr(kind, "tz", None) is not None:
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
