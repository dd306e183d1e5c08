"""One way to the driver's thread for a statement and its rows: the answers are those of any driver, and the ways are counted."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from proctor.errors import StoreError
from proctor.store.sql import sqlite_driver
from proctor.store.sql.database import Database, open_database
from proctor.store.sql.sqlite_driver import OneWayConnection
from proctor.store.traces.trace_work import run_for_rows

TABLE = sa.Table("numbers", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("word", sa.Text, unique=True))


class Ways:
    """Counts the calls into the thread of a connection."""

    def __init__(self) -> None:
        self.count = 0


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    counted = Ways()
    execute: Any = vars(aiosqlite.Connection)["_execute"]

    async def counting(self: OneWayConnection, *arguments: Any, **named: Any) -> Any:
        counted.count += 1
        return await execute(self, *arguments, **named)

    monkeypatch.setattr(OneWayConnection, "_execute", counting)
    return counted


def used(tmp_path: Path, use: Callable[[Database], Awaitable[None]]) -> None:
    async def whole() -> None:
        database = await open_database(tmp_path / "numbers.db", pool_size=2)
        try:
            async with database.writing() as connection:
                await connection.run_sync(TABLE.create)
            await use(database)
        finally:
            await database.close()

    asyncio.run(whole())


async def filled(database: Database, count: int) -> None:
    async with database.writing() as connection:
        await connection.execute(sa.insert(TABLE), [{"id": number, "word": f"word {number}"} for number in range(count)])


def test_a_transaction_takes_one_way_for_its_beginning_each_statement_and_its_end(tmp_path: Path, ways: Ways) -> None:
    async def use(database: Database) -> None:
        await filled(database, 3)
        before = ways.count
        async with database.writing() as connection:
            await connection.execute(sa.insert(TABLE).values(id=7, word="seven"))
            found = (await connection.execute(sa.select(TABLE.c.word).where(TABLE.c.id > 1).order_by(TABLE.c.id))).scalars().all()
        assert found == ["word 2", "seven"]
        assert ways.count - before == 4
        before = ways.count
        async with database.reading() as connection:
            assert (await connection.execute(sa.select(sa.func.count()).select_from(TABLE))).scalar_one() == 4
        assert ways.count - before == 3, "what is read in one block is of one moment, so it is a transaction too"

    used(tmp_path, use)


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 25])
def test_more_rows_than_come_along_are_fetched_whole_and_streamed_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ways: Ways, count: int
) -> None:
    monkeypatch.setattr(sqlite_driver, "_AHEAD", 10)

    async def use(database: Database) -> None:
        await filled(database, count) if count else None
        query = sa.select(TABLE.c.id).order_by(TABLE.c.id)
        async with database.reading() as connection:
            assert (await connection.execute(query)).scalars().all() == list(range(count))
            streamed = await connection.stream(query.execution_options(yield_per=4))
            assert [row.id async for row in streamed] == list(range(count))
            # Abandoned in the middle: later use is not affected.
            started = await connection.stream(query.execution_options(yield_per=4))
            assert ((await started.fetchone()) is None) == (count == 0)
            await started.close()
            assert (await connection.execute(sa.select(sa.func.count()).select_from(TABLE))).scalar_one() == count

    used(tmp_path, use)


def test_constraint_and_read_errors_are_those_of_any_driver(tmp_path: Path) -> None:
    async def use(database: Database) -> None:
        await filled(database, 2)
        with pytest.raises(IntegrityError):
            async with database.writing() as connection:
                await connection.execute(sa.insert(TABLE).values(id=9, word="word 1"))
        with pytest.raises(StoreError, match="no such table"):
            async with database.reading() as connection:
                await connection.exec_driver_sql("SELECT * FROM nowhere")
        with pytest.raises(ZeroDivisionError):
            async with database.writing() as connection:
                await connection.execute(sa.insert(TABLE).values(id=9, word="nine"))
                raise ZeroDivisionError
        async with database.reading() as connection:
            assert (await connection.execute(sa.select(TABLE.c.id))).scalars().all() == [0, 1], "nothing of it is stored"

    used(tmp_path, use)


def test_many_rows_are_one_way_whatever_their_number(tmp_path: Path, ways: Ways) -> None:
    def statement(values: str) -> str:
        return f"INSERT INTO numbers (id, word) VALUES {values}"

    async def use(database: Database) -> None:
        for count, first in ((1, 0), (7, 10), (1_239, 100), (0, 5_000)):
            rows = [{"word": f"w{number}", "id": number} for number in range(first, first + count)]
            before = ways.count
            async with database.writing() as connection:
                await run_for_rows(connection, statement, ("id", "word"), rows)
            assert ways.count - before == 3
        async with database.reading() as connection:
            found = (await connection.execute(sa.select(TABLE.c.id, TABLE.c.word))).all()
        assert len(found) == 1_247 and all(word == f"w{number}" for number, word in found)
        with pytest.raises(StoreError, match="UNIQUE"):
            async with database.writing() as connection:
                await run_for_rows(connection, statement, ("id", "word"), [{"id": 9_000, "word": "x"}, {"id": 1, "word": "w0"}])
        async with database.reading() as connection:
            assert (await connection.execute(sa.select(TABLE.c.id).where(TABLE.c.id == 9_000))).all() == []

    used(tmp_path, use)


def test_the_id_of_a_new_row_is_known(tmp_path: Path) -> None:
    async def use(database: Database) -> None:
        async with database.writing() as connection:
            made = await connection.execute(sa.insert(TABLE).values(word="one"))
            assert made.inserted_primary_key == (1,) and made.rowcount == 1
            changed = await connection.execute(sa.update(TABLE).values(word="two"))
            assert changed.rowcount == 1

    used(tmp_path, use)
    connection = sqlite3.connect(tmp_path / "numbers.db")
    assert connection.execute("SELECT word FROM numbers").fetchall() == [("two",)]
    connection.close()


def test_a_write_cancelled_while_waiting_for_the_lock_leaves_no_transaction(tmp_path: Path) -> None:
    async def use(database: Database) -> None:
        other = sqlite3.connect(tmp_path / "numbers.db", isolation_level=None, check_same_thread=False)
        for _ in range(5):
            other.execute("BEGIN IMMEDIATE")

            async def write() -> None:
                async with database.writing() as connection:
                    await connection.execute(sa.insert(TABLE).values(word="late"))

            task = asyncio.create_task(write())
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.sleep(0)
            other.execute("COMMIT")
            with pytest.raises(asyncio.CancelledError):
                await task
            # The next caller can write, and so can others.
            async with database.writing() as connection:
                await connection.execute(sa.delete(TABLE))
            other.execute("BEGIN IMMEDIATE")
            other.execute("COMMIT")
        assert other.execute("SELECT word FROM numbers").fetchall() == []
        other.close()

    used(tmp_path, use)
