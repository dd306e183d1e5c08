"""The index of judged claims: one row per claim that a judge decided, with a hash of its question.

What was decided is noted in `claims_due` in the same transaction, and indexed by a worker soon afterwards: computing a question needs the
case and the evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.sql.pages import Row, fetch_all, fetch_first
from proctor.store.sql.queries import insert_or_ignore, insert_or_update
from proctor.store.sql.tables import annotation_rows, claims_due, judged_claims

_ROWS = 100
"""Rows of one statement."""


async def note_due_claims(connection: AsyncConnection, subject: str, ids: Iterable[str], at: str) -> None:
    """Note that traces or attempts were decided by a judge."""
    for id in ids:
        row = {"subject_id": id, "subject": subject, "at": at}
        await connection.execute(insert_or_update(connection, claims_due, row, key=("subject_id",), change=("at",)))


async def list_due_claims(connection: AsyncConnection, limit: int) -> list[Row]:
    """Return traces and attempts to index."""
    return await fetch_all(connection, sa.select(claims_due).limit(limit))


async def write_claims(connection: AsyncConnection, due: Sequence[Row], rows: Sequence[dict[str, Any]]) -> None:
    """Replace the claims of traces and attempts that were due; those decided again in the meantime stay due."""
    ids = [claim["subject_id"] for claim in due]
    trace_ids = [claim["subject_id"] for claim in due if claim["subject"] == "trace"]
    await connection.execute(sa.delete(judged_claims).where(judged_claims.c.subject_id.in_(ids)))
    await connection.execute(sa.delete(judged_claims).where(judged_claims.c.parent_id.in_(trace_ids)))
    for start in range(0, len(rows), _ROWS):
        batch = list(rows[start : start + _ROWS])
        await connection.execute(insert_or_ignore(connection, judged_claims, batch, key=("subject_id", "claim")))
    for claim in due:
        same = (claims_due.c.subject_id == claim["subject_id"], claims_due.c.at == claim["at"])
        await connection.execute(sa.delete(claims_due).where(*same))


async def delete_claims_of(connection: AsyncConnection, parent_ids: Sequence[str]) -> None:
    """Delete the index of these traces and runs."""
    if not parent_ids:
        return
    await connection.execute(sa.delete(judged_claims).where(judged_claims.c.parent_id.in_(parent_ids)))


async def list_unhashed_labels(connection: AsyncConnection, limit: int) -> list[tuple[str, bytes]]:
    """Return the id and judged claim of labels of earlier versions, which have no hash of their question."""
    query = sa.select(annotation_rows.c.id, annotation_rows.c.body)
    unhashed = query.where(annotation_rows.c.question.is_(None), annotation_rows.c.body.is_not(None)).limit(limit)
    return [(id, body) for id, body in (await connection.execute(unhashed)).all()]


async def hash_label(connection: AsyncConnection, id: str, question: str) -> None:
    """Store the hash of the question of a label."""
    await connection.execute(sa.update(annotation_rows).where(annotation_rows.c.id == id).values(question=question))


# Annotations of traces, results and attempts: a label, a note, the author and the time.
# A label on a judged claim has a body: the judged text, the criterion and the judge's verdict. It is stored with the label, so that
# agreement can be computed, and labels exported, without reading every trace again.


async def delete_annotations_of(connection: AsyncConnection, parent_ids: Sequence[str]) -> None:
    """Delete the annotations of these traces and runs, and of their results."""
    await connection.execute(sa.delete(annotation_rows).where(annotation_rows.c.parent_id.in_(parent_ids)))


async def find_own_annotation(
    connection: AsyncConnection, organization_id: str, project_id: str, author: str, subject_claim: tuple[str, int], question: str | None
) -> Row | None:
    """Return the author's newest annotation of this claim (subject id and position), or of any claim in the project with its question."""
    ours = (annotation_rows.c.organization_id == organization_id, annotation_rows.c.author == author)
    same = sa.and_(annotation_rows.c.subject_id == subject_claim[0], annotation_rows.c.claim == subject_claim[1])
    if question is not None:
        same = sa.or_(same, annotation_rows.c.question == question)
    query = sa.select(annotation_rows).where(*ours, annotation_rows.c.project_id == project_id, same)
    return await fetch_first(connection, query.order_by(annotation_rows.c.created_at.desc()).limit(1))
