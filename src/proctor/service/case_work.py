"""Deciding on request: one record at a time, for runs, checks, completed tasks and judged traces.

Everything handed in and out is plain data, so that it can be done in a process of its own (`deciding_process.py`). Nothing is kept between
two pieces of work but suites that were read. A case that needs a judge is begun anew for every round of questions, with the opinions so
far: nobody holds a process while a judge thinks.

Each piece of work is bounded in seconds of computing: for one case, for one record with all its cases, and for reading. A job ends after a
slice of time, and what it did not begin comes back undone, so that others have their turn in between.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Literal, TypeVar

import msgspec

from proctor.decide.prepare import PreparedCase, PreparedSuite
from proctor.decide.selection import select
from proctor.errors import EvidenceError, InputError, StoreError
from proctor.evidence.reading import read_sent
from proctor.formats.suites import read_suite
from proctor.model.account import Known
from proctor.model.case import Case, Suite
from proctor.model.evidence import Evidence, Json, Source
from proctor.model.judgement import Opinion, Question
from proctor.model.result import AxisScore, CaseResult, CaseVerdict
from proctor.model.verdict import Outcome, Verdict, errored
from proctor.service.assembling import evidence_of_pieces
from proctor.service.deciding import CASE_S, READ_S, TRACE_S, CaseText, Finding, Limit, OutOfTime, PreparedDocument
from proctor.store.bodies import from_json

SLICE_S = 1.0
"""Seconds of computing after which a job begins no further record."""
TIME_LIMIT = "time_limit"
MEMORY_LIMIT = "memory_limit"
CRASHED = "evaluation_crashed"

T = TypeVar("T")
Opinions = tuple[tuple[Opinion, ...], ...]
"""What the judge said so far, round by round."""


class SuiteSource(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """How to get a suite exactly as somebody else has read it."""

    text: str
    dialect: str | None = None
    name: str | None = None
    library: bytes | None = None
    """JSON: what an MCPLab suite refers to, as the settings of its project say."""
    in_project: bool = False
    """Whether it may refer to anything."""
    selection: str | None = None
    own_agents: bool = False
    """Whether every case is meant once for each of the suite's own agents."""

    @property
    def key(self) -> str:
        """The same for the same suite, and for no other."""
        return hashlib.sha256(msgspec.msgpack.encode(self)).hexdigest()

    def read(self) -> Suite:
        """Read the suite. Raises `InputError`."""
        from proctor.service.mcplab_library import ALONE, library_of  # only MCPLab suites need it

        described = None if self.library is None else from_json(self.library)
        suite = read_suite(
            self.text, dialect=self.dialect, name=self.name, library=lambda: library_of(described) if self.in_project else ALONE
        )
        suite = select(suite, self.selection)
        if self.own_agents:
            from proctor.service.mcplab_building import plan_of  # brings in everything that drives agents

            suite = plan_of(suite).suite
        return suite


