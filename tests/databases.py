"""A fresh database for a test, and a way to run asynchronous code against it.

    async def test_something(hub: Hub) -> None:
        ...

`hub` and `opened` (tests/conftest.py) are one service and one database for the whole test. A test that needs several of them, one after
another or with other settings, takes `database` and calls `database.run_hub(use, ...)` for each. All of them run
once for SQLite and once, marked `live`, for PostgreSQL.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from proctor.service.hub import Hub
from proctor.service.settings import ServiceSettings
from proctor.store.sql.database import Database, open_database

T = TypeVar("T")


def make_tables(url: str) -> None:
    """Make the tables of an empty database."""

    async def make() -> None:
        await (await open_database(url)).close()

    asyncio.run(make())


class TestDatabase:
    """The address of a database, and a folder. To the database, each `run` looks like a separate process."""

    __test__ = False

    def __init__(self, url: str, home: Path) -> None:
        self.url = url
        self.home = home

    @property
    def is_postgres(self) -> bool:
        return self.url.startswith("postgresql")

    def run(self, use: Callable[[Database], Awaitable[T]]) -> T:
        """Open the database, use it, close it."""

        async def whole() -> T:
            database = await open_database(self.url)
            try:
                return await use(database)
            finally:
                await database.close()

        return asyncio.run(whole())

    def run_hub(self, use: Callable[[Hub], Awaitable[T]], *, clock: Callable[[], float] = time.time, **settings: Any) -> T:
        """The same with a hub over it."""

        async def with_hub(database: Database) -> T:
            return await use(Hub(database=database, settings=ServiceSettings(home=self.home, **settings), clock=clock))

        return self.run(with_hub)
