"""Text search in columns, and a bounded search for ids and names over all tables (names among the newest rows of each)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.sql.pages import Row, fetch_all
from proctor.store.sql.queries import DialectFunction, clean_text
from proctor.store.sql.tables import records

_NAME = "lower_text"


class _LowerText(DialectFunction):
    """A text in lower case."""

    inherit_cache = True
    name = _NAME
    type = sa.Text()
    plain, sqlite = "lower({})", f"{_NAME}({{}})"


def contains_text(column: sa.ColumnElement[Any], text: str) -> sa.ColumnElement[bool]:
    """Return the condition that a column contains a text, ignoring case."""
    low = clean_text(text).lower()
    folded = sa.func.lower(column) if low.isascii() else _LowerText(column)
    return folded.contains(low, autoescape=True)


def add_text_functions(connection: Any) -> None:
    """Register the function that `contains_text` uses with a connection to SQLite."""
    connection.create_function(_NAME, 1, lambda value: value.lower() if isinstance(value, str) else value, deterministic=True)


MOST_LOOKED_AT = 5_000
"""The newest rows of each table that are searched for names."""


async def find_in_table(
    connection: AsyncConnection, query: sa.Select[Any], table: sa.Table, text: str, names: Sequence[str], limit: int
) -> list[Row]:
    """Return the rows of a query whose id is this text or whose names contain it, newest first."""
    columns = [
        table.c.id,
        table.c.created_at,
        *(table.c[name] for name in ("project_id",) if name in table.c),
        *(table.c[name] for name in names),
    ]
    by_id = (await connection.execute(query.where(table.c.id == text).with_only_columns(*columns))).mappings().first()
    newest = query.with_only_columns(*columns).order_by(table.c.created_at.desc(), table.c.id.desc()).limit(MOST_LOOKED_AT).subquery()
    matches = sa.or_(*(contains_text(newest.c[name], text) for name in names))
    named = sa.select(newest).where(matches).order_by(newest.c.created_at.desc(), newest.c.id.desc()).limit(limit)
    found: list[Row] = await fetch_all(connection, named)
    if by_id is not None:
        found = [dict(by_id), *(row for row in found if row["id"] != text)]
    return found[:limit]


async def find_record_by_id(connection: AsyncConnection, organization_id: str, id: str) -> Row | None:
    """Return the record of the verification API with this id or slug, of any kind."""
    query = sa.select(records.c.id, records.c.kind, records.c.slug, records.c.body, records.c.created_at)
    query = query.where(records.c.organization_id == organization_id)
    # With the kind, the first column of the slug index.
    for matches in (records.c.id == id, sa.and_(records.c.kind.in_(("benchmark", "benchmark_version", "solver")), records.c.slug == id)):
        found = (await connection.execute(query.where(matches).limit(1))).mappings().first()
        if found is not None:
            return dict(found)
    return None
