"""The labelling queue: questions that judges decided and that no person labelled.

It is read from the index of judged claims (`claims.py`). Claims with the same criterion, answer and context are one question. Passed and
failed questions alternate, since agreement needs both; the least certain come first. A second opinion asks about what others labelled.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Annotated, Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.service.access.callers import Caller
from proctor.service.access.permissions import query_visible
from proctor.service.access.projects import get_project
from proctor.service.access.transactions import reading
from proctor.service.hub import Hub
from proctor.service.labels.claims import JudgedClaim, Subject, SubjectKind, find_subject, read_claims
from proctor.service.refusals import Refusal
from proctor.service.resource import about, operation
from proctor.store.sql.tables import annotation_rows, claims_due, judged_claims

MOST_LISTED = 100
"""Questions of each outcome that are listed; all of them are counted."""
_MOST_TRIED = 20
"""Claims that are tried until one can be shown."""


class WaitingClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A question without a label, and one of the claims that ask it."""

    subject: SubjectKind
    subject_id: str
    claim: int
    outcome: str
    score: float
    applies_to: Annotated[int, about("number of claims with this question")] = 1


class LabelQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Unlabelled questions, in labelling order."""

    waiting: Annotated[list[WaitingClaim], about("at most 100 of each outcome")]
    total: Annotated[int, about("number of questions to label")]
    answers: Annotated[int, about("number of claims that ask them")]
    labelled: Annotated[int, about("number of questions with a label")]
    second: Annotated[int, about("number of questions that only others labelled")]
    indexing: Annotated[bool, about("whether more was decided that is not counted yet")]


class ShownClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim for a person."""

    subject: Subject
    claim: JudgedClaim
    applies_to: int = 1
    """The number of claims with the same question."""


@operation("annotations", "GET /api/annotations/queue", name="list_waiting_claims")
async def list_waiting(
    hub: Hub,
    caller: Caller,
    project_id: str,
    *,
    second: Annotated[bool, about("list questions that others labelled, and the caller did not")] = False,
) -> LabelQueue:
    """List unlabelled judged questions: passed and failed alternately, the least certain first."""
    await get_project(hub, caller, project_id)
    labels = query_visible(annotation_rows, caller, project_id=project_id).with_only_columns(annotation_rows.c.question)
    labels = labels.where(annotation_rows.c.question.is_not(None), annotation_rows.c.label.is_not(None))
    decided = labels.where(annotation_rows.c.label != "skip")
    mine = labels.where(annotation_rows.c.author == caller.actor)
    question = judged_claims.c.question
    to_second = sa.and_(question.in_(decided), question.not_in(mine))
    # What was skipped waits for others.
    unlabelled = to_second if second else sa.and_(question.not_in(decided), question.not_in(mine))
    claims = query_visible(judged_claims, caller, project_id=project_id)
    async with hub.database.reading() as connection:
        waiting = await _list_questions(connection, claims.where(unlabelled))
        total, answers = await _count_questions(connection, claims.where(unlabelled))
        others = total if second else (await _count_questions(connection, claims.where(to_second)))[0]
        labelled = (await connection.execute(sa.select(sa.func.count()).select_from(decided.distinct().subquery()))).scalar_one()
        due = (await connection.execute(sa.select(claims_due.c.subject_id).limit(1))).first()
    fails, passes = ([each for each in waiting if each.outcome == outcome] for outcome in ("fail", "pass"))
    turns = [each for pair in zip_longest(fails, passes) for each in pair if each is not None]
    # Undecided claims say nothing about agreement and come last.
    turns += [each for each in waiting if each.outcome not in ("fail", "pass")]
    return LabelQueue(waiting=turns, total=total, answers=answers, labelled=labelled, second=others, indexing=due is not None)


async def pose_next(hub: Hub, caller: Caller, queue: LabelQueue) -> ShownClaim | None:
    """Return the first claim of a queue that can be shown, or None."""
    for waiting_claim in queue.waiting[:_MOST_TRIED]:
        try:
            posed = await pose_claim(hub, caller, waiting_claim.subject, waiting_claim.subject_id, waiting_claim.claim)
        except Refusal:
            continue  # deleted since it was indexed
        if posed is not None:
            return msgspec.structs.replace(posed, applies_to=waiting_claim.applies_to)
    return None


async def pose_claim(hub: Hub, caller: Caller, kind: SubjectKind, id: str, number: int) -> ShownClaim | None:
    """Return one claim as it was put to the judge; None if it cannot be shown."""
    async with reading(hub, caller) as tx:
        subject = await find_subject(tx, kind, id)
    claim = next((claim for claim in await read_claims(hub, subject) if claim.number == number), None)
    return None if claim is None else ShownClaim(subject=subject, claim=claim)


async def _count_questions(connection: AsyncConnection, claims: sa.Select[Any]) -> tuple[int, int]:
    groups = claims.with_only_columns(sa.func.count().label("claims")).group_by(judged_claims.c.question).subquery()
    counts = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(groups.c.claims), 0))
    questions, answers = (await connection.execute(counts)).one()
    return questions, int(answers)


async def _list_questions(connection: AsyncConnection, claims: sa.Select[Any]) -> list[WaitingClaim]:
    """Return the least certain questions of each group (passed, failed, other), each with one of its claims."""
    of = judged_claims.c
    # Grouped in the order of the index, without sorting all of them.
    distance, outcome = sa.func.min(sa.func.abs(of.score - 0.5)), sa.func.min(of.outcome)
    groups = claims.with_only_columns(of.question, sa.func.count()).group_by(of.question).order_by(distance, of.question).limit(MOST_LISTED)
    counts: dict[str, int] = {}
    for condition in (outcome == "fail", outcome == "pass", outcome.not_in(("fail", "pass"))):
        # Questions without a verdict are of no use while there are others.
        if len(counts) <= MOST_LISTED:
            rows = (await connection.execute(groups.having(condition))).all()
            counts |= {row[0]: row[1] for row in rows}
    places = {question: place for place, question in enumerate(counts)}
    asking = claims.where(of.question.in_(list(counts))).order_by(of.question, of.subject_id, of.claim)
    questions: dict[str, WaitingClaim] = {}
    for row in (await connection.execute(asking)).mappings():
        claim = {"subject": row["subject"], "subject_id": row["subject_id"], "claim": row["claim"], "outcome": row["outcome"]}
        questions.setdefault(row["question"], WaitingClaim(**claim, score=row["score"], applies_to=counts[row["question"]]))
    return [questions[question] for question in sorted(questions, key=places.__getitem__)]


def require_kind(text: str) -> SubjectKind:
    """Return the kind of subject that a text names. Raises `Refusal`."""
    if text not in ("trace", "result", "attempt"):
        raise Refusal("BAD_REQUEST", f"unknown subject {text[:40]!r}", hint="one of trace, result, attempt")
    return text  # type: ignore[return-value]  # one of the three
