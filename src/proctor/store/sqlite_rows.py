"""Writes many rows to SQLite in few statements and one switch to the driver's thread.

The driver gives up the interpreter's lock around every row that it writes, and beside a busy event loop it takes long until it has the lock
back. With hundreds of rows in one statement that happens once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.sqlite_driver import OneWayConnection

_SIZES = (500, 250, 100, 50, 20, 10, 5, 2, 1)
"""Rows in one statement. Few sizes, because the driver keeps what it has prepared."""


async def run_for_rows(
    connection: AsyncConnection, statement: Callable[[str], str], names: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Run a statement for rows. `statement` makes it out of the text that follows VALUES; `names` are the fields of a row, in order."""
    works: list[tuple[str, tuple[Any, ...]]] = []
    start = 0
    while start < len(rows):
        # The widest row has 16 fields: 500 rows are 8,000 parameters, and SQLite takes 32,766 in one statement.
        size = next(size for size in _SIZES if size <= len(rows) - start)
        some = rows[start : start + size]
        works.append((_write_statement(statement, len(names), size), tuple(row[name] for row in some for name in names)))
        start += size
    driver = cast(OneWayConnection, (await connection.get_raw_connection()).driver_connection)
    await driver.run_all(works)


@lru_cache(maxsize=100)
def _write_statement(statement: Callable[[str], str], width: int, count: int) -> str:
    row = f"({', '.join('?' * width)})"
    return statement(", ".join([row] * count))
