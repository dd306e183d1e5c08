"""The contract of the database, the same for SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from proctor.errors import InputError, MissingExtra, StoreError
from proctor.store.sql import migrations
from proctor.store.sql.database import Database, open_database
from proctor.store.sql.migrations import NOTES, read_schema_state
from proctor.store.sql.tables import METADATA, meta, organizations, projects, run_entries, runs, traces
from tests.databases import TestDatabase, make_tables
from tests.postgres import Cluster


@pytest.fixture
def database_url(empty_database_url: str) -> str:
    """Here it is the making of the tables that is tested."""
    return empty_database_url


async def put(connection: Any, name: str, value: str = "x") -> None:
    await connection.execute(meta.insert().values(name=name, value=value))


async def names(database: Database) -> list[str]:
    async with database.reading() as connection:
        return sorted((await connection.execute(sa.select(meta.c.name))).scalars())


def child(code: str, url: str, *words: str) -> subprocess.Popen[str]:
    script = f"""
import asyncio, os, sys, time
from proctor.store.sql.database import open_database
from proctor.store.sql.tables import meta
URL, WORDS = sys.argv[1], sys.argv[2:]
async def main():
    {code.strip().replace(chr(10), chr(10) + "    ")}
asyncio.run(main())
"""
    return subprocess.Popen([sys.executable, "-c", script, url, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate(timeout=50)
    assert process.returncode == 0, out
    return out


def test_a_new_database_has_every_table_and_can_be_opened_again(database: TestDatabase) -> None:
    async def tables(opened: Database) -> set[str]:
        async with opened.writing() as connection:
            return set(await connection.run_sync(lambda sync: sa.inspect(sync).get_table_names()))

    expected = {*METADATA.tables, NOTES.name}
    assert database.run(tables) == expected
    assert database.run(tables) == expected


def test_committed_writes_are_there_and_failed_ones_are_not(database: TestDatabase) -> None:
    async def use(opened: Database) -> None:
        async with opened.writing() as connection:
            await put(connection, "kept")
        with pytest.raises(ZeroDivisionError):
            async with opened.writing() as connection:
                await put(connection, "undone")
                raise ZeroDivisionError
        async with opened.reading() as connection:
            assert (await connection.execute(sa.select(meta.c.name))).scalars().all() == ["kept"]

    database.run(use)
    assert database.run(names) == ["kept"]


def test_a_cancelled_write_leaves_nothing_and_the_next_one_goes_on(database: TestDatabase) -> None:
    async def use(opened: Database) -> None:
        inside = asyncio.Event()

        async def hang() -> None:
            async with opened.writing() as connection:
                await put(connection, "cancelled")
                inside.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(hang())
        await inside.wait()
        waiting = asyncio.create_task(write())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await waiting
        assert await names(opened) == ["next"]

    async def write() -> None:
        async with current[0].writing() as connection:
            await put(connection, "next")

    current: list[Database] = []

    async def with_current(opened: Database) -> None:
        current.append(opened)
        await use(opened)

    database.run(with_current)


async def test_a_reader_sees_one_moment_and_cannot_write(opened: Database) -> None:
    async with opened.reading() as reader:
        before = (await reader.execute(sa.select(sa.func.count()).select_from(meta))).scalar_one()
        async with opened.writing() as connection:
            await put(connection, "later")
        assert (await reader.execute(sa.select(sa.func.count()).select_from(meta))).scalar_one() == before == 0
    assert await names(opened) == ["later"]
    try:
        async with opened.reading() as reader:
            await put(reader, "by mistake")
    except StoreError:
        assert opened.dialect == "postgresql"
    assert await names(opened) == ["later"]


async def test_many_writers_at_once_all_get_their_turn(opened: Database) -> None:
    async def add(number: int) -> None:
        async with opened.writing() as connection:
            await put(connection, f"{number:02}")

    async with asyncio.timeout(30):
        await asyncio.gather(*(add(number) for number in range(40)))
    assert await names(opened) == [f"{number:02}" for number in range(40)]


async def test_a_broken_rule_of_the_schema_passes_through_as_itself(opened: Database) -> None:
    for values in ({"name": "a", "value": "1"}, {"name": None, "value": "1"}):
        with pytest.raises(IntegrityError):
            async with opened.writing() as connection:
                await put(connection, "a")
                await connection.execute(meta.insert().values(values))
    assert await names(opened) == []


HARD_TEXTS = ["", "ü 🦊 \u2028", "a\0b", "\ud800 half", "x" * 100_000, "'; DROP TABLE meta; --", "%s :name $1 ?"]


async def test_any_text_and_any_json_can_be_stored(opened: Database) -> None:
    values: list[Any] = [*HARD_TEXTS, {"n": 3**50, "deep": [[[{"a\0": "\ud83d"}]]], "f": 1e300, "t": True, "z": None}, [], 0, False]
    for number, value in enumerate(values):
        row = {"id": f"proj_{number}", "organization_id": "o", "name": str(value)[:50], "created_at": "t", "updated_at": "t"}
        async with opened.writing() as connection:
            await connection.execute(projects.insert().values(settings=value, description=value if isinstance(value, str) else None, **row))
        async with opened.reading() as connection:
            stored = (await connection.execute(sa.select(projects).where(projects.c.id == row["id"]))).mappings().one()
        assert stored["settings"] == value
        if isinstance(value, str):
            assert stored["description"] == value.replace("\0", "\ufffd").replace("\ud800", "?")


# Migrations


def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(connection: sa.Connection) -> None:
        connection.execute(sa.text("CREATE TABLE half_done (name TEXT)"))
        connection.execute(sa.text("INSERT INTO organizations VALUES ('o', 'o', 't', 't')"))
        raise RuntimeError("interrupted")

    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, ("9000_half", half)))


@pytest.mark.parametrize("fresh", [True, False])
def test_an_interrupted_migration_leaves_nothing_half_done(database: TestDatabase, fresh: bool) -> None:
    if not fresh:
        database.run(names)
    with pytest.MonkeyPatch.context() as patch:
        failing(patch)
        with pytest.raises(RuntimeError, match="interrupted"):
            database.run(names)

    async def look(opened: Database) -> tuple[list[str], bool, int]:
        async with opened.reading() as connection:
            state = await read_schema_state(connection)
            half = await connection.run_sync(lambda sync: sa.inspect(sync).has_table("half_done"))
            rows = (await connection.execute(sa.select(sa.func.count()).select_from(organizations))).scalar_one()
            return state.applied + state.unknown, half, rows

    assert database.run(look) == ([name for name, _ in migrations.STEPS], False, 0)


def test_a_new_database_is_made_at_once_and_is_what_the_steps_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def schema_of(name: str) -> list[Any]:
        make_tables(f"sqlite:///{tmp_path / name}")
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as database:
            parts = database.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name").fetchall()
            return parts + database.execute(f"SELECT name FROM {NOTES.name} ORDER BY name").fetchall()

    at_once = schema_of("at_once.db")
    monkeypatch.setattr(migrations, "MADE_AT_ONCE", frozenset())
    assert at_once == schema_of("by_steps.db") and len(at_once) > len(migrations.STEPS)


def test_runs_stored_before_they_had_names_survive_the_migration(database: TestDatabase) -> None:
    indices = [str(index.name) for index in runs.indexes]
    named = next(name for name in indices if "name" in name)

    async def as_it_was(opened: Database) -> None:
        async with opened.writing() as connection:
            await connection.execute(NOTES.delete().where(NOTES.c.name.in_(["0005_indices_of_lists", "0006_names_of_runs"])))
            await connection.execute(sa.text(f"DROP INDEX {named}"))
            for column in ("name", "tags"):
                await connection.execute(sa.text(f"ALTER TABLE runs DROP COLUMN {column}"))
            row = {"id": "r", "organization_id": "o", "project_id": "p", "suite_name": "s", "dialect": "native", "document": "", "note": ""}
            row |= {"status": "completed", "created_at": "t", "updated_at": "t"}
            await connection.execute(sa.insert(sa.table("runs", *map(sa.column, row))).values(row))

    async def look(opened: Database) -> tuple[Any, set[str | None]]:
        async with opened.reading() as connection:
            stored = (await connection.execute(sa.select(runs.c.id, runs.c.name, runs.c.tags))).one()
            return tuple(stored), await connection.run_sync(lambda sync: {index["name"] for index in sa.inspect(sync).get_indexes("runs")})

    database.run(as_it_was)
    assert database.run(look) == (("r", None, None), set(indices))


def test_attempts_stored_before_they_had_digests_survive_the_migration(database: TestDatabase) -> None:
    async def as_it_was(opened: Database) -> None:
        async with opened.writing() as connection:
            await connection.execute(NOTES.delete().where(NOTES.c.name == "0009_digests_of_attempts"))
            await connection.execute(sa.text("ALTER TABLE run_entries DROP COLUMN digest"))
            row = {"id": "a", "run_id": "r", "case_id": "c", "attempt": 0, "outcome": "pass", "body": b"b", "created_at": "t"}
            await connection.execute(sa.insert(sa.table("run_entries", *map(sa.column, row))).values(row))

    async def look(opened: Database) -> Any:
        async with opened.reading() as connection:
            return tuple((await connection.execute(sa.select(run_entries.c.id, run_entries.c.digest, run_entries.c.body))).one())

    database.run(as_it_was)
    assert database.run(look) == ("a", None, b"b")


def test_attempts_stored_before_they_were_counted_by_an_index_get_it(database: TestDatabase) -> None:
    old = "run_entries_listed_by_run_id_case_id"

    async def as_it_was(opened: Database) -> None:
        async with opened.writing() as connection:
            await connection.execute(NOTES.delete().where(NOTES.c.name.in_(["0013_shown_of_attempts", "0014_attempts_by_case"])))
            await connection.execute(sa.text("ALTER TABLE run_entries DROP COLUMN shown"))
            await connection.execute(sa.text("DROP INDEX run_entries_by_case"))
            await connection.execute(sa.text(f"CREATE INDEX {old} ON run_entries (run_id, case_id, created_at, id)"))
            row = {"id": "a", "run_id": "r", "case_id": "c", "attempt": 0, "outcome": "pass", "body": b"b", "created_at": "t"}
            await connection.execute(sa.insert(sa.table("run_entries", *map(sa.column, row))).values(row))

    async def look(opened: Database) -> tuple[Any, set[str | None]]:
        async with opened.reading() as connection:
            stored = (await connection.execute(sa.select(run_entries.c.id, run_entries.c.shown, run_entries.c.body))).one()
            found = await connection.run_sync(lambda sync: sa.inspect(sync).get_indexes("run_entries"))
            return tuple(stored), {index["name"] for index in found}

    database.run(as_it_was)
    stored, indices = database.run(look)
    assert stored == ("a", None, b"b") and "run_entries_by_case" in indices and old not in indices


def test_traces_stored_before_attempts_were_counted_survive_the_migration(database: TestDatabase) -> None:
    async def as_it_was(opened: Database) -> None:
        async with opened.writing() as connection:
            await connection.execute(NOTES.delete().where(NOTES.c.name == "0002_attempts_of_traces"))
            for index in ("traces_waiting", "traces_leased"):
                await connection.execute(sa.text(f"DROP INDEX {index}"))
            await connection.execute(sa.text("ALTER TABLE traces DROP COLUMN attempts"))
            await connection.execute(sa.text("CREATE INDEX traces_due ON traces (due_at)"))
            named = {"id": "t", "organization_id": "o", "project_id": "p", "agent_id": "a", "external_id": "e", "format": "otlp"}
            row = {**named, "status": "complete", "created_at": "t", "updated_at": "t"}
            await connection.execute(sa.insert(sa.table("traces", *map(sa.column, row))).values(row))

    async def look(opened: Database) -> tuple[list[int], set[str | None]]:
        async with opened.reading() as connection:
            counts = list((await connection.execute(sa.select(traces.c.attempts))).scalars())
            return counts, await connection.run_sync(lambda sync: {index["name"] for index in sa.inspect(sync).get_indexes("traces")})

    database.run(as_it_was)
    counts, indexes = database.run(look)
    assert counts == [0] and {index.name for index in traces.indexes} <= indexes and "traces_due" not in indexes


@pytest.mark.timeout(60)
def test_a_migration_killed_in_the_middle_is_done_again_from_the_start(database: TestDatabase) -> None:
    code = """
