"""Reads the cases that traces are evaluated against."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.service.decisions.case_selection import ActiveCase
from proctor.service.decisions.trace_verdicts import CaseKey, CaseText
from proctor.store.tables import cases


async def list_active_cases(connection: AsyncConnection, project_ids: Sequence[str]) -> dict[str, list[ActiveCase]]:
    """Return the active cases of some projects, oldest first, by project."""
    columns = (cases.c.id, cases.c.version, cases.c.project_id, cases.c.agent_id, cases.c.name, cases.c.when_matches, cases.c.sample)
    query = sa.select(*columns).where(cases.c.project_id.in_(project_ids), cases.c.active).order_by(cases.c.created_at, cases.c.id)
    found: dict[str, list[ActiveCase]] = {}
    for id, version, project_id, agent_id, name, when, sample in (await connection.execute(query)).all():
        case = ActiveCase(id=id, version=version, project_id=project_id, agent_id=agent_id, name=name, when=when, sample=sample)
        found.setdefault(project_id, []).append(case)
    return found


async def read_case_texts(connection: AsyncConnection, wanted: Sequence[ActiveCase]) -> dict[CaseKey, CaseText]:
    """Return the documents of some cases, read in the transaction that found them."""
    if not wanted:
        return {}
    query = sa.select(cases.c.id, cases.c.version, cases.c.name, cases.c.document, cases.c.dialect)
    rows = (await connection.execute(query.where(cases.c.id.in_([case.id for case in wanted])))).all()
    return {
        (id, version): CaseText(id=id, version=version, name=name, text=text, dialect=dialect) for id, version, name, text, dialect in rows
    }
