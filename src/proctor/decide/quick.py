"""The shortest road from evidence to the result of a case.

For a boolean case whose assertions stand on their own: no dependencies, turns, weights or variables. Over a stream everything around the
checks counts as much as the checks, so the usual small numbers of them are written out, and a clean pass, which most evidence of
a healthy agent gives, is recognised by the verdicts themselves: a check returns one and the same object for every plain pass.
Evidence of which something may not be known (it has an account, or broke off) goes the careful way, and so does every verdict with a code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proctor.checks.registry import Decide
from proctor.model.case import Case
from proctor.model.evidence import Evidence, Source
from proctor.model.result import CaseResult
from proctor.model.verdict import Verdict
from proctor.scoring.score import score_evenly

Clock = Callable[[], str]
DecideCase = Callable[[Evidence, Source | None, int, Clock | None], CaseResult]


class _Memory:
    """The verdicts of the last clean pass."""

    __slots__ = ("careful", "case", "clean")

    def __init__(self, case: Case, careful: DecideCase) -> None:
        self.case = case
        self.careful = careful
        self.clean: tuple[Verdict, ...] = ()

    def settle(self, verdicts: tuple[Verdict, ...], evidence: Evidence, source: Source | None, attempt: int) -> CaseResult:
        """Return the result of any verdicts, and remember those of a clean pass."""
        for verdict in verdicts:
            if verdict.code is not None:
                return self.careful(evidence, source, attempt, None)
        outcome, score = score_evenly(verdicts)
        if outcome == "pass" and score == 1.0:
            self.clean = verdicts
        return CaseResult(self.case, outcome, score, verdicts, source, None, None, attempt)


def quick_decide(case: Case, checks: Sequence[Decide], careful: DecideCase) -> DecideCase:
    """Decide `case` by `checks`; `careful` decides it one check after the other, where one of them raises or something is not known."""
    match checks:
        case (only,):
            return _one(case, only, careful)
        case (first, second):
            return _two(case, first, second, careful)
        case (first, second, third):
            return _three(case, first, second, third, careful)
        case _:
            return _many(case, checks, careful)


def _one(case: Case, only: Decide, careful: DecideCase) -> DecideCase:
    memory = _Memory(case, careful)
    seen: Verdict | None = None

    def decide(evidence: Evidence, source: Source | None = None, attempt: int = 0, clock: Clock | None = None) -> CaseResult:
        nonlocal seen
        if evidence.account is not None or evidence.error is not None:
            return careful(evidence, source, attempt, clock)
        try:
            a = only(evidence)
        except Exception:  # the careful way turns it into a verdict
            return careful(evidence, source, attempt, clock)
        if a is seen:
            return CaseResult(case, "pass", 1.0, memory.clean, source, None, None, attempt)
        result = memory.settle((a,), evidence, source, attempt)
        if result.verdicts is memory.clean:
            seen = a
        return result

    return decide


def _two(case: Case, first: Decide, second: Decide, careful: DecideCase) -> DecideCase:
    memory = _Memory(case, careful)
    seen_a: Verdict | None = None
    seen_b: Verdict | None = None

    def decide(evidence: Evidence, source: Source | None = None, attempt: int = 0, clock: Clock | None = None) -> CaseResult:
        nonlocal seen_a, seen_b
        if evidence.account is not None or evidence.error is not None:
            return careful(evidence, source, attempt, clock)
        try:
            a, b = first(evidence), second(evidence)
        except Exception:  # one of them could not be decided; the careful way finds out which
            return careful(evidence, source, attempt, clock)
        if a is seen_a and b is seen_b:
            return CaseResult(case, "pass", 1.0, memory.clean, source, None, None, attempt)
        result = memory.settle((a, b), evidence, source, attempt)
        if result.verdicts is memory.clean:
            seen_a, seen_b = a, b
        return result

    return decide


def _three(case: Case, first: Decide, second: Decide, third: Decide, careful: DecideCase) -> DecideCase:
    memory = _Memory(case, careful)
    seen_a: Verdict | None = None
    seen_b: Verdict | None = None
    seen_c: Verdict | None = None

    def decide(evidence: Evidence, source: Source | None = None, attempt: int = 0, clock: Clock | None = None) -> CaseResult:
        nonlocal seen_a, seen_b, seen_c
        if evidence.account is not None or evidence.error is not None:
            return careful(evidence, source, attempt, clock)
        try:
            a, b, c = first(evidence), second(evidence), third(evidence)
        except Exception:  # one of them could not be decided; the careful way finds out which
            return careful(evidence, source, attempt, clock)
        if a is seen_a and b is seen_b and c is seen_c:
            return CaseResult(case, "pass", 1.0, memory.clean, source, None, None, attempt)
        result = memory.settle((a, b, c), evidence, source, attempt)
        if result.verdicts is memory.clean:
            seen_a, seen_b, seen_c = a, b, c
        return result

    return decide


def _many(case: Case, checks: Sequence[Decide], careful: DecideCase) -> DecideCase:
    memory = _Memory(case, careful)

    def decide(evidence: Evidence, source: Source | None = None, attempt: int = 0, clock: Clock | None = None) -> CaseResult:
        if evidence.account is not None or evidence.error is not None:
            return careful(evidence, source, attempt, clock)
        try:
            verdicts = tuple([check(evidence) for check in checks])
        except Exception:  # one of them could not be decided; the careful way finds out which
            return careful(evidence, source, attempt, clock)
        if verdicts == memory.clean:
            return CaseResult(case, "pass", 1.0, memory.clean, source, None, None, attempt)
        return memory.settle(verdicts, evidence, source, attempt)

    return decide
