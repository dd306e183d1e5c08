from __future__ import annotations

from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.sql import verification_records as records
from proctor.store.sql.database import Database

NOW = "2026-11-15T09:00:00.000Z"
LATER = "2026-11-15T09:00:01.000Z"


async def add(connection: AsyncConnection, id: str, kind: str = "thing", organization: str = "org_a", **more: Any) -> None:
    await records.add_record(
        connection, records.NewRecord(id=id, organization_id=organization, kind=kind, **{"body": {"of": id}, **more}), now=NOW
    )


async def test_a_record_is_found_by_its_organization_and_kind_only(opened: Database) -> None:
    async with opened.writing() as connection:
        await add(connection, "t1", slug="one", blob=b"large", parent_id="p")
    async with opened.reading() as connection:
        found = await records.find_record(connection, "org_a", "thing", "t1")
        assert found is not None and found["body"] == {"of": "t1"} and "blob" not in found
        assert await records.find_record(connection, "org_b", "thing", "t1") is None
        assert await records.find_record(connection, "org_a", "other", "t1") is None
        assert await records.find_by_slug(connection, "org_b", "thing", "one") is None
        assert await records.read_blob(connection, "org_a", "t1") == b"large"
        assert await records.read_blob(connection, "org_b", "t1") is None
        assert [row["id"] for row in await records.children(connection, "org_a", "thing", "p")] == ["t1"]
        assert await records.children(connection, "org_b", "thing", "p") == []
        assert await records.count_children(connection, "org_a", "thing", "p") == 1
    async with opened.writing() as connection:
        assert await records.change_record(connection, "org_b", "t1", now=LATER, body={}) is None
        changed = await records.change_record(connection, "org_a", "t1", now=LATER, body={"a": 1})
        assert changed is not None and (changed["body"], changed["updated_at"], changed["slug"]) == ({"a": 1}, LATER, "one")
        assert await records.delete_records(connection, "org_b", ["t1"]) == 0
        assert await records.delete_records(connection, "org_a", ["t1", "t2"]) == 1


async def test_links_are_followed_both_ways_and_go_with_their_ends(opened: Database) -> None:
    async with opened.writing() as connection:
        for id in ("a", "b", "c"):
            await add(connection, id)
        assert await records.link(connection, "a", "has", "c", LATER) is True
        assert await records.link(connection, "a", "has", "b", LATER + "x") is True
        assert await records.link(connection, "a", "has", "b", NOW) is False
        await records.link(connection, "a", "knows", "a", NOW)
        linked = await records.linked(connection, "org_a", "has", ["a", "b"], "thing")
        assert {id: [row["id"] for row in rows] for id, rows in linked.items()} == {"a": ["c", "b"], "b": []}
        assert (await records.linked(connection, "org_b", "has", ["a"], "thing")) == {"a": []}
        assert [row["id"] for row in await records.linking(connection, "org_a", "has", ["b", "c"], "thing")] == ["a"]
        assert await records.unlink(connection, "a", "has", "b") is True
        assert await records.unlink(connection, "a", "has", "b") is False
        await records.delete_records(connection, "org_a", ["c"])
        assert await records.unlink(connection, "a", "has") is False
        assert await records.unlink(connection, "a", "knows") is True


async def test_only_shared_records_are_found_from_outside(opened: Database) -> None:
    async with opened.writing() as connection:
        await add(connection, "old", organization="org_b")
        await add(connection, "new", organization="org_a")
        await records.link(connection, "new", "public", "name", LATER)
        await records.link(connection, "old", "public", "name", NOW)
        found = await records.public_record(connection, "thing", "public", "name")
        assert found is not None and found["id"] == "old"
        assert await records.public_record(connection, "thing", "public", "other") is None
        assert await records.public_record(connection, "other", "public", "name") is None
        await records.link(connection, "old", "seen_by", "org_a", NOW)
        shared = await records.shared_record(connection, "org_a", "thing", "seen_by", "old")
        assert shared is not None and shared["organization_id"] == "org_b"
        assert await records.shared_record(connection, "org_c", "thing", "seen_by", "old") is None
        assert await records.shared_record(connection, "org_a", "thing", "seen_by", "new") is None


async def test_more_records_than_a_statement_takes_are_deleted(opened: Database) -> None:
    async with opened.writing() as connection:
        await add(connection, "t0")
        ids = [f"x{number}" for number in range(2_500)]
        assert await records.delete_records(connection, "org_a", [*ids, "t0"]) == 1
        assert await records.find_some(connection, "org_a", "thing", ["t0"]) == []
