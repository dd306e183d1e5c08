"""Records of resources: transactions on them, and the standard operations, which `declare_standard` declares.

A record of another organization does not exist for the caller.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from proctor.model.evidence import Json
from proctor.service.access import transactions
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub, new_id
from proctor.service.paging import fetch_page_or_refuse, show_page
from proctor.service.refusals import Refusal, not_found
from proctor.service.resource import Page, Paging
from proctor.service.verification.shared.declaration import Operation, Resource
from proctor.store.sql import verification_records as store
from proctor.store.sql.pages import Page as Rows
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import records

Records = Page[dict[str, Json]]
"""A page of records as JSON."""


class Transaction(transactions.Transaction, store.OwnedRecords):
    """A transaction on the records of a caller's organization."""

    async def require(self, kind: str, id: str, *, what: str | None = None, lock: bool = False) -> Row:
        """Return a record without its blob. Raises `Refusal` if there is none."""
        row = await self.find(kind, id, lock=lock)
        if row is None:
            raise not_found(what or kind.replace("_", " "), id)
        return row

    async def refuse_more_children(self, kind: str, parent_id: str, most: int, reason: str) -> None:
        """Reject one more record of a kind below a parent that has the most."""
        if await self.count_children(kind, parent_id) >= most:
            raise Refusal("CONFLICT", reason)

    async def link(self, from_id: str, link: str, to_id: str) -> bool:
        """Link two records and return whether the link is new. The caller has checked the organization of both."""
        return await store.link(self.connection, from_id, link, to_id, self.hub.now())

    async def fetch_page(self, query: sa.Select[Any], **paging: Unpack[Paging]) -> Rows:
        """Return a page of records."""
        return await fetch_page_or_refuse(self.connection, query, records, **paging)

    async def insert(
        self,
        kind: str,
        prefix: str,
        body: dict[str, Json],
        *,
        parent_id: str | None = None,
        slug: str | None = None,
        blob: bytes | None = None,
        now: str | None = None,
    ) -> Row:
        """Insert a record without an audit note."""
        record = store.NewRecord(
            id=new_id(prefix), organization_id=self.owner, kind=kind, body=body, parent_id=parent_id, slug=slug, blob=blob
        )
        return await store.add_record(self.connection, record, now=now or self.hub.now())

    async def rewrite(self, row: Row, **columns: object) -> Row:
        """Change columns of a locked record without an audit note."""
        changed = await store.change_record(self.connection, self.owner, row["id"], now=self.hub.now(), **columns)
        assert changed is not None  # it was locked
        return changed

    async def add(self, resource: Resource, body: dict[str, Json], *, slug: str | None = None, blob: bytes | None = None) -> Row:
        """Add a record of a resource, below the parent in its body."""
        parent_id: str | None = None
        if resource.parent is not None:
            body = dict(body)
            parent_id = body.pop(resource.parent, None)
        with _refuse_taken_slug(resource, slug):
            row = await self.insert(resource.kind, resource.prefix, body, parent_id=parent_id, slug=slug, blob=blob)
        await self.note("create", resource.kind, row["id"])
        return row

    async def change(self, resource: Resource, row: Row, changes: Mapping[str, Json], *, action: str = "update", **columns: object) -> Row:
        """Change fields of a record's body, and columns."""
        with _refuse_taken_slug(resource, str(columns.get("slug"))):
            changed = await self.rewrite(row, body={**row["body"], **changes}, **columns)
        await self.note(action, resource.kind, row["id"], {"fields": sorted(changes)} if changes else None)
        return changed

    async def remove(self, resource: Resource, ids: Sequence[str]) -> None:
        """Delete records, with an audit note for the first."""
        await self.delete(ids)
        await self.note("delete", resource.kind, ids[0])


@contextlib.contextmanager
def _refuse_taken_slug(resource: Resource, slug: str | None) -> Generator[None]:
    # The unique constraint decides, so that one of two concurrent requests is rejected.
    try:
        yield
    except IntegrityError:
        raise Refusal("CONFLICT", f"there is already a {resource.called} called {slug!r}") from None


reading, writing = Transaction.reading, Transaction.writing


async def fetch_rows(hub: Hub, caller: Caller, resource: Resource, *, parent_id: str | None = None, **paging: Unpack[Paging]) -> Rows:
    """Return a page of records; limited to a parent if given, which must exist."""
    async with reading(hub, caller) as tx:
        if parent_id is not None and resource.parent is not None:
            parent = resource.fields[resource.parent].kind.refers
            assert parent is not None  # it is the id of a record
            await tx.require(parent, parent_id)
        return await tx.fetch_page(store.records_of(caller.organization_id, resource.kind, parent_id=parent_id), **paging)


async def list_plain(hub: Hub, caller: Caller, resource: Resource, *, parent_id: str | None = None, **paging: Unpack[Paging]) -> Records:
    """List records of a resource without special rules."""
    return show_page(await fetch_rows(hub, caller, resource, parent_id=parent_id, **paging), resource.show)


async def _accept(*_: object) -> dict[str, Any]:
    return {}


