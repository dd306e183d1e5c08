"""Claims that a judge decided, with the question of the judge, for labelling by a person.

Questions are not stored with a result: the checks compute them again from the case and the evidence. Claims with several questions are
omitted, since one label cannot be compared with them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from itertools import zip_longest
from typing import Annotated, Any, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.decide.prepare import list_claims
from proctor.errors import EvidenceError, InputError, StoreError
from proctor.formats.suites import read_suite
from proctor.model.case import Case
from proctor.model.evidence import Evidence, Json
from proctor.model.typed import convert_to, make_json_decoder
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import query_visible
from proctor.service.access.projects import get_project
from proctor.service.access.transactions import Transaction, reading
from proctor.service.caches import Agent
from proctor.service.decisions.trace_evidence import read_agent_evidence
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.resource import about, operation
from proctor.service.runs.names import find_attempt
from proctor.service.runs.results import suite_of_run
from proctor.service.traces.search import read_pieces
from proctor.service.waiting import repeat
from proctor.sources.labels import write_line
from proctor.store.accounts.judged_claims import hash_label, list_due_claims, list_unhashed_labels, write_claims
from proctor.store.accounts.tenants import find_row
from proctor.store.runs.run_rows import read_entry
from proctor.store.sql.compressed_json import expand_bytes, to_json, unpack
from proctor.store.sql.pages import Row, fetch_all, fetch_first
from proctor.store.sql.tables import annotation_rows, case_versions, claims_due, judged_claims, results, run_entries, runs, traces

SubjectKind = Literal["trace", "result", "attempt"]


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The subject of an annotation: a trace, a result of one, or an attempt of a run."""

    kind: SubjectKind
    id: str
    project_id: str
    agent_id: str
    """Empty for an attempt."""
    parent_id: str
    """The trace or the run."""
    row: Row


class JudgedClaim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A judged claim: answer, criterion, and the judge's opinion."""

    number: int
    criterion: str
    answer: Json
    context: Json = None
    input: Json = None
    """The input of the agent; the judge saw it only if it is in the context."""
    threshold: float | None = None
    forbidden: bool = False
    """The criterion must not be met: a pass means that it is not."""
    outcome: str
    score: float = 0.0
    code: str | None = None
    reason: str = ""
    judge: str = ""
    line: dict[str, Json] | None = None
    """The claim as a line of a label file; None if it was labelled before lines were stored."""

    def hash_question(self) -> str:
        """Return a hash of the question of the judge; claims with the same question need one label."""
        question = to_json([self.criterion, self.answer, self.context, self.forbidden])
        return hashlib.sha256(question).hexdigest()[:32]


class _Decided(msgspec.Struct, frozen=True):
    """The needed fields of a stored verdict."""

    outcome: str
    score: float | None = None
    reason: str | None = None
    code: str | None = None
    details: dict[str, Json] | None = None

    @property
    def judge(self) -> str | None:
        """The judge, if a judge decided."""
        judge_name = (self.details or {}).get("judge")
        return judge_name if isinstance(judge_name, str) else None


class _Attempt(msgspec.Struct, frozen=True):
    verdicts: list[_Decided] = []


_ATTEMPT = make_json_decoder(_Attempt)


async def find_subject(tx: Transaction, kind: SubjectKind, id: str) -> Subject:
    """Return a visible subject by its id. Raises `Refusal` as for a missing one."""
    if kind == "attempt":
        row, run = await find_attempt(tx, id)
        return _make_subject(kind, row, run)
    return _make_subject(kind, await tx.find_visible(traces if kind == "trace" else results, kind, id))


def _make_subject(kind: SubjectKind, row: Row, run: Row | None = None) -> Subject:
    if run is not None:
        return Subject(kind=kind, id=row["id"], project_id=run["project_id"], agent_id="", parent_id=run["id"], row={**row, "run": run})
    parent_id = row["id"] if kind == "trace" else row["trace_id"]
    return Subject(kind=kind, id=row["id"], project_id=row["project_id"], agent_id=row["agent_id"], parent_id=parent_id, row=row)


async def read_claims(hub: Hub, subject: Subject) -> list[JudgedClaim]:
    """Return the judged claims of a result or an attempt."""
    if subject.kind == "attempt":
        return await asyncio.to_thread(_read_attempt_claims, subject.row)
    if subject.kind == "trace":
        return []
    async with hub.database.reading() as connection:
        trace = await find_row(connection, traces, subject.row["organization_id"], subject.parent_id)
        if trace is None:
            return []
        pieces, agent = await read_pieces(connection, trace)
        which = (case_versions.c.case_id == subject.row["case_id"], case_versions.c.version == subject.row["case_version"])
        text = await fetch_first(connection, sa.select(case_versions).where(*which))
    return [] if text is None else await asyncio.to_thread(_read_result_claims, subject.row, text, pieces, agent)


def read_verdicts(body: Json) -> list[_Decided]:
    """Return the verdicts of a stored result of a trace."""
    assertions: Json = body.get("assertions") if isinstance(body, dict) else None
    return [convert_to(assertion, _Decided) for assertion in assertions] if isinstance(assertions, list) else []


