"""Connections to SQLite that switch to their thread once per statement.

The driver has a thread for every connection. SQLAlchemy switches to it and back for a cursor, for the statement, for its rows, for closing
the cursor, and for returning the connection. If the event loop is busy, each of these switches waits, while the one write lock is held.
Here a statement and its rows are one switch, and everything else is done without one.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import aiosqlite

T = TypeVar("T")

_AHEAD = 1_000
"""Rows fetched with a statement; more are fetched on demand, so that a stream is never completely in memory."""


def connect(database: str, **options: Any) -> OneWayConnection:
    """Return an awaitable connection."""
    return OneWayConnection(database, options)


class OneWayConnection(aiosqlite.Connection):
    """A connection as SQLAlchemy expects it."""

    def __init__(self, database: str, options: dict[str, Any]) -> None:
        super().__init__(lambda: sqlite3.connect(database, **options), iter_chunk_size=64)
        # As SQLAlchemy does: a connection that was not closed must not prevent the process from ending.
        self._thread.daemon = True
        self._given_up = False
        """Whether a caller stopped waiting for work that the thread may still do."""
        self._is_stopped = False
        self._end: asyncio.Future[Any] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the thread of this connection is running."""
        return self._thread.is_alive()

    def stop(self) -> asyncio.Future[Any] | None:
        """End the thread after its queued work, and return a future for its end if there is an event loop."""
        # May be called twice: if closing is cancelled, the caller stops the thread, and then closing continues and stops it again. The
        # second call of the driver would wait forever for the ended thread, and the program could not exit.
        if not self._is_stopped:
            self._is_stopped = True
            self._end = super().stop()
        return self._end

    async def run_in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run work in the thread of this connection."""
        try:
            return await self._execute(work, *arguments)
        except asyncio.CancelledError:
            # The thread may still be running it, so `in_transaction` is no longer reliable.
            self._given_up = True
            raise

    @property
    def inner(self) -> sqlite3.Connection:
        """The inner connection, for code in its thread."""
        return self._conn

    def cursor(self) -> OneWayCursor:  # type: ignore[override]  # also a context manager, created without a switch
        """Return a cursor; the thread creates its own with the statement."""
        return OneWayCursor(self)

    async def run_all(self, works: Sequence[tuple[str, Sequence[Any]]]) -> None:
        """Run several statements without results, one after the other."""
        await self.run_in_thread(self._run_all, works)

    def _run_all(self, works: Sequence[tuple[str, Sequence[Any]]]) -> None:
        for statement, values in works:
            self._conn.execute(statement, values).close()

    async def rollback(self) -> None:
        """Roll back uncommitted changes, usually none."""
        # This check needs no switch to the thread, and most connections are returned with nothing to roll back.
        if self._given_up or self._conn.in_transaction:
            await super().rollback()

    async def commit(self) -> None:
        """Commit changes, if any."""
        if self._given_up or self._conn.in_transaction:
            await super().commit()


class OneWayCursor:
    """A cursor as SQLAlchemy expects it."""

    def __init__(self, connection: OneWayConnection) -> None:
        self._connection = connection
        self._open: sqlite3.Cursor | None = None
        self._rows: list[Any] = []
        self.arraysize = 1
        self.description: Any = None
        self.rowcount = -1
        self.lastrowid: int | None = None

    async def __aenter__(self) -> OneWayCursor:
        """Return the cursor; nothing is created yet."""
        return self

    async def execute(self, statement: str, values: Any = ()) -> OneWayCursor:
        """Run a statement and fetch its first rows."""
        await self._connection.run_in_thread(self._run, statement, values)
        return self

    async def executemany(self, statement: str, rows: Sequence[Any]) -> OneWayCursor:
        """Run a statement for many rows."""
        await self._connection.run_in_thread(self._run_many, statement, rows)
        return self

    async def fetchall(self) -> list[Any]:
        """Return the remaining rows."""
        rows, self._rows = self._rows, []
        if self._open is not None:
            rows += await self._connection.run_in_thread(self._open.fetchall)
            await self.close()
        return rows

    async def fetchmany(self, size: int | None = None) -> list[Any]:
        """Return the next rows."""
        wanted = size or self.arraysize
        rows, self._rows = self._rows[:wanted], self._rows[wanted:]
        if len(rows) < wanted and self._open is not None:
            rows += await self._connection.run_in_thread(self._open.fetchmany, wanted - len(rows))
        return rows

    async def fetchone(self) -> Any:
        """Return the next row, if there is one."""
        return next(iter(await self.fetchmany(1)), None)

    async def close(self) -> None:
        """Close the cursor and drop unfetched rows."""
        self._rows = []
        opened, self._open = self._open, None
        if opened is not None:
            await self._connection.run_in_thread(opened.close)

    def _run(self, statement: str, values: Any) -> None:
        cursor = self._connection.inner.execute(statement, values)
        self.description, self.lastrowid = cursor.description, cursor.lastrowid
        self._rows = cursor.fetchmany(_AHEAD) if cursor.description is not None else []
        # After the rows: sqlite3 knows the row count of a statement with RETURNING only after its rows were fetched.
        self.rowcount = cursor.rowcount
        # Fewer rows than the limit are all rows, and the cursor needs no extra switch to be closed.
        if len(self._rows) == _AHEAD:
            self._open = cursor
        else:
            cursor.close()

    def _run_many(self, statement: str, rows: Sequence[Any]) -> None:
        cursor = self._connection.inner.executemany(statement, rows)
        self.rowcount = cursor.rowcount
        cursor.close()
