"""Selects the rows and extra columns of a partition: `--where` and `--by`, pushed down to the file.

A Parquet row group is skipped if its statistics exclude it; of the others the columns of the condition are read, and the records only if
a row fits. JSON lines are decoded first. A row that is left out keeps its number, as an empty record.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import msgspec

from proctor.errors import EvidenceError, InputError
from proctor.evidence.values.json_bytes import BOM, mend_surrogates
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, decode_embedded, is_number
from proctor.sources.datasets.columns import Cell, cut_nanoseconds, list_values
from proctor.sources.datasets.files import DataFile, import_arrow
from proctor.sources.datasets.row_filter import (
    COMPARE,
    Both,
    Compare,
    Condition,
    IsNull,
    Not,
    decide_row,
    describe_unknown,
    find_member,
    has_member,
    has_other_type,
    list_comparisons,
    list_names,
    may_hold,
    name_kind,
)

# The keys of folders, `day=2026-10-01/model=small/part.parquet`, as Hive and Spark write them.

_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The folder name for null."""


def read_folder_keys(path: str) -> dict[str, str | None]:
    """Return the keys of a file's folders, None for a null key; if a name occurs twice, the innermost counts."""
    keys: dict[str, str | None] = {}
    for part in path.replace("\\", "/").split("/")[:-1]:
        key, equals, value = part.partition("=")
        if equals and key:
            keys[unquote(key)] = None if value == _NULL else unquote(value)
    return keys


LEFT_OUT = b""


class FilterNames:
    """Collects the names in a condition that no JSON line has, and the comparisons that do not fit the values."""

    def __init__(self, where: Condition, path: str) -> None:
        folder = read_folder_keys(path)
        self.missing = {name for name in list_names(where) if name not in folder}
        self.lines = 0
        self.mismatched: dict[str, int] = {}
        """For each comparison, as text, the number of lines in which the value has another type than the constant."""
        self._comparisons = {
            f"{one.name!r} with the {name_kind(one.value)} {one.value!r}": one for one in list_comparisons(where) if one.name not in folder
        }

    def note_line(self, record: Json) -> None:
        """Note the names of one line."""
        self.lines += 1
        for text, comparison in self._comparisons.items():
            if has_other_type(comparison, find_member(record, comparison.name)):
                self.mismatched[text] = self.mismatched.get(text, 0) + 1
        if self.missing:
            self.missing = {name for name in self.missing if not has_member(record, name)}


class RowChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows and extra columns are read."""

    where: Condition | None = None
    extra: tuple[str, ...] = ()
    """Columns to read in addition to the record, if a file has them."""
    names_seen: FilterNames | None = None
    """Records which names of `where` the lines of a partition have, if needed."""

    def list_extra_columns(self, schema: Any) -> list[str]:
        """Return the columns to read in addition to the record."""
        names = set(schema.names)
        return [name for name in self.extra if name in names]


EVERYTHING = RowChoice()


def read_extra_columns(batch: Any, names: Sequence[str]) -> Sequence[tuple[Json, ...]] | None:
    """Return the values of these columns for each row of a batch, None for a missing column; None if no columns are requested."""
    if not names:
        return None
    available = set(batch.schema.names)
    columns = cut_nanoseconds(batch.select([name for name in dict.fromkeys(names) if name in available]))
    return list(zip(*(list_values(columns.column(name)) if name in available else [None] * batch.num_rows for name in names), strict=True))


def read_extra_keys(lines: Sequence[bytes], names: Sequence[str]) -> Sequence[tuple[Json, ...]] | None:
    """Return the values of these names in every line; None if no names are requested."""
    if not names:
        return None
    none = (None,) * len(names)
    return [none if (record := decode_line(line)) is None else tuple(find_member(record, name) for name in names) for line in lines]


def list_fitting_files(files: Sequence[DataFile], where: Condition) -> list[DataFile]:
    """Return the files whose folders may match; raises `InputError` if none is left."""
    _refuse_mismatched_keys(files, where)
    fitting = [file for file in files if may_hold(where, read_folder_keys(file.path))]
    if files and not fitting:
        keys = sorted({key for file in files for key in read_folder_keys(file.path)})
        raise InputError(f"--where: the folders ({', '.join(keys)}) of all {len(files):,} files rule them out")
    return fitting


def _refuse_mismatched_keys(files: Sequence[DataFile], where: Condition) -> None:
    """Raise `InputError` if a folder key is compared with a constant of another type in every folder: no row could match."""
    folder_keys = [read_folder_keys(file.path) for file in files]
    for comparison in list_comparisons(where):
        values = [value for keys in folder_keys if (value := keys.get(comparison.name)) is not None]
        if values and all(has_other_type(comparison, value) for value in values):
            raise InputError(
                f"--where: the folders have {comparison.name}={values[0]}, "
                f"which cannot be compared with the {name_kind(comparison.value)} {comparison.value!r}"
            )


def require_names(where: Condition | None, schema: Any, path: str) -> None:
    """Raise `EvidenceError` if a Parquet file lacks a column of a condition, or has it in another type."""
    if where is None:
        return
    expression = make_expression(where, schema, read_folder_keys(path))
    try:
        # On an empty table: pyarrow still compares the types, and reports an error before anything is read.
        schema.empty_table().filter(expression)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise EvidenceError(f"--where: does not fit the types of its columns: {error}", code="wrong_column_type") from error


class GroupFilter:
    """Selects the rows of the row groups of one Parquet file."""

    def __init__(self, source: Any, schema: Any, where: Condition, path: str) -> None:
        dataset = import_arrow("pyarrow.dataset")
        self._expression = make_expression(where, schema, read_folder_keys(path))
        options = dataset.ParquetFragmentScanOptions(page_checksum_verification=True)
        self._fragment = dataset.ParquetFileFormat(default_fragment_scan_options=options).make_fragment(source)
        fitting = self._fragment.subset(self._expression, schema=schema).row_groups
        self._fitting = frozenset(group.id for group in fitting)

    def find_rows(self, group: int) -> Any:
        """Return an array that is true for every row to read; None if there is none."""
        if group not in self._fitting:
            return None
        rows = self._fragment.subset(row_group_ids=[group]).to_table(columns={"keep": self._expression}, use_threads=False)
        # Null is neither true nor false, and only true rows are read.
        keep = rows.column("keep").combine_chunks().fill_null(False)
        return keep if keep.true_count else None


def drop_cells(cells: Sequence[Cell], keep: Any) -> Sequence[Cell]:
    """Return the records of a batch with the excluded ones emptied."""
    return [cell if fits else LEFT_OUT for cell, fits in zip(cells, keep.to_pylist(), strict=True)]


def drop_lines(lines: Sequence[bytes], where: Condition, path: str, names_seen: FilterNames | None = None) -> Sequence[bytes]:
    """Return the lines with excluded ones blanked; a line that is not JSON stays, so that it is reported."""
    keys = read_folder_keys(path)
    return [line if not line or _fits_line(line, where, keys, names_seen) else LEFT_OUT for line in lines]


def _fits_line(line: bytes, where: Condition, keys: dict[str, str | None], names_seen: FilterNames | None) -> bool:
    record = decode_line(line)
    if names_seen is not None and record is not None:
        names_seen.note_line(record)
    return record is None or decide_row(where, lambda name: keys[name] if name in keys else find_member(record, name)) is True


def decode_line(line: bytes) -> Json:
    """Return the value of a line; None if it is empty or not JSON. Broken surrogates are repaired as in evidence readers."""
    line = line.removeprefix(BOM)
    value = decode_embedded(line) if line else None
    # Otherwise the line would be read regardless of the condition.
    if value is MISSING and (repaired := mend_surrogates(line)):
        value = decode_embedded(repaired)
    return None if value is MISSING else value


def make_expression(where: Condition, schema: Any, keys: dict[str, str | None]) -> Any:
    """Return a condition as a pyarrow expression. Raises `EvidenceError` for a missing column or one of another type."""
    arrow, compute = import_arrow("pyarrow"), import_arrow("pyarrow.compute")
    if isinstance(where, (Compare, IsNull)):
        if where.name in keys:
            # A folder key is the same for all rows of the file, so it is decided here; null if unknown.
            return compute.scalar(arrow.scalar(decide_row(where, keys.get), arrow.bool_()))
        path, kind = _find_field(schema, where.name, keys)
        field = compute.field(*path)
        return field.is_null() if isinstance(where, IsNull) else _write_comparison(where, field, kind)
    if isinstance(where, Not):
        return ~make_expression(where.part, schema, keys)
    join = operator.and_ if isinstance(where, Both) else operator.or_
    return functools.reduce(join, [make_expression(part, schema, keys) for part in where.parts])


def _write_comparison(where: Compare, field: Any, kind: Any) -> Any:
    types = import_arrow("pyarrow").types
    bare = kind.value_type if types.is_dictionary(kind) else kind
    if is_number(where.value) and (types.is_integer(bare) or types.is_floating(bare)):
        return _write_number(where.sign, where.value, field, bare)
    return COMPARE[where.sign](field, _fit_value(where, kind))


_BELOW = {"<": "<=", "<=": "<=", ">": ">", ">=": ">"}
_ABOVE = {"<": "<", "<=": "<", ">": ">=", ">=": ">="}
"""Comparisons for a number that the column's type cannot represent, using the nearest representable number below or above."""


def _write_number(sign: str, value: float, field: Any, kind: Any) -> Any:
    """Return an exact comparison of numbers: pyarrow converts both to one type, and fails on a row that does not fit it."""
    arrow = import_arrow("pyarrow")
    near: int | float
    if arrow.types.is_integer(kind):
        signed = arrow.types.is_signed_integer(kind)
        least, most = (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1) if signed else (0, 2**kind.bit_width - 1)
        near = least if value < least else most if value > most else math.floor(value)
        bound = arrow.scalar(near, kind)
    else:
        near = float(value)
        bound = arrow.scalar(near)
    if near == value:
        return COMPARE[sign](field, bound)
    if sign in _BELOW:
        return COMPARE[(_BELOW if near < value else _ABOVE)[sign]](field, bound)
    # Equal to no value; written so that null stays null.
    return (field != bound) & (field == bound) if sign == "=" else (field != bound) | (field == bound)


def _find_field(schema: Any, name: str, keys: dict[str, str | None]) -> tuple[tuple[str, ...], Any]:
    """Return the path to a column, with dots descending into structs, and its type."""
    if name in schema.names:
        return (name,), schema.field(name).type
    head, dot, rest = name.partition(".")
    if dot and head in schema.names:
        kind = schema.field(head).type
        steps = [head]
        for part in rest.split("."):
            if not import_arrow("pyarrow").types.is_struct(kind) or kind.get_field_index(part) < 0:
                break
            steps.append(part)
            kind = kind.field(part).type
        else:
            return tuple(steps), kind
    raise EvidenceError(describe_unknown(name, [*map(str, schema.names), *keys]), code="missing_column")


def _fit_value(where: Compare, kind: Any) -> Any:
    """Return the value of a comparison in the column's type; `_write_number` compares two numbers."""
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
            # As a decimal with its own digits: the column's precision may not be enough for both.
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
