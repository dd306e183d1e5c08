"""Decides cases of one suite with the pool. A case that cannot be decided is an `error` with a code and a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from proctor.actions.checking.check_stream import NO_SOURCE, CheckStream
from proctor.cassettes.ports import LIVE
from proctor.decide.judging import Ask
from proctor.errors import EvidenceError
from proctor.model.case import Case
from proctor.model.evidence import Evidence, Json, Source
from proctor.model.judgement import Opinion, Question
from proctor.model.mapping import DeclaredEvidence
from proctor.model.result import CaseResult
from proctor.runner.ports import Judge
from proctor.service.decisions.messages import (
    Answer,
    CaseAsk,
    CaseWork,
    ReadWork,
    Step,
    SuiteSource,
    pack_plain,
    unpack_plain,
    unpack_result,
)
from proctor.service.decisions.pool import Decisions, Requester
from proctor.service.decisions.trace_verdicts import make_undecided_result

MOST_AT_THE_JUDGE = 200
"""Maximum number of cases of one request that wait for a judge at once."""

AskFor = Callable[[Case, tuple[Question, ...]], Awaitable[Sequence[Opinion]]]
"""Asks the judge about one case."""


class RecordToDecide(msgspec.Struct, frozen=True, kw_only=True):
    """One record, and the positions of its cases in the suite."""

    evidence: Evidence
    positions: Sequence[int]
    source: Source | None = None
    attempt: int = 0
    clock: str | None = None


async def read_evidence(
    decisions: Decisions, who: Requester, sent: Json, format: str | None, declared: DeclaredEvidence | None = None
) -> list[Evidence]:
    """Read evidence as sent, by the declaration of the suite. Raises `EvidenceError`."""
    (answer,) = await decisions.answers(who, [ReadWork(sent=pack_plain(sent), format=format, declared=declared)], {})
    if answer.error is not None:
        code, message = answer.error
        raise EvidenceError(message, code=code)
    return [unpack_plain(packed, Evidence) for packed in answer.evidence]


async def decide_stream(
    stream: CheckStream, decisions: SuiteDecisions, evidence: Sequence[Evidence], judge: Judge | None
) -> list[CaseResult]:
    """Return the results of `CheckStream.over`, decided by `decisions`."""
    results: list[CaseResult] = []
    records: list[RecordToDecide] = []
    order: list[list[CaseResult] | int] = []
    for each in evidence:
        known: list[CaseResult] = []
        positions = stream.positions_for(each, NO_SOURCE, known)
        if stream.fixed_now is not None:
            each = msgspec.structs.replace(each, now=stream.fixed_now)
        # Some records have known results; the order of the evidence is preserved.
        order.append(known if not positions else len(records))
        if positions:
            records.append(RecordToDecide(evidence=each, positions=positions, source=NO_SOURCE, clock=stream.clock()))

    async def ask(case: Case, questions: tuple[Question, ...]) -> Sequence[Opinion]:
        assert judge is not None
        return await judge.judge(questions, case=case.id, attempt=0, tape=LIVE)

    decided = await decisions.decide(records, None if judge is None else ask)
    for entry in order:
        if isinstance(entry, int):
            for result in decided[entry]:
                # In a thread, since text ranges are computed.
                results.append(await asyncio.to_thread(stream.with_evidence, result, records[entry].evidence))
        else:
            results += entry
    stream.tally.add_all(results)
    return [*results, *stream.unanswered()]


class SuiteDecisions:
    """Decides cases of one suite. `cases` are those of the source, in order."""

    def __init__(
        self, decisions: Decisions, who: Requester, source: SuiteSource, cases: Sequence[Case], *, fail_fast: bool = False
    ) -> None:
        self._decisions = decisions
        self._who = who
        self._key = source.make_key
        self._suites = {self._key: source}
        self._cases = cases
        self._positions = {case.id: position for position, case in enumerate(cases)}
        self._fail_fast = fail_fast

    async def decide(self, records: Sequence[RecordToDecide], ask: AskFor | None = None) -> list[list[CaseResult]]:
        """Return the results of every record, in the order of its cases; `ask` calls the judge, if any."""
        done: list[dict[int, CaseResult]] = [{} for _ in records]
        opinions: dict[tuple[int, int], list[Sequence[Opinion]]] = {}
        waiting = {number: list(one.positions) for number, one in enumerate(records) if one.positions}
        # Round by round for all records together: all questions of a round are sent at once, and no process waits.
        while waiting:
            works = [
                self._make_work(records[number], positions, number, opinions, ask is not None) for number, positions in waiting.items()
            ]
            answers = await self._decisions.answers(self._who, works, self._suites)
            questions: dict[tuple[int, int], tuple[Question, ...]] = {}
            for (number, positions), answer in zip(waiting.items(), answers, strict=True):
                # A failed record has no steps: its error applies to each of its cases.
                steps = answer.steps if len(answer.steps) == len(positions) else [None] * len(positions)
                for position, step in zip(positions, steps, strict=True):
                    found = self._read_step(records[number], position, answer, step)
                    if isinstance(found, CaseResult):
                        done[number][position] = found
                    else:
                        questions[number, position] = found
            waiting = {}
            if ask is not None and questions:
                for place, opinions_of_case in (await self._ask_judge(questions, ask)).items():
                    opinions.setdefault(place, []).append(opinions_of_case)
                    waiting.setdefault(place[0], []).append(place[1])
        return [[found[position] for position in one.positions] for one, found in zip(records, done, strict=True)]

    def _make_work(
        self,
        record: RecordToDecide,
        positions: Sequence[int],
        number: int,
        opinions: dict[tuple[int, int], list[Sequence[Opinion]]],
        judging: bool,
    ) -> CaseWork:
        asks = [
            CaseAsk(
                position=position,
                id=self._cases[position].id,
                opinions=pack_plain(opinions[number, position]) if (number, position) in opinions else None,
            )
            for position in positions
        ]
        return CaseWork(
            suite=self._key,
            evidence=pack_plain(record.evidence),
            asks=asks,
            attempt=record.attempt,
            clock=record.clock,
            judging=judging,
            fail_fast=self._fail_fast,
        )

    def _read_step(self, record: RecordToDecide, position: int, answer: Answer, step: Step | None) -> CaseResult | tuple[Question, ...]:
        case = self._cases[position]
        if step is not None and step.result is not None:
            return unpack_result(step.result, case, record.source)
        if step is not None and step.questions is not None:
            return unpack_plain(step.questions, tuple[Question, ...])
        code, reason = answer.error or ("internal_error", "no result")
        return make_undecided_result(case, code, reason, attempt=record.attempt, source=record.source)

    async def _ask_judge(
        self, questions: dict[tuple[int, int], tuple[Question, ...]], ask: AskFor
    ) -> dict[tuple[int, int], Sequence[Opinion]]:
        slots = asyncio.Semaphore(MOST_AT_THE_JUDGE)

        async def one(place: tuple[int, int]) -> Sequence[Opinion]:
            async with slots:
                return tuple(await ask(self._cases[place[1]], questions[place]))

        try:
            async with asyncio.TaskGroup() as group:
                tasks = {place: group.create_task(one(place)) for place in questions}
        except ExceptionGroup as several:
            # The error of the judge is raised as for a single question.
            raise several.exceptions[0] from None
        return {place: task.result() for place, task in tasks.items()}

    async def decide_one(
        self, case: Case, evidence: Evidence, *, attempt: int = 0, clock: str | None = None, ask: Ask | None = None
    ) -> CaseResult:
        """Return the result of one case on one record."""
        record = RecordToDecide(evidence=evidence, positions=(self._positions[case.id],), attempt=attempt, clock=clock)
        ((result,),) = await self.decide([record], None if ask is None else lambda _, questions: ask(questions))
        return result
