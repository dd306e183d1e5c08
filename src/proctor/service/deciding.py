"""Deciding traces against prepared cases, many at once and without waiting for anything: what a thread does beside the event loop.

A case is prepared once for each of its versions. What needs a judge is handed back undecided. Whatever goes wrong with one trace stays
with that trace.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from proctor.decide.prepare import PreparedCase, PreparedSuite
from proctor.decide.quick import DecideCase
from proctor.errors import EvidenceError, InputError, StoreError
from proctor.evidence.spans import SpanGroup
from proctor.evidence.text import as_text
from proctor.formats.suites import read_suite
from proctor.model.evidence import Evidence, Json
from proctor.model.result import CaseResult
from proctor.report.json_text import CaseEncoder
from proctor.scoring.reduce import reduce_attempts
from proctor.service.applicable import ActiveCase, applies
from proctor.service.assembling import evidence_in
from proctor.service.hub import new_id
from proctor.service.routing import Agent
from proctor.store.bodies import pack, squeeze
from proctor.store.many import plain_text
from proctor.store.pages import Row
from proctor.store.trace_work import Done

LONGEST_INPUT = 2_000
"""Characters of what was asked that are kept beside a trace, for search."""
_MOST_PREPARED = 500


class PreparedDocument:
    """One version of a case, ready to decide; or why it cannot be."""

    def __init__(self, case: ActiveCase, document: str, dialect: str) -> None:
        self.case = case
        self.problem: str | None = None
        self.suite: PreparedSuite | None = None
        self._encoder = CaseEncoder()
        self._clean: dict[int, tuple[Any, bytes]] = {}
        try:
            self.suite = PreparedSuite(read_suite(document, dialect=dialect, name=case.name))
        except InputError as error:
            self.problem = str(error)
        except Exception as error:
            # It was read when it was written; whatever has changed since must not keep traces waiting.
            self.problem = f"a bug while reading the case: {type(error).__name__}: {error}"

    def body(self, result: CaseResult) -> bytes:
        """A result as it is kept. A clean pass has the same verdicts as the one before it, and so the same body."""
        known = self._clean.get(id(result.case))
        if known is not None and known[0] is result.verdicts and result.now is None:
            return known[1]
        packed = squeeze(self._encoder.encode(result))
        if result.outcome == "pass" and result.now is None and not result.extracted:
            self._clean[id(result.case)] = (result.verdicts, packed)
        return packed


class PreparedCache:
    """Prepared cases by id and version."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, int], PreparedDocument] = OrderedDict()

    def get(self, case: ActiveCase) -> PreparedDocument | None:
        """The prepared case, if it is there."""
        found = self._known.get((case.id, case.version))
        if found is not None:
            self._known.move_to_end((case.id, case.version))
            # What it is narrowed to may have changed; that does not make another version.
            found.case = case
        return found

    def put(self, case: ActiveCase, prepared: PreparedDocument) -> None:
        """Remember a prepared case; the one that was not used for longest goes."""
        self._known[(case.id, case.version)] = prepared
        while len(self._known) > _MOST_PREPARED:
            self._known.popitem(last=False)


class Work(msgspec.Struct, kw_only=True):
    """One trace that was leased, and what it may be decided against."""

    row: Row
    pieces: Sequence[bytes]
    agent: Agent | None
    documents: Sequence[PreparedDocument]
    known: list[SpanGroup] | None = None
    """Its spans, if they need not be read from the pieces."""


class Decided(msgspec.Struct, kw_only=True):
    """What came of one trace: decided cases, and those that wait for a judge."""

    work: Work
    evidence: Evidence | None = None
    error: str | None = None
    results: list[dict[str, Any]] = []
    undecided: list[tuple[PreparedDocument, PreparedCase]] = []

    def done(self) -> Done:
        """The end of the work on this trace."""
        if self.error is not None:
            return Done(row=self.work.row, status="failed", error=self.error)
        counts: dict[str, int] = {}
        for row in self.results:
            counts[row["outcome"]] = counts.get(row["outcome"], 0) + 1
        asked = None if self.evidence is None else as_text(self.evidence.input)
        return Done(
            row=self.work.row,
            status="evaluated",
            outcome=reduce_attempts(counts) if counts else None,
            input_text=None if asked is None else asked[:LONGEST_INPUT],
        )


