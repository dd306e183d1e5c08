"""Decides cases of one suite by the pool, for whoever has the suite in hand.

What comes back is a result in any case: what could not be decided is an `error` with a code and a reason.
"""

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
    make_undecided_result,
    pack_plain,
    unpack_plain,
    unpack_result,
)
from proctor.service.decisions.pool import Decisions, Who

MOST_AT_THE_JUDGE = 200
"""How many cases of one request wait for a judge at once."""

AskFor = Callable[[Case, tuple[Question, ...]], Awaitable[Sequence[Opinion]]]
"""Asks the judge about one case."""


class RecordToDecide(msgspec.Struct, frozen=True, kw_only=True):
    """One record, and the cases that it answers by their positions."""

    evidence: Evidence
    positions: Sequence[int]
    source: Source | None = None
    attempt: int = 0
    clock: str | None = None


async def read_evidence(
    decisions: Decisions, who: Who, sent: Json, format: str | None, declared: DeclaredEvidence | None = None
) -> list[Evidence]:
    """Read evidence as it was sent, by what the suite declares. Raises `EvidenceError`."""
    (answer,) = await decisions.answers(who, [ReadWork(sent=pack_plain(sent), format=format, declared=declared)], {})
    if answer.error is not None:
        code, message = answer.error
        raise EvidenceError(message, code=code)
    return [unpack_plain(one, Evidence) for one in answer.evidence]


async def decide_stream(
    stream: CheckStream, decisions: SuiteDecisions, evidence: Sequence[Evidence], judge: Judge | None
) -> list[CaseResult]:
    """Return what `CheckStream.over` gives, with everything decided by `decisions`."""
    results: list[CaseResult] = []
    asked: list[RecordToDecide] = []
    order: list[list[CaseResult] | int] = []
    for each in evidence:
        known: list[CaseResult] = []
        positions = stream.positions_for(each, NO_SOURCE, known)
        if stream.fixed_now is not None:
            each = msgspec.structs.replace(each, now=stream.fixed_now)
        # Some records are answered without being decided; results must come in the order of the evidence all the same.
        order.append(known if not positions else len(asked))
        if positions:
            asked.append(RecordToDecide(evidence=each, positions=positions, source=NO_SOURCE, clock=stream.clock()))

    async def ask(case: Case, questions: tuple[Question, ...]) -> Sequence[Opinion]:
        assert judge is not None
        return await judge.judge(questions, case=case.id, attempt=0, tape=LIVE)

    decided = await decisions.decide(asked, None if judge is None else ask)
    for entry in order:
        if isinstance(entry, int):
            # Beside the event loop: the characters that decided are looked for.
            results += await asyncio.to_thread(_attach_evidence, stream, decided[entry], asked[entry].evidence)
        else:
            results += entry
    stream.tally.add_all(results)
    return [*results, *stream.unanswered()]


def _attach_evidence(stream: CheckStream, results: Sequence[CaseResult], evidence: Evidence) -> list[CaseResult]:
    return [stream.with_evidence(result, evidence) for result in results]


class SuiteDecisions:
    """Decides cases of one suite. `cases` are those of the source, in their order."""

    def __init__(self, decisions: Decisions, who: Who, source: SuiteSource, cases: Sequence[Case], *, fail_fast: bool = False) -> None:
        self._decisions = decisions
        self._who = who
        self._key = source.make_key
        self._suites = {self._key: source}
        self._cases = cases
        self._positions = {case.id: position for position, case in enumerate(cases)}
        self._fail_fast = fail_fast

    async def decide(self, asked: Sequence[RecordToDecide], ask: AskFor | None = None) -> list[list[CaseResult]]:
        """Return the results of every record, in the order of its cases; `ask` where there is a judge."""
        done: list[dict[int, CaseResult]] = [{} for _ in asked]
        opinions: dict[tuple[int, int], list[Sequence[Opinion]]] = {}
        waiting = {number: list(one.positions) for number, one in enumerate(asked) if one.positions}
        # Round by round for all records together: every question of a round is asked at once, and no process is held meanwhile.
        while waiting:
            works = [self._make_work(asked[number], positions, number, opinions, ask is not None) for number, positions in waiting.items()]
            answers = await self._decisions.answers(self._who, works, self._suites)
            questions: dict[tuple[int, int], tuple[Question, ...]] = {}
            for (number, positions), answer in zip(waiting.items(), answers, strict=True):
                for position, step in zip(positions, self._list_steps(answer, positions), strict=True):
                    found = self._read_step(asked[number], position, answer, step)
                    if isinstance(found, CaseResult):
                        done[number][position] = found
                    else:
                        questions[number, position] = found
            waiting = {}
            if ask is not None and questions:
                for place, heard in (await self._ask_judge(questions, ask)).items():
                    opinions.setdefault(place, []).append(heard)
                    waiting.setdefault(place[0], []).append(place[1])
        return [[found[position] for position in one.positions] for one, found in zip(asked, done, strict=True)]

    def _make_work(
        self,
        asked: RecordToDecide,
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
            evidence=pack_plain(asked.evidence),
            asks=asks,
            attempt=asked.attempt,
            clock=asked.clock,
            judging=judging,
            fail_fast=self._fail_fast,
        )

    def _list_steps(self, answer: Answer, positions: Sequence[int]) -> Sequence[Step | None]:
        # A record that failed has no steps: then its error is that of each of its cases.
        return answer.steps if len(answer.steps) == len(positions) else [None] * len(positions)

    def _read_step(self, asked: RecordToDecide, position: int, answer: Answer, step: Step | None) -> CaseResult | tuple[Question, ...]:
        case = self._cases[position]
        if step is not None and step.result is not None:
            return unpack_result(step.result, case, asked.source)
        if step is not None and step.questions is not None:
            return unpack_plain(step.questions, tuple[Question, ...])
        code, reason = answer.error or ("internal_error", "nothing came of it")
        return make_undecided_result(case, code, reason, attempt=asked.attempt, source=asked.source)

    async def _ask_judge(
        self, questions: dict[tuple[int, int], tuple[Question, ...]], ask: AskFor
    ) -> dict[tuple[int, int], Sequence[Opinion]]:
        room = asyncio.Semaphore(MOST_AT_THE_JUDGE)

        async def one(place: tuple[int, int]) -> Sequence[Opinion]:
            async with room:
                return tuple(await ask(self._cases[place[1]], questions[place]))

        try:
            async with asyncio.TaskGroup() as group:
                tasks = {place: group.create_task(one(place)) for place in questions}
        except ExceptionGroup as several:
            # What went wrong with the judge is told as it would be for one question.
            raise several.exceptions[0] from None
        return {place: task.result() for place, task in tasks.items()}

    async def decide_one(
        self, case: Case, evidence: Evidence, *, attempt: int = 0, clock: str | None = None, ask: Ask | None = None
    ) -> CaseResult:
        """Return the result of one case on one record."""
        asked = RecordToDecide(evidence=evidence, positions=(self._positions[case.id],), attempt=attempt, clock=clock)
        ((result,),) = await self.decide([asked], None if ask is None else lambda _, questions: ask(questions))
        return result
