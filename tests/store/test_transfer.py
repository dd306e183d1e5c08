from __future__ import annotations

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.errors import InputError
from proctor.store.sql.database import Database
from proctor.store.sql.tables import METADATA
from proctor.store.sql.transfer import ImportCounts, export_lines, import_lines
from tests.databases import TestDatabase

TEXTS = ["", "ü 🦊", "line\nbreak", "'quoted'", '"']
HARD_JSON: list[Any] = [None, {"a": [1, 2.5, True, None, "ü"]}, [], {"n": 3**50}, "text", "5"]


def sample(column: sa.Column[Any], number: int) -> Any:
    """A value for a column, another one for every number."""
    if isinstance(column.type, sa.LargeBinary):
        return bytes(range(256)) * number
    if isinstance(column.type, sa.Boolean):
        return number % 2 == 0
    if isinstance(column.type, sa.Float):
        return number / 3
    if isinstance(column.type, sa.Integer):
        return 2**62 + number
    if isinstance(column.type, sa.JSON):
        return HARD_JSON[number % len(HARD_JSON)]
    if column.nullable and number % 3 == 0:
        return None
    return f"{column.name}-{number:03}-{TEXTS[number % len(TEXTS)]}"


async def fill(database: Database, count: int = 7) -> None:
    async with database.writing() as connection:
        for table in METADATA.sorted_tables:
            for number in range(count):
                await connection.execute(table.insert().values({column.name: sample(column, number) for column in table.c}))


async def everything(database: Database) -> dict[str, list[dict[str, Any]]]:
    async with database.reading() as connection:
        return {
            table.name: [dict(row) for row in (await connection.execute(sa.select(table).order_by(*table.primary_key))).mappings()]
            for table in METADATA.sorted_tables
        }


async def exported(database: Database) -> list[bytes]:
    async with database.reading() as connection, contextlib.aclosing(export_lines(connection, "2026-11-15T09:00:00.000Z")) as lines:
        return [line async for line in lines]


def importing(lines: list[bytes], *, merge: bool = False) -> Any:
    async def use(database: Database) -> ImportCounts:
        async with database.writing() as connection:
            return await import_lines(connection, lines, merge=merge)

    return use


@pytest.fixture
def elsewhere(tmp_path: Path) -> TestDatabase:
    """A SQLite database: so every database is tested as source and as destination, also of the other kind."""
    return TestDatabase(f"sqlite:///{tmp_path / 'elsewhere.db'}", tmp_path)


@pytest.mark.in_turn
@pytest.mark.timeout(60)
def test_every_table_and_every_kind_of_value_arrives_as_it_was(database: TestDatabase, elsewhere: TestDatabase) -> None:
    database.run(lambda opened: fill(opened, 30))
    before, lines = database.run(everything), database.run(exported)
    count = 30 * len(METADATA.sorted_tables)
    assert len(lines) == count + 2
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    assert elsewhere.run(importing(lines)) == ImportCounts(added=count, present=0)
    assert elsewhere.run(everything) == before
    assert elsewhere.run(exported) == lines


def test_from_the_other_database_into_this_one(database: TestDatabase, elsewhere: TestDatabase) -> None:
    elsewhere.run(fill)
    lines = elsewhere.run(exported)
    database.run(importing(lines))
    assert database.run(everything) == elsewhere.run(everything)


@pytest.mark.timeout(60)
def test_a_database_with_content_is_refused_unless_merging_which_can_be_repeated(database: TestDatabase, elsewhere: TestDatabase) -> None:
    elsewhere.run(fill)
    lines = elsewhere.run(exported)
    database.run(lambda opened: fill(opened, 3))
    before = database.run(everything)
    with pytest.raises(InputError, match=r"not empty.*--merge"):
        database.run(importing(lines))
    assert database.run(everything) == before
    tables = len(METADATA.sorted_tables)
    assert database.run(importing(lines, merge=True)) == ImportCounts(added=4 * tables, present=3 * tables)
    assert database.run(importing(lines, merge=True)) == ImportCounts(added=0, present=7 * tables)
    assert database.run(everything) == elsewhere.run(everything)


def test_rows_that_are_there_stay_as_they_are(database: TestDatabase) -> None:
    lines = [HEADER, row("meta", name="a", value="theirs"), row("meta", name="b", value="theirs"), END(2)]

    async def ours(opened: Database) -> None:
        async with opened.writing() as connection:
            await connection.execute(METADATA.tables["meta"].insert().values(name="a", value="ours"))

    database.run(ours)
    database.run(importing(lines, merge=True))
    assert database.run(everything)["meta"] == [{"name": "a", "value": "ours"}, {"name": "b", "value": "theirs"}]