async def _delete_nothing_else(*_: object) -> Sequence[str]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a resource adds to its standard operations. Everything but `before`, `prepare` and `convert` runs inside the transaction."""

    stored: Resource | None = None
    """The resource of its records, if it is another one."""
    most: int | None = None
    """Records of one parent."""
    before: Callable[[Hub, Caller], Awaitable[Any]] = _accept
    """Called before every operation."""
    convert: Callable[[dict[str, Json]], dict[str, Json]] = dict
    """Returns the stored fields of read ones."""
    prepare: Callable[[Hub, dict[str, Json]], Awaitable[dict[str, Any]]] = _accept
    """Checks new or changed fields, slowly, may change them, and returns other columns."""
    check: Callable[[Transaction, dict[str, Json], Row | None], Awaitable[dict[str, Any]]] = _accept
    """Checks a new or changed record with its row before the change, may change the fields, and returns other columns."""
    link: Callable[[Transaction, Row], Awaitable[Any]] = _accept
    """Called with the stored row."""
    show: Callable[[Transaction, Sequence[Row], bool], Awaitable[list[dict[str, Json]]]] | None = None
    """Returns rows as JSON; the flag is set for a record that is shown in full."""
    shows_written: bool = False
    """Whether a response to a write shows the record in full."""
    large: bool = False
    """Whether a record shown in full may be too large to validate again."""
    drop: Callable[[Transaction, str], Awaitable[Sequence[str]]] = _delete_nothing_else
    """Returns the ids of records that are deleted with it. Raises `Refusal` if it is in use."""


class Standard(NamedTuple):
    """The standard operations of a resource, as the service calls them."""

    list: Callable[..., Awaitable[dict[str, Json]]]
    create: Callable[..., Awaitable[dict[str, Json]]]
    get: Callable[..., Awaitable[dict[str, Json]]]
    update: Callable[..., Awaitable[dict[str, Json]]]
    delete: Callable[..., Awaitable[None]]


def declare_standard(resource: Resource, path: str, rules: Rules | None = None, *, within: str | None = None, **about: str) -> Standard:
    """Declare the operations of a resource that are described in `about`: list, create, get, update, delete.

    A list can be limited to the parent whose id is `within`.
    """
    rules = rules or Rules()
    stored = rules.stored or resource
    what = resource.called.replace(" ", "_")
    plural = path[1:].replace("-", "_")
    parent = None if resource.parent is None else resource.fields[resource.parent].kind.refers

    async def show(tx: Transaction, rows: Sequence[Row], *, full: bool) -> list[dict[str, Json]]:
        return [stored.show(row) for row in rows] if rules.show is None else await rules.show(tx, rows, full)

    async def read(hub: Hub, request_body: Mapping[str, Json], *, partial: bool = False) -> tuple[dict[str, Json], dict[str, Any]]:
        # In a thread, since a body may be large.
        fields = rules.convert(await asyncio.to_thread(resource.read, request_body, partial=partial))
        return fields, await rules.prepare(hub, fields)

    async def list_all(hub: Hub, caller: Caller, **options: Any) -> dict[str, Json]:
        await rules.before(hub, caller)
        parent_id = None if within is None else options.pop(within, None)
        found = await fetch_rows(hub, caller, stored, parent_id=parent_id, **options)
        async with reading(hub, caller) as tx:
            shown = iter(await show(tx, found.rows, full=False))
        return dict(show_page(found, lambda _: next(shown)))

    async def create(hub: Hub, caller: Caller, request_body: Mapping[str, Json]) -> dict[str, Json]:
        await rules.before(hub, caller)
        body, columns = await read(hub, request_body)
        async with writing(hub, caller) as tx:
            if rules.most is not None and resource.parent is not None and parent is not None:
                parent_id: str = body[resource.parent]
                await tx.require(parent, parent_id, lock=True)
                await tx.refuse_more_children(stored.kind, parent_id, rules.most, f"a {parent} has at most {rules.most} {plural}")
            columns |= await rules.check(tx, body, None)
            row = await tx.add(stored, body, **columns)
            await rules.link(tx, row)
            return (await show(tx, [row], full=rules.shows_written))[0]

    async def get(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
        await rules.before(hub, caller)
        async with reading(hub, caller) as tx:
            return (await show(tx, [await tx.require(stored.kind, id, what=stored.called)], full=True))[0]

    async def update(hub: Hub, caller: Caller, id: str, request_body: Mapping[str, Json]) -> dict[str, Json]:
        changes, columns = await read(hub, request_body, partial=True)
        async with writing(hub, caller) as tx:
            row = await tx.require(stored.kind, id, what=stored.called, lock=True)
            columns |= await rules.check(tx, changes, row)
            row = await tx.change(stored, row, changes, **columns)
            await rules.link(tx, row)
            return (await show(tx, [row], full=rules.shows_written))[0]

    async def delete(hub: Hub, caller: Caller, id: str) -> None:
        async with writing(hub, caller) as tx:
            await tx.require(stored.kind, id, what=stored.called, lock=True)
            await tx.remove(stored, [id, *await rules.drop(tx, id)])

    # A response to a write has nested records only if lists have them.
    written = resource.whole if rules.show is None or rules.shows_written else resource.summary
    one, large = f"{path}/{{{what}_id}}", rules.large
    declared: dict[str, tuple[Callable[..., Any], str, str, dict[str, Any]]] = {
        "list": (list_all, f"list_{plural}", f"GET {path}", {"gives": resource.summary, "pages": True, "within": within}),
        "create": (create, f"create_{what}", f"POST {path}", {"takes": resource.new, "gives": written, "large": large, "creates": True}),
        "get": (get, f"get_{what}", f"GET {one}", {"gives": resource.whole, "large": large}),
        "update": (update, f"update_{what}", f"PATCH {one}", {"takes": resource.changes, "gives": written, "large": large}),
        "delete": (delete, f"delete_{what}", f"DELETE {one}", {}),
    }
    calls: dict[str, Any] = {}
    for action, (call, name, route, bodies) in declared.items():
        call.__name__, call.__doc__ = name, about.get(action)
        calls[action] = Operation(resource, route, tool=action, **bodies)(call) if action in about else call
    return Standard(**calls)