class CaseAsk(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One case that is to be decided."""

    position: int
    """Where it stands in its suite."""
    id: str
    opinions: bytes | None = None
    """What the judge said so far, packed."""


class CaseWork(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="case"):
    """One record and the cases that it answers."""

    suite: str
    evidence: bytes
    asks: Sequence[CaseAsk]
    attempt: int = 0
    clock: str | None = None
    judging: bool = False
    """Whether there is a judge."""
    fail_fast: bool = False


class TraceWork(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="trace"):
    """One trace and one document, of which only what needs a judge is left."""

    pieces: Sequence[bytes]
    response_path: str | None
    clock: str
    position: int
    text: CaseText
    opinions: dict[str, bytes] = {}
    """By case, packed."""


class ReadWork(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="read"):
    """Evidence as it was sent."""

    sent: bytes
    """Packed."""
    format: str | None = None


Work = CaseWork | TraceWork | ReadWork


class Job(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="job"):
    """Work that is done in one go."""

    works: Sequence[Work]
    suites: dict[str, SuiteSource] = {}
    """What was not told before."""
    forget: Sequence[str] = ()


class Step(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What came of one case: a result, or questions for the judge."""

    id: str
    result: bytes | None = None
    questions: bytes | None = None
    finding: Finding | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What came of one piece of work."""

    steps: Sequence[Step] = ()
    evidence: Sequence[bytes] = ()
    """What was read."""
    error: tuple[str, str] | None = None
    """Why there is nothing else: a code and a sentence."""
    blames: Literal["evidence", "suite", "work"] = "work"
    undone: bool = False
    """It was not begun."""
    spent_s: float = 0.0
    last: bool = False
    """Whether whoever answers will answer no more."""


class _Outcome(msgspec.Struct, frozen=True, array_like=True):
    """A result without its case, which whoever asked has."""

    outcome: Outcome
    score: float | None
    verdicts: tuple[Verdict, ...]
    verdict: CaseVerdict | None
    axes: dict[str, AxisScore] | None
    attempt: int
    extracted: dict[str, Json]
    code: str | None
    reason: str | None
    now: str | None
    account: Known | None


def pack_plain(value: object) -> bytes:
    """Any value as bytes: MessagePack, or JSON for halves of characters and for numbers that MessagePack does not know."""
    try:
        return b"m" + msgspec.msgpack.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return b"j" + json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def unpack_plain(data: bytes, type: type[T] | Any) -> T:
    """What `pack_plain` was given."""
    if data[:1] == b"m":
        return _decoder(type).decode(data[1:])
    return msgspec.convert(json.loads(data[1:]), type)


@functools.cache
def _decoder(type: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(type)


def unpack_result(data: bytes, case: Case, source: Source | None = None) -> CaseResult:
    """The result of `case`."""
    kept: _Outcome = unpack_plain(data, _Outcome)
    return CaseResult(
        case=case,
        outcome=kept.outcome,
        score=kept.score,
        verdicts=kept.verdicts,
        source=source,
        verdict=kept.verdict,
        axes=kept.axes,
        attempt=kept.attempt,
        extracted=kept.extracted,
        code=kept.code,
        reason=kept.reason,
        now=kept.now,
        account=kept.account,
    )


def undecided_result(case: Case, code: str, reason: str, *, attempt: int = 0, source: Source | None = None) -> CaseResult:
    """A case that could not be decided: every assertion is an error for the same reason."""
    verdicts = (errored(code, reason),) * len(case.assertions)
    return CaseResult(case, "error", None, verdicts, source, attempt=attempt, code=code, reason=reason)


class CaseDecider:
    """Does jobs. It remembers the suites it was told, until it is told to forget them."""

    def __init__(self, limit: Limit = nullcontext, clock: Callable[[], float] = time.process_time) -> None:
        self._limit = limit
        self._clock = clock
        self._sources: dict[str, SuiteSource] = {}
        self._prepared: dict[str, PreparedSuite | tuple[str, str]] = {}
        self._documents: dict[tuple[str, int], PreparedDocument] = {}
        self.exhausted = False
        """Whether memory ran out once: what is left of it is not to be relied on."""

    def do(self, job: Job) -> Iterator[Answer]:
        """Answer every piece of work, in order."""
        for key in job.forget:
            self._sources.pop(key, None)
            self._prepared.pop(key, None)
        self._sources.update(job.suites)
        started = self._clock()
        for work in job.works:
            begun = self._clock()
            if begun - started > SLICE_S or self.exhausted:
                yield Answer(undone=True)
                continue
            answer = self._answer(work)
            yield msgspec.structs.replace(answer, spent_s=self._clock() - begun)

    def _answer(self, work: Work) -> Answer:
        try:
            match work:
                case CaseWork():
                    return self._decided(work)
                case TraceWork():
                    return self._judged_trace(work)
                case ReadWork():
                    return self._read(work)
        except OutOfTime:
            return Answer(error=(TIME_LIMIT, f"reading it took more than {READ_S:g} s"), blames="evidence")
        except EvidenceError as error:
            return Answer(error=(error.code, error.message), blames="evidence")
        except StoreError as error:
            return Answer(error=("unreadable_evidence", str(error)), blames="evidence")
        except MemoryError:
            self.exhausted = True
            return Answer(error=(MEMORY_LIMIT, "deciding it needed more memory than one record may use"))
        except RecursionError:
            return Answer(error=("too_deep", "the evidence is nested too deeply to be checked"), blames="evidence")
        except Exception as error:
            # A bug must not take the other records along.
            return Answer(error=("internal_error", f"{type(error).__name__}: {str(error)[:500]}"))

    def _read(self, work: ReadWork) -> Answer:
        with self._limit(READ_S):
            return Answer(evidence=[pack_plain(one) for one in read_sent(unpack_plain(work.sent, Any), format=work.format)])

    def _decided(self, work: CaseWork) -> Answer:
        suite = self._suite(work.suite)
        if isinstance(suite, tuple):
            return Answer(error=suite, blames="suite")
        with self._limit(READ_S):
            evidence: Evidence = unpack_plain(work.evidence, Evidence)
        begun = self._clock()
        steps: list[Step] = []
        for ask in work.asks:
            prepared = suite.cases[ask.position] if ask.position < len(suite.cases) else None
            if prepared is None or prepared.case.id != ask.id:
                return Answer(error=("internal_error", f"the suite has no case {ask.id!r} there"))
            left = TRACE_S - (self._clock() - begun)
            steps.append(self._step(prepared, work, ask, evidence, left))
        return Answer(steps=steps)

    def _step(self, prepared: PreparedCase, work: CaseWork, ask: CaseAsk, evidence: Evidence, left: float) -> Step:
        clock = None if work.clock is None else (lambda: work.clock or "")
        if left <= 0:
            reason = f"not decided: the cases before it took {TRACE_S:g} s on this record"
            return Step(id=ask.id, result=_packed(undecided_result(prepared.case, TIME_LIMIT, reason, attempt=work.attempt)))
        try:
            with self._limit(min(CASE_S, left)):
                if not (work.judging and prepared.judged):
                    return Step(id=ask.id, result=_packed(prepared.decide(evidence, None, work.attempt, clock)))
                found = _deliberated(prepared, evidence, work.attempt, clock, work.fail_fast, ask.opinions)
                if isinstance(found, CaseResult):
                    return Step(id=ask.id, result=_packed(found))
                return Step(id=ask.id, questions=pack_plain(found))
        except OutOfTime:
            reason = f"the case took more than {min(CASE_S, left):g} s on this record"
            return Step(id=ask.id, result=_packed(undecided_result(prepared.case, TIME_LIMIT, reason, attempt=work.attempt)))

    def _judged_trace(self, work: TraceWork) -> Answer:
        with self._limit(READ_S):
            evidence = evidence_of_pieces(work.pieces, work.response_path)
            document = self._document(work.text)
        steps: list[Step] = []
        begun = self._clock()
        for _, prepared in () if document.suite is None else document.suite.cases_for_trace(evidence.case):
            if not prepared.judged:
                continue
            left = TRACE_S - (self._clock() - begun)
            steps.append(self._trace_step(document, prepared, work, evidence, left))
        return Answer(steps=steps)

    def _trace_step(self, document: PreparedDocument, prepared: PreparedCase, work: TraceWork, evidence: Evidence, left: float) -> Step:
        id = prepared.case.id
        try:
            if left <= 0:
                raise OutOfTime
            with self._limit(min(CASE_S, left)):
                found = _deliberated(prepared, evidence, 0, lambda: work.clock, False, work.opinions.get(id))
                if not isinstance(found, CaseResult):
                    return Step(id=id, questions=pack_plain(found))
                return Step(id=id, finding=document.finding(work.position, found))
        except OutOfTime:
            reason = f"the case took more than {max(0.0, min(CASE_S, left)):g} s on this trace"
            return Step(id=id, finding=document.finding(work.position, undecided_result(prepared.case, TIME_LIMIT, reason)))

    def _suite(self, key: str) -> PreparedSuite | tuple[str, str]:
        found = self._prepared.get(key)
        if found is None:
            # Prepared when it is first needed, so that it counts for whom it is needed.
            found = self._prepared[key] = self._read_suite(self._sources.pop(key))
        return found

    def _read_suite(self, source: SuiteSource) -> PreparedSuite | tuple[str, str]:
        try:
            with self._limit(READ_S):
                return PreparedSuite(source.read())
        except InputError as error:
            return "unusable_spec", str(error)
        except OutOfTime:
            return TIME_LIMIT, f"reading the suite took more than {READ_S:g} s"

    def _document(self, text: CaseText) -> PreparedDocument:
        key = (text.id, text.version)
        found = self._documents.get(key)
        if found is None:
            while len(self._documents) >= _MOST_DOCUMENTS:
                self._documents.pop(next(iter(self._documents)))
            found = self._documents[key] = PreparedDocument(text)
        return found


_MOST_DOCUMENTS = 50


def _deliberated(
    prepared: PreparedCase, evidence: Evidence, attempt: int, clock: Callable[[], str] | None, fail_fast: bool, said: bytes | None
) -> CaseResult | tuple[Question, ...]:
    """The result, or what the judge is to be asked next, after it said all this."""
    opinions: Opinions = () if said is None else unpack_plain(said, Opinions)
    deliberation = prepared.deliberate(evidence, None, attempt, clock, fail_fast=fail_fast)
    try:
        questions = next(deliberation)
        for each in opinions:
            questions = deliberation.send(each)
        return questions
    except StopIteration as end:
        return end.value
    finally:
        deliberation.close()


def _packed(result: CaseResult) -> bytes:
    return pack_plain(
        _Outcome(
            result.outcome,
            result.score,
            tuple(verdict.told() for verdict in result.verdicts),
            result.verdict,
            result.axes,
            result.attempt,
            result.extracted,
            result.code,
            result.reason,
            result.now,
            result.account,
        )
    )
