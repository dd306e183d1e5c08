from __future__ import annotations

from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.sql import verification_records as kept
from proctor.store.sql.database import Database

NOW = "2026-11-15T09:00:00.000Z"
LATER = "2026-11-15T09:00:01.000Z"


async def add(connection: AsyncConnection, id: str, kind: str = "thing", organization: str = "org_a", **more: Any) -> None:
    await kept.add_record(
        connection, kept.NewRecord(id=id, organization_id=organization, kind=kind, **{"body": {"of": id}, **more}), now=NOW
    )


async def test_a_record_is_found_by_its_organization_and_kind_only(opened: Database) -> None:
    async with opened.writing() as connection:
        await add(connection, "t1", slug="one", blob=b"large", parent_id="p")
    async with opened.reading() as connection:
        found = await kept.find_record(connection, "org_a", "thing", "t1")
        assert found is not None and found["body"] == {"of": "t1"} and "blob" not in found
        assert await kept.find_record(connection, "org_b", "thing", "t1") is None
        assert await kept.find_record(connection, "org_a", "other", "t1") is None
        assert await kept.find_by_slug(connection, "org_b", "thing", "one") is None
        assert await kept.read_blob(connection, "org_a", "t1") == b"large"
        assert await kept.read_blob(connection, "org_b", "t1") is None
        assert [row["id"] for row in await kept.children(connection, "org_a", "thing", "p")] == ["t1"]
        assert await kept.children(connection, "org_b", "thing", "p") == []
        assert await kept.count_children(connection, "org_a", "thing", "p") == 1
    async with opened.writing() as connection:
        assert await kept.change_record(connection, "org_b", "t1", now=LATER, body={}) is None
        changed = await kept.change_record(connection, "org_a", "t1", now=LATER, body={"a": 1})
        assert changed is not None and (changed["body"], changed["updated_at"], changed["slug"]) == ({"a": 1}, LATER, "one")
        assert await kept.delete_records(connection, "org_b", ["t1"]) == 0
        assert await kept.delete_records(connection, "org_a", ["t1", "t2"]) == 1


async def test_links_are_followed_both_ways_and_go_with_their_ends(opened: Database) -> None:
    async with opened.writing() as connection:
        for id in ("a", "b", "c"):
            await add(connection, id)
        assert await kept.link(connection, "a", "has", "c", LATER) is True
        assert await kept.link(connection, "a", "has", "b", LATER + "x") is True
        assert await kept.link(connection, "a", "has", "b", NOW) is False
        await kept.link(connection, "a", "knows", "a", NOW)
        linked = await kept.linked(connection, "org_a", "has", ["a", "b"], "thing")
        assert {id: [row["id"] for row in rows] for id, rows in linked.items()} == {"a": ["c", "b"], "b": []}
        assert (await kept.linked(connection, "org_b", "has", ["a"], "thing")) == {"a": []}
        assert [row["id"] for row in await kept.linking(connection, "org_a", "has", ["b", "c"], "thing")] == ["a"]
        assert await kept.unlink(connection, "a", "has", "b") is True
        assert await kept.unlink(connection, "a", "has", "b") is False
        await kept.delete_records(connection, "org_a", ["c"])
        assert await kept.unlink(connection, "a", "has") is False
        assert await kept.unlink(connection, "a", "knows") is True


async def test_what_is_shared_is_found_from_outside_and_nothing_else(opened: Database) -> None:
    async with opened.writing() as connection:
        await add(connection, "old", organization="org_b")
        await add(connection, "new", organization="org_a")
        await kept.link(connection, "new", "public", "name", LATER)
        await kept.link(connection, "old", "public", "name", NOW)
        found = await kept.public_record(connection, "thing", "public", "name")
        assert found is not None and found["id"] == "old"
        assert await kept.public_record(connection, "thing", "public", "other") is None
        assert await kept.public_record(connection, "other", "public", "name") is None
        await kept.link(connection, "old", "seen_by", "org_a", NOW)
        shared = await kept.shared_record(connection, "org_a", "thing", "seen_by", "old")
        assert shared is not None and shared["organization_id"] == "org_b"
        assert await kept.shared_record(connection, "org_c", "thing", "seen_by", "old") is None
        assert await kept.shared_record(connection, "org_a", "thing", "seen_by", "new") is None


async def test_more_records_than_a_statement_takes_are_deleted(opened: Database) -> None:
    async with opened.writing() as connection:
        await add(connection, "t0")
        ids = [f"x{number}" for number in range(2_500)]
        assert await kept.delete_records(connection, "org_a", [*ids, "t0"]) == 1
        assert await kept.find_some(connection, "org_a", "thing", ["t0"]) == []
