from __future__ import annotations

import base64
import json

import pytest
import sqlalchemy as sa

from proctor.service.paging import fetch_page_or_refuse, show_page
from proctor.service.refusals import Refusal
from proctor.store.sql.database import Database
from proctor.store.sql.pages import BadCursor, Page, fetch_page
from proctor.store.sql.tables import projects


async def fill(database: Database, count: int, first: int = 0) -> None:
    async with database.writing() as connection:
        for number in range(first, first + count):
            # Three rows share a time: ids decide between them.
            at = f"2026-11-15T09:00:00.{number // 3:03}Z"
            await connection.execute(
                projects.insert().values(id=f"proj_{number:03}", organization_id="o", name="n", created_at=at, updated_at=at)
            )


async def get(database: Database, cursor: str | None = None, limit: int | None = 4) -> Page:
    async with database.reading() as connection:
        return await fetch_page(
            connection, sa.select(projects).where(projects.c.organization_id == "o"), projects, limit=limit, cursor=cursor
        )


def ids(found: Page) -> list[int]:
    return [int(row["id"][-3:]) for row in found.rows]


@pytest.mark.parametrize("count", [0, 1, 4, 5, 10])
async def test_every_row_comes_once_newest_first_and_back_again(count: int, opened: Database) -> None:
    await fill(opened, count)
    found = await get(opened)
    pages = [ids(found)]
    while found.next is not None:
        found = await get(opened, found.next)
        pages.append(ids(found))
    assert [number for one in pages for number in one] == list(range(count - 1, -1, -1))
    assert all(pages) or count == 0
    back = [ids(found)]
    while found.prev is not None:
        found = await get(opened, found.prev)
        if found.rows:
            back.insert(0, ids(found))
    assert back == pages


async def test_rows_added_between_pages_neither_repeat_nor_hide_others(opened: Database) -> None:
    await fill(opened, 6)
    first = await get(opened)
    await fill(opened, 5, first=6)
    second = await get(opened, first.next)
    assert ids(first) + ids(second) == [5, 4, 3, 2, 1, 0]
    assert ids(await get(opened, second.prev)) == [5, 4, 3, 2]


@pytest.mark.parametrize(("requested", "given"), [(None, 20), (0, 1), (-5, 1), (1, 1), (100, 100), (10**9, 100)])
async def test_a_limit_is_brought_into_its_bounds(requested: int | None, given: int, opened: Database) -> None:
    await fill(opened, 3)
    found = await get(opened, limit=requested)
    assert (found.limit, len(found.rows)) == (given, min(3, given))


def forged(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "!!!",
        "ü",
        "a" * 10_000,
        forged([]),
        forged(["sideways", "t", "i"]),
        forged(["older", 1, 2]),
        forged(["older", "\0", "i"]),
        forged({}),
    ],
)
async def test_a_cursor_that_no_page_gave_out_is_refused(cursor: str, opened: Database) -> None:
    with pytest.raises(BadCursor):
        await get(opened, cursor)
    async with opened.reading() as connection:
        with pytest.raises(Refusal) as refused:
            await fetch_page_or_refuse(connection, sa.select(projects), projects, cursor=cursor)
    assert (refused.value.code, refused.value.status) == ("BAD_REQUEST", 400)


async def test_a_forged_cursor_cannot_leave_the_query(opened: Database) -> None:
    await fill(opened, 2)
    for edge in (["older", "9' OR 1=1 --", "x"], ["newer", "", ""]):
        async with opened.reading() as connection:
            query = sa.select(projects).where(projects.c.organization_id == "another")
            assert (await fetch_page(connection, query, projects, cursor=forged(edge))).rows == []


def test_a_page_is_shown_in_the_shape_of_the_wire() -> None:
    found = Page(rows=[{"id": "a"}], next="n", limit=20)
    assert show_page(found, lambda row: row["id"]) == {"data": ["a"], "_meta": {"next": "n", "prev": None, "limit": 20}}
