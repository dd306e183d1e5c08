"""Indexes judged claims in bounded steps: those decided since the last step, and after an upgrade everything decided before.

A question is computed from the case and the evidence. A body that cannot be read any more has no claims.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import sqlalchemy as sa

from proctor.errors import StoreError
from proctor.model.typed import make_json_decoder
from proctor.service.hub import Hub
from proctor.service.labels.claims import JudgedClaim, Subject, list_judged, read_attempt_verdicts, read_claims, read_verdicts
from proctor.store.accounts.judged_claims import hash_label, list_due_claims, list_unhashed_labels, write_claims
from proctor.store.sql.compressed_json import expand_bytes, unpack
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import results, run_entries, runs

STEP = 50
"""Traces and attempts of one step."""
IDLE_S = 1.0
"""Seconds between looks for work."""
_LOG = logging.getLogger("proctor.serve")
_CLAIM = make_json_decoder(JudgedClaim)


async def keep_indexing(hub: Hub, stop: asyncio.Event) -> None:
    """Index judged claims until `stop` is set: a worker of the service."""
    while not stop.is_set():
        try:
            if await index_claims(hub):
                continue
        except StoreError as error:
            _LOG.warning("judged claims cannot be indexed now", extra={"error": str(error)})
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), IDLE_S)


async def index_claims(hub: Hub) -> int:
    """Index one step and return how much it was; 0 if everything is indexed."""
    async with hub.database.reading() as connection:
        due = await list_due_claims(connection, STEP)
        labels = await list_unhashed_labels(connection, STEP)
        subjects = [subject for one in due for subject in await _list_subjects(connection, one)]
    rows = [row for subject in subjects for row in await _list_rows(hub, subject)]
    hashes = [(id, _CLAIM.decode(expand_bytes(body)).hash_question()) for id, body in labels]
    if due or hashes:
        async with hub.database.writing() as connection:
            await write_claims(connection, due, rows)
            for id, question in hashes:
                await hash_label(connection, id, question)
    return len(due) + len(hashes)


async def _list_subjects(connection: Any, due: Row) -> list[Subject]:
    if due["subject"] == "trace":
        found = (await connection.execute(sa.select(results).where(results.c.trace_id == due["subject_id"]))).mappings().all()
        return [
            Subject(
                kind="result",
                id=row["id"],
                project_id=row["project_id"],
                agent_id=row["agent_id"],
                parent_id=row["trace_id"],
                row=dict(row),
            )
            for row in found
        ]
    row = (await connection.execute(sa.select(run_entries).where(run_entries.c.id == due["subject_id"]))).mappings().first()
    run = None if row is None else (await connection.execute(sa.select(runs).where(runs.c.id == row["run_id"]))).mappings().first()
    if row is None or run is None:
        return []
    whole: Row = {**row, "run": dict(run)}
    return [Subject(kind="attempt", id=row["id"], project_id=run["project_id"], agent_id="", parent_id=run["id"], row=whole)]


async def _list_rows(hub: Hub, subject: Subject) -> list[dict[str, Any]]:
    row = subject.row
    try:
        verdicts = await asyncio.to_thread(
            lambda: read_attempt_verdicts(row["body"]) if subject.kind == "attempt" else read_verdicts(unpack(row["body"]))
        )
        # The evidence is read only if a judge decided something.
        claims = await read_claims(hub, subject) if list_judged(verdicts) else []
    except Exception:
        # Damaged, or a bug: it must not block the others, and opening it reports the problem.
        _LOG.warning("judged claims cannot be indexed", exc_info=True, extra={"subject": subject.id})
        return []
    owner = row["run"]["organization_id"] if subject.kind == "attempt" else row["organization_id"]
    return [
        {
            "subject_id": subject.id,
            "claim": claim.number,
            "organization_id": owner,
            "project_id": subject.project_id,
            "agent_id": subject.agent_id,
            "subject": subject.kind,
            "parent_id": subject.parent_id,
            "question": claim.hash_question(),
            "outcome": claim.outcome,
            "score": claim.score,
        }
        for claim in claims
    ]
