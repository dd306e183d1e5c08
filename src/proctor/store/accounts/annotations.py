"""What people said about traces, results and attempts, as rows: a label, a note, who and when.

A label on a claim that a judge decided has a body: what was judged, by which criterion, and what the judge said. It is kept with the
label, so that agreement can be computed, and the labels exported, without reading every trace again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.store.sql.pages import Row
from proctor.store.sql.tables import annotation_rows


async def delete_annotations_of(connection: AsyncConnection, parent_ids: Sequence[str]) -> None:
    """Delete what was said about these traces and runs, and about what came of them."""
    await connection.execute(sa.delete(annotation_rows).where(annotation_rows.c.parent_id.in_(parent_ids)))


async def find_own_annotation(connection: AsyncConnection, organization_id: str, author: str, subject_id: str, claim: int) -> Row | None:
    """Return what somebody said about a claim before."""
    ours = (annotation_rows.c.organization_id == organization_id, annotation_rows.c.author == author)
    query = sa.select(annotation_rows).where(*ours, annotation_rows.c.subject_id == subject_id, annotation_rows.c.claim == claim)
    found = (await connection.execute(query.order_by(annotation_rows.c.created_at.desc()).limit(1))).mappings().first()
    return None if found is None else dict(found)


async def list_labelled_claims(connection: AsyncConnection, organization_id: str, subject_ids: Collection[str]) -> set[tuple[str, int]]:
    """Return the claims that somebody has labelled, or passed over, by the id of what they are about and their number."""
    query = sa.select(annotation_rows.c.subject_id, annotation_rows.c.claim).where(
        annotation_rows.c.organization_id == organization_id,
        annotation_rows.c.subject_id.in_(list(subject_ids)),
        annotation_rows.c.claim.is_not(None),
        annotation_rows.c.label.is_not(None),
    )
    return {(subject_id, claim) for subject_id, claim in (await connection.execute(query)).all()}