import sqlalchemy as sa
from proctor.store.sql import migrations
def stuck(connection):
    connection.execute(sa.text("CREATE TABLE half_done (name TEXT)"))
    print("in the middle", flush=True)
    time.sleep(60)
migrations.STEPS = (*migrations.STEPS, ("9000_stuck", stuck))
await open_database(URL)
"""
    with child(code, database.url) as process:
        assert process.stdout is not None and process.stdout.readline() == "in the middle\n"
        process.kill()
    assert database.run(names) == []

    async def half(opened: Database) -> bool:
        async with opened.reading() as connection:
            return await connection.run_sync(lambda sync: sa.inspect(sync).has_table("half_done"))

    assert database.run(half) is False


def test_a_database_of_a_newer_program_is_refused_and_left_alone(database: TestDatabase) -> None:
    async def from_the_future(opened: Database) -> None:
        async with opened.writing() as connection:
            await connection.execute(NOTES.insert().values(name="9999_time_travel", applied_at="t"))

    database.run(from_the_future)
    with pytest.raises(StoreError, match=r"newer proctor.*'9999_time_travel'.*upgrade"):
        database.run(names)

    async def look() -> list[str]:
        opened = await open_database(database.url, migrating=False)
        async with opened.reading() as connection:
            state = await read_schema_state(connection)
        await opened.close()
        return state.unknown

    assert asyncio.run(look()) == ["9999_time_travel"]


@pytest.mark.in_turn
@pytest.mark.timeout(60)
def test_processes_that_start_at_once_take_turns_to_migrate(database: TestDatabase) -> None:
    code = """
