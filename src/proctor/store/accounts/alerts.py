"""Rows of alerts: result counts in a window, rules whose state changes once, deliveries sent by one worker at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.sql.pages import Row, fetch_all
from proctor.store.sql.tables import alert_deliveries, alert_rules, results, runs

Outcomes = sa.Select[Any, Any, Any, Any]
"""A query for the time, outcome, code and id of results or runs."""
_DESTINATION = (alert_rules.c.channel, alert_rules.c.webhook_url, alert_rules.c.email, alert_rules.c.secret)


def select_results(place: Mapping[str, Any], settings: Mapping[str, Any], since: str) -> Outcomes:
    """Select the results since a time; `place` is a rule, or the ids of its organization, project and agent."""
    query = sa.select(results.c.created_at.label("at"), results.c.outcome, results.c.code, results.c.id)
    query = query.where(results.c.organization_id == place["organization_id"], results.c.project_id == place["project_id"])
    chosen = ((results.c.agent_id, place["agent_id"]), (results.c.case_id, settings.get("case_id")))
    return query.where(results.c.created_at >= since, *(column == id for column, id in chosen if id is not None))


def select_scheduled_runs(place: Mapping[str, Any], settings: Mapping[str, Any], since: str) -> Outcomes:
    """Select the scheduled runs that ended since a time; a failed run has no outcome and counts as `error`."""
    outcome = sa.case((runs.c.status == "failed", "error"), (runs.c.status == "cancelled", "skip"), else_=runs.c.outcome)
    query = sa.select(runs.c.completed_at.label("at"), outcome.label("outcome"), sa.null().label("code"), runs.c.id)
    query = query.where(runs.c.organization_id == place["organization_id"], runs.c.project_id == place["project_id"])
    id = settings.get("schedule_id")
    return query.where(runs.c.schedule_id.is_not(None) if id is None else runs.c.schedule_id == id, runs.c.completed_at >= since)


async def count_outcomes(connection: AsyncConnection, outcomes: Outcomes) -> list[tuple[str, str | None, int]]:
    """Return the number of selected results or runs, by outcome and code."""
    found = outcomes.subquery()
    query = sa.select(found.c.outcome, found.c.code, sa.func.count()).group_by(found.c.outcome, found.c.code)
    return [(outcome, code, count) for outcome, code, count in (await connection.execute(query)).all()]


async def list_outcomes(connection: AsyncConnection, outcomes: Outcomes, limit: int) -> list[tuple[str, str, str | None]]:
    """Return the times of selected results or runs, with outcome and code, newest first and at most `limit`."""
    query = outcomes.order_by(outcomes.selected_columns["at"].desc(), outcomes.selected_columns["id"].desc()).limit(limit)
    return [(at, outcome, code) for at, outcome, code, _ in (await connection.execute(query)).all()]


async def list_active_rules(connection: AsyncConnection) -> list[Row]:
    """Return every watched rule, of all organizations."""
    return await fetch_all(connection, sa.select(alert_rules).where(alert_rules.c.active))


async def change_state(connection: AsyncConnection, id: str, *, before: str | None, after: str) -> bool:
    """Change the state of a rule; return False if another server has done so."""
    # The expected state is part of the condition: if two servers see the same change, only one sends the alert.
    is_unchanged = alert_rules.c.state.is_(None) if before is None else alert_rules.c.state == before
    done = await connection.execute(sa.update(alert_rules).where(alert_rules.c.id == id, is_unchanged).values(state=after))
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
    """Return due deliveries with the settings of their rules: round robin over projects and organizations, oldest first within each.

    A project and an organization have a limited number of concurrent deliveries; `busy` has the number in progress, by id.
    """
    in_use = dict(busy or {})
    project = alert_rules.c.project_id
    order = (alert_deliveries.c.next_at, alert_deliveries.c.id)
    # Deliveries in progress count too, so a project with slow receivers gets no more than its share.
    in_project = sa.func.row_number().over(partition_by=project, order_by=order) + _busy_column(project, in_use)
    due = (
        sa.select(alert_deliveries, project, *_DESTINATION, in_project.label("in_project"))
        .join(alert_rules, alert_rules.c.id == alert_deliveries.c.rule_id)
        .where(alert_deliveries.c.next_at <= now)
        .subquery()
    )
    among = (due.c.in_project, due.c.next_at, due.c.id)
    turn = sa.func.row_number().over(partition_by=due.c.organization_id, order_by=among) + _busy_column(due.c.organization_id, in_use)
    turns = sa.select(due, turn.label("turn")).where(due.c.in_project <= per_project).subquery()
    query = sa.select(turns).where(turns.c.turn <= per_organization).order_by(turns.c.turn, turns.c.next_at, turns.c.id).limit(limit)
    return await fetch_all(connection, query)


def _busy_column(id: sa.ColumnElement[str], busy: Mapping[str, int]) -> sa.ColumnElement[int]:
    return sa.case(busy, value=id, else_=0) if busy else sa.literal(0)


async def lease_delivery(connection: AsyncConnection, row: Row, until: float) -> bool:
    """Lease a delivery until a time; return False if another server has leased it."""
    # `next_at` is the lease: the first server to advance it makes the delivery. The attempt is counted before
    # it is made, so that one that crashes its sender is not repeated forever.
    mine = sa.update(alert_deliveries).where(alert_deliveries.c.id == row["id"], alert_deliveries.c.next_at == row["next_at"])
    done = await connection.execute(mine.values(next_at=until, attempts=alert_deliveries.c.attempts + 1))
    return done.rowcount == 1


async def finish_delivery(connection: AsyncConnection, id: str, values: dict[str, Any]) -> None:
    """Store the outcome of a delivery."""
    await connection.execute(sa.update(alert_deliveries).where(alert_deliveries.c.id == id).values(values))


async def delete_deliveries(connection: AsyncConnection, rule_id: str) -> None:
    """Delete the sent and pending messages of a rule."""
    await connection.execute(sa.delete(alert_deliveries).where(alert_deliveries.c.rule_id == rule_id))
