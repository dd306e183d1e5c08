from __future__ import annotations

import sqlalchemy as sa

from proctor.store.accounts import tenants
from proctor.store.sql.database import Database
from proctor.store.sql.queries import insert_or_ignore, insert_or_update
from proctor.store.sql.tables import meta, projects

ROW = {"id": "proj_1", "organization_id": "ours", "name": "a", "created_at": "t", "updated_at": "t"}


async def test_rows_of_others_are_not_there(opened: Database) -> None:
    async with opened.writing() as connection:
        made = await tenants.insert_row(connection, projects, ROW)
        assert made["paused"] is False and made["name"] == "a"
        assert await tenants.find_row(connection, projects, "theirs", "proj_1") is None
        assert await tenants.change_row(connection, projects, "theirs", "proj_1", {"name": "b"}) is None
        assert await tenants.delete_row(connection, projects, "theirs", "proj_1") is False
        assert await tenants.find_row(connection, projects, "ours", "proj_1") == made
        assert await tenants.find_row(connection, projects, "ours", "proj_1", name="b") is None
        changed = await tenants.change_row(connection, projects, "ours", "proj_1", {"name": "b", "paused": True})
        assert changed == {**made, "name": "b", "paused": True}
        assert await tenants.delete_row(connection, projects, "ours", "proj_1") is True
        assert await tenants.find_row(connection, projects, "ours", "proj_1") is None


async def test_existing_rows_are_updated_or_left_as_requested(opened: Database) -> None:
    async with opened.writing() as connection:
        for value in ("1", "2"):
            statement = insert_or_update(connection, meta, {"name": "a", "value": value}, key=("name",), change=("value",))
            row = (await connection.execute(statement.returning(meta.c.value))).scalar_one()
            assert row == value
        counted = insert_or_update(connection, meta, {"name": "a", "value": "x"}, key=("name",), change={"value": meta.c.value + "3"})
        assert (await connection.execute(counted.returning(meta.c.value))).scalar_one() == "23"
        many = [{"name": "a", "value": "lost"}, {"name": "b", "value": "new"}]
        await connection.execute(insert_or_ignore(connection, meta, many, key=("name",)))
        await connection.execute(insert_or_ignore(connection, meta, many))
    async with opened.reading() as connection:
        assert dict(tuple(row) for row in await connection.execute(sa.select(meta.c.name, meta.c.value))) == {"a": "23", "b": "new"}
