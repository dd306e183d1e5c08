"""Annotations of traces, results and attempts: a label, a note, the author and the time.

A label on a judged claim has a body: the judged text, the criterion and the judge's verdict. It is stored with the label, so that agreement
can be computed, and labels exported, without reading every trace again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.sql.pages import Row
from proctor.store.sql.tables import annotation_rows


async def delete_annotations_of(connection: AsyncConnection, parent_ids: Sequence[str]) -> None:
    """Delete the annotations of these traces and runs, and of their results."""
    await connection.execute(sa.delete(annotation_rows).where(annotation_rows.c.parent_id.in_(parent_ids)))


async def find_own_annotation(connection: AsyncConnection, organization_id: str, author: str, subject_id: str, claim: int) -> Row | None:
    """Return this author's earlier annotation of the claim."""
    ours = (annotation_rows.c.organization_id == organization_id, annotation_rows.c.author == author)
    query = sa.select(annotation_rows).where(*ours, annotation_rows.c.subject_id == subject_id, annotation_rows.c.claim == claim)
    found = (await connection.execute(query.order_by(annotation_rows.c.created_at.desc()).limit(1))).mappings().first()
    return None if found is None else dict(found)


async def list_labelled_claims(connection: AsyncConnection, organization_id: str, subject_ids: Collection[str]) -> set[tuple[str, int]]:
    """Return the claims that have a label or were skipped, as id of the subject and number of the claim."""
    query = sa.select(annotation_rows.c.subject_id, annotation_rows.c.claim).where(
        annotation_rows.c.organization_id == organization_id,
        annotation_rows.c.subject_id.in_(list(subject_ids)),
        annotation_rows.c.claim.is_not(None),
        annotation_rows.c.label.is_not(None),
    )
    return {(subject_id, claim) for subject_id, claim in (await connection.execute(query)).all()}
