"""Inserts what may be there already, in the words of either database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

Values = Mapping[str, object] | Sequence[Mapping[str, object]]
Insert = sqlite.Insert | postgresql.Insert


def insert_or_update(
    connection: AsyncConnection,
    table: sa.Table,
    values: Values,
    *,
    key: Iterable[str],
    change: Iterable[str] | Mapping[str, object],
) -> Insert:
    """Return a statement that inserts, and where a row of the same key is there, changes it.

    `change` names the columns that get their new values, or maps columns to what they become (an expression may use the table's own
    columns, which are the values before). `.returning(...)` gives the row that is there afterwards.
    """
    statement = _make_insert(connection, table, values)
    if not isinstance(change, Mapping):
        change = {name: statement.excluded[name] for name in change}
    return statement.on_conflict_do_update(index_elements=list(key), set_=change)


def insert_or_ignore(connection: AsyncConnection, table: sa.Table, values: Values, *, key: Iterable[str] = ()) -> Insert:
    """Return a statement that inserts unless a row of the same key is there; without `key`, of any key that is unique."""
    return _make_insert(connection, table, values).on_conflict_do_nothing(index_elements=list(key) or None)


def _make_insert(connection: AsyncConnection, table: sa.Table, values: Values) -> Insert:
    make = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    return make(table).values(values)
