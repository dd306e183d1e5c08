"""Exports a whole database as lines of JSON, and imports it: to move it between SQLite and PostgreSQL, or as a backup. Reads its status.

    {"proctor_export": 1, "schema": ["0001_first_tables"], "exported_at": "..."}
    {"table": "projects", "row": {"id": "proj_...", ...}}          bytes as base64
    {"end": true, "rows": 1234}

One snapshot of the database is written, in an order in which no row refers to a later one. An import is one transaction. Its input is
not trusted: tables, columns and types are checked, and a file that ends too early is rejected.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import InputError
from proctor.model.evidence import Json
from proctor.model.json_values import is_integer, is_number
from proctor.store.sql.compressed_json import from_json, to_json
from proctor.store.sql.database import Database
from proctor.store.sql.migrations import STEPS, read_schema_state
from proctor.store.sql.queries import insert_or_ignore
from proctor.store.sql.tables import METADATA

FORMAT = 1
_ROWS_AT_ONCE = 50
"""Rows inserted by one statement."""
_BYTES_AT_ONCE = 4_000_000
"""Bytes of rows in memory before they are inserted."""
_NOT_CONTENT = ("meta", "organizations")
_LARGEST_INTEGER = 2**63
"""Integers from here on exceed both databases' columns."""


class ImportCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of imported rows."""

    added: int
    present: int
    """Rows that already existed, under their id or another one."""


async def export_lines(connection: AsyncConnection, now: str) -> AsyncGenerator[bytes]:
    """Yield every row of every table from a reading connection; close this (`aclosing`) before the connection."""
    yield to_json({"proctor_export": FORMAT, "schema": [name for name, _ in STEPS], "exported_at": now}) + b"\n"
    count = 0
    for table in METADATA.sorted_tables:
        query = sa.select(table).order_by(*table.primary_key.columns)
        rows = await connection.stream(query.execution_options(yield_per=_ROWS_AT_ONCE))
        try:
            async for row in rows.mappings():
                yield to_json({"table": str(table.name), "row": {name: _write_value(value) for name, value in row.items()}}) + b"\n"
                count += 1
        finally:
            await rows.close()
    yield to_json({"end": True, "rows": count}) + b"\n"


async def import_lines(connection: AsyncConnection, lines: Iterable[bytes], *, merge: bool = False) -> ImportCounts:
    """Import the output of `export_lines` with a writing connection, which is rolled back after an exception.

    Raises `InputError` naming the line. Without `merge` a database with content is refused; with it, rows that are there already stay.
    """
    if not merge and (full := await _find_table_with_content(connection)):
        raise InputError(f"the database is not empty (there are rows in {full!r}); with --merge they stay and what is missing is added")
    existing = await _count_rows(connection)
    total = 0
    for number, table, rows in _group_rows(_read_records(lines)):
        try:
            await connection.execute(insert_or_ignore(connection, table, rows))
        except (IntegrityError, DataError) as error:
            reason = str(getattr(error, "orig", error)).splitlines()[0]
            raise InputError(f"line {number} or before: a row of {table.name!r} cannot be stored: {reason}") from error
        total += len(rows)
    added = await _count_rows(connection) - existing
    return ImportCounts(added=added, present=total - added)


def _read_records(lines: Iterable[bytes]) -> Iterator[tuple[int, sa.Table, dict[str, Any], int]]:
    """Yield line number, table, row and size of every row; check the first and the last line."""
    known = {name for name, _ in STEPS}
    count, ended, number = 0, False, 0
    for number, line in enumerate(lines, 1):
        try:
            record = from_json(line)
        except Exception as error:
            raise InputError(f"line {number}: not JSON") from error
        if not isinstance(record, dict):
            raise InputError(f"line {number}: expected an object")
        if number == 1:
            if "proctor_export" not in record:
                raise InputError("line 1: not an export of proctor")
            if record["proctor_export"] != FORMAT:
                raise InputError(f"line 1: an export of a format this proctor does not know (it reads {FORMAT})")
            schema: Json = record.get("schema")
            if not isinstance(schema, list) or not all(isinstance(step, str) for step in schema):
                raise InputError("line 1: `schema` should be a list of names")
            newer = sorted(set(schema) - known)
            if newer:
                raise InputError(f"line 1: the export was written by a newer proctor (it knows {newer[-1]!r}); upgrade this one first")
        elif ended:
            raise InputError(f"line {number}: there is something after the end")
        elif record.get("end") is True:
            if record.get("rows") != count:
                raise InputError(f"line {number}: {record.get('rows')!r} rows were written, {count} are here: the file is not whole")
            ended = True
        else:
            table, row = _check_row(number, record)
            count += 1
            yield number, table, row, len(line)
    if not ended:
        raise InputError(f"the file ends after line {number} without its last line: it is not whole")


def _group_rows(records: Iterable[tuple[int, sa.Table, dict[str, Any], int]]) -> Iterator[tuple[int, sa.Table, list[dict[str, Any]]]]:
    """Yield groups of rows of one table with the same columns, limited in number and size."""
    rows: list[dict[str, Any]] = []
    current: sa.Table | None = None
    last, size = 0, 0
    for number, table, row, length in records:
        if (
            current is not None
            and rows
            # One INSERT has one list of columns; an export of an older schema may lack some.
            and (table is not current or row.keys() != rows[0].keys() or len(rows) >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE)
        ):
            yield last, current, rows
            rows, size = [], 0
        rows.append(row)
        current, last, size = table, number, size + length
    if current is not None and rows:
        yield last, current, rows


def _check_row(number: int, record: Mapping[str, Json]) -> tuple[sa.Table, dict[str, Any]]:
    name, row = record.get("table"), record.get("row")
    table = METADATA.tables.get(name) if isinstance(name, str) else None
    if table is None:
        raise InputError(f"line {number}: there is no table {name!r}")
    if not isinstance(row, dict):
        raise InputError(f"line {number}: `row` should be an object")
    unknown = [column for column in row if column not in table.c]
    if unknown:
        raise InputError(f"line {number}: {table.name!r} has no column {unknown[0]!r}")
    return table, {column: _read_value(number, table.c[column], value) for column, value in row.items()}


def _read_value(number: int, column: sa.Column[Any], value: Json) -> object:
    if value is None:
        return None
    kind = column.type
    fits = True
    if isinstance(kind, sa.LargeBinary):
        try:
            return base64.b64decode(value, validate=True)
        except (TypeError, ValueError, binascii.Error):
            fits = False
    elif isinstance(kind, sa.Boolean):
        fits = isinstance(value, bool)
    elif isinstance(kind, sa.Float):
        fits = is_number(value)
    elif isinstance(kind, sa.Integer):
        fits = is_integer(value) and -_LARGEST_INTEGER <= value < _LARGEST_INTEGER
    elif not isinstance(kind, sa.JSON):
        fits = isinstance(value, str)
    if not fits:
        raise InputError(f"line {number}: {column.table.name}.{column.name} cannot be {str(value)[:60]!r}")
    return value


async def _find_table_with_content(connection: AsyncConnection) -> str | None:
    for table in METADATA.sorted_tables:
        if table.name not in _NOT_CONTENT and (await connection.execute(sa.select(sa.literal(1)).select_from(table).limit(1))).first():
            return table.name
    return None


async def _count_rows(connection: AsyncConnection) -> int:
    counts = [sa.select(sa.func.count()).select_from(table) for table in METADATA.sorted_tables]
    return sum([int((await connection.execute(query)).scalar_one()) for query in counts])


def _write_value(value: Any) -> Json:
    return base64.b64encode(value).decode() if isinstance(value, (bytes, memoryview)) else value


class DatabaseStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a database."""

    dialect: str
    applied: list[str]
    """Applied schema steps."""
    pending: list[str]
    """Steps that `migrate` would apply."""
    unknown: list[str]
    """Steps of a newer program."""
    bytes: int
    """Bytes on disk."""
    rows: dict[str, int]
    """The number of rows per table, without missing tables."""


async def read_status(database: Database) -> DatabaseStatus:
    """Return the status of a database."""
    async with database.reading() as connection:
        state = await read_schema_state(connection)
        existing = set(await connection.run_sync(lambda sync: sa.inspect(sync).get_table_names()))
        rows = {
            str(table.name): int((await connection.execute(sa.select(sa.func.count()).select_from(table))).scalar_one())
            for table in METADATA.sorted_tables
            if table.name in existing
        }
        if database.dialect == "sqlite":
            pages = [int((await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one()) for name in ("page_count", "page_size")]
            size = pages[0] * pages[1]
        else:
            size = int((await connection.execute(sa.text("SELECT pg_database_size(current_database())"))).scalar_one())
    return DatabaseStatus(
        dialect=database.dialect, applied=state.applied, pending=state.pending, unknown=state.unknown, bytes=size, rows=rows
    )
