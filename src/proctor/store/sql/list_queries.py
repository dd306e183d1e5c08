"""Queries of lists: which index answers a filter, whatever else is asked beside it.

A list may be narrowed by several columns at once, and not every combination has an index. So each table has *paths*: columns with an index
that goes on by time, from the narrowest to the widest. The first path whose columns are all asked for leads the query; every other
condition is *beside* it, and only looked at along a bounded stretch of the path (`pages.py`). So no list reads or sorts a whole table, and
a page of a strange combination may be short, with the way on.

Of outcomes and states only the rare ones have an index: those that are `pass` or `evaluated` are found soon anyhow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from proctor.store.sql.tables import COMMON

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
    "runs": (("organization_id", "name"), ("project_id", "status"), ("organization_id", "status"), ("project_id",), ("organization_id",)),
    "run_entries": (("run_id", "case_id"), ("run_id", "outcome"), ("run_id",)),
}  # fmt: skip
"""The columns that lead a list, by table; each tuple with an index of its own that goes on by time and id."""


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A list before its page is cut out."""

    path: sa.Select[Any]
    """Everything along an index."""
    beside: tuple[sa.ColumnElement[bool], ...] = ()
    """What else is asked of its rows."""

    @property
    def whole(self) -> sa.Select[Any]:
        """The query with every condition."""
        return self.path.where(*self.beside)


class _OffIndex(FunctionElement[Any]):
    """A column that leads no query: SQLite, which keeps no statistics, would otherwise take any index that fits."""

    inherit_cache = True
    name = "off_index"

    def __init__(self, column: sa.Column[Any]) -> None:
        super().__init__(column)
        self.type = column.type


@compiles(_OffIndex)
def _compile_plain(element: _OffIndex, compiler: SQLCompiler, **named: Any) -> str:
    return compiler.process(element.clauses.clauses[0], **named)


@compiles(_OffIndex, "sqlite")
def _compile_off_index(element: _OffIndex, compiler: SQLCompiler, **named: Any) -> str:
    # SQLite's own idiom: a unary plus changes no value, and keeps the term from being used with an index.
    return f"+{compiler.process(element.clauses.clauses[0], **named)}"


def list_query(
    table: sa.Table,
    equal: Mapping[str, object],
    *,
    columns: Sequence[str] | None = None,
    along: Sequence[sa.ColumnElement[bool]] = (),
    beside: Sequence[sa.ColumnElement[bool]] = (),
) -> ListQuery:
    """Return the query for rows whose columns have these values (None does not count), led by an index.

    `along` are conditions on the time, which every path goes by; `beside` are others.
    """
    wanted = {name: value for name, value in equal.items() if value is not None}
    path = next((path for path in PATHS[table.name] if _is_leading(table, path, wanted)), ())
    query = sa.select(*(table.c[name] for name in columns or table.c.keys()))
    for name in path:
        query = query.where(table.c[name] == wanted[name])
        common = COMMON.get((table.name, name))
        if common is not None:
            # Said as the index says it, so that both databases see that it holds all of these rows.
            query = query.where(table.c[name] != sa.literal_column(f"'{common}'"))
    others = {name: value for name, value in wanted.items() if name not in path}
    owner = others.pop("organization_id", None)
    if owner is not None:
        # Always true of what belongs to the caller, and never left out.
        query = query.where(_OffIndex(table.c.organization_id) == owner)
    return ListQuery(path=query.where(*along), beside=(*(_OffIndex(table.c[name]) == value for name, value in others.items()), *beside))


def _is_leading(table: sa.Table, path: tuple[str, ...], wanted: Mapping[str, object]) -> bool:
    """Return whether every column of a path is asked for, with a value that its index holds."""
    return all(name in wanted and wanted[name] != COMMON.get((table.name, name)) for name in path)
