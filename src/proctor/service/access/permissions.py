"""Permissions of keys on projects, agents, cases, traces and results.

An organization key: everything in its organization. A project key: reading its project, or only some agents of it. Solver keys and run
tokens: nothing here. Objects without access do not exist for a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.store.accounts.tenants import find_organization, has_several_organizations, query_owned
from proctor.store.sql.queries import ListQuery, list_query
from proctor.store.sql.tables import agents, projects


def require_writer(caller: Caller, what: str) -> None:
    """Reject every key but organization keys."""
    if caller.kind != "organization":
        raise Refusal("FORBIDDEN", f"{what} requires an organization key")


def require_reader(caller: Caller) -> None:
    """Reject every key but organization and project keys."""
    if caller.kind not in ("organization", "project"):
        raise Refusal("FORBIDDEN", f"a {caller.kind} key has no access to this")


def require_run_reader(caller: Caller) -> None:
    """Reject every key but organization keys and project keys without a limit to agents."""
    require_reader(caller)
    if caller.agent_ids is not None:
        raise Refusal("FORBIDDEN", "a key that is limited to some agents has no access to runs")


async def require_operator(hub: Hub, caller: Caller) -> None:
    """Reject callers without access to data of all organizations.

    The local user has access, and the organization that the administrator named or the only one.
    """
    require_writer(caller, "reading service metrics")
    # The local user of a service without organization keys.
    if caller.key_id is None:
        return
    operator_id = hub.settings.metrics_organization
    async with hub.database.reading() as connection:
        if operator_id is None:
            allowed = not await has_several_organizations(connection)
        else:
            allowed = await find_organization(connection, operator_id) == caller.organization_id
    if not allowed:
        reason = "this covers all organizations; the administrator sets the one with access: proctor serve --metrics-organization NAME"
        raise Refusal("FORBIDDEN", reason)


def query_visible(table: sa.Table, caller: Caller, **equal: object) -> sa.Select[Any]:
    """Return a query for the visible rows with these column values; None means no condition. Raises `Refusal` for other kinds of keys."""
    require_reader(caller)
    query = query_owned(table, caller.organization_id, **{name: value for name, value in equal.items() if value is not None})
    if caller.project_id is not None:
        query = query.where((table.c.id if table is projects else table.c.project_id) == caller.project_id)
    if caller.agent_ids is not None and table is not projects:
        query = query.where(_match_agents(table, caller.agent_ids))
    return query


def select_visible(
    table: sa.Table,
    caller: Caller,
    *,
    columns: Sequence[str] | None = None,
    along: Sequence[sa.ColumnElement[bool]] = (),
    filters: Sequence[sa.ColumnElement[bool]] = (),
    **equal: object,
) -> ListQuery:
    """Return the list of the visible rows with these column values; None means no condition. Raises `Refusal` for other kinds of keys."""
    require_reader(caller)
    column_values = {"organization_id": caller.organization_id, **equal}
    conditions = list(filters)
    column = "id" if table is projects else "project_id"
    if caller.project_id is not None:
        # A list of another project is empty, as if that project did not exist.
        if column_values.get(column) not in (None, caller.project_id):
            conditions.append(sa.false())
        column_values[column] = caller.project_id
    # An agent of the key is already a narrower condition.
    if caller.agent_ids is not None and table is not projects and column_values.get("agent_id") not in caller.agent_ids:
        conditions.append(_match_agents(table, caller.agent_ids))
    return list_query(table, column_values, columns=columns, along=along, filters=conditions)


def _match_agents(table: sa.Table, agent_ids: tuple[str, ...]) -> sa.ColumnElement[bool]:
    column = table.c.id if table is agents else table.c.agent_id
    among: sa.ColumnElement[bool] = column.in_(agent_ids)
    # Rows without an agent (a case for all agents) belong to these too.
    return sa.or_(column.is_(None), among) if column.nullable else among