def decide_all(works: Sequence[Work], now: str, *, judging: bool) -> list[Decided]:
    """Decide every trace. With `judging`, cases that may need a judge are left undecided."""
    return [_decided(work, now, judging) for work in works]


def _decided(work: Work, now: str, judging: bool) -> Decided:
    try:
        return _attempted(work, now, judging)
    except EvidenceError as error:
        return Decided(work=work, error=f"{error.code}: {error.message}")
    except StoreError as error:
        return Decided(work=work, error=f"unreadable_evidence: {error}")
    except RecursionError:
        return Decided(work=work, error="too_deep: the trace is nested too deeply to be checked")
    except Exception as error:
        # A bug in a reader must not keep every other trace waiting.
        return Decided(work=work, error=f"internal_error: {type(error).__name__}: {str(error)[:500]}")


def _attempted(work: Work, now: str, judging: bool) -> Decided:
    if work.agent is None:
        return Decided(work=work, error="agent_gone: the agent of this trace has been deleted")
    evidence = evidence_in(work.pieces, work.agent, work.known)
    decided = Decided(work=work, evidence=evidence, results=[], undecided=[])
    metadata: Mapping[str, Json] | None = None
    for document in work.documents:
        case = document.case
        if case.sample < 1 or case.when is not None:
            if metadata is None:
                metadata = {**evidence.metadata, **(work.row["metadata"] or {})}
            if not applies(case, work.row["id"], evidence, metadata):
                continue
        if document.suite is None:
            decided.results.append(unusable_row(work, document, now))
            continue
        lookup = document.suite.lookup.get(evidence.case)
        for decide, prepared in zip(lookup or (), document.suite.prepared.get(evidence.case, ()), strict=False):
            if judging and prepared.judged:
                decided.undecided.append((document, prepared))
            else:
                decided.results.append(result_row(work, document, _result(decide, evidence, work.row), now))
    return decided


def _result(decide: DecideCase, evidence: Evidence, row: Row) -> CaseResult:
    return decide(evidence, None, 0, _clock(row))


def _clock(row: Row) -> Callable[[], str]:
    def received() -> str:
        return row["created_at"]

    return received


def result_row(work: Work, document: PreparedDocument, result: CaseResult, now: str) -> dict[str, Any]:
    """A result as it is kept."""
    return _row(work, document, result.case.id, result.outcome, result.score, result.verdict, _code(result), document.body(result), now)


def unusable_row(work: Work, document: PreparedDocument, now: str) -> dict[str, Any]:
    """The result of a case whose document can no longer be read."""
    told = {"id": None, "outcome": "error", "code": "unusable_spec", "reason": document.problem, "assertions": []}
    return _row(work, document, "", "error", None, None, "unusable_spec", pack(told), now)


def _row(
    work: Work,
    document: PreparedDocument,
    key: str,
    outcome: str,
    score: float | None,
    verdict: str | None,
    code: str | None,
    body: bytes,
    now: str,
) -> dict[str, Any]:
    row = work.row
    return {
        "id": new_id("res"),
        "organization_id": row["organization_id"],
        "project_id": row["project_id"],
        "agent_id": row["agent_id"],
        "trace_id": row["id"],
        "case_id": document.case.id,
        "case_version": document.case.version,
        "case_key": plain_text(key),
        "trace_revision": row["revision"],
        "outcome": outcome,
        "score": score,
        "verdict": verdict,
        "code": code,
        "body": body,
        "created_at": now,
        "updated_at": now,
    }


def _code(result: CaseResult) -> str | None:
    """The code of a case: its own, else `missing_evidence` where an assertion lacked something, else that of the first that has one."""
    if result.code is not None or result.outcome == "pass":
        return result.code
    codes = [verdict.code for verdict in result.verdicts if verdict.code is not None and verdict.outcome != "pass"]
    return "missing_evidence" if "missing_evidence" in codes else codes[0] if codes else None
