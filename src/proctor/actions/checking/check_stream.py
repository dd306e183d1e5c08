"""Check a stream of recorded evidence of any length against a suite: results are yielded one by one, and only counts are held."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Container, Iterable, Iterator
from datetime import UTC, datetime
from typing import Literal

import msgspec

from proctor.checks.missing_evidence import find_reads
from proctor.checks.registry import Registry, default_registry
from proctor.decide.other_input import OTHER_INPUT, OtherInputs, describe_other_input, has_other_input
from proctor.decide.prepare import Clock, PreparedSuite, skip_case, with_account
from proctor.errors import EvidenceError
from proctor.model.case import Assertion, Case, Suite
from proctor.model.evidence import Evidence, Json, Source
from proctor.model.lazy_cases import EMPTY, find_scratch, is_lazy, may_claim, may_have
from proctor.model.problem import Problem
from proctor.model.result import CaseResult, Incomplete, RunResult, Unmet
from proctor.model.show import nearest
from proctor.model.stamps import stamp_moment
from proctor.scoring.metrics import Tally
from proctor.scoring.statistics import decide_outcome
from proctor.sources.records import Record

_WHEN_EMPTY = {"pass": "passes", "fail": "fails", "skip": "is skipped"}
MOST_UNMATCHED = 100
"""The number of unmatched records that a result lists; the rest is counted."""
MOST_EMPTY = 100
"""The number of cases without assertions that a result names; the rest is counted."""


Shows = Literal["verdicts", "account", "evidence"]
"""What results have in addition to their verdicts: nothing, the account of the evidence, or the account and the evidence."""


def wall_clock() -> str:
    """The time now, ISO 8601 in UTC."""
    return stamp_moment(datetime.now(UTC))


def new_run_id() -> str:
    """An id that sorts by time and does not repeat."""
    now = time.time_ns()
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now // 1_000_000_000))
    # Milliseconds, so that two runs in the same second sort by time.
    return f"{moment}-{now // 1_000_000 % 1000:03d}{os.urandom(4).hex()}"


class CheckStream:
    """One run of checks over a stream of records."""

    def __init__(
        self,
        suite: Suite,
        *,
        now: str | None = None,
        registry: Registry | None = None,
        clock: Callable[[], str] = wall_clock,
        shows: Shows = "verdicts",
        strict: bool = False,
    ) -> None:
        """With `strict` a record whose input differs from the input of its case is rejected instead of decided."""
        self.suite = suite
        self._shows: Shows = shows
        self._strict = strict
        self.prepared = prepare_once(suite) if registry is None else PreparedSuite(suite, registry)
        self.fixed_now = now
        """The clock of every piece of evidence, if one was given."""
        # One clock for the whole run: two cases of one run never disagree about today.
        self._started_at = clock()
        self.clock: Clock = lambda: self._started_at
        self.lookup = self.prepared.lookup
        # Evidence with a replaced clock, or that is to be shown, takes the slower path in `decide_evidence`.
        self._quick = self.lookup if now is None and shows == "verdicts" else {}
        self.tally = Tally(find_scratch(suite.cases))
        self.unmatched: list[Json] = []
        """Records that name an unknown case."""
        self.other_inputs = OtherInputs()
        """The records that were decided although their input differs from the input of their case."""
        self._unmatched_count = 0
        self._refused_count = 0
        self._not_selected_count = 0
        self._unanswered_count = 0
        self._answered = bytearray(len(suite.cases)) if is_lazy(suite.cases) else None
        """Which cases were answered, for lazy cases, which would have to be built to ask them."""
        self.interrupted = False
        """Set by the caller if it stopped before the last record."""
        self.run_id = new_run_id()

    def over(self, records: Iterable[Record]) -> Iterator[CaseResult]:
        """Decide record after record; then one `skip` for every case that no record answered."""
        add, clock = self.tally.add, self.clock
        lookup = self._quick
        results: list[CaseResult] = []
        for record in records:
            evidence = record.evidence
            if evidence is not None and (cases := lookup.get(evidence.case)):
                # `decide`, inlined: long streams go through here.
                for decide in cases:
                    result = decide(evidence, record.source, 0, clock)
                    add(result)
                    yield result
                continue
            self.decide(record, results)
            for result in results:
                add(result)
                yield result
            results.clear()
        yield from self.unanswered()

    def unanswered(self) -> Iterator[CaseResult]:
        """One `skip` for every case that no record has answered so far."""
        add = self.tally.add
        cases, marks = self.suite.cases, self._answered
        for case in cases if marks is None else (cases[position] for position, is_answered in enumerate(marks) if not is_answered):
            if not self.tally.has_seen(case.id):
                skip = case.skip
                if skip is not None:
                    result = skip_case(case, skip.code, skip.reason)
                else:
                    self._unanswered_count += 1
                    result = skip_case(case, "no_evidence", "no evidence answers this case")
                add(result)
                yield result

    def decide(self, record: Record, results: list[CaseResult]) -> None:
        """Add the results of one record to `results`."""
        if record.evidence is None:
            results.append(_make_undecided_result(NO_CASE, record.source, record.error or EvidenceError("could not be read")))
        else:
            self.decide_evidence(record.evidence, record.source, results)

    def decide_evidence(self, evidence: Evidence, source: Source, results: list[CaseResult], only: Container[int] | None = None) -> None:
        """Add the results of one piece of evidence for the cases that it answers, limited to the positions in `only` if given."""
        if only is None and (cases := self._quick.get(evidence.case)):
            for decide in cases:
                results.append(decide(evidence, source, 0, self.clock))
            return
        positions = self.positions_for(evidence, source, results)
        if only is not None:
            positions = tuple(position for position in positions if position in only)
        if self.fixed_now is not None:
            evidence = msgspec.structs.replace(evidence, now=self.fixed_now)
        for position in positions:
            results.append(self.with_evidence(self.prepared.decides[position](evidence, source, 0, self.clock), evidence))

    def positions_for(self, evidence: Evidence, source: Source, results: list[CaseResult]) -> tuple[int, ...]:
        """Return the positions of the cases that a record answers; note a record that answers none, and add a result for a rejected one."""
        try:
            positions = self.prepared.find(evidence)
            for position in positions or ():
                case = self.suite.cases[position]
                if self._strict and has_other_input(case, evidence):
                    raise EvidenceError(f"case {case.id!r}: {describe_other_input(case, evidence).describe()}", code=OTHER_INPUT)
                self.other_inputs.note(case, evidence)
        except EvidenceError as error:
            self._refused_count += 1
            results.append(_make_undecided_result(OTHER if error.code == OTHER_INPUT else REFUSED, source, error))
            return ()
        if positions is None:
            self._unmatched_count += 1
            # The search for the nearest name is slow, so it is done only for listed records.
            if len(self.unmatched) < MOST_UNMATCHED:
                near = nearest(evidence.case or "", self.prepared.list_names())
                self.unmatched.append({"case": evidence.case, "file": source.file, "line": source.line, "nearest": list(near)})
            return ()
        if not positions:
            self._not_selected_count += 1
        if self._answered is not None:
            for position in positions:
                self._answered[position] = 1
        return positions

    def with_evidence(self, result: CaseResult, evidence: Evidence) -> CaseResult:
        """Return a result with the parts of its evidence that this run shows."""
        if self._shows == "verdicts":
            return result
        from proctor.report.blocks.exchange import with_exchange  # few formats show it

        result = with_exchange(with_account(result, evidence), evidence)
        return msgspec.structs.replace(result, evidence=evidence) if self._shows == "evidence" else result

    @property
    def judged(self) -> bool:
        """Whether any claim needs a judge."""
        return self._survey.judged

    @property
    def only_presence(self) -> bool:
        """Whether every claim is about presence, so that more evidence could only help."""
        return self._survey.only_presence

    @functools.cached_property
    def _survey(self) -> Survey:
        return survey_cases(self.suite)

    @property
    def unmet(self) -> Unmet:
        """The number of cases and records without a match so far; cases without evidence are known at the end."""
        return Unmet(
            cases_without_evidence=self._unanswered_count,
            records_without_case=self._unmatched_count + self._refused_count,
            records_not_selected=self._not_selected_count,
            records_with_other_input=self.other_inputs.records,
        )

    def finish(self, cases: Iterable[CaseResult] = ()) -> RunResult:
        """Return the result of the whole run, with `cases` if the caller has stored them."""
        counts = dict(self.tally.counts)
        warnings: list[Problem] = []
        if self.interrupted:
            message = "interrupted: the evidence was not read to its end, and only what was finished is here"
            warnings.append(Problem(message=message, level="warning", code="interrupted"))
        warnings += self.suite.warnings
        if self._unmatched_count:
            first = self.unmatched[0]
            subject = "records name" if self._unmatched_count > 1 else "record names"
            message = f"{self._unmatched_count} {subject} a case that is not in the suite, first {first['case']!r}"
            near = tuple(first["nearest"])
            warnings.append(Problem(message=message, level="warning", code="unmatched_evidence", nearest=near))
        incomplete = Incomplete(ended="interrupted", attempts_finished=sum(counts.values())) if self.interrupted else None
        return RunResult(
            suite_name=self.suite.name,
            suite_path=self.suite.path,
            dialect=self.suite.dialect,
            run_id=self.run_id,
            started_at=self._started_at,
            outcome=decide_outcome(self.tally.decide_outcome(), incomplete),
            score=self.tally.score,
            counts=counts,
            cost=self.tally.cost,
            cases=tuple(cases),
            summary=self.tally.list_summaries(),
            unmatched_evidence=tuple(self.unmatched),
            unmet=self.unmet,
            incomplete=incomplete,
            warnings=(*warnings, *self.other_inputs.list_warnings(), *list_empty_cases(self.suite)),
        )


def list_empty_cases(suite: Suite) -> Iterator[Problem]:
    """Return a warning for every case without assertions, unless its reader gave one; only the first ones and a count if there are many."""
    count = 0
    known = {problem.origin for problem in suite.warnings if problem.code == "no_assertions"}
    for case in suite.cases if may_have(suite.cases, EMPTY) else ():
        if not case.assertions and case.skip is None and case.origin not in known:
            count += 1
            if count <= MOST_EMPTY:
                yield Problem(
                    message=f"case {case.id!r} asserts nothing, so it {_WHEN_EMPTY[case.scoring.when_empty]}",
                    origin=case.origin,
                    level="warning",
                    code="no_assertions",
                )
    if count > MOST_EMPTY:
        yield Problem(message=f"{count - MOST_EMPTY:,} more cases assert nothing", level="warning", code="no_assertions")


class _ById:
    """A suite as a cache key by identity: comparing two suites field by field would cost more than it saves."""

    def __init__(self, suite: Suite) -> None:
        self.suite = suite

    def __hash__(self) -> int:
        # The cache holds this object and so the suite: no other suite can get the same id.
        return id(self.suite)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and other.suite is self.suite


def prepare_once(suite: Suite) -> PreparedSuite:
    """The suite with its checks compiled; the same suite object is compiled once."""
    return _prepare(_ById(suite))


# Bounded, because entries hold a suite and its compiled checks for the lifetime of the process.
@functools.lru_cache(maxsize=32)
def _prepare(holder: _ById) -> PreparedSuite:
    return PreparedSuite(holder.suite)


NO_SOURCE = Source()
"""The source of evidence handed over in code."""

NO_CASE = Case(id="", name="unreadable evidence")
"""The case of an unreadable record, which names none."""
REFUSED = Case(id="", name="evidence without a case")
"""The case of a record that could answer several, and names none."""
OTHER = Case(id="", name="evidence of another input")
"""The case of a record whose input differs from the input of the case."""


def _make_undecided_result(case: Case, source: Source, error: EvidenceError) -> CaseResult:
    place = source.file or source.id or "the evidence"
    location = f"{place}:{source.line}" if source.line is not None else place
    return CaseResult(case, "error", None, (), source, code=error.code, reason=f"{location}: {error.message}")


class Survey(msgspec.Struct, frozen=True):
    """The needs of a suite."""

    judged: bool
    """Whether a judge may be needed."""
    only_presence: bool
    """Whether every claim requires that something is present."""


def survey_cases(suite: Suite) -> Survey:
    """Examine every claim of every case once, shared claims only once."""
    known = default_registry()
    judged, only_presence = False, True
    may_be_judged = may_claim(suite.cases, lambda claim: known.get_for(claim.check, claim.spec).judged)
    last: tuple[Assertion, ...] = ()
    for case in suite.cases:
        if not only_presence and judged == may_be_judged:
            # The remaining cases cannot change the answer.
            break
        for assertion in case.assertions:
            if any(assertion is each for each in last):
                continue
            # Custom checks are found by their specs in any registry.
            entry = known.get_for(assertion.check, assertion.spec)
            judged = judged or entry.judged
            reads = find_reads(entry.reads, assertion.spec) if only_presence else None
            only_presence = reads is not None and bool(reads.parts) and reads.claim == "presence"
        last = case.assertions
    return Survey(judged, only_presence)
