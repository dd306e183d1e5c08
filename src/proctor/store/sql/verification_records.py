"""The records of the verification API and the links between them: found, inserted, changed and deleted with an organization's id.

A record has a kind, a JSON body, and if needed a parent, a slug that is unique for its kind and organization, and a blob for large values.
Lists do not load the blob. References that must be found from either end are links: the databases search JSON columns differently, and
PostgreSQL cannot search all of their values.

Only `public_record`, `shared_record` and `find_marked` read across organizations, and only if the owner created a link for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.store.sql.pages import Row, fetch_all, fetch_first
from proctor.store.sql.queries import insert_or_ignore
from proctor.store.sql.tables import links, records

SHOWN = tuple(column for column in records.c if column.name != "blob")
"""Every column except the blob."""
_IDS_AT_ONCE = 1_000
"""Ids per statement: SQLite limits the number of parameters."""


def records_of(organization_id: str, kind: str, *, parent_id: str | None = None) -> sa.Select[Any]:
    """Return a query for the records of a kind, optionally of one parent, without blobs."""
    query = sa.select(*SHOWN).where(records.c.organization_id == organization_id, records.c.kind == kind)
    return query if parent_id is None else query.where(records.c.parent_id == parent_id)


class OwnedRecords:
    """The records of one organization, in one transaction."""

    def __init__(self, connection: AsyncConnection, owner: str) -> None:
        self.connection, self.owner = connection, owner

    async def find(self, kind: str, id: str, *, lock: bool = False) -> Row | None:
        """Return a record without its blob, if it exists; `lock` blocks other writers until the transaction ends."""
        query = records_of(self.owner, kind).where(records.c.id == id)
        return await fetch_first(self.connection, query.with_for_update() if lock else query)

    async def find_by_slug(self, kind: str, slug: str) -> Row | None:
        """Return the record of a kind that has this slug."""
        return await fetch_first(self.connection, records_of(self.owner, kind).where(records.c.slug == slug))

    async def find_some(self, kind: str, ids: Iterable[str]) -> list[Row]:
        """Return the records of a kind with these ids, oldest first."""
        return await _fetch_in_order(self.connection, records_of(self.owner, kind).where(records.c.id.in_(list(ids))))

    async def children(self, kind: str, parents: str | Sequence[str], *, blobs: bool = False) -> list[Row]:
        """Return the records of a kind below one parent or several, oldest first."""
        query = records_of(self.owner, kind).where(records.c.parent_id.in_([parents] if isinstance(parents, str) else parents))
        return await _fetch_in_order(self.connection, query.add_columns(records.c.blob) if blobs else query)

    async def newest_children(self, kind: str, parent_id: str, limit: int) -> list[Row]:
        """Return the newest records of a kind below a parent, at most `limit`."""
        query = records_of(self.owner, kind, parent_id=parent_id).order_by(records.c.created_at.desc(), records.c.id.desc())
        return await fetch_all(self.connection, query.limit(limit))

    async def count_children(self, kind: str, parent_id: str) -> int:
        """Return the number of records of a kind below a parent."""
        query = records_of(self.owner, kind, parent_id=parent_id).with_only_columns(sa.func.count())
        return (await self.connection.execute(query)).scalar_one()

    async def read_blob(self, id: str) -> bytes | None:
        """Return the blob of a record."""
        query = sa.select(records.c.blob).where(records.c.organization_id == self.owner, records.c.id == id)
        return (await self.connection.execute(query)).scalar_one_or_none()

    async def delete(self, ids: Iterable[str]) -> int:
        """Delete records and every link from or to them, and return the number of records."""
        wanted = list(ids)
        count = 0
        for start in range(0, len(wanted), _IDS_AT_ONCE):
            some = wanted[start : start + _IDS_AT_ONCE]
            statement = sa.delete(records).where(records.c.organization_id == self.owner, records.c.id.in_(some))
            deleted = list((await self.connection.execute(statement.returning(records.c.id))).scalars())
            # For the deleted ids, not the requested ones: an id of another organization keeps its links.
            await self.connection.execute(sa.delete(links).where(sa.or_(links.c.from_id.in_(deleted), links.c.to_id.in_(deleted))))
            count += len(deleted)
        return count

    async def unlink(self, from_id: str, kind: str, to_id: str | None = None) -> bool:
        """Delete the link, or every link of this kind, and return whether there was any."""
        statement = sa.delete(links).where(links.c.from_id == from_id, links.c.kind == kind)
        if to_id is not None:
            statement = statement.where(links.c.to_id == to_id)
        return (await self.connection.execute(statement)).rowcount > 0

    async def linked(self, kind: str, from_ids: Iterable[str], record_kind: str) -> dict[str, list[Row]]:
        """Return the targets of links of this kind, by source, in the order of linking."""
        wanted = list(from_ids)
        by_source: dict[str, list[Row]] = {id: [] for id in wanted}
        query = (
            records_of(self.owner, record_kind)
            .add_columns(links.c.from_id)
            .join(links, links.c.to_id == records.c.id)
            .where(links.c.kind == kind, links.c.from_id.in_(wanted))
            .order_by(links.c.created_at, links.c.to_id)
        )
        for row in (await self.connection.execute(query)).mappings():
            by_source[row["from_id"]].append(dict(row))
        return by_source

    async def linking(self, kind: str, to_ids: Iterable[str], record_kind: str) -> list[Row]:
        """Return the sources of links of this kind to one of these targets."""
        from_ids = sa.select(links.c.from_id).where(links.c.kind == kind, links.c.to_id.in_(list(to_ids)))
        return await _fetch_in_order(self.connection, records_of(self.owner, record_kind).where(records.c.id.in_(from_ids)))


class NewRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record to store."""

    id: str
    organization_id: str
    kind: str
    body: dict[str, Json]
    parent_id: str | None = None
    slug: str | None = None
    """Unique among the records of its kind and organization."""
    blob: bytes | None = None
    """Large data; lists omit it."""


