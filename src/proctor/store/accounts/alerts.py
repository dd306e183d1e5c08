"""Rows of alerts: results counted in a window, rules that change their state once, deliveries that one worker sends at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.sql.pages import Row
from proctor.store.sql.tables import alert_deliveries, alert_rules, results


async def count_outcomes(
    connection: AsyncConnection,
    organization_id: str,
    project_id: str,
    since: str,
    *,
    agent_id: str | None = None,
    case_id: str | None = None,
) -> list[tuple[str, str | None, int]]:
    """Return how many results there are since a time, by outcome and code."""
    query = sa.select(results.c.outcome, results.c.code, sa.func.count())
    query = query.where(*_watch_results(organization_id, project_id, since, agent_id, case_id))
    return [
        (outcome, code, count)
        for outcome, code, count in (await connection.execute(query.group_by(results.c.outcome, results.c.code))).all()
    ]


async def list_outcomes(
    connection: AsyncConnection,
    organization_id: str,
    project_id: str,
    since: str,
    *,
    limit: int,
    agent_id: str | None = None,
    case_id: str | None = None,
) -> list[tuple[str, str, str | None]]:
    """Return when results came since a time, with outcome and code, the newest first and no more than `limit`."""
    query = sa.select(results.c.created_at, results.c.outcome, results.c.code)
    query = query.where(*_watch_results(organization_id, project_id, since, agent_id, case_id))
    query = query.order_by(results.c.created_at.desc(), results.c.id.desc()).limit(limit)
    return [(at, outcome, code) for at, outcome, code in (await connection.execute(query)).all()]


def _watch_results(
    organization_id: str, project_id: str, since: str, agent_id: str | None, case_id: str | None
) -> Iterator[sa.ColumnElement[bool]]:
    """Yield the conditions of the results that a rule is about."""
    yield results.c.organization_id == organization_id
    yield results.c.project_id == project_id
    yield results.c.created_at >= since
    if agent_id is not None:
        yield results.c.agent_id == agent_id
    if case_id is not None:
        yield results.c.case_id == case_id


async def list_active_rules(connection: AsyncConnection) -> list[Row]:
    """Return every watched rule, of all organizations."""
    return [dict(row) for row in (await connection.execute(sa.select(alert_rules).where(alert_rules.c.active))).mappings()]


async def change_state(connection: AsyncConnection, id: str, *, before: str | None, after: str) -> bool:
    """Change the state of a rule; return False if another server has done so."""
    # The expected state is part of the condition: of two servers that see the same change, one sends the alert.
    same = alert_rules.c.state.is_(None) if before is None else alert_rules.c.state == before
    done = await connection.execute(sa.update(alert_rules).where(alert_rules.c.id == id, same).values(state=after))
    return done.rowcount == 1


async def list_due_deliveries(
    connection: AsyncConnection,
    now: float,
    limit: int,
    *,
    per_project: int,
    per_organization: int,
    busy: Mapping[str, int] | None = None,
) -> list[Row]:
    """Return due deliveries with the settings of their rules, the oldest first, but in turns, so that a project does not wait for all of
    another's. Shares of a project and of an organization are bounded; `busy` has how much of those is in use, by id.
    """
    taken = dict(busy or {})
    project = alert_rules.c.project_id
    order = (alert_deliveries.c.next_at, alert_deliveries.c.id)
    # Deliveries in progress count as used turns, so slow receivers give no advantage.
    in_project = sa.func.row_number().over(partition_by=project, order_by=order) + _busy_column(project, taken)
    due = (
        sa.select(alert_deliveries, project, alert_rules.c.webhook_url, alert_rules.c.secret, in_project.label("in_project"))
        .join(alert_rules, alert_rules.c.id == alert_deliveries.c.rule_id)
        .where(alert_deliveries.c.next_at <= now)
        .subquery()
    )
    among = (due.c.in_project, due.c.next_at, due.c.id)
    turn = sa.func.row_number().over(partition_by=due.c.organization_id, order_by=among) + _busy_column(due.c.organization_id, taken)
    turns = sa.select(due, turn.label("turn")).where(due.c.in_project <= per_project).subquery()
    query = sa.select(turns).where(turns.c.turn <= per_organization).order_by(turns.c.turn, turns.c.next_at, turns.c.id).limit(limit)
    return [dict(row) for row in (await connection.execute(query)).mappings()]


def _busy_column(id: sa.ColumnElement[str], taken: Mapping[str, int]) -> sa.ColumnElement[int]:
    return sa.case(taken, value=id, else_=0) if taken else sa.literal(0)


async def lease_delivery(connection: AsyncConnection, row: Row, until: float) -> bool:
    """Lease a delivery until a time; return False if another server has leased it."""
    # `next_at` is the lease: the first server to move it on makes the delivery. The attempt is counted before
    # it is made, so that one that kills its sender is not made for ever.
    mine = sa.update(alert_deliveries).where(alert_deliveries.c.id == row["id"], alert_deliveries.c.next_at == row["next_at"])
    done = await connection.execute(mine.values(next_at=until, attempts=alert_deliveries.c.attempts + 1))
    return done.rowcount == 1


async def finish_delivery(connection: AsyncConnection, id: str, values: dict[str, Any]) -> None:
    """Write how a delivery ended."""
    await connection.execute(sa.update(alert_deliveries).where(alert_deliveries.c.id == id).values(values))


async def delete_deliveries(connection: AsyncConnection, rule_id: str) -> None:
    """Delete what a rule sent, and what it was about to send."""
    await connection.execute(sa.delete(alert_deliveries).where(alert_deliveries.c.rule_id == rule_id))
