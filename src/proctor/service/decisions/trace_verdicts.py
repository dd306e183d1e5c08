"""Decides traces against prepared cases, one after the other and without waiting for anything.

What is handed in and out is plain data, so that it can be done in a process of its own (`process.py`), and nothing here knows a
database. A case is prepared once for each of its versions. What needs a judge is handed back undecided. Whatever goes wrong with one trace
stays with that trace.

Time is bounded, since patterns and traces are somebody else's: for one case, for one trace, for one agent in a batch, and for the batch.
What an agent has no time left for comes back undone, for a later batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from proctor.decide.prepare import PreparedSuite
from proctor.decide.quick import DecideCase
from proctor.errors import EvidenceError, InputError, StoreError
from proctor.evidence.values.text import as_text
from proctor.formats.suites import read_suite
from proctor.model.account import Part
from proctor.model.case import Case
from proctor.model.evidence import Evidence, Json
from proctor.model.mapping import DeclaredEvidence
from proctor.model.result import CaseResult
from proctor.model.typed import convert_to
from proctor.model.verdict import errored
from proctor.report.data.json_text import CaseEncoder
from proctor.service.decisions.case_selection import ActiveCase, is_selected
from proctor.service.decisions.trace_evidence import read_evidence
from proctor.store.sql.compressed_json import compress_bytes, from_json, pack

LONGEST_INPUT = 2_000
"""Characters of what was asked that are kept beside a trace, for search."""
CASE_S = 3.0
"""How long one case may take on one trace."""
TRACE_S = 6.0
"""How long all cases may take on one trace."""
READ_S = 30.0
"""How long reading one trace may take; the largest ones do take a while."""
AGENT_S = 2.0
"""From how much time on an agent has to wait for the next batch."""
# Results are written when their batch has come to its end, so a batch must have one soon.
BATCH_S = 10.0

_MOST_KEPT_BODIES, _LONGEST_KEPT_BODY = 32, 16_384
"""How many bodies of results a document keeps beside their compressed form, and of how many bytes at most: half a megabyte together."""

CaseKey = tuple[str, int]
"""Id and version of a case."""
Limit = Callable[[float], AbstractContextManager[object]]
"""Ends what is done in it by `OutOfTime` when it takes longer than some seconds."""


class OutOfTime(BaseException):
    """Raised when something took too long. No `Exception`: what is interrupted must not take it for a fault of its own."""


class CaseText(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a case, as it was written."""

    id: str
    version: int
    name: str
    text: str
    dialect: str


