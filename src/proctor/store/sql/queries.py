"""Queries: lists by the best index, statements for many rows, inserts that ignore existing rows.

A list may be filtered by several columns at once, and not every combination has an index. So each table has *paths*: columns with an index
that is ordered by time, from the narrowest to the widest. The first path whose columns are all in the filter leads the query; every other
condition is a *filter*, and only tested along a bounded stretch of the path (`pages.py`). So no list reads or sorts a whole table, and
a page of a rare combination may be short, with a next page.

Only rare outcomes and states have an index: rows with `pass` or `evaluated` are so frequent that a scan finds them quickly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from proctor.model.evidence import Json
from proctor.store.sql.tables import COMMON, clean_text


class BulkStatement:
    """A statement that is run for many rows. `names` are the parameters of every row; the statement has no others."""

    def __init__(self, statement: sa.sql.Executable, names: Sequence[str]) -> None:
        self._statement = statement
        self._names = list(names)
        self._known: dict[str, tuple[str, Any]] = {}

    async def run(self, connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run it once for each row."""
        if not rows:
            return
        # By dialect: the statement is a module constant, and one process may have databases of both kinds open.
        known = self._known.get(connection.dialect.name)
        if known is None:
            compiled: Any = self._statement.compile(dialect=connection.dialect, column_keys=self._names)  # type: ignore[attr-defined]  # all statements have it
            known = self._known[connection.dialect.name] = (str(compiled), itemgetter(*compiled.positiontup))
        text, values = known
        await connection.exec_driver_sql(text, [values(row) for row in rows])


def clean_json(value: Json) -> Json:
    """Return JSON that both databases can query, by the same rules."""
    match value:
        case str():
            return clean_text(value)
        case dict():
            return {clean_text(name): clean_json(member) for name, member in value.items()}
        case list():
            return [clean_json(member) for member in value]
        case _:
            return value


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
    """Return a statement that inserts a row, or changes the existing row with the same key.

    `change` names the columns that get their new values, or maps columns to what they become (an expression may use the table's own
    columns, which are the values before). `.returning(...)` gives the row that is there afterwards.
    """
    statement = _make_insert(connection, table, values)
    if not isinstance(change, Mapping):
        change = {name: statement.excluded[name] for name in change}
    return statement.on_conflict_do_update(index_elements=list(key), set_=change)


def insert_or_ignore(connection: AsyncConnection, table: sa.Table, values: Values, *, key: Iterable[str] = ()) -> Insert:
    """Return a statement that inserts unless a row with the same key exists; without `key`, any unique key counts."""
    return _make_insert(connection, table, values).on_conflict_do_nothing(index_elements=list(key) or None)


def _make_insert(connection: AsyncConnection, table: sa.Table, values: Values) -> Insert:
    make = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    return make(table).values(values)


PATHS: dict[str, tuple[tuple[str, ...], ...]] = {
    "projects": (("id",), ("organization_id",)),
    "agents": (("project_id",), ("organization_id",)),
    "cases": (
        ("agent_id", "active"), ("project_id", "active"), ("organization_id", "active"),
        ("agent_id",), ("project_id",), ("organization_id",),
    ),
    "keys": (("solver_id",), ("project_id",), ("organization_id", "kind"), ("organization_id",)),
    "audit": (("organization_id", "resource_id"), ("organization_id", "resource"), ("organization_id",)),
    "traces": (
        ("agent_id", "external_id"), ("organization_id", "external_id"),
        ("organization_id", "status"), ("agent_id", "outcome"), ("project_id", "outcome"), ("organization_id", "outcome"),
        ("agent_id",), ("project_id",), ("organization_id",),
    ),
    "results": (
        ("trace_id",),
        ("case_id", "code"), ("agent_id", "code"), ("project_id", "code"), ("organization_id", "code"),
        ("case_id", "outcome"), ("agent_id", "outcome"), ("project_id", "outcome"), ("organization_id", "outcome"),
        ("case_id",), ("agent_id",), ("project_id",), ("organization_id",),
    ),
    "annotations": (("subject_id",), ("project_id",), ("organization_id",)),
    "alert_rules": (("agent_id",), ("project_id",), ("organization_id",)),
    "alert_deliveries": (("rule_id",),),
    "runs": (
        ("schedule_id", "status"), ("schedule_id",),
        ("organization_id", "name"), ("project_id", "status"), ("organization_id", "status"), ("project_id",), ("organization_id",),
    ),
    "schedules": (("project_id",), ("organization_id",)),
    "proposals": (("project_id", "status"), ("organization_id", "status"), ("project_id",), ("organization_id",)),
    "run_entries": (("run_id", "case_id"), ("run_id", "outcome"), ("run_id",)),
}  # fmt: skip
"""The columns that lead a list, by table; each tuple has an index that continues with time and id."""


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A list query before paging."""

    path: sa.Select[Any]
    """The part that an index covers."""
    filters: tuple[sa.ColumnElement[bool], ...] = ()
    """Other conditions on its rows."""

    @property
    def whole(self) -> sa.Select[Any]:
        """The query with every condition."""
        return self.path.where(*self.filters)


class DialectFunction(FunctionElement[Any]):
    """SQL that differs between the databases, with `{}` for each argument."""

    plain: str
    sqlite: str


@compiles(DialectFunction)
def _compile_plain(element: DialectFunction, compiler: SQLCompiler, **named: Any) -> str:
    return element.plain.format(*(compiler.process(clause, **named) for clause in element.clauses))


@compiles(DialectFunction, "sqlite")
def _compile_sqlite(element: DialectFunction, compiler: SQLCompiler, **named: Any) -> str:
    return element.sqlite.format(*(compiler.process(clause, **named) for clause in element.clauses))


class _OffIndex(DialectFunction):
    """A column that must not select an index: SQLite, without statistics, would otherwise use any index that fits."""

    inherit_cache = True
    name = "off_index"
    plain = "{}"
    sqlite = "+{}"
    """SQLite's own idiom: a unary plus changes no value, and prevents the use of an index for the term."""

    def __init__(self, column: sa.Column[Any]) -> None:
        super().__init__(column)
        self.type = column.type


def list_query(
    table: sa.Table,
    equal: Mapping[str, object],
    *,
    columns: Sequence[str] | None = None,
    along: Sequence[sa.ColumnElement[bool]] = (),
    filters: Sequence[sa.ColumnElement[bool]] = (),
) -> ListQuery:
    """Return the query for rows with these column values (None means no condition), led by an index.

    `along` are conditions on the time, which every path goes by; `filters` are others.
    """
    wanted = {name: value for name, value in equal.items() if value is not None}
    path = next(
        (path for path in PATHS[table.name] if all(name in wanted and wanted[name] != COMMON.get((table.name, name)) for name in path)), ()
    )
    query = sa.select(*(table.c[name] for name in columns or table.c.keys()))
    for name in path:
        query = query.where(table.c[name] == wanted[name])
        common = COMMON.get((table.name, name))
        if common is not None:
            # Written as in the index, so that both databases recognise that it has all of these rows.
            query = query.where(table.c[name] != sa.literal_column(f"'{common}'"))
    others = {name: value for name, value in wanted.items() if name not in path}
    owner = others.pop("organization_id", None)
    if owner is not None:
        # Always true for the caller's rows, and never omitted.
        query = query.where(_OffIndex(table.c.organization_id) == owner)
    return ListQuery(path=query.where(*along), filters=(*(_OffIndex(table.c[name]) == value for name, value in others.items()), *filters))