async def add_record(connection: AsyncConnection, record: NewRecord, *, now: str) -> Row:
    """Insert a record and return it as stored."""
    values = msgspec.structs.asdict(record)
    statement = sa.insert(records).values(**values, created_at=now, updated_at=now).returning(*SHOWN)
    return dict((await connection.execute(statement)).mappings().one())


async def change_record(connection: AsyncConnection, organization_id: str, id: str, *, now: str, **columns: object) -> Row | None:
    """Change columns of a record (`body`, `slug`, `blob`, `parent_id`) and return the new row."""
    statement = (
        sa.update(records)
        .where(records.c.organization_id == organization_id, records.c.id == id)
        .values(**columns, updated_at=now)
        .returning(*SHOWN)
    )
    return await fetch_first(connection, statement)


# Links.


async def link(connection: AsyncConnection, from_id: str, kind: str, to_id: str, now: str) -> bool:
    """Link two records and return whether the link is new. The caller has checked the organization of both."""
    values = {"from_id": from_id, "kind": kind, "to_id": to_id, "created_at": now}
    done = await connection.execute(insert_or_ignore(connection, links, values))
    return done.rowcount > 0


def linked_query(organization_id: str, kind: str, from_id: str, record_kind: str) -> sa.Select[Any]:
    """Return a query for the targets of links of this kind, for a page."""
    to_ids = sa.select(links.c.to_id).where(links.c.kind == kind, links.c.from_id == from_id)
    return records_of(organization_id, record_kind).where(records.c.id.in_(to_ids))


# Across organizations.


async def public_record(connection: AsyncConnection, kind: str, link_kind: str, slug: str) -> Row | None:
    """Return the record that its owner published under a slug; the oldest of several, so that a name cannot be taken over."""
    query = sa.select(*SHOWN).join(links, links.c.from_id == records.c.id)
    query = query.where(links.c.kind == link_kind, links.c.to_id == slug, records.c.kind == kind)
    return await fetch_first(connection, query.order_by(links.c.created_at, records.c.id).limit(1))


async def shared_record(connection: AsyncConnection, organization_id: str, kind: str, link_kind: str, id: str) -> Row | None:
    """Return another organization's record that is linked to this one."""
    query = sa.select(*SHOWN).join(links, links.c.from_id == records.c.id)
    query = query.where(links.c.kind == link_kind, links.c.to_id == organization_id, records.c.kind == kind, records.c.id == id)
    return await fetch_first(connection, query.limit(1))


async def find_marked(connection: AsyncConnection, link_kind: str, ids: Iterable[str]) -> set[str]:
    """Return which of these records, of any organization, have a link of this kind."""
    wanted = list(set(ids))
    found: set[str] = set()
    for start in range(0, len(wanted), _IDS_AT_ONCE):
        query = sa.select(links.c.from_id).where(links.c.kind == link_kind, links.c.from_id.in_(wanted[start : start + _IDS_AT_ONCE]))
        found.update((await connection.execute(query)).scalars())
    return found


async def _fetch_in_order(connection: AsyncConnection, query: sa.Select[Any]) -> list[Row]:
    return await fetch_all(connection, query.order_by(records.c.created_at, records.c.id))