sys.stdin.readline()
opened = await open_database(URL)
async with opened.writing() as connection:
    await connection.execute(meta.insert().values(name=WORDS[0], value="x"))
await opened.close()
"""
    processes = [child(code, database.url, f"p{number}") for number in range(3)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        finish(process)
    assert database.run(names) == ["p0", "p1", "p2"]


# Crashes and company


@pytest.mark.timeout(60)
def test_committed_writes_survive_kill_9(database: TestDatabase) -> None:
    code = """
opened = await open_database(URL)
for number in range(5):
    async with opened.writing() as connection:
        await connection.execute(meta.insert().values(name=f"committed {number}", value="x"))
async with opened.writing() as connection:
    await connection.execute(meta.insert().values(name="not committed", value="x"))
    print("ready", flush=True)
    time.sleep(60)
"""
    with child(code, database.url) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGKILL)
    assert database.run(names) == [f"committed {number}" for number in range(5)]


@pytest.mark.timeout(60)
def test_two_processes_wait_for_each_other(database: TestDatabase) -> None:
    code = """
opened = await open_database(URL)
async with opened.writing() as connection:
    await connection.execute(meta.insert().values(name="theirs", value="x"))
    print("holding", flush=True)
    time.sleep(0.7)
await opened.close()
"""

    async def use(opened: Database) -> None:
        async with opened.writing() as connection:
            await put(connection, "ours")

    database.run(names)
    with child(code, database.url) as process:
        assert process.stdout is not None and process.stdout.readline() == "holding\n"
        database.run(use)
        finish(process)
    assert database.run(names) == ["ours", "theirs"]


async def test_a_store_error_in_a_block_does_not_block_other_writers(opened: Database) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        async with opened.writing() as connection:
            await put(connection, "lost")
            # As for a body that is broken, or a file of keys that is not there.
            raise StoreError("the body of a trace cannot be read") from ValueError("of the block, and not of the database")
    assert await opened.find_outage() is None
    async with opened.writing() as connection:
        await put(connection, "kept")
    assert await names(opened) == ["kept"]


async def write_again(database: Database) -> None:
    """Wait until writes are accepted again."""
    async with asyncio.timeout(10):
        while True:
            with contextlib.suppress(StoreError):
                async with database.writing():
                    return
            await asyncio.sleep(0.05)


@pytest.mark.live
def test_a_server_that_is_gone_is_a_store_error_and_is_used_again_when_it_is_back() -> None:
    with Cluster(fsync=True) as cluster:
        url = cluster.new_database()

        async def use() -> None:
            opened = await open_database(url)
            async with opened.writing() as connection:
                await put(connection, "before")
            for end in (cluster.stop, cluster.kill):
                with pytest.raises(StoreError, match="the database cannot be used"):
                    async with opened.writing() as connection:
                        end()
                        await put(connection, "lost")
                for way in (opened.writing, opened.reading):
                    with pytest.raises(StoreError, match="the database cannot be used"):
                        async with way() as connection:
                            await connection.execute(sa.select(meta))
                with pytest.raises(StoreError):
                    await open_database(url)
                cluster.start()
                assert await names(opened) == ["before"]
                await write_again(opened)
            await opened.close()

        asyncio.run(use())


@pytest.mark.live
def test_two_servers_of_ours_on_one_postgresql_do_not_see_half_of_a_transaction(postgres: Cluster, tmp_path: Path) -> None:
    url = postgres.new_database()

    async def use() -> None:
        one, two = await open_database(url), await open_database(url)
        async with one.writing() as first:
            await put(first, "a")
            assert await names(two) == []
            async with two.writing() as second:
                await put(second, "b")
        assert await names(two) == ["a", "b"]
        await one.close()
        await two.close()

    asyncio.run(use())
    postgres.drop_database(url)


# SQLite alone


def test_sqlite_is_in_wal_mode_durable_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "proctor.db"

    async def use() -> dict[str, object]:
        opened = await open_database(path)
        async with opened.writing() as connection:
            await put(connection, "x")
            assert {stat.S_IMODE(found.stat().st_mode) for found in path.parent.iterdir()} == {0o600}
            pragmas = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            values = {name: (await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one() for name in pragmas}
        await opened.close()
        return values

    assert asyncio.run(use()) == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5_000}


async def test_a_reader_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    opened = await open_database(tmp_path / "x.db")
    async with opened.writing() as connection:
        await put(connection, "x")
        async with asyncio.timeout(5):
            assert await names(opened) == []
    await opened.close()


def test_a_full_disk_is_a_store_error_and_loses_nothing_stored(tmp_path: Path) -> None:
    async def use() -> None:
        opened = await open_database(tmp_path / "x.db", pool_size=1)
        async with opened.writing() as connection:
            await put(connection, "kept")
        with pytest.raises(StoreError, match="full"):
            async with opened.writing() as connection:
                # No page may be added: SQLite reports the same error as for a full disk.
                await connection.exec_driver_sql("PRAGMA max_page_count=1")
                await put(connection, "too large", "x" * 5_000_000)
        await opened.close()

    asyncio.run(use())
    with sqlite3.connect(tmp_path / "x.db") as connection:
        assert connection.execute("SELECT name FROM meta").fetchall() == [("kept",)]
    connection.close()


def test_files_that_are_no_database_are_distinguished(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to be looked at" * 100)
    (tmp_path / "file").write_text("")
    for path, message in (
        (tmp_path / "text", "not a database"),
        (tmp_path, "unable to open"),
        (tmp_path / "file" / "x.db", "Not a directory|exists"),
    ):
        with pytest.raises(StoreError, match=message):
            asyncio.run(open_database(path))
    with pytest.raises(StoreError, match="there is no database"):
        asyncio.run(open_database(tmp_path / "none.db", migrating=False))
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("://", "cannot be read"),
        ("postgresql://u@h:port/x", "cannot be read"),
        ("mysql://u:secret@h/x", "'mysql' are not supported"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("postgresql://u:secret@h/x?sslmod=require", "unknown option 'sslmod'"),
    ],
)
def test_a_wrong_address_is_explained_and_never_shown(url: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as wrong:
        asyncio.run(open_database(url))
    assert "secret" not in str(wrong.value)


def test_a_missing_server_is_reported_without_the_password() -> None:
    with pytest.raises(StoreError, match="cannot be used") as gone:
        asyncio.run(open_database("postgresql://u:secret@127.0.0.1:1/x"))
    assert "secret" not in str(gone.value)


@pytest.mark.parametrize(("driver", "url", "extra"), [("asyncpg", "postgresql://u@h/x", "postgres"), ("aiosqlite", "x.db", "serve")])
def test_a_missing_driver_names_what_to_install(driver: str, url: str, extra: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(MissingExtra, match=rf"proctor-evals\[{extra}\]"):
        asyncio.run(open_database(url))


@pytest.mark.parametrize("moment", ["in a statement", "between two"])
def test_closing_waits_for_connections_of_cancelled_tasks(database: TestDatabase, moment: str) -> None:
    slow = {
        "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) SELECT count(*) FROM n",
        "postgresql": "SELECT pg_sleep(0.3)",
    }

    async def leave(opened: Database) -> tuple[int, set[str]]:
        async def read() -> None:
            async with opened.reading() as connection:
                await connection.execute(sa.text(slow[opened.dialect] if moment == "in a statement" else "SELECT 1"))
                await asyncio.sleep(5)

        threads = set(threading.enumerate())
        # As for the request of a disconnected client: cancelled at every wait, so that no task awaits the connection.
        with anyio.move_on_after(0.05):
            await read()
        pool = opened.engine.pool
        await opened.close()
        return pool.checkedout(), {thread.name for thread in set(threading.enumerate()) - threads}  # type: ignore[attr-defined]

    # Not by `run`, which closes it once more.
    async def whole() -> tuple[int, set[str]]:
        return await leave(await open_database(database.url))

    assert asyncio.run(whole()) == (0, set())
