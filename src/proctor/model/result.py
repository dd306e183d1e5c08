"""Results of checking: one `CaseResult` per case, attempt and evidence; one `RunResult` over them.

A case result refers to the case and its verdicts instead of copying every label and origin: a stream of a million results shares one set
of assertions.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from proctor.model.account import Known
from proctor.model.case import Assertion, Case
from proctor.model.cost import TotalCost
from proctor.model.evidence import Cost, Evidence, Json, Source, UserEnding
from proctor.model.problem import Problem
from proctor.model.show import escape_unseen, shorten, show_number
from proctor.model.verdict import Outcome, TextRange, Verdict

# Results in a notebook: a small HTML table in which every untrusted text is escaped

MOST_ROWS = 100
# The ampersand first. Python's own module for this loads thousands of names, which would slow down every command.
_REFERENCES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"}
_COLOURS = {"pass": "#187a3c", "fail": "#c0261f", "error": "#a85200", "skip": "#667080"}


def write_outcome(outcome: str) -> str:
    """Return an outcome as coloured text."""
    return f'<b style="color:{_COLOURS.get(outcome, "inherit")}">{write_text(outcome)}</b>'


def write_text(text: str, limit: int = 300) -> str:
    """Return any text escaped for HTML."""
    shown = escape_unseen(shorten(text, limit))
    for character, reference in _REFERENCES.items():
        shown = shown.replace(character, reference)
    return shown


def write_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, more: int = 0) -> str:
    """Return a table; the cells are HTML already."""
    heading = "".join(f"<th>{write_text(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f'<td style="text-align:left">{cell}</td>' for cell in row) + "</tr>" for row in rows)
    rest = f"<p>and {more:,} more</p>" if more > 0 else ""
    return f"<table><thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table>{rest}"


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
    ranges: tuple[TextRange, ...] = ()
    """The characters of the evidence that were found, if a report shows them."""

    @property
    def outcome(self) -> Outcome:
        """Shorthand for the verdict's outcome."""
        return self.verdict.outcome

    @property
    def reason(self) -> str:
        """Shorthand for the verdict's reason."""
        return self.verdict.reason


class CaseResult(msgspec.Struct, frozen=True, gc=False):
    """One case decided on one piece of evidence; `verdicts` are in the order of `case.assertions`."""

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
    """Why the case as a whole has this outcome, if no assertion decides it (`no_evidence`, `unreadable_evidence`); for a pass, what
    could not be extracted (`regex_timeout`)."""
    reason: str | None = None
    now: str | None = None
    """The clock used, if the evidence had none."""
    account: Known | None = None
    """What is known of the evidence; None for plain evidence that decided everything, unless requested."""
    cost: Cost | None = None
    """The cost, if there are prices."""
    evidence: Evidence | None = None
    """The evidence itself, only if a report shows it."""
    exchange: dict[str, Json] | None = None
    """Input and answer, shortened (`report/blocks/exchange.py`), only if a report shows them."""
    simulated_user: UserEnding | None = None
    """How the simulated user of the conversation fared, if there was one."""
    ranges: tuple[tuple[TextRange, ...], ...] = ()
    """For each verdict the characters it is about (`report/words/ranges.py`), only if a report shows them."""

    @property
    def id(self) -> str:
        """The id of the case."""
        return self.case.id

    @property
    def passed(self) -> bool:
        """Whether the outcome is `pass`."""
        return self.outcome == "pass"

    def __bool__(self) -> bool:
        """Whether it passed, so that `assert result["case"]` fails for a failed case."""
        return self.passed

    @property
    def assertions(self) -> tuple[AssertionResult, ...]:
        """Assertions paired with their verdicts, in the order of the file."""
        pairs = zip(self.case.assertions, self.verdicts, strict=False)
        if not self.ranges:
            return tuple(AssertionResult(a, v) for a, v in pairs)
        return tuple(AssertionResult(a, v, found) for (a, v), found in zip(pairs, self.ranges, strict=False))

    def __repr__(self) -> str:
        score = "" if self.score is None else f", score {show_number(self.score)}"
        reason = _find_first_reason(self)
        why = f": {_shorten_reason(self)}" if reason and self.outcome != "pass" else ""
        return f"<CaseResult {self.case.id!r} {self.outcome}{score}{why}>"

    def _repr_html_(self) -> str:
        """Show the case and its assertions in a notebook."""
        rows = [
            (write_outcome(entry.outcome), write_text(entry.assertion.label or entry.assertion.check), write_text(entry.reason))
            for entry in self.assertions[:MOST_ROWS]
        ]
        remark = f"<p>{write_text(self.reason)}</p>" if self.reason else ""
        title = f"<p>{write_outcome(self.outcome)} {write_text(self.case.id)} {write_text(self.case.name)}</p>{remark}"
        return title + write_table(("", "assertion", "reason"), rows, more=len(self.assertions) - MOST_ROWS)

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
    """Cases without a record, and records without a case."""

    cases_without_evidence: int = 0
    """Cases that no evidence answered, except those their author skips."""
    records_without_case: int = 0
    """Records that answer no case of the suite: they name an unknown one, or were rejected as ambiguous."""
    records_not_selected: int = 0
    """Records that answer a case of the suite which was not selected (`-k`)."""
    records_with_other_input: int = 0
    """Records that were decided although their input differs from the input of their case."""

    @property
    def any(self) -> bool:
        """Whether something is missing on either side; unselected cases and records do not count."""
        return bool(self.cases_without_evidence or self.records_without_case)

    @property
    def fails_strict(self) -> bool:
        """Whether `--strict` rejects the run."""
        return self.any or self.records_with_other_input > 0


