"""How many traces there are of each agent, outcome, status and case among those that are looked for, over a bounded stretch of them.

Each facet leaves its own filter out: who looks at failures of one agent sees how many the other agents have, and how many passed. Counted
are the newest traces along the path of the list, so many and no more, and it is said where they ended.
"""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import require_reader
from proctor.service.hub import Hub
from proctor.service.traces.search import TraceSearch, make_trace_query
from proctor.store.sql.tables import agents, cases, results, traces

STRETCH = 2_000
"""Traces that are counted."""
_MOST_VALUES = 50
"""Values of one facet that are listed, the most frequent first."""


class FacetValue(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a facet."""

    value: str
    count: int
    name: str | None = None
    """Of an agent or a case."""


class Facets(msgspec.Struct, frozen=True, kw_only=True):
    """What the traces that are looked for have in common."""

    looked_at: int
    """Along the list, also those that other filters leave out."""
    more: bool
    """Whether there are older ones that were not looked at."""
    since: str | None
    """The oldest that was looked at."""
    agents: list[FacetValue]
    outcomes: list[FacetValue]
    statuses: list[FacetValue]
    cases: list[FacetValue]


async def count_facets(hub: Hub, caller: Caller, wanted: TraceSearch) -> Facets:
    """Return the facets of a search."""
    require_reader(caller)
    async with hub.database.reading() as connection:
        looked_at, since = await _measure_stretch(connection, caller, wanted)
        # Each facet without its own filter: it shows what could be chosen instead.
        by_agent = await _count_column(connection, caller, msgspec.structs.replace(wanted, agent_id=None), traces.c.agent_id)
        by_outcome = await _count_column(connection, caller, msgspec.structs.replace(wanted, outcome=None), traces.c.outcome)
        by_status = await _count_column(connection, caller, msgspec.structs.replace(wanted, status=None), traces.c.status)
        by_case = await _count_cases(connection, caller, msgspec.structs.replace(wanted, case_id=None))
        names = await _list_names(connection, caller, agents, by_agent) | await _list_names(connection, caller, cases, by_case)
    return Facets(
        looked_at=looked_at,
        more=looked_at >= STRETCH,
        since=since,
        agents=_list_values(by_agent, names),
        outcomes=_list_values(by_outcome, {}),
        statuses=_list_values(by_status, {}),
        cases=_list_values(by_case, names),
    )


def _cut_stretch(caller: Caller, wanted: TraceSearch) -> tuple[sa.Subquery, tuple[sa.ColumnElement[bool], ...]]:
    """Return the stretch of a search as a table of its own, by id and time, and the conditions beside its path."""
    query = make_trace_query(caller, wanted, ("id", "created_at"))
    path = query.path.order_by(None).order_by(traces.c.created_at.desc(), traces.c.id.desc()).limit(STRETCH)
    return path.subquery("stretch"), query.beside


async def _measure_stretch(connection: AsyncConnection, caller: Caller, wanted: TraceSearch) -> tuple[int, str | None]:
    stretch, _ = _cut_stretch(caller, wanted)
    count, since = (await connection.execute(sa.select(sa.func.count(), sa.func.min(stretch.c.created_at)).select_from(stretch))).one()
    return count, since


def _join_stretch(caller: Caller, wanted: TraceSearch, *columns: sa.ColumnElement[Any]) -> sa.Select[Any, Any]:
    stretch, beside = _cut_stretch(caller, wanted)
    # Joined by the id once the stretch is cut: conditions beside the path are only asked of what lies in it.
    return sa.select(*columns).select_from(stretch).join(traces, traces.c.id == stretch.c.id).where(*beside)


async def _count_column(connection: AsyncConnection, caller: Caller, wanted: TraceSearch, column: sa.Column[Any]) -> dict[str, int]:
    query = _join_stretch(caller, wanted, column, sa.func.count()).where(column.is_not(None)).group_by(column)
    return {str(row[0]): row[1] for row in (await connection.execute(query)).all()}


async def _count_cases(connection: AsyncConnection, caller: Caller, wanted: TraceSearch) -> dict[str, int]:
    query = _join_stretch(caller, wanted, results.c.case_id, sa.func.count(sa.distinct(traces.c.id)))
    query = query.join(results, results.c.trace_id == traces.c.id).group_by(results.c.case_id)
    return {row[0]: row[1] for row in (await connection.execute(query)).all()}


async def _list_names(connection: AsyncConnection, caller: Caller, table: sa.Table, counts: dict[str, int]) -> dict[str, str]:
    ours = (table.c.organization_id == caller.organization_id, table.c.id.in_(_list_frequent(counts)))
    return {row[0]: row[1] for row in (await connection.execute(sa.select(table.c.id, table.c.name).where(*ours))).all()}


def _list_frequent(counts: dict[str, int]) -> list[str]:
    return sorted(counts, key=lambda value: (-counts[value], value))[:_MOST_VALUES]


def _list_values(counts: dict[str, int], names: dict[str, str]) -> list[FacetValue]:
    return [FacetValue(value=value, count=counts[value], name=names.get(value)) for value in _list_frequent(counts)]


def show_facets(found: Facets) -> Json:
    """Return facets as they go over the wire."""
    return msgspec.to_builtins(found)