def test_an_export_of_an_older_schema_gets_the_defaults_of_what_it_does_not_have(database: TestDatabase) -> None:
    short = {"id": "proj_1", "organization_id": "o", "name": "n", "created_at": "t", "updated_at": "t"}
    lines = [HEADER, row("projects", **short), row("projects", **{**short, "id": "proj_2", "paused": True}), END(2)]
    database.run(importing(lines))
    assert [found["paused"] for found in database.run(everything)["projects"]] == [False, True]


def line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def row(table: str, **columns: Any) -> bytes:
    return line({"table": table, "row": columns})


def END(rows: int) -> bytes:
    return line({"end": True, "rows": rows})


HEADER = line({"proctor_export": 1, "schema": ["0001_first_tables"]})
META = row("meta", name="a", value="x")
PART = {"trace_id": "t", "number": 1, "created_at": "t"}
BODY = base64.b64encode(b"x").decode()

WRONG: list[tuple[str, list[bytes], str]] = [
    ("nothing", [], "it is not whole"),
    ("no export", [line({"a": 1})], "line 1: not an export of proctor"),
    ("another format", [line({"proctor_export": 2})], "line 1: an export of a format"),
    (
        "newer",
        [line({"proctor_export": 1, "schema": ["0001_first_tables", "9999_new"]})],
        "line 1: the export was written by a newer proctor.*9999_new",
    ),
    ("no schema", [line({"proctor_export": 1})], "line 1: `schema`"),
    ("cut off", [HEADER, META], "ends after line 2 .* not whole"),
    ("cut in a line", [HEADER, META[:-5]], "line 2: not JSON"),
    ("a row missing", [HEADER, META, END(2)], "line 3: 2 rows were written, 1 are here"),
    ("more after the end", [HEADER, END(0), META], "line 3: there is something after the end"),
    ("no object", [HEADER, b"[]\n"], "line 2: expected an object"),
    ("unknown table", [HEADER, row("sqlite_master", name="x")], "line 2: there is no table 'sqlite_master'"),
    ("notes of the schema", [HEADER, row("schema_steps", name="x")], "line 2: there is no table"),
    ("no row", [HEADER, line({"table": "meta", "row": []})], "line 2: `row` should be an object"),
    ("unknown column", [HEADER, row("meta", name="x", vlaue="x")], "line 2: 'meta' has no column 'vlaue'"),
    ("number for text", [HEADER, row("meta", name=1, value="x")], "line 2: meta.name cannot be '1'"),
    ("text for bytes", [HEADER, row("trace_parts", **PART, body="***")], "line 2: trace_parts.body"),
    ("number for bytes", [HEADER, row("trace_parts", **PART, body=5)], "line 2: trace_parts.body"),
    ("huge integer", [HEADER, row("trace_parts", **{**PART, "number": 2**63}, body=BODY)], "line 2: trace_parts.number"),
    ("flag for integer", [HEADER, row("trace_parts", **{**PART, "number": True}, body=BODY)], "line 2: trace_parts.number"),
    (
        "nothing where something must be",
        [HEADER, META, row("meta", name="b", value=None), END(2)],
        "line 3 or before: a row of 'meta' cannot be stored",
    ),
    ("too deep", [HEADER, b"[" * 100_000 + b"\n"], "line 2: not JSON"),
]


@pytest.mark.in_turn
@pytest.mark.parametrize(("lines", "message"), [pytest.param(lines, message, id=name) for name, lines, message in WRONG])
def test_a_broken_export_is_refused_with_its_line_and_nothing_of_it_stays(database: TestDatabase, lines: list[bytes], message: str) -> None:
    with pytest.raises(InputError, match=message):
        database.run(importing(lines))
    assert not any(database.run(everything).values())


def test_concurrent_writes_are_not_half_in_an_export(database: TestDatabase) -> None:
    async def use(opened: Database) -> int:
        await fill(opened, 2)
        async with opened.reading() as connection, contextlib.aclosing(export_lines(connection, "t")) as lines:
            count = 0
            async for _ in lines:
                count += 1
                if count == 2:
                    async with opened.writing() as other:
                        await other.execute(METADATA.tables["traces"].delete())
                        await other.execute(METADATA.tables["meta"].insert().values(name="zzz", value="late"))
        return count

    assert database.run(use) == 2 * len(METADATA.sorted_tables) + 2