class Task(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One trace that is to be decided."""

    id: str
    agent_id: str
    created_at: str
    response_path: str | None
    declared: DeclaredEvidence | None = None
    """What the agent declares under `evidence`."""
    metadata: bytes | None
    """JSON."""
    pieces: Sequence[bytes]
    cases: Sequence[int]
    """Positions of its cases in the batch."""


class Batch(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="batch"):
    """Traces that are decided in one go."""

    cases: bytes
    """JSON: a list of `ActiveCase`."""
    tasks: Sequence[Task]
    judging: bool
    """Whether cases that may need a judge are left undecided."""
    texts: Sequence[CaseText] = ()
    """What was not told before."""
    forget: Sequence[CaseKey] = ()


class Finding(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What came of one case on one trace."""

    case: int
    key: str
    """The id of the case inside its document."""
    outcome: str
    score: float | None
    verdict: str | None
    code: str | None
    body: bytes


class Decision(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What came of one trace."""

    error: str | None = None
    """Why it cannot be decided: a code and a sentence."""
    no_run: str | None = None
    """Why it is no run of an agent, and nothing was decided."""
    asked: str | None = None
    """The start of what was asked."""
    findings: Sequence[Finding] = ()
    undecided: Sequence[int] = ()
    """Cases that wait for a judge."""
    undone: bool = False
    """Nothing was done; it is for a later batch."""


def make_failed(code: str, message: str) -> Decision:
    """Return the decision of a trace that cannot be decided."""
    return Decision(error=_replace_surrogates(f"{code}: {message}"))


class PreparedDocument:
    """One version of a case, ready to decide, or the reason why it cannot be."""

    def __init__(self, text: CaseText) -> None:
        self.problem: str | None = None
        self.suite: PreparedSuite | None = None
        self._encoder = CaseEncoder()
        self._clean: dict[int, tuple[Any, Any, bytes]] = {}
        self._packed: dict[bytes, bytes] = {}
        try:
            self.suite = PreparedSuite(read_suite(text.text, dialect=text.dialect, name=text.name))
        except InputError as error:
            self.problem = str(error)
        except Exception as error:
            # It was read when it was written; whatever has changed since must not keep traces waiting.
            self.problem = f"a bug while reading the case: {type(error).__name__}: {error}"

    def make_finding(self, position: int, result: CaseResult) -> Finding:
        """Return a result in the form in which it is kept."""
        return Finding(
            case=position,
            key=_replace_surrogates(result.case.id),
            outcome=result.outcome,
            score=result.score,
            verdict=result.verdict,
            code=_choose_code(result),
            body=self._pack_body(result),
        )

    def _pack_body(self, result: CaseResult) -> bytes:
        # A clean pass has the same verdicts as the one before it, and so the same body.
        # An address will do as a key: the suite holds its cases for as long as this document lives.
        known = self._clean.get(id(result.case))
        if known is not None and known[0] is result.verdicts and known[1] is result.account and result.now is None:
            return known[2]
        packed = self._compress(self._encoder.encode(result))
        if result.outcome == "pass" and result.now is None and not result.extracted:
            self._clean[id(result.case)] = (result.verdicts, result.account, packed)
        return packed

    def _compress(self, text: bytes) -> bytes:
        """Return a body compressed; traces of a healthy agent have few different ones, and compressing costs as much as deciding."""
        packed = self._packed.get(text)
        if packed is None:
            packed = compress_bytes(text)
            if len(text) <= _LONGEST_KEPT_BODY:
                if len(self._packed) >= _MOST_KEPT_BODIES:
                    self._packed.clear()
                self._packed[text] = packed
        return packed


class TraceDecider:
    """Decides batches. It remembers the cases it was told, until it is told to forget them."""

    def __init__(self, limit: Limit = nullcontext, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._texts: dict[CaseKey, CaseText] = {}
        self._prepared: dict[CaseKey, PreparedDocument] = {}

    def decide(self, batch: Batch) -> Iterator[Decision]:
        """Decide every trace, in order. The first of a batch is decided however long it takes."""
        for id, version in batch.forget:
            self._texts.pop((id, version), None)
            self._prepared.pop((id, version), None)
        self._texts.update({(text.id, text.version): text for text in batch.texts})
        cases = convert_to(from_json(batch.cases), list[ActiveCase])
        spent: dict[str, float] = {}
        started = self._clock()
        for task in batch.tasks:
            begun = self._clock()
            used = spent.get(task.agent_id, 0.0)
            if used > AGENT_S or begun - started > BATCH_S:
                # Said and not left out: decisions belong to traces by their order, and one that is missing means that the process has died.
                yield Decision(undone=True)
                continue
            decision = self._decide_task(task, cases, batch.judging)
            spent[task.agent_id] = used + self._clock() - begun
            yield decision

    def _decide_task(self, task: Task, cases: Sequence[ActiveCase], judging: bool) -> Decision:
        try:
            with self._limit(READ_S):
                evidence = read_evidence(task.pieces, task.response_path, task.declared, self._find_parts(task, cases))
            return self._decide_cases(task, evidence, cases, judging)
        except OutOfTime:
            return make_failed("time_limit", f"reading the trace took more than {READ_S:g} s")
        except EvidenceError as error:
            return make_failed(error.code, error.message)
        except StoreError as error:
            return make_failed("unreadable_evidence", str(error))
        except MemoryError:
            return make_failed("memory_limit", "deciding the trace needed more memory than one trace may use")
        except RecursionError:
            return make_failed("too_deep", "the trace is nested too deeply to be checked")
        except Exception as error:
            # A bug in a reader must not keep every other trace waiting.
            return make_failed("internal_error", f"{type(error).__name__}: {str(error)[:500]}")

    def _find_parts(self, task: Task, cases: Sequence[ActiveCase]) -> frozenset[Part] | None:
        """Return the parts of evidence that the cases of a trace read; None: all of them."""
        found: set[Part] = set()
        for position in task.cases:
            case = cases[position]
            document = self._get_document((case.id, case.version))
            parts = document.suite.parts if document is not None and document.suite is not None else None
            if parts is None:
                return None
            found |= parts
        return frozenset(found)

    def _decide_cases(self, task: Task, evidence: Evidence, cases: Sequence[ActiveCase], judging: bool) -> Decision:
        asked = as_text(evidence.input)
        asked = None if asked is None else _replace_surrogates(asked[:LONGEST_INPUT])
        if evidence.no_run is not None:
            return Decision(no_run=_replace_surrogates(evidence.no_run), asked=asked)
        findings: list[Finding] = []
        undecided: list[int] = []
        metadata: Mapping[str, Json] | None = None
        deadline = self._clock() + TRACE_S
        for position in task.cases:
            case = cases[position]
            if case.sample < 1 or case.when is not None:
                if metadata is None:
                    # Only for cases that ask for it: most have no condition. What was sent beside the trace wins over what its spans say.
                    metadata = {**evidence.metadata, **(from_json(task.metadata) if task.metadata is not None else {})}
                if not self._is_selected(case, task.id, evidence, metadata):
                    continue
            document = self._get_document((case.id, case.version))
            if document is None:
                continue
            if document.suite is None:
                findings.append(_make_unusable(position, document))
                continue
            for decide, prepared in document.suite.cases_for_trace(evidence.case):
                if judging and prepared.judged:
                    undecided.append(position)
                else:
                    findings.append(
                        document.make_finding(position, self._decide_case(decide, prepared.case, evidence, task.created_at, deadline))
                    )
        # Each document once: the judge's way decides all of its cases that need one.
        return Decision(asked=asked, findings=findings, undecided=sorted(set(undecided)))

    def _get_document(self, key: CaseKey) -> PreparedDocument | None:
        found = self._prepared.get(key)
        if found is None and key in self._texts:
            # Prepared when it is first needed, so that it counts for whom it is needed.
            found = self._prepared[key] = PreparedDocument(self._texts.pop(key))
        return found

    def _is_selected(self, case: ActiveCase, id: str, evidence: Evidence, metadata: Mapping[str, Json]) -> bool:
        try:
            with self._limit(CASE_S):
                return is_selected(case, id, evidence, metadata)
        except OutOfTime:
            # As a pattern that cannot decide: it narrows nothing.
            return True

    def _decide_case(self, decide: DecideCase, case: Case, evidence: Evidence, received: str, deadline: float) -> CaseResult:
        if self._clock() > deadline:
            return _make_timed_out(case, f"not decided: the cases before it took {TRACE_S:g} s on this trace")
        try:
            with self._limit(CASE_S):
                # The time at which the trace was received, so that evaluating it again decides claims about time as before.
                return decide(evidence, None, 0, lambda: received)
        except OutOfTime:
            return _make_timed_out(case, f"the case took more than {CASE_S:g} s on this trace")


def _make_timed_out(case: Case, reason: str) -> CaseResult:
    verdicts = (errored("time_limit", reason),) * len(case.assertions)
    return CaseResult(case, "error", None, verdicts, code="time_limit", reason=reason)


def _make_unusable(position: int, document: PreparedDocument) -> Finding:
    told = {"id": None, "outcome": "error", "code": "unusable_spec", "reason": document.problem, "assertions": []}
    return Finding(case=position, key="", outcome="error", score=None, verdict=None, code="unusable_spec", body=pack(told))


def _choose_code(result: CaseResult) -> str | None:
    """Return the code of a case: its own, else `missing_evidence` where an assertion lacked something, else the first that one has."""
    if result.code is not None or result.outcome == "pass":
        return result.code
    codes = [verdict.code for verdict in result.verdicts if verdict.code is not None and verdict.outcome != "pass"]
    return "missing_evidence" if "missing_evidence" in codes else codes[0] if codes else None


def _replace_surrogates(text: str) -> str:
    """Return text that can be written down, with halves of surrogate pairs replaced."""
    return text if text.isascii() else text.encode("utf-8", errors="replace").decode()
