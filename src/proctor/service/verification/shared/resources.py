"""Records of resources: the standard operations, declared by `declare_standard`, and building blocks within a transaction.

An organization key is required. A record of another organization does not exist for the caller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict, Unpack

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.audit import note
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub, new_id
from proctor.service.paging import fetch_page_or_refuse
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification.shared.declaration import Operation, Resource
from proctor.store.sql.pages import Page, Row
from proctor.store.sql.tables import records
from proctor.store.sql.verification_records import (
    NewRecord,
    add_record,
    change_record,
    count_children,
    delete_records,
    find_record,
    records_of,
)


class Paging(TypedDict, total=False):
    """The requested page of a list."""

    limit: int | None
    cursor: str | None


def authorize(caller: Caller, doing: str = "using the verification API") -> None:
    """Reject every key but organization keys."""
    if caller.kind != "organization":
        raise Refusal("FORBIDDEN", f"{doing} requires an organization key")


async def require_record(
    connection: AsyncConnection, caller: Caller, kind: str, id: str, *, what: str | None = None, lock: bool = False
) -> Row:
    """Return a record of the caller's organization."""
    record = await find_record(connection, caller.organization_id, kind, id, lock=lock)
    if record is None:
        raise not_found(what or kind.replace("_", " "), id)
    return record


async def list_rows(
    hub: Hub, caller: Caller, resource: Resource, *, parent_id: str | None = None, **paging: Unpack[Paging]
) -> tuple[Page, list[dict[str, Json]]]:
    """Return a page of records, also as JSON; limited to a parent if given."""
    authorize(caller)
    async with hub.database.reading() as connection:
        if parent_id is not None and resource.parent is not None:
            parent = resource.fields[resource.parent].kind.refers
            assert parent is not None  # it is the id of a record
            await require_record(connection, caller, parent, parent_id)
        query = records_of(caller.organization_id, resource.kind, parent_id=parent_id)
        page = await fetch_page_or_refuse(connection, query, records, **paging)
    return page, [resource.show(row) for row in page.rows]


def make_page(page: Page, data: list[dict[str, Json]]) -> dict[str, Json]:
    """Return a page as JSON."""
    return {"data": data, "_meta": {"next": page.next, "prev": page.prev, "limit": page.limit}}


async def list_plain(
    hub: Hub, caller: Caller, resource: Resource, *, parent_id: str | None = None, **paging: Unpack[Paging]
) -> dict[str, Json]:
    """List records of a resource without special rules."""
    return make_page(*await list_rows(hub, caller, resource, parent_id=parent_id, **paging))


async def get_plain(hub: Hub, caller: Caller, resource: Resource, id: str) -> dict[str, Json]:
    """Read a record of a resource without special rules."""
    authorize(caller)
    async with hub.database.reading() as connection:
        return resource.show(await require_record(connection, caller, resource.kind, id, what=resource.called))


async def _accept(*_: object) -> dict[str, Any]:
    return {}


