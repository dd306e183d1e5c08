from __future__ import annotations

from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.sql import verification_records as records
from proctor.store.sql.database import Database
from proctor.store.sql.verification_records import OwnedRecords

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
        found = await OwnedRecords(connection, "org_a").find("thing", "t1")
        assert found is not None and found["body"] == {"of": "t1"} and "blob" not in found
        assert await OwnedRecords(connection, "org_b").find("thing", "t1") is None
        assert await OwnedRecords(connection, "org_a").find("other", "t1") is None
        assert await OwnedRecords(connection, "org_b").find_by_slug("thing", "one") is None
        assert await OwnedRecords(connection, "org_a").read_blob("t1") == b"large"
        assert await OwnedRecords(connection, "org_b").read_blob("t1") is None
        assert [row["id"] for row in await OwnedRecords(connection, "org_a").children("thing", "p")] == ["t1"]
        assert await OwnedRecords(connection, "org_b").children("thing", "p") == []
        assert await OwnedRecords(connection, "org_a").count_children("thing", "p") == 1
    async with opened.writing() as connection:
        assert await records.change_record(connection, "org_b", "t1", now=LATER, body={}) is None
        changed = await records.change_record(connection, "org_a", "t1", now=LATER, body={"a": 1})
        assert changed is not None and (changed["body"], changed["updated_at"], changed["slug"]) == ({"a": 1}, LATER, "one")
        assert await OwnedRecords(connection, "org_b").delete(["t1"]) == 0
        assert await OwnedRecords(connection, "org_a").delete(["t1", "t2"]) == 1


async def test_links_are_followed_both_ways_and_go_with_their_ends(opened: Database) -> None:
    async with opened.writing() as connection:
        for id in ("a", "b", "c"):
            await add(connection, id)
        assert await records.link(connection, "a", "has", "c", LATER) is True
        assert await records.link(connection, "a", "has", "b", LATER + "x") is True
        assert await records.link(connection, "a", "has", "b", NOW) is False
        await records.link(connection, "a", "knows", "a", NOW)
        linked = await OwnedRecords(connection, "org_a").linked("has", ["a", "b"], "thing")
        assert {id: [row["id"] for row in rows] for id, rows in linked.items()} == {"a": ["c", "b"], "b": []}
        assert (await OwnedRecords(connection, "org_b").linked("has", ["a"], "thing")) == {"a": []}
        assert [row["id"] for row in await OwnedRecords(connection, "org_a").linking("has", ["b", "c"], "thing")] == ["a"]
        assert await OwnedRecords(connection, "org_a").unlink("a", "has", "b") is True
        assert await OwnedRecords(connection, "org_a").unlink("a", "has", "b") is False
        await OwnedRecords(connection, "org_a").delete(["c"])
        assert await OwnedRecords(connection, "org_a").unlink("a", "has") is False
        assert await OwnedRecords(connection, "org_a").unlink("a", "knows") is True


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
        assert await OwnedRecords(connection, "org_a").delete([*ids, "t0"]) == 1
        assert await OwnedRecords(connection, "org_a").find_some("thing", ["t0"]) == []