Ending = Literal["completed", "interrupted", "budget", "running", "not_ended", "cancelled", "failed"]
"""How a run ended: `running` has not yet; `not_ended` was killed before it could record its end."""


class MissingAttempts(msgspec.Struct, frozen=True, kw_only=True):
    """A case with unfinished planned attempts."""

    case: Case
    planned: int
    finished: int


class Incomplete(msgspec.Struct, frozen=True, kw_only=True):
    """How much of an incomplete run there is."""

    ended: Ending
    attempts_finished: int
    attempts_planned: int | None = None
    """None if unknown: evidence that was not read to its end."""
    cases_finished: int = 0
    """Cases with every planned attempt."""
    cases_planned: int | None = None
    missing: Sequence[MissingAttempts] = ()


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking a suite."""

    suite_name: str
    suite_path: str | None = None
    dialect: str = "native"
    run_id: str = ""
    title: str = ""
    """Name and note of a stored run."""
    started_at: str = ""
    outcome: Outcome = "skip"
    score: float | None = None
    counts: dict[str, int] = {}
    cases: Sequence[CaseResult] = ()
    """Every attempt; for a stored run with very many, each is read on demand."""
    summary: Sequence[CaseSummary] = ()
    """One line for each case."""
    unmatched_evidence: tuple[Json, ...] = ()
    """Records that name an unknown case, the first hundred of them."""
    unmet: Unmet = Unmet()
    incomplete: Incomplete | None = None
    """What is missing of a run that did not finish; such a run never passes."""
    warnings: tuple[Problem, ...] = ()
    cost: TotalCost | None = None
    """The total cost, if there are prices."""
    let_through: str = ""
    """Why the command succeeds although cases failed: the required pass rate is reached, or the baseline has the same failures."""

    @property
    def shown_outcome(self) -> Outcome:
        """The outcome that reports show: that of the gate."""
        return "pass" if self.let_through else self.outcome

    @property
    def passed(self) -> bool:
        """Whether everything that was decided passed."""
        return self.outcome == "pass"

    def __bool__(self) -> bool:
        """Whether it passed, so that `assert proctor.run(...)` fails for a failed run."""
        return self.passed

    def __repr__(self) -> str:
        counts = ", ".join(f"{number:,} {outcome}" for outcome, number in self.counts.items() if number) or "nothing"
        score = "" if self.score is None else f", score {show_number(self.score)}"
        ended = "" if self.incomplete is None else f", incomplete: {self.incomplete.ended}"
        worst = next((case for case in self.cases if case.outcome in ("fail", "error")), None)
        why = "" if worst is None else f"; {worst.case.id!r}: {_shorten_reason(worst)}"
        return f"<RunResult {self.suite_name!r} {self.outcome}: {counts}{score}{ended}{why}>"

    def _repr_html_(self) -> str:
        """Show the run in a notebook, failures first."""
        ranks = {"fail": 0, "error": 1, "skip": 2, "pass": 3}
        import heapq  # only notebooks need it

        ordered = heapq.nsmallest(MOST_ROWS, self.cases, key=lambda case: ranks[case.outcome])
        rows = [(write_outcome(case.outcome), write_text(case.case.id), write_text(_find_first_reason(case))) for case in ordered]
        counts = ", ".join(f"{number:,} {outcome}" for outcome, number in self.counts.items() if number)
        score = "" if self.score is None else f" · score {show_number(self.score)}"
        missing = "" if self.incomplete is None else f"<p>{write_outcome('error')} incomplete: {write_text(self.incomplete.ended)}</p>"
        title = f"<p>{write_outcome(self.outcome)} {write_text(self.suite_name)}: {write_text(counts)}{score}</p>{missing}"
        return title + write_table(("", "case", "reason"), rows, more=len(self.cases) - MOST_ROWS)

    def __getitem__(self, case_id: str) -> CaseResult:
        """Return the first result of a case, by id."""
        for result in self.cases:
            if result.case.id == case_id:
                return result
        raise KeyError(case_id)


def _shorten_reason(result: CaseResult) -> str:
    return escape_unseen(shorten(_find_first_reason(result), 200))


def _find_first_reason(result: CaseResult) -> str:
    return result.reason or next((entry.reason for entry in result.failures()), "")