async def _delete_nothing_else(*_: object) -> Sequence[str]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a resource adds to its standard operations. Everything but `prepare` and `convert` runs inside the transaction."""

    stored: Resource | None = None
    """The resource of its records, if it is another one."""
    most: int | None = None
    """Records of one parent."""
    convert: Callable[[dict[str, Json]], dict[str, Json]] = dict
    """Returns the stored fields of read ones."""
    prepare: Callable[[Hub, Mapping[str, Json]], Awaitable[Any]] = _accept
    """Checks new or changed fields, slowly."""
    check: Callable[[AsyncConnection, Hub, Caller, dict[str, Json], Row | None], Awaitable[dict[str, Any]]] = _accept
    """Checks a new or changed record with its row before the change, may change the fields, and returns other columns."""
    link: Callable[[AsyncConnection, Hub, Row], Awaitable[Any]] = _accept
    """Called with the stored row."""
    show: Callable[[AsyncConnection, Caller, Sequence[Row], bool], Awaitable[list[dict[str, Json]]]] | None = None
    """Returns rows as JSON; the flag is set for the record that is read by its id."""
    drop: Callable[[AsyncConnection, Caller, str], Awaitable[Sequence[str]]] = _delete_nothing_else
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

    async def show(connection: AsyncConnection, caller: Caller, rows: Sequence[Row], *, full: bool = False) -> list[dict[str, Json]]:
        return [stored.show(row) for row in rows] if rules.show is None else await rules.show(connection, caller, rows, full)

    async def list_all(hub: Hub, caller: Caller, **options: Any) -> dict[str, Json]:
        parent_id = None if within is None else options.pop(within, None)
        found, _ = await list_rows(hub, caller, stored, parent_id=parent_id, **options)
        async with hub.database.reading() as connection:
            return make_page(found, await show(connection, caller, found.rows))

    async def create(hub: Hub, caller: Caller, request_body: Mapping[str, Json]) -> dict[str, Json]:
        authorize(caller)
        body = rules.convert(resource.read(request_body))
        await rules.prepare(hub, body)
        async with hub.database.writing() as connection:
            if rules.most is not None and resource.parent is not None and parent is not None:
                parent_id: str = body[resource.parent]
                await require_record(connection, caller, parent, parent_id, lock=True)
                if await count_children(connection, caller.organization_id, stored.kind, parent_id) >= rules.most:
                    raise Refusal("CONFLICT", f"a {parent} has at most {rules.most} {plural}")
            columns = await rules.check(connection, hub, caller, body, None)
            row = await store_record(connection, hub, caller, stored, body, **columns)
            await rules.link(connection, hub, row)
            return (await show(connection, caller, [row]))[0]

    async def get(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
        authorize(caller)
        async with hub.database.reading() as connection:
            row = await require_record(connection, caller, stored.kind, id, what=stored.called)
            return (await show(connection, caller, [row], full=True))[0]

    async def update(hub: Hub, caller: Caller, id: str, request_body: Mapping[str, Json]) -> dict[str, Json]:
        authorize(caller)
        changes = rules.convert(resource.read(request_body, partial=True))
        await rules.prepare(hub, changes)
        async with hub.database.writing() as connection:
            row = await require_record(connection, caller, stored.kind, id, what=stored.called, lock=True)
            columns = await rules.check(connection, hub, caller, changes, row)
            row = await rewrite_record(connection, hub, caller, stored, row, changes, **columns)
            await rules.link(connection, hub, row)
            return (await show(connection, caller, [row]))[0]

    async def delete(hub: Hub, caller: Caller, id: str) -> None:
        authorize(caller)
        async with hub.database.writing() as connection:
            await require_record(connection, caller, stored.kind, id, what=stored.called, lock=True)
            await remove_records(connection, hub, caller, stored, [id, *await rules.drop(connection, caller, id)])

    # A response to a write has nested records only if lists have them.
    written = resource.whole if rules.show is None else resource.summary
    one = f"{path}/{{{what}_id}}"
    declared = {
        "list": (
            f"list_{plural}",
            list_all,
            Operation(resource, f"GET {path}", gives=resource.summary, pages=True, within=within, tool="list"),
        ),
        "create": (
            f"create_{what}",
            create,
            Operation(resource, f"POST {path}", takes=resource.new, gives=written, creates=True, tool="create"),
        ),
        "get": (f"get_{what}", get, Operation(resource, f"GET {one}", gives=resource.whole, tool="get")),
        "update": (f"update_{what}", update, Operation(resource, f"PATCH {one}", takes=resource.changes, gives=written, tool="update")),
        "delete": (f"delete_{what}", delete, Operation(resource, f"DELETE {one}", tool="delete")),
    }
    for action, description in about.items():
        name, call, declare = declared[action]
        call.__name__, call.__doc__ = name, description
        declare(call)
    return Standard(list_all, create, get, update, delete)


async def store_record(
    connection: AsyncConnection,
    hub: Hub,
    caller: Caller,
    resource: Resource,
    body: dict[str, Json],
    *,
    slug: str | None = None,
    blob: bytes | None = None,
    id: str | None = None,
) -> Row:
    """Store a new record of the caller's organization, below the parent in its body."""
    parent_id: str | None = None
    if resource.parent is not None:
        body = dict(body)
        parent_id = body.pop(resource.parent, None)
    # The unique constraint decides, so that one of two concurrent requests is rejected.
    try:
        row = await add_record(
            connection,
            NewRecord(
                id=id or new_id(resource.prefix),
                organization_id=caller.organization_id,
                kind=resource.kind,
                body=body,
                parent_id=parent_id,
                slug=slug,
                blob=blob,
            ),
            now=hub.now(),
        )
    except IntegrityError:
        raise _refuse_taken_slug(resource, slug) from None
    await note(connection, hub, caller, "create", resource.kind, row["id"])
    return row


async def rewrite_record(
    connection: AsyncConnection,
    hub: Hub,
    caller: Caller,
    resource: Resource,
    row: Row,
    changes: Mapping[str, Json],
    *,
    action: str = "update",
    **columns: object,
) -> Row:
    """Change fields of a record's body, and columns."""
    try:
        changed = await change_record(
            connection, caller.organization_id, row["id"], now=hub.now(), body={**row["body"], **changes}, **columns
        )
    except IntegrityError:
        raise _refuse_taken_slug(resource, str(columns.get("slug"))) from None
    assert changed is not None  # it was locked
    await note(connection, hub, caller, action, resource.kind, row["id"], {"fields": sorted(changes)} if changes else None)
    return changed


async def remove_records(connection: AsyncConnection, hub: Hub, caller: Caller, resource: Resource, ids: list[str]) -> None:
    """Delete records, with an audit note for the first."""
    await delete_records(connection, caller.organization_id, ids)
    await note(connection, hub, caller, "delete", resource.kind, ids[0])


def _refuse_taken_slug(resource: Resource, slug: str | None) -> Refusal:
    return Refusal("CONFLICT", f"there is already a {resource.called} called {slug!r}")
