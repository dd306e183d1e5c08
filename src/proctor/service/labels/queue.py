"""The labelling queue: judged claims without a label.

The newest results of traces and attempts of runs are searched, up to a limit. Passed and failed claims alternate, since agreement needs
both; the least certain come first.
"""

from __future__ import annotations

import asyncio
from itertools import zip_longest

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import StoreError
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import query_seen, require_reader
from proctor.service.access.projects import get_project
from proctor.service.hub import Hub
from proctor.service.labels.claims import JudgedClaim, Subject, SubjectKind, find_subject, list_judged, read_attempt_verdicts, read_claims
from proctor.service.labels.claims import read_verdicts as read_result_verdicts
from proctor.service.refusals import Refusal
from proctor.store.accounts.annotations import list_labelled_claims
from proctor.store.sql.compressed_json import unpack
from proctor.store.sql.tables import results, run_entries, runs

MOST_LOOKED_AT = 300
"""Results of traces, and as many attempts of runs, that are searched."""
_MOST_RUNS = 20
_MOST_TRIED = 20
"""Claims that are tried until one can be shown."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A claim without a label."""

    subject: SubjectKind
    subject_id: str
    claim: int
    outcome: str
    score: float


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """Claims in labelling order."""

    waiting: list[Waiting]
    looked_at: int
    more: bool
    """Whether there are older claims that were not searched."""


class Posed(msgspec.Struct, frozen=True, kw_only=True):
    """A claim for a person."""

    subject: Subject
    claim: JudgedClaim


async def list_waiting(hub: Hub, caller: Caller, project_id: str) -> Queue:
    """Return the unlabelled claims of a project."""
    require_reader(caller)
    await get_project(hub, caller, project_id)
    async with hub.database.reading() as connection:
        found = await _list_bodies(connection, caller, project_id)
        claims = await asyncio.to_thread(_list_claims, found)
        labelled = await list_labelled_claims(connection, caller.organization_id, {one.subject_id for one in claims})
    waiting = [one for one in claims if (one.subject_id, one.claim) not in labelled]
    more = any(sum(kind == subject for kind, _, _ in found) >= MOST_LOOKED_AT for subject in ("result", "attempt"))
    return Queue(waiting=_order_waiting(waiting), looked_at=len(found), more=more)


async def pose_next(hub: Hub, caller: Caller, queue: Queue) -> Posed | None:
    """Return the first claim of a queue that can be shown, or None."""
    for one in queue.waiting[:_MOST_TRIED]:
        found = await pose_claim(hub, caller, one.subject, one.subject_id, one.claim)
        if found is not None:
            return found
    return None


async def pose_claim(hub: Hub, caller: Caller, kind: SubjectKind, id: str, number: int) -> Posed | None:
    """Return one claim as it was put to the judge; None if it cannot be shown."""
    async with hub.database.reading() as connection:
        subject = await find_subject(connection, caller, kind, id)
    claim = next((claim for claim in await read_claims(hub, caller, subject) if claim.number == number), None)
    return None if claim is None else Posed(subject=subject, claim=claim)


async def _list_bodies(connection: AsyncConnection, caller: Caller, project_id: str) -> list[tuple[SubjectKind, str, bytes]]:
    ours = query_seen(results, caller, project_id=project_id).with_only_columns(results.c.id, results.c.body)
    newest = ours.order_by(results.c.created_at.desc(), results.c.id.desc()).limit(MOST_LOOKED_AT)
    found: list[tuple[SubjectKind, str, bytes]] = [("result", id, body) for id, body in (await connection.execute(newest)).all()]
    if caller.agent_ids is not None:
        return found  # the key has no access to runs
    latest = query_seen(runs, caller, project_id=project_id).with_only_columns(runs.c.id)
    run_ids = list((await connection.execute(latest.order_by(runs.c.created_at.desc(), runs.c.id.desc()).limit(_MOST_RUNS))).scalars())
    left = MOST_LOOKED_AT
    for run_id in run_ids:
        of_run = sa.select(run_entries.c.id, run_entries.c.body).where(run_entries.c.run_id == run_id)
        entries = (await connection.execute(of_run.order_by(run_entries.c.created_at.desc(), run_entries.c.id.desc()).limit(left))).all()
        found.extend(("attempt", id, body) for id, body in entries)
        left -= len(entries)
        if left <= 0:
            break
    return found


def _list_claims(found: list[tuple[SubjectKind, str, bytes]]) -> list[Waiting]:
    claims: list[Waiting] = []
    for kind, id, body in found:
        try:
            verdicts = read_attempt_verdicts(body) if kind == "attempt" else read_result_verdicts(unpack(body))
        except StoreError:
            continue  # damaged; opening it reports that
        claims += [
            Waiting(subject=kind, subject_id=id, claim=number, outcome=verdict.outcome, score=verdict.score or 0.0)
            for number, verdict in list_judged(verdicts)
        ]
    return claims


def _order_waiting(waiting: list[Waiting]) -> list[Waiting]:
    # Sorting is stable: the newest of equally certain ones comes first.
    unsure_first = sorted(waiting, key=lambda one: abs(one.score - 0.5))
    kinds = [[one for one in unsure_first if one.outcome == outcome] for outcome in ("fail", "pass")]
    turns = [one for pair in zip_longest(*kinds) for one in pair if one is not None]
    # Undecided claims say nothing about agreement and come last.
    return [*turns, *(one for one in unsure_first if one.outcome not in ("fail", "pass"))]


def require_kind(text: str) -> SubjectKind:
    """Return the kind of subject that a text names. Raises `Refusal`."""
    if text not in ("trace", "result", "attempt"):
        raise Refusal("BAD_REQUEST", f"unknown subject {text[:40]!r}", hint="one of trace, result, attempt")
    return text  # type: ignore[return-value]  # one of the three
