"""One database of the service: SQLite in a file, or PostgreSQL by its address.

    sqlite:///path/to/proctor.db        (also a bare path)
    postgresql://user@host/name         (`?sslmode=...` and `?application_name=...` as everywhere)

Opening it migrates it to the newest schema; a newer one than this program knows is rejected. SQLite runs in WAL mode with one writer at a
time, in this process by a lock and between processes by waiting; committed data survives a crash (`synchronous=FULL`). Its file is readable
by its owner only, since it contains the inputs of agents.

Any failure of the database is a `StoreError` with one line; an `IntegrityError` is an answer and passes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast
from weakref import WeakSet

from sqlalchemy import event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from proctor.errors import InputError, MissingExtra, StoreError
from proctor.store.sql.compressed_json import from_json, to_json
from proctor.store.sql.migrations import migrate
from proctor.store.sql.text_search import add_text_functions

if TYPE_CHECKING:
    from proctor.store.sql.sqlite_driver import OneWayConnection

Dialect = Literal["sqlite", "postgresql"]
_BUSY_MS = 30_000
"""Milliseconds that opening waits for other processes."""
WRITE_WAIT_S = 5.0
"""Seconds that a writer waits for the lock of another process, or for a connection, before it fails."""
AWAY_S = 1.0
"""Seconds for which other writers fail at once after one could not write."""
_GIVE_BACK_S = 2.0
"""Seconds that closing waits for connections in use."""
_STATEMENT_S = 60.0
"""Maximum seconds of one statement on PostgreSQL."""
_EXPECTED = "expected sqlite:///FILE or postgresql://USER@HOST/NAME"
# A PostgreSQL reader also sees one snapshot, and cannot write by mistake; both are set when the transaction begins.
_ONE_MOMENT = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
# A pooler such as PgBouncer shares connections, so the cache of prepared statements must be switched off.
_ADDRESS_OPTIONS = ("ssl", "host", "port", "prepared_statement_cache_size")


class _Unusable(StoreError):
    """Raised for a failure of the database itself, or of the connection to it."""


class Database:
    """An open database. Reads go over `reading`, changes over `writing`: one transaction each."""

    def __init__(self, engine: AsyncEngine, dialect: Dialect, threads: AbstractSet[OneWayConnection] = frozenset()) -> None:
        self.engine = engine
        self.dialect: Dialect = dialect
        self._threads = threads
        """Connections of SQLite in use, each with a thread."""
        # SQLite has one writer. Waiting for it here is fair and cheap; its own waiting polls and may starve a writer.
        self._one_writer = asyncio.Lock()
        self._writes = False
        """Whether one of our transactions holds the file lock."""
        self._away: tuple[float, StoreError] | None = None
        self._endings: dict[AsyncConnection, contextlib.ExitStack] = {}

    @property
    def file(self) -> Path | None:
        """The path of the database, if it is a file."""
        return Path(self.engine.url.database) if self.dialect == "sqlite" and self.engine.url.database else None

    async def find_outage(self) -> StoreError | None:
        """Return why nothing can be written now, or None if the last writer succeeded. After a failure, writing is tested again."""
        if self._away is not None and time.monotonic() - self._away[0] >= AWAY_S:
            with contextlib.suppress(StoreError):
                async with self.writing() as connection:
                    if self.dialect == "sqlite":
                        # Writes a page: the lock can be taken even on a full disk.
                        version: int = (await connection.exec_driver_sql("PRAGMA user_version")).scalar_one()
                        await connection.exec_driver_sql(f"PRAGMA user_version = {version}")
        return None if self._away is None else self._away[1]

    async def is_locked(self, *, within_s: float) -> bool:
        """Return whether another program holds the write lock for longer than that. Only a file has such a lock."""
        path = self.file
        if path is None or self._writes:
            return False
        # A writer that has started in the meantime is one of ours.
        return await asyncio.to_thread(_is_locked, path, within_s) and not self._writes

    def call_at_end(self, connection: AsyncConnection, call: Callable[[], None]) -> None:
        """Register a call for the end of a connection's `writing` transaction, committed or rolled back.

        What others may read again until then is forgotten only then: in the transaction itself it would be remembered as it was.
        """
        self._endings[connection].callback(call)

    def _refuse_while_away(self) -> None:
        if self._away is not None and time.monotonic() - self._away[0] < AWAY_S:
            # A new error for each caller: one object raised in several tasks would accumulate all their tracebacks.
            raise StoreError(str(self._away[1])) from self._away[1].__cause__

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncGenerator[AsyncConnection]:
        """Yield a connection that sees one snapshot of the database; writes on it are lost."""
        async with translate_errors(), self.engine.connect() as connection:
            if self.dialect == "sqlite":
                # Without it, each statement sees its own snapshot: the driver begins no transactions here.
                await connection.exec_driver_sql("BEGIN")
            else:
                await connection.execution_options(**_ONE_MOMENT)
            yield connection

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncGenerator[AsyncConnection]:
        """Yield a transaction that is committed at the end of the block, and rolled back after an exception.

        While the database is away, one writer at a time tests it; the others fail at once.
        """
        self._refuse_while_away()
        try:
            # The calls at the end are the lowest on the stack, so that they run after the commit.
            async with translate_errors(), contextlib.AsyncExitStack() as stack:
                endings = stack.enter_context(contextlib.ExitStack())
                if self.dialect == "sqlite":
                    await stack.enter_async_context(self._one_writer)
                    # The previous writer may have found the database unavailable: then the next one does not wait.
                    self._refuse_while_away()
                    connection = await stack.enter_async_context(self.engine.begin())
                    # The lock is taken at once: a transaction that read first could not write after another writer.
                    await connection.exec_driver_sql("BEGIN IMMEDIATE")
                    self._writes = True
                    stack.callback(setattr, self, "_writes", False)
                else:
                    try:
                        async with asyncio.timeout(WRITE_WAIT_S):
                            connection = await stack.enter_async_context(self.engine.begin())
                    except TimeoutError as error:
                        raise _Unusable(f"the database cannot be used: it did not answer within {WRITE_WAIT_S:g} s") from error
                self._endings[connection] = endings
                stack.callback(self._endings.pop, connection)
                yield connection
        except StoreError as error:
            # An error raised by the block, such as a lost lease or an unreadable body, does not mean that the database is unavailable.
            if isinstance(error, _Unusable) and is_gone(error):
                self._away = (time.monotonic(), error)
            raise
        self._away = None

    async def close(self) -> None:
        """Close every connection, after a short wait for those that are being returned."""
        # A cancelled task returns its connection in another task; if the event loop ends first, a socket or thread would be left for the
        # garbage collector or write to a closed loop.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GIVE_BACK_S):
                while cast(AsyncAdaptedQueuePool, self.engine.pool).checkedout():
                    await asyncio.sleep(0.005)
                await self.engine.dispose()
                while any(connection.is_running for connection in self._threads):
                    await asyncio.sleep(0.005)
        await self.engine.dispose()


@contextlib.asynccontextmanager
async def translate_errors() -> AsyncGenerator[None]:
    """Raise `StoreError` for a database that cannot be reached or written to; a constraint violation stays an `IntegrityError`.

    So does what the block itself raises, a file that it could not read for example.
    """
    try:
        yield
    except IntegrityError:
        raise
    except (DBAPIError, PoolTimeout, sqlite3.Error) as error:
        raise _make_store_error(error) from error
    except Exception as error:
        # Drivers that lose a connection or time out raise system errors, and some of their own, unwrapped.
        if not _came_from_a_driver(error):
            raise
        raise _make_store_error(error) from error


def is_gone(error: Exception) -> bool:
    """Return whether the database itself is unusable (gone, locked, full), so that trying row by row is useless."""
    cause = error.__cause__
    return isinstance(error, StoreError) and (
        not isinstance(cause, DBAPIError) or isinstance(cause, OperationalError) or cause.connection_invalidated
    )


def _came_from_a_driver(error: Exception) -> bool:
    if type(error).__module__.partition(".")[0] == "asyncpg":
        return True
    if not isinstance(error, OSError):
        return False
    # An `OSError` of the driver and one of the caller's block look alike; only the traceback differs.
    trace = error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__", "")).startswith(("sqlalchemy.", "asyncpg.", "aiosqlite.")):
            return True
        trace = trace.tb_next
    return False


def _make_store_error(error: Exception) -> StoreError:
    lines = str(getattr(error, "orig", None) or error).splitlines()
    # The driver wraps its own errors again: `<class 'asyncpg.exceptions.X'>: message`.
    line = lines[0] if lines else type(error).__name__
    if line.startswith("<class "):
        line = line.partition(">: ")[2] or line
    return _Unusable(f"the database cannot be used: {line}")


async def open_database(url: str | Path, *, pool_size: int = 10, migrating: bool = True) -> Database:
    """Open the database at `url`, created and migrated if needed.

    Raises `InputError` for a wrong address, `MissingExtra` without the driver, `StoreError` for the rest. With `migrating=False` the
    schema is left as it is, whatever it is.
    """
    address = _parse_address(url)
    dialect = cast(Dialect, address.get_backend_name())
    threads: WeakSet[OneWayConnection] = WeakSet()
    options: dict[str, Any] = {
        "json_serializer": lambda value: to_json(value).decode(),
        "json_deserializer": from_json,
        "pool_size": pool_size,
    }
    if dialect == "sqlite":
        options["connect_args"] = {"timeout": WRITE_WAIT_S, "async_creator_fn": partial(_connect_sqlite, threads)}
    else:
        address, arguments = _postgres_arguments(address)
        # A connection that the server dropped is noticed before it is used.
        options |= {"max_overflow": 5, "pool_pre_ping": True, "pool_timeout": WRITE_WAIT_S, "connect_args": arguments}
    try:
        engine = create_async_engine(address, **options)
    except ModuleNotFoundError as error:
        raise (
            MissingExtra("A PostgreSQL database", "postgres") if error.name == "asyncpg" else MissingExtra("A database", "serve")
        ) from error
    if dialect == "sqlite":
        event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    database = Database(engine, dialect, threads)
    try:
        async with translate_errors():
            if dialect == "sqlite":
                await asyncio.to_thread(_prepare_file, Path(cast(str, address.database)), make=migrating)
            if migrating:
                await migrate(engine, dialect)
    except BaseException:
        # Also when cancelled: connections have threads or sockets, and only this code knows the engine yet.
        await engine.dispose()
        raise
    return database


def _parse_address(url: str | Path) -> URL:
    text = str(url)
    if "://" not in text:
        return URL.create("sqlite+aiosqlite", database=text)
    try:
        address = make_url(text)
    except (ArgumentError, ValueError):
        raise InputError(f"the address of the database cannot be read; {_EXPECTED}") from None
    match address.get_backend_name():
        case "sqlite":
            if not address.database or address.database == ":memory:":
                raise InputError(f"a database in memory keeps nothing; {_EXPECTED}")
            return address.set(drivername="sqlite+aiosqlite", query={})
        case "postgresql" | "postgres":
            return address.set(drivername="postgresql+asyncpg")
        case other:
            raise InputError(f"databases of kind {other!r} are not supported; {_EXPECTED}")


def _postgres_arguments(address: URL) -> tuple[URL, dict[str, Any]]:
    """Return the address in the driver's form, and its other arguments. Options are spelled as in other clients."""
    query = dict(address.query)
    arguments: dict[str, Any] = {
        "timeout": WRITE_WAIT_S,
        "command_timeout": _STATEMENT_S,
        "server_settings": {"application_name": query.pop("application_name", "proctor")},
    }
    # libpq and most tools use `sslmode`; asyncpg accepts the same values as `ssl`.
    if "sslmode" in query:
        query["ssl"] = query.pop("sslmode")
    unknown = sorted(set(query) - set(_ADDRESS_OPTIONS))
    if unknown:
        raise InputError(
            f"the address of the database has an unknown option {unknown[0]!r}; there are sslmode, application_name, host, port"
        )
    return address.set(query=query), arguments


