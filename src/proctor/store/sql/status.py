"""Reads what a database is and what is in it, whatever its schema; nothing is changed."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from proctor.store.sql.columns import METADATA
from proctor.store.sql.database import Database
from proctor.store.sql.migrations import read_schema_state


class DatabaseStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A database at a glance."""

    dialect: str
    applied: list[str]
    """Steps of the schema that were applied."""
    pending: list[str]
    """Steps that `migrate` would apply."""
    unknown: list[str]
    """Steps of a newer program."""
    bytes: int
    """What it takes on disk."""
    rows: dict[str, int]
    """How many rows each table has; tables that are not made yet are left out."""


async def read_status(database: Database) -> DatabaseStatus:
    """Return the status of a database."""
    async with database.reading() as connection:
        state = await read_schema_state(connection)
        there = set(await connection.run_sync(lambda sync: sa.inspect(sync).get_table_names()))
        rows = {
            str(table.name): int((await connection.execute(sa.select(sa.func.count()).select_from(table))).scalar_one())
            for table in METADATA.sorted_tables
            if table.name in there
        }
        if database.dialect == "sqlite":
            pages = [int((await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one()) for name in ("page_count", "page_size")]
            size = pages[0] * pages[1]
        else:
            size = int((await connection.execute(sa.text("SELECT pg_database_size(current_database())"))).scalar_one())
    return DatabaseStatus(
        dialect=database.dialect, applied=state.applied, pending=state.pending, unknown=state.unknown, bytes=size, rows=rows
    )
