"""Many rows in one statement, for SQLite.

The driver gives up the interpreter's lock around every row that it writes, and beside a busy event loop it takes long until it has the lock
back. With a hundred rows in one statement that happens once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

AT_ONCE = 100


async def run_for_rows(
    connection: AsyncConnection, statement: Callable[[str], str], names: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Run a statement for rows. `statement` makes it out of the text that follows VALUES; `names` are the fields of a row, in order."""
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        values = tuple(row[name] for row in some for name in names)
        await connection.exec_driver_sql(_text(statement, len(names), len(some)), values)


@lru_cache(maxsize=500)
def _text(statement: Callable[[str], str], width: int, count: int) -> str:
    row = f"({', '.join('?' * width)})"
    return statement(", ".join([row] * count))
