"""Chooses the columns of a Parquet file that make up a record, and converts rows to JSON for the evidence readers.

A column that is named, or the only one, holds the whole record: as JSON text, as bytes, or as a struct. Otherwise the columns are the
fields of the record. A null member of a struct was missing when it was written, so it is omitted. A column may contain a list or an object
as JSON text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.otlp.spans import fold_id
from proctor.evidence.tables.read import find_columns, find_companion_table
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.json_values import drop_nulls
from proctor.model.show import suggest_one
from proctor.sources.datasets.files import import_arrow
from proctor.sources.records import MAX_LINE_BYTES
from proctor.sources.tables.text import make_json

# Rows of a table of spans that cannot be read: the column with the trace ids is often intact.

TRACE_COLUMNS = ("context.trace_id", "trace_id", "traceId")
"""Names of the trace id column in tables of spans."""
_HEXADECIMAL = frozenset(b"0123456789abcdefABCDEF")
_ID_BYTES = (8, 16)
"""The number of bytes of span and trace ids."""


class LostRows(EvidenceError):
    """Rows that cannot be read, with the traces of their spans; None if these are unknown."""

    def __init__(self, message: str, *, code: str, traces: frozenset[str] | None) -> None:
        super().__init__(message, code=code)
        self.traces = traces


def read_lost_traces(opened: Any, group: int, first: int) -> frozenset[str] | None:
    """Return the trace ids of a row group from row `first` on; None if an id is unreadable or missing."""
    name = _find_column(opened.schema_arrow.names)
    if name is None:
        return None
    try:
        return read_trace_ids(opened.read_row_group(group, columns=[name], use_threads=False).slice(first))
    except (OSError, ValueError, NotImplementedError):  # the error that made the rows unreadable may affect this column, too
        return None


def read_trace_ids(rows: Any) -> frozenset[str] | None:
    """Return the trace ids in these rows, in canonical form; None if an id is unreadable or missing."""
    name = _find_column(rows.schema.names)
    if name is None:
        return None
    try:
        return _fold_ids(rows.column(name).to_pylist())
    except ValueError:
        return None


def find_row_trace(row: dict[str, Any]) -> frozenset[str] | None:
    """Return the trace of one row; None if its id is unreadable or missing."""
    name = _find_column(list(row))
    try:
        return None if name is None else _fold_ids([row[name]])
    except ValueError:
        return None


def _fold_ids(ids: list[Any]) -> frozenset[str] | None:
    """Return ids in the spelling of readable rows, so that they match."""
    folded = [fold_id(write_id(id) if isinstance(id, bytes) else str(id)) for id in ids if id]
    return frozenset(folded) if len(folded) == len(ids) else None


def write_id(data: bytes) -> str:
    """Return an id from a column of bytes: unchanged if it is text, else in hexadecimal. Raises `UnicodeDecodeError`."""
    return data.hex() if len(data) in _ID_BYTES and not _HEXADECIMAL.issuperset(data) else data.decode()


def _find_column(names: list[str]) -> str | None:
    return next((name for name in TRACE_COLUMNS if name in names), None)


# Values of Arrow columns in Python: one that Python cannot represent affects only its own row.

CANNOT_HOLD = (ValueError, KeyError, OverflowError)
"""Errors for a single value: not UTF-8, an unknown time zone, a repeated key, a time beyond the years of Python."""


def list_values(array: Any, in_place: Callable[[Any, Exception], Any] | None = None) -> list[Any]:
    """Return the values of a column; `in_place` replaces a value that Python cannot represent, else its nearest text is used."""
    try:
        return array.to_pylist(maps_as_pydicts="strict")
    except CANNOT_HOLD:
        return [_read_value(array[number], in_place or _write_nearest) for number in range(len(array))]


def _read_value(scalar: Any, in_place: Callable[[Any, Exception], Any]) -> Any:
    try:
        return scalar.as_py(maps_as_pydicts="strict")
    except CANNOT_HOLD as error:
        return in_place(scalar, error)


def _write_nearest(scalar: Any, error: Exception) -> str | None:
    """Return text with a replacement character for each invalid byte; None for other values."""
    if not isinstance(error, UnicodeDecodeError) or not hasattr(scalar, "as_buffer"):
        return None
    return bytes(scalar.as_buffer()).decode("utf-8", "replace")


ID_NAMES = ("trace_id", "traceId", "execution_id", "run_id", "id")
"""Names of the trace id, the most specific first."""
WHOLE = ("record", "evidence", "trace", "json")
"""Columns that contain the whole record, if none of the others is a field of one."""
_CONTAINERS = ("tool_calls", "turns", "nodes", "state", "messages", "steps", "spans", "data", "resultData", "workflowData")
_FIELDS = frozenset(("text", "body", "http_status", *_CONTAINERS))
"""Columns by which a row itself is a record."""
_encode = msgspec.json.Encoder().encode

Cell = bytes | EvidenceError


ALL_COLUMNS = "*"
"""Used instead of a column name: the row itself is the record, which a mapping reads."""


class NoSpansHere(EvidenceError):
    """A file without spans that a platform exports next to its spans."""


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """The columns that are read from each row."""

    names: tuple[str, ...]
    whole: bool
    """Whether the only column is the record, instead of the columns being its fields."""
    id: str | None = None
    """The column with the id of the trace."""
    spans: bool = False
    """Whether a row is a span, so that a trace has many rows."""

    def list_read(self) -> list[str]:
        """Return the columns to read."""
        return [*self.names, *filter(None, [self.id])]


def choose_columns(schema: Any, column: str | None) -> Columns:
    """Return the columns to read; raises `EvidenceError` if none fit."""
    names = [str(name) for name in schema.names]
    if column == ALL_COLUMNS:
        single = len(names) == 1 and _is_record(schema.field(0).type)
        return _make_whole(names[0], schema) if single else Columns(names=tuple(names), whole=False)
    if column is not None:
        if column not in names:
            hint = suggest_one(column, names)
            raise EvidenceError(f"there is no column {column!r}{hint}; it has {', '.join(names) or 'none'}", code="missing_column")
        _require_record(schema.field(column), column)
        return _make_whole(column, schema)
    table = find_columns(frozenset(names))
    # Only platforms have such columns; Langfuse has one for the calls as well.
    if table is not None and (table.name in ("phoenix", "langfuse", "langsmith") or not _FIELDS.intersection(names)):
        return Columns(names=tuple(names), whole=False, spans=True)
    companion = find_companion_table(frozenset(names))
    if companion is not None:
        raise NoSpansHere(
            f"{companion}, without spans; leave it out, and name the files or the folder with the spans", code="missing_column"
        )
    if len(names) == 1 and names[0] not in _FIELDS:
        _require_record(schema.field(0), names[0])
        return _make_whole(names[0], schema)
    if not _FIELDS.intersection(names):
        for name in WHOLE:
            if name in names and _is_record(schema.field(name).type):
                return _make_whole(name, schema)
        raise EvidenceError(
            f"no column is a record, or a field of one; name the column with --column; it has {', '.join(names) or 'none'}",
            code="missing_column",
        )
    return Columns(names=tuple(names), whole=False)


def _make_whole(name: str, schema: Any) -> Columns:
    types = import_arrow("pyarrow").types
    id_columns = [column for column in ID_NAMES if column in schema.names and column != name]
    id_column = next((column for column in id_columns if _is_text(kind := schema.field(column).type) or types.is_integer(kind)), None)
    return Columns(names=(name,), whole=True, id=id_column)


def list_ids(batch: Any, columns: Columns) -> Sequence[str | None] | None:
    """Return the ids of the traces in a batch, if they have their own column."""
    if columns.id is None:
        return None
    ids = list_values(batch.column(columns.id))
    return [None if value is None else value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in ids]


def make_cells(batch: Any, columns: Columns) -> Sequence[Cell]:
    """Return the record of each row of a batch as JSON, or an error."""
    if not columns.whole:
        return _make_rows(cut_nanoseconds(batch), columns.spans)
    arrow = import_arrow("pyarrow")
    array = batch.column(columns.names[0])
    if arrow.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if _is_text(array.type):
        # As bytes, so that invalid UTF-8 affects only its own row.
        wide = arrow.types.is_large_string(array.type) or arrow.types.is_large_binary(array.type)
        values = array.cast(arrow.large_binary() if wide else arrow.binary()).to_pylist()
        # If all cells together are small enough, each is: most batches need no check of each cell.
        plain = array.null_count == 0 and array.nbytes <= MAX_LINE_BYTES and all(values)
        return values if plain else [_check_cell(cell) for cell in values]
    values = list_values(array, lambda _, error: EvidenceError(_describe_unreadable(error)))
    return [_NO_RECORD if value is None else value if isinstance(value, EvidenceError) else _write_value(value) for value in values]


_TOO_LARGE = EvidenceError(f"a record larger than {MAX_LINE_BYTES // 2**20} MB", code="too_large")
_NO_RECORD = EvidenceError("the row has no record: its column is null", code="empty_record")
EMPTY_CELL = EvidenceError("the row has no record: its column is empty", code="empty_record")


def _check_cell(cell: bytes | None) -> Cell:
    if cell is None:
        return _NO_RECORD
    return EMPTY_CELL if not cell else cell if len(cell) <= MAX_LINE_BYTES else _TOO_LARGE


def cut_nanoseconds(batch: Any) -> Any:
    """Return a batch with times in microseconds, which Python can represent."""
    arrow = import_arrow("pyarrow")
    for number, field in enumerate(batch.schema):
        if arrow.types.is_timestamp(field.type) and field.type.unit == "ns":
            # With `safe`, Arrow rejects a time that loses nanoseconds, and so the whole column.
            cut = batch.column(number).cast(arrow.timestamp("us", field.type.tz), safe=False)
            batch = batch.set_column(number, field.name, cut)
    return batch


def _make_rows(batch: Any, spans: bool) -> Sequence[Cell]:
    try:
        return [_make_row(row, spans) for row in batch.to_pylist(maps_as_pydicts="strict")]
    except CANNOT_HOLD:
        # Invalid UTF-8, or a time beyond the years of Python, affects only its own row.
        return [_make_unreadable_row(batch.slice(number, 1), spans) for number in range(batch.num_rows)]


def _make_unreadable_row(row: Any, spans: bool) -> Cell:
    try:
        return _make_row(row.to_pylist(maps_as_pydicts="strict")[0], spans)
    except CANNOT_HOLD as error:
        code = "not_utf8" if isinstance(error, UnicodeDecodeError) else "unreadable_evidence"
        return LostRows(_describe_unreadable(error), code=code, traces=read_trace_ids(row))


def _describe_unreadable(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"a text in the row is not UTF-8: {error.reason}"
    return f"a value in the row cannot be read: {error.args[0] if error.args else error}"


def _make_row(row: dict[str, Any], spans: bool) -> Cell:
    # A data frame uses NaN for a missing number.
    present = {name: value for name, value in row.items() if value is not None and not (type(value) is float and math.isnan(value))}
    try:
        members = {name: _read_member(name, value, spans) for name, value in present.items()}
    except ValueError as error:
        return LostRows(str(error), code="wrong_column_type", traces=find_row_trace(row) if spans else None)
    return _write_value(
        {name: decode_container(value) if name in _NESTED else value for name, value in members.items() if value is not None}
    )


def _read_member(name: str, value: Any, spans: bool) -> Any:
    """Return the value of one column for a record; None for bytes in a column that is not a field. Raises `ValueError`."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if not isinstance(value, bytes):
        return value
    try:
        # Many writers have only one type for texts and bytes.
        return write_id(value) if name.lower().endswith("id") else value.decode()
    except UnicodeDecodeError as error:
        if name in _FIELDS or name in _NESTED or (spans and (name in _OF_SPANS or name.startswith("attributes."))):
            raise ValueError(f"the column {name!r} holds bytes that are no UTF-8 text: {error.reason}") from error
        return None


