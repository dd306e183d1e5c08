"""Pages for REST and MCP: `{"data": [...], "_meta": {"next", "prev", "limit"}}`. Also reads single rows that must exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, Unpack

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.resource import Page, Paging
from proctor.store.sql.pages import BadCursor, Row, fetch_page
from proctor.store.sql.pages import Page as Rows
from proctor.store.sql.queries import ListQuery

T = TypeVar("T")


async def fetch_page_or_refuse(
    connection: AsyncConnection,
    query: sa.Select[Any] | ListQuery,
    table: sa.Table,
    *,
    time: str = "created_at",
    **paging: Unpack[Paging],
) -> Rows:
    """Return the page at `cursor`. Raises `Refusal` for an invalid cursor."""
    try:
        return await fetch_page(connection, query, table, time=time, **paging)
    except BadCursor as error:
        raise Refusal("BAD_REQUEST", str(error), hint="start again without a cursor") from None


def show_page(rows: Rows, show: Callable[[Row], T]) -> Page[T]:
    """Return a page of values."""
    return {"data": [show(row) for row in rows.rows], "_meta": {"next": rows.next, "prev": rows.prev, "limit": rows.limit}}


async def read_page(
    hub: Hub, query: sa.Select[Any] | ListQuery, table: sa.Table, show: Callable[[Row], T], **paging: Unpack[Paging]
) -> Page[T]:
    """Return the page of a list at `cursor`."""
    async with hub.database.reading() as connection:
        return show_page(await fetch_page_or_refuse(connection, query, table, **paging), show)
