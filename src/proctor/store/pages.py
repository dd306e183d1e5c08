"""Lists in pages: newest first, going on from where the last page ended, whatever was added meanwhile.

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

DEFAULT_LIMIT, LARGEST_LIMIT = 20, 100
_LONGEST_CURSOR = 500
_Edge = tuple[Literal["older", "newer"], str, str]
_EDGE = msgspec.json.Decoder(_Edge)

Row = Mapping[str, Any]
"""One row by column names."""


class BadCursor(ProctorError):
    """A cursor that no page ever gave out."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some rows of a list and the way on from them."""

    rows: list[Row]
    next: str | None = None
    """To older rows."""
    prev: str | None = None
    """To newer rows."""
    limit: int = DEFAULT_LIMIT


async def page(
    connection: AsyncConnection,
    query: sa.Select[Any],
    table: sa.Table,
    *,
    limit: int | None = None,
    cursor: str | None = None,
    time: str = "created_at",
    id: str = "id",
) -> Page:
    """The page of `query` at `cursor`; `time` and `id` name the columns of `table` that order it, and must be among those selected."""
    size = clamped(limit)
    at, key = table.c[time], table.c[id]
    edge = _read(cursor) if cursor else None
    newer = edge is not None and edge[0] == "newer"
    if edge is not None:
        place = sa.tuple_(sa.literal(edge[1]), sa.literal(edge[2]))
        query = query.where(sa.tuple_(at, key) > place if newer else sa.tuple_(at, key) < place)
    order = (at.asc(), key.asc()) if newer else (at.desc(), key.desc())
    found = await connection.execute(query.order_by(None).order_by(*order).limit(size + 1))
    rows: list[Row] = [dict(row) for row in found.mappings()]
    more = len(rows) > size
    rows = rows[:size]
    if newer:
        rows.reverse()
    # Where the caller came from there was a row when the cursor was made.
    to_older, to_newer = (True, more) if newer else (more, edge is not None)
    return Page(
        rows=rows,
        next=_write("older", rows[-1], time, id) if rows and to_older else None,
        prev=_write("newer", rows[0], time, id) if rows and to_newer else None,
        limit=size,
    )


def clamped(limit: int | None) -> int:
    """A limit that was asked for, brought into 1-100; 20 when none was."""
    return DEFAULT_LIMIT if limit is None else max(1, min(limit, LARGEST_LIMIT))


def _write(direction: str, row: Row, time: str, id: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((direction, row[time], row[id]))).decode().rstrip("=")


def _read(cursor: str) -> _Edge:
    try:
        if len(cursor) > _LONGEST_CURSOR:
            raise ValueError
        edge = _EDGE.decode(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
        if "\0" in edge[1] or "\0" in edge[2]:
            raise ValueError
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise BadCursor("the cursor is not one that a page gave out") from None
    return edge