def _prepare_file(path: Path, *, make: bool) -> None:
    """Create the file, or report errors with it, before a pool of connections is opened."""
    if make:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Readable by its owner only: it contains traces and results. SQLite gives its `-wal` and `-shm` files the same mode.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError as error:
            if not path.exists():
                raise _make_store_error(error) from error
    elif not path.exists():
        raise StoreError(f"there is no database at {str(path)!r}")
    with contextlib.closing(sqlite3.connect(path, timeout=_BUSY_MS / 1000, isolation_level=None)) as connection:
        _switch_to_wal(connection)


def _is_locked(path: Path, within_s: float) -> bool:
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=within_s, isolation_level=None)) as connection:
            # SQLite cannot report who holds the lock; taking it for an instant tests that.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        return "locked" in str(error)
    return False


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    # Stored in the file, so it changes only once. SQLite does not wait if another process makes this change at the same time.
    end = time.monotonic() + _BUSY_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.02)


def _connect_sqlite(threads: WeakSet[OneWayConnection], database: str, **options: Any) -> Any:
    from proctor.store.sql.sqlite_driver import connect  # the driver may be missing, which opening the database reports

    connection = connect(database, **options)
    threads.add(connection)
    return connection


def _prepare_sqlite(connection: Any, record: object) -> None:
    # We begin transactions (`writing`), not the driver at the first change.
    connection.isolation_level = None
    cursor = connection.cursor()
    # FULL: in WAL mode SQLite's NORMAL may lose the last commits in a power cut, and these were acknowledged. The size limit cuts the log
    # back after a large transaction, which would otherwise stay that large.
    for pragma in ("synchronous=FULL", "foreign_keys=ON", "temp_store=MEMORY", "journal_size_limit=67108864"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
    add_text_functions(connection)