_OF_SPANS = frozenset(
    (
        *("attributes", "name", "kind", "span_kind", "run_type", "type", "level", "scope", "resource", "events", "observations"),
        *("status", "status_code", "status_message", "statusMessage", "error", "extra", "input", "inputs", "output", "outputs"),
    )
)
"""Columns with the content of a span: an unreadable value is not an empty one."""
_NESTED = frozenset(("usage", "context", "metadata", "renders", "available_tools", "info", *_CONTAINERS))
"""Columns with a list or an object, which may be written as JSON text."""


def _write_value(value: Any) -> Cell:
    try:
        return _encode(drop_nulls(make_json(value)))
    except (ValueError, RecursionError) as error:
        return EvidenceError(f"the record cannot be written as JSON: {error}")


def _require_record(field: Any, name: str) -> None:
    if not _is_record(field.type):
        raise EvidenceError(f"the column {name!r} is {field.type}, not a record: JSON text, bytes or a struct", code="wrong_column_type")


def _is_record(kind: Any) -> bool:
    types = import_arrow("pyarrow").types
    if types.is_dictionary(kind):
        kind = kind.value_type
    nested = types.is_struct(kind) or types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind)
    return bool(nested) or _is_text(kind)


def _is_text(kind: Any) -> bool:
    types = import_arrow("pyarrow").types
    checks = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary, types.is_string_view, types.is_binary_view)
    return any(check(kind) for check in checks)
