"""What came of checking: one `CaseResult` per case, attempt and evidence; one `RunResult` over them.

A case result keeps the case and its verdicts side by side instead of copying every label and origin into each result:
a stream of a million results shares one set of assertions.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec

from proctor.model.account import Known
from proctor.model.case import Assertion, Case
from proctor.model.evidence import Evidence, Json, Source
from proctor.model.problem import Problem
from proctor.model.verdict import Outcome, Verdict

SCHEMA = "proctor.result/1"

CaseVerdict = Literal["pass", "partial", "fail"]


class AxisScore(msgspec.Struct, frozen=True, gc=False):
    """The weighted mean over the assertions of one axis, and the sum of their weights."""

    score: float
    weight: float


class AssertionResult(msgspec.Struct, frozen=True, gc=False):
    """One assertion together with its verdict."""

    assertion: Assertion
    verdict: Verdict

    @property
    def outcome(self) -> Outcome:
        """Shorthand for the verdict's outcome."""
        return self.verdict.outcome

    @property
    def reason(self) -> str:
        """Shorthand for the verdict's reason."""
        return self.verdict.reason


class CaseResult(msgspec.Struct, frozen=True, gc=False):
    """One case decided on one piece of evidence; `verdicts` stand in the order of `case.assertions`."""

    case: Case
    outcome: Outcome
    score: float | None
    verdicts: tuple[Verdict, ...]
    source: Source | None = None
    verdict: CaseVerdict | None = None
    axes: dict[str, AxisScore] | None = None
    attempt: int = 0
    extracted: dict[str, Json] = {}
    code: str | None = None
    """Why the case as a whole has this outcome, where no assertion says so (`no_evidence`, `unreadable_evidence`); beside a pass, what
    could not be extracted (`regex_timeout`)."""
    reason: str | None = None
    now: str | None = None
    """The clock used, where the evidence carried none."""
    account: Known | None = None
    """What is known of the evidence; nothing for plain evidence that decided everything, unless it was asked for."""
    evidence: Evidence | None = None
    """The evidence itself, only where a report is asked to show it."""

    @property
    def id(self) -> str:
        """The id of the case."""
        return self.case.id

    @property
    def passed(self) -> bool:
        """Whether the outcome is `pass`."""
        return self.outcome == "pass"

    @property
    def assertions(self) -> tuple[AssertionResult, ...]:
        """Assertions paired with their verdicts, in the order of the file."""
        return tuple(AssertionResult(a, v) for a, v in zip(self.case.assertions, self.verdicts, strict=False))

    def failures(self) -> Iterator[AssertionResult]:
        """Yield the assertions that failed or could not be decided."""
        return (entry for entry in self.assertions if entry.verdict.outcome in ("fail", "error"))


class CaseSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One case over all its attempts."""

    id: str
    name: str
    outcome: Outcome
    runs: int
    counts: dict[str, int]


class Unmet(msgspec.Struct, frozen=True, kw_only=True):
    """Cases and records that did not meet."""

    cases_without_evidence: int = 0
    """Cases that no evidence answered, those aside that their author skips."""
    records_without_case: int = 0
    """Records that answer no case of the suite: they name an unknown one, or were refused because they could answer several."""
    records_not_selected: int = 0
    """Records that answer a case of the suite which was not selected (`-k`)."""

    @property
    def any(self) -> bool:
        """Whether something is missing on either side; what was not selected is not missing."""
        return bool(self.cases_without_evidence or self.records_without_case)


Ending = Literal["completed", "interrupted", "budget", "running", "not_ended", "cancelled", "failed"]
"""How a run ended: `running` has not yet; `not_ended` was never told how, because whoever drove it was killed."""


class MissingAttempts(msgspec.Struct, frozen=True, kw_only=True):
    """A case of which a run did not finish every attempt that was planned."""

    case: Case
    planned: int
    finished: int


class Incomplete(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is of a run that is not all there."""

    ended: Ending
    attempts_finished: int
    attempts_planned: int | None = None
    """Nothing where nobody knows: evidence that was not read to its end."""
    cases_finished: int = 0
    """Cases with every attempt that was planned."""
    cases_planned: int | None = None
    missing: tuple[MissingAttempts, ...] = ()


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that came of checking a suite."""

    suite_name: str
    suite_path: str | None = None
    dialect: str = "native"
    run_id: str = ""
    started_at: str = ""
    outcome: Outcome = "skip"
    score: float | None = None
    counts: dict[str, int] = {}
    cases: tuple[CaseResult, ...] = ()
    summary: tuple[CaseSummary, ...] = ()
    unmatched_evidence: tuple[Json, ...] = ()
    """Records that name an unknown case, the first hundred of them."""
    unmet: Unmet = Unmet()
    incomplete: Incomplete | None = None
    """What is missing of a run that did not come to its end; such a run never passes."""
    warnings: tuple[Problem, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether everything that was decided passed."""
        return self.outcome == "pass"

    def __getitem__(self, case_id: str) -> CaseResult:
        """Return the first result of a case, by id."""
        for result in self.cases:
            if result.case.id == case_id:
                return result
        raise KeyError(case_id)
