"""Checks recorded evidence with a judge.

Results have the order of the records, while up to `AHEAD` cases wait for the judge concurrently; memory is bounded by that number.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from proctor.actions.checking.check_stream import CheckStream
from proctor.actions.judging.judges import open_suite_judge
from proctor.actions.judging.trust import Trust
from proctor.cassettes.ports import LIVE
from proctor.decide.judging import settle
from proctor.decide.prepare import PreparedCase
from proctor.model.evidence import Evidence, Source
from proctor.model.judgement import Opinion, Question
from proctor.model.result import CaseResult, RunResult
from proctor.runner.ports import Judge
from proctor.sources.records import Record

AHEAD = 200
"""Cases that may wait for a judge at the same time; the judge limits its own concurrency."""


async def decide_with_judge(
    prepared: PreparedCase,
    evidence: Evidence,
    judge: Judge,
    *,
    source: Source | None = None,
    attempt: int = 0,
    clock: str | None = None,
    fail_fast: bool = False,
) -> CaseResult:
    """Decide one case with a judge."""

    async def ask(questions: tuple[Question, ...]) -> Sequence[Opinion]:
        return await judge.judge(questions, case=prepared.case.id, attempt=attempt, tape=LIVE)

    now = None if clock is None else (lambda: clock)
    return await settle(prepared.deliberate(evidence, source, attempt, now, fail_fast=fail_fast), ask)


class JudgedStream:
    """A stream of checks whose judged assertions are decided by `judge`."""

    def __init__(self, stream: CheckStream, judge: Judge, *, fail_fast: bool = False, ahead: int = AHEAD) -> None:
        self._stream = stream
        self._judge = judge
        self._fail_fast = fail_fast
        self._ahead = ahead

    async def over(self, records: Iterable[Record]) -> AsyncIterator[CaseResult]:
        """Decide record after record; then one `skip` for every case that no record answered."""
        add = self._stream.tally.add
        waiting: deque[asyncio.Task[CaseResult] | CaseResult] = deque()
        try:
            for record in records:
                waiting.extend(self._start_record(record))
                # Results are yielded in the order of the records: a slow one delays those after it, at most `ahead` of them.
                while len(waiting) >= self._ahead or (waiting and _is_result(waiting[0])):
                    result = await _await_result(waiting.popleft())
                    add(result)
                    yield result
            while waiting:
                result = await _await_result(waiting.popleft())
                add(result)
                yield result
        finally:
            for entry in waiting:
                if not isinstance(entry, CaseResult):
                    entry.cancel()
                    with contextlib.suppress(asyncio.CancelledError, Exception):
                        await entry
        for result in self._stream.unanswered():
            yield result

    def _start_record(self, record: Record) -> list[asyncio.Task[CaseResult] | CaseResult]:
        stream, evidence = self._stream, record.evidence
        known: list[CaseResult] = []
        if evidence is None:
            stream.decide(record, known)
            return list(known)
        positions = stream.positions_for(evidence, record.source, known)
        if stream.fixed_now is not None:
            evidence = msgspec.structs.replace(evidence, now=stream.fixed_now)
        return [*known, *(self._decide_one(stream.prepared.cases[position], evidence, record.source) for position in positions)]

    def _decide_one(self, case: PreparedCase, evidence: Evidence, source: Source) -> asyncio.Task[CaseResult] | CaseResult:
        clock = self._stream.clock()
        if not case.judged:
            return self._stream.with_evidence(case.decide(evidence, source, 0, self._stream.clock), evidence)

        async def decide() -> CaseResult:
            result = await decide_with_judge(case, evidence, self._judge, source=source, clock=clock, fail_fast=self._fail_fast)
            return self._stream.with_evidence(result, evidence)

        return asyncio.create_task(decide())


def finish_stream(
    stream: CheckStream, records: Iterable[Record], *, home: Path, environment: Mapping[str, str], trust: Trust | None = None
) -> RunResult:
    """Return the result of a small stream, with the configured judge if the suite needs one."""
    opened = open_suite_judge(stream.suite, home, environment, trust=trust) if stream.judged else None
    if opened is None:
        return stream.finish(list(stream.over(records)))

    async def decide_all() -> RunResult:
        try:
            return stream.finish([result async for result in JudgedStream(stream, opened.judge).over(records)])
        finally:
            await opened.judge.close()

    return asyncio.run(decide_all())


def _is_result(entry: asyncio.Task[CaseResult] | CaseResult) -> bool:
    return isinstance(entry, CaseResult) or entry.done()


async def _await_result(entry: asyncio.Task[CaseResult] | CaseResult) -> CaseResult:
    return entry if isinstance(entry, CaseResult) else await entry
