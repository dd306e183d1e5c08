"""Decides one record at a time, for runs, checks, completed tasks and judged traces.

Input and output are plain data, so that it can run in a separate process (`process.py`). Only parsed suites are cached between items. A
case with a judge is started again for every round of questions, with the opinions so far, so that no process waits for a judge.

Each item is limited in CPU seconds: per case, per record with all of its cases, and for reading. A job ends after a time slice, and the
items it did not start are returned undone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import msgspec

from proctor.decide.prepare import PreparedCase, PreparedSuite
from proctor.errors import EvidenceError, InputError, StoreError
from proctor.evidence.reading import read_sent
from proctor.evidence.unknowns.account import declare_complete
from proctor.model.case import Case
from proctor.model.evidence import Evidence
from proctor.model.judgement import Question
from proctor.model.mapping import DeclaredEvidence
from proctor.model.result import CaseResult
from proctor.model.run import RunEntry
from proctor.service.decisions.messages import (
    TIME_LIMIT,
    Answer,
    CaseWork,
    Job,
    MutationWork,
    Opinions,
    ReadWork,
    Step,
    SuiteSource,
    TraceWork,
    Work,
    pack_plain,
    pack_result,
    unpack_plain,
)
from proctor.service.decisions.trace_evidence import read_evidence
from proctor.service.decisions.trace_verdicts import (
    CASE_S,
    READ_S,
    TRACE_S,
    CaseText,
    Limit,
    OutOfTime,
    PreparedDocument,
    describe_failure,
    make_undecided_result,
)

MUTATION_S = 10.0
"""CPU seconds for planting faults; the records that are left are counted."""
SLICE_S = 1.0
"""CPU seconds after which a job starts no further record."""
Decided = CaseResult | tuple[Question, ...]
"""The result of a case, or its next questions for the judge."""


class CaseDecider:
    """Answers jobs. It caches suites until it is requested to forget them."""

    def __init__(self, limit: Limit = nullcontext, clock: Callable[[], float] = time.process_time) -> None:
        self._limit = limit
        self._clock = clock
        self._sources: dict[str, SuiteSource] = {}
        self._prepared: dict[str, PreparedSuite | tuple[str, str]] = {}
        self._documents: dict[tuple[str, int], PreparedDocument] = {}
        self.exhausted = False
        """Whether memory ran out once, after which the process is unreliable."""

    def answer_job(self, job: Job) -> Iterator[Answer]:
        """Yield the answer to every item, in order."""
        for key in job.forget:
            self._sources.pop(key, None)
            self._prepared.pop(key, None)
        self._sources.update(job.suites)
        started = self._clock()
        for work in job.works:
            begun = self._clock()
            # The first record of a job is always started, so that a job makes progress.
            if begun - started > SLICE_S or self.exhausted:
                yield Answer(undone=True)
                continue
            answer = self._answer(work)
            yield msgspec.structs.replace(answer, spent_s=self._clock() - begun)

    def _answer(self, work: Work) -> Answer:
        try:
            match work:
                case CaseWork():
                    return self._decide_record(work)
                case TraceWork():
                    return self._decide_trace(work)
                case ReadWork():
                    return self._read_evidence(work)
                case MutationWork():
                    return self._measure_suite(work)
        except (OutOfTime, Exception) as error:
            # The rest of a job without memory is returned undone, for another process. A bug must not affect the other records.
            self.exhausted = self.exhausted or isinstance(error, MemoryError)
            of_evidence = isinstance(error, (OutOfTime, EvidenceError, StoreError, RecursionError))
            return Answer(error=describe_failure(error, "the record"), blames="evidence" if of_evidence else "work")

    def _read_evidence(self, work: ReadWork) -> Answer:
        with self._limit(READ_S):
            declared = work.declared or DeclaredEvidence()
            evidences = read_sent(unpack_plain(work.sent, Any), format=work.format, mapping=declared.map)
            return Answer(evidence=[pack_plain(declare_complete(evidence, declared.complete, declared.source)) for evidence in evidences])

    def _decide_record(self, work: CaseWork) -> Answer:
        suite = self._get_suite(work.suite)
        if isinstance(suite, tuple):
            return Answer(error=suite, blames="suite")
        with self._limit(READ_S):
            evidence: Evidence = unpack_plain(work.evidence, Evidence)
        clock = None if work.clock is None else (lambda: work.clock or "")
        begun = self._clock()
        steps: list[Step] = []
        for ask in work.asks:
            prepared = suite.cases[ask.position] if ask.position < len(suite.cases) else None
            # Both sides read the same text. The id is checked as well: a verdict must never belong to another case.
            if prepared is None or prepared.case.id != ask.id:
                return Answer(error=("internal_error", f"the suite has no case {ask.id!r} at this position"))
            if work.judging and prepared.judged:
                decide = partial(_deliberate, prepared, evidence, work.attempt, clock, work.fail_fast, ask.opinions)
            else:
                decide = partial(prepared.decide, evidence, None, work.attempt, clock)
            found = self._decide_within(TRACE_S - (self._clock() - begun), prepared.case, "record", decide, work.attempt)
            is_result = isinstance(found, CaseResult)
            steps.append(Step(id=ask.id, result=pack_result(found)) if is_result else Step(id=ask.id, questions=pack_plain(found)))
        return Answer(steps=steps)

    def _decide_within(self, left: float, case: Case, what: str, decide: Callable[[], Decided], attempt: int = 0) -> Decided:
        """Decide a case in the CPU seconds that are left for its record."""
        reason = f"not decided: the cases before it took {TRACE_S:g} s on this {what}"
        if left > 0:
            try:
                with self._limit(min(CASE_S, left)):
                    return decide()
            except OutOfTime:
                reason = f"the case took more than {min(CASE_S, left):g} s on this {what}"
        return make_undecided_result(case, TIME_LIMIT, reason, attempt=attempt)

    def _measure_suite(self, work: MutationWork) -> Answer:
        from proctor.actions.checking.mutate import mutate, name_entries  # only for this work

        prepared = self._get_suite(work.suite)
        if isinstance(prepared, tuple):
            return Answer(error=prepared, blames="suite")
        begun = self._clock()
        with self._limit(MUTATION_S * 2):
            entries = [unpack_plain(entry, RunEntry) for entry in work.entries]
            suite = prepared.suite
            measured = mutate(suite, name_entries(entries, suite), is_late=lambda: self._clock() - begun > MUTATION_S)
        return Answer(evidence=[pack_plain(measured)])

    def _decide_trace(self, work: TraceWork) -> Answer:
        with self._limit(READ_S):
            evidence = read_evidence(work.pieces, work.response_path, work.declared)
            document = self._get_document(work.text)
        steps: list[Step] = []
        begun = self._clock()
        for _, prepared in () if document.suite is None else document.suite.cases_for_trace(evidence.case):
            if prepared.judged:
                id = prepared.case.id
                decide = partial(_deliberate, prepared, evidence, 0, lambda: work.clock, False, work.opinions.get(id))
                found = self._decide_within(TRACE_S - (self._clock() - begun), prepared.case, "trace", decide)
                if isinstance(found, CaseResult):
                    steps.append(Step(id=id, finding=document.make_finding(work.position, found)))
                else:
                    steps.append(Step(id=id, questions=pack_plain(found)))
        return Answer(steps=steps)

    def _get_suite(self, key: str) -> PreparedSuite | tuple[str, str]:
        suite = self._prepared.get(key)
        if suite is None:
            # Prepared when it is first needed, and charged to that request. An invalid suite is cached with the reason.
            suite = self._prepared[key] = self._read_suite(self._sources.pop(key))
        return suite

    def _read_suite(self, source: SuiteSource) -> PreparedSuite | tuple[str, str]:
        try:
            with self._limit(READ_S):
                return PreparedSuite(source.read())
        except InputError as error:
            return "unusable_spec", str(error)
        except OutOfTime:
            return TIME_LIMIT, f"reading the suite took more than {READ_S:g} s"

    def _get_document(self, text: CaseText) -> PreparedDocument:
        key = (text.id, text.version)
        document = self._documents.get(key)
        if document is None:
            while len(self._documents) >= _MOST_DOCUMENTS:
                self._documents.pop(next(iter(self._documents)))
            document = self._documents[key] = PreparedDocument(text)
        return document


_MOST_DOCUMENTS = 50


def _deliberate(
    prepared: PreparedCase, evidence: Evidence, attempt: int, clock: Callable[[], str] | None, fail_fast: bool, packed: bytes | None
) -> Decided:
    """Return the result, or the next questions for the judge, given its opinions so far."""
    opinions: Opinions = () if packed is None else unpack_plain(packed, Opinions)
    deliberation = prepared.deliberate(evidence, None, attempt, clock, fail_fast=fail_fast)
    try:
        questions = next(deliberation)
        for each in opinions:
            # The same evidence and opinions lead to the same questions, so that no state was needed.
            questions = deliberation.send(each)
        return questions
    except StopIteration as end:
        return end.value
    finally:
        deliberation.close()
