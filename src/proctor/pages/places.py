"""Where a page of a list begins, in which order, and which runs it lists: for the data sources of screens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from proctor.pages.words import read_number
from proctor.service.runs.run import RunSearch

Record = Mapping[str, Any]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The start of a page: a cursor, or a position counted from the newest row."""

    cursor: str | None = None
    position: int | None = None


EVERY_RUN = RunSearch()
FIRST = Place()
_MOST_SORTED = 300
"""Newest rows of a list that are sorted; the values of some columns are computed."""
_AT_ONCE = 100


async def sort_page(
    list_page: Callable[..., Awaitable[Any]],
    find_values: Callable[[Sequence[Any]], Awaitable[Sequence[Any]]],
    *,
    down: bool,
    cursor: str | None,
    limit: int,
) -> Any:
    """Return a page of the newest rows in the order of their values; rows without a value come last."""
    rows: list[Any] = []
    after: str | None = None
    for _ in range(_MOST_SORTED // _AT_ONCE):
        page = await list_page(cursor=after, limit=_AT_ONCE)
        rows += page["data"]
        after = page["_meta"]["next"]
        if after is None:
            break
    values = await find_values(rows)
    known = sorted((at for at, value in enumerate(values) if value is not None), key=values.__getitem__, reverse=down)
    places = [*known, *(at for at, value in enumerate(values) if value is None)]
    start = read_number(cursor)
    return {
        "data": [rows[at] for at in places[start : start + limit]],
        "_meta": {
            "next": str(start + limit) if start + limit < len(rows) else None,
            "prev": str(max(0, start - limit)) if start else None,
            "limit": limit,
            "sorted": len(rows),
            "is_part": after is not None,
        },
    }
