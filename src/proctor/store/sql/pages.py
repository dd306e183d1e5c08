"""Lists in pages: newest first, continued after the last page, unaffected by rows added in between.

A cursor is the time and id of the row at the edge and the direction to go. It is opaque to callers and checked when it comes back.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import ProctorError
from proctor.model.typed import make_json_decoder
from proctor.store.sql.queries import ListQuery

STRETCH = 10_000
"""Rows of an index that are examined for one page."""
DEFAULT_LIMIT, LARGEST_LIMIT = 20, 100
_LONGEST_CURSOR = 500
"""Maximum characters. Cursors come from clients; we never issue a longer one."""
_Edge = tuple[Literal["older", "newer"], str, str]
_EDGE = make_json_decoder(_Edge)

Row = Mapping[str, Any]
"""One row by column names."""


async def fetch_first(connection: AsyncConnection, query: sa.Executable) -> Row | None:
    """Return the first row, or None."""
    row = (await connection.execute(query)).mappings().first()
    return None if row is None else dict(row)


async def fetch_all(connection: AsyncConnection, query: sa.Executable) -> list[Row]:
    """Return all rows."""
    return [dict(row) for row in (await connection.execute(query)).mappings()]


class BadCursor(ProctorError):
    """A cursor that we never issued."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some rows of a list, and the cursors to the rows after and before them."""

    rows: list[Row]
    next: str | None = None
    """To older rows."""
    prev: str | None = None
    """To newer rows."""
    limit: int = DEFAULT_LIMIT


async def fetch_page(
    connection: AsyncConnection,
    query: sa.Select[Any] | ListQuery,
    table: sa.Table,
    *,
    limit: int | None = None,
    cursor: str | None = None,
    time: str = "created_at",
    id: str = "id",
) -> Page:
    """Return the page of `query` at `cursor`; `time` and `id` name the columns of `table` that order it, and must be among those selected.

    Of a list with further filters only a bounded number of rows is examined: its page may be short, and still have a next page.
    """
    query = query if isinstance(query, ListQuery) else ListQuery(path=query)
    size = clamp_limit(limit)
    at, key = table.c[time], table.c[id]
    edge = _read_cursor(cursor) if cursor else None
    newer = edge is not None and edge[0] == "newer"
    # By the edge and not by OFFSET: a deep page costs as much as the first, and new rows between two pages shift nothing. The id
    # orders rows of the same millisecond.
    position = sa.tuple_(at, key)
    path, filters = query.path.order_by(None), query.filters
    if edge is not None:
        place = sa.tuple_(sa.literal(edge[1]), sa.literal(edge[2]))
        path = path.where(position > place if newer else position < place)
    path = path.order_by(at.asc(), key.asc()) if newer else path.order_by(at.desc(), key.desc())
    stop: Row | None = None
    if filters:
        # The last row that is examined. Queried first, over the index alone: with further filters the database might scan the whole table.
        stop = await fetch_first(connection, path.with_only_columns(at, key).offset(STRETCH - 1).limit(1))
        if stop is not None:
            end = sa.tuple_(sa.literal(stop[time]), sa.literal(stop[id]))
            path = path.where(position <= end if newer else position >= end)
    # One extra row shows whether there is another page; a count would have to read everything.
    found = await fetch_all(connection, path.where(*filters).limit(size + 1))
    has_more = len(found) > size
    rows = list(reversed(found[:size])) if newer else found[:size]
    front, rear = (0, -1) if newer else (-1, 0)
    next_from = rows[front] if has_more else None
    # There was a row on the other side when the cursor was issued.
    previous_from = rows[rear] if rows and edge is not None else None
    if stop is not None and not has_more:
        # A page that ends where the search stopped, not at the end of the list.
        next_from, previous_from = stop, None if edge is None else {time: edge[1], id: edge[2]}
    ahead = None if next_from is None else _write_cursor("newer" if newer else "older", next_from, time, id)
    back = None if previous_from is None else _write_cursor("older" if newer else "newer", previous_from, time, id)
    return Page(rows=rows, next=back if newer else ahead, prev=ahead if newer else back, limit=size)


async def find_cursor(connection: AsyncConnection, query: ListQuery, table: sa.Table, position: int, total: int) -> str | None:
    """Return the cursor of the page that begins at a position of a list of `total` rows, counted from the newest; None for the first page.

    Only the index is read, from the nearer end. Further filters are tested for every row on the way.
    """
    at, key = table.c.created_at, table.c.id
    if position <= 0:
        return None
    places = query.whole.with_only_columns(at, key).order_by(None)
    if position <= total // 2:
        places = places.order_by(at.desc(), key.desc()).offset(position - 1)
    else:
        places = places.order_by(at.asc(), key.asc()).offset(max(0, total - position))
    row = (await connection.execute(places.limit(1))).mappings().first()
    return None if row is None else _write_cursor("older", dict(row), "created_at", "id")


async def count_rows(connection: AsyncConnection, query: ListQuery) -> int:
    """Return the number of rows of a list that is known to be short."""
    return int((await connection.execute(sa.select(sa.func.count()).select_from(query.whole.order_by(None).subquery()))).scalar_one())


def clamp_limit(limit: int | None) -> int:
    """Return the requested limit, clamped to 1-100; 20 without one."""
    return DEFAULT_LIMIT if limit is None else max(1, min(limit, LARGEST_LIMIT))


def _write_cursor(direction: str, row: Row, time: str, id: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((direction, row[time], row[id]))).decode().rstrip("=")


def _read_cursor(cursor: str) -> _Edge:
    try:
        if len(cursor) > _LONGEST_CURSOR:
            raise ValueError
        edge = _EDGE.decode(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
        # PostgreSQL rejects NUL in a text with its own error; our cursors have none.
        if "\0" in edge[1] or "\0" in edge[2]:
            raise ValueError
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise BadCursor("the cursor is not one that a page gave out") from None
    return edge