def list_judged(verdicts: Sequence[_Decided]) -> list[tuple[int, _Decided]]:
    """Return the verdicts of a judge, with their positions."""
    return [(number, verdict) for number, verdict in enumerate(verdicts) if verdict.judge is not None and verdict.outcome != "skip"]


def read_attempt_verdicts(body: bytes) -> list[_Decided]:
    """Return the verdicts of a stored attempt."""
    try:
        # Without the evidence, which is most of it.
        return _ATTEMPT.decode(expand_bytes(body)).verdicts
    except msgspec.MsgspecError as error:
        raise StoreError(f"a stored result cannot be read: {error}") from error


def _read_attempt_claims(row: Row) -> list[JudgedClaim]:
    entry = read_entry(row["body"])
    case = next((case for case in suite_of_run(row["run"]).cases if case.id == entry.case), None)
    if case is None or entry.evidence is None:
        return []
    return _pose_claims(case, entry.evidence, read_attempt_verdicts(row["body"]))


def _read_result_claims(row: Row, text: Row, pieces: list[bytes], agent: Agent | None) -> list[JudgedClaim]:
    try:
        suite = read_suite(text["document"], dialect=text["dialect"], name=row["case_key"])
        case = next((case for case in suite.cases if case.id == row["case_key"]), None)
        evidence = read_agent_evidence(pieces, agent)
    except (InputError, EvidenceError, StoreError):
        # The result remains valid, but its evidence cannot be read any more.
        return []
    return [] if case is None else _pose_claims(case, evidence, read_verdicts(unpack(row["body"])))


def _pose_claims(case: Case, evidence: Evidence, verdicts: Sequence[_Decided]) -> list[JudgedClaim]:
    judged_claims: list[JudgedClaim] = []
    claims = list_claims(case, evidence)
    for number, verdict in list_judged(verdicts):
        claim = claims.get(number)
        if claim is None or len(claim.questions) != 1:
            continue
        (question,), assertion = claim.questions, claim.assertion
        context: dict[str, Json] = dict(question.material.context)
        if question.reference is not None:
            context["reference"] = question.reference
        if question.rubric:
            context["rubric"] = list(question.rubric)
        judged_claims.append(
            JudgedClaim(
                number=number,
                criterion=question.criterion,
                answer=question.material.subject,
                context=context or None,
                input=evidence.input,
                threshold=question.threshold,
                forbidden=question.forbidden,
                outcome=verdict.outcome,
                score=verdict.score or 0.0,
                code=verdict.code,
                reason=verdict.reason or "",
                judge=verdict.judge or "",
                line=write_line("", assertion.check, assertion.spec, claim.evidence, claim.questions),
            )
        )
    return judged_claims


STEP = 50
"""Traces and attempts of one step."""
IDLE_S = 1.0
"""Seconds between looks for work."""
_LOG = logging.getLogger("proctor.serve")
_CLAIM = make_json_decoder(JudgedClaim)


async def keep_indexing(hub: Hub, stop: asyncio.Event) -> None:
    """Index judged claims until `stop` is set: a worker of the service."""

    async def step() -> float:
        return 0.0 if await index_claims(hub) else IDLE_S

    await repeat(step, stop, retry_s=IDLE_S, problem="judged claims cannot be indexed now")


async def index_claims(hub: Hub) -> int:
    """Index one step and return how much it was; 0 if everything is indexed."""
    async with hub.database.reading() as connection:
        due = await list_due_claims(connection, STEP)
        labels = await list_unhashed_labels(connection, STEP)
        subjects = [subject for due_subject in due for subject in await _list_subjects(connection, due_subject)]
    rows = [row for subject in subjects for row in await _list_rows(hub, subject)]
    hashes = [(id, _CLAIM.decode(expand_bytes(body)).hash_question()) for id, body in labels]
    if due or hashes:
        async with hub.database.writing() as connection:
            await write_claims(connection, due, rows)
            for id, question in hashes:
                await hash_label(connection, id, question)
    return len(due) + len(hashes)


async def _list_subjects(connection: AsyncConnection, due: Row) -> list[Subject]:
    if due["subject"] == "trace":
        rows_of_trace = await fetch_all(connection, sa.select(results).where(results.c.trace_id == due["subject_id"]))
        return [_make_subject("result", row) for row in rows_of_trace]
    row = await fetch_first(connection, sa.select(run_entries).where(run_entries.c.id == due["subject_id"]))
    run = None if row is None else await fetch_first(connection, sa.select(runs).where(runs.c.id == row["run_id"]))
    return [] if row is None or run is None else [_make_subject("attempt", row, run)]


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
    own = {name: getattr(subject, name) for name in ("project_id", "agent_id", "parent_id")}
    own |= {"organization_id": owner, "subject": subject.kind, "subject_id": subject.id}
    return [
        {**own, "claim": claim.number, "question": claim.hash_question(), "outcome": claim.outcome, "score": claim.score}
        for claim in claims
    ]


# --- the labelling queue: questions that judges decided and that no person labelled, from the index of judged claims
#
# Claims with the same criterion, answer and context are one question. Passed and failed questions alternate, since agreement needs both;
# the least certain come first. A second opinion asks about what others labelled.

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
