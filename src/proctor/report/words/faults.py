"""Faults shown once instead of at every claim: a judge that does not answer, and cases that could not be decided at all."""

from __future__ import annotations

import msgspec

from proctor.model.result import CaseResult
from proctor.model.verdict import Verdict
from proctor.report.words.findings import reply_words
from proctor.report.words.wording import count_noun

MOST_KINDS = 100
"""Different faults that are counted; others are shown with their claims."""


class Touched(msgspec.Struct):
    """What one fault affects."""

    replied: str
    """The first unusable reply of the judge, if any."""
    checks: int = 0
    cases: int = 0

    def describe(self) -> str:
        """Return what is affected: `3 checks in 2 cases`."""
        return f"{count_noun(self.checks, 'check')} in {count_noun(self.cases, 'case')}"


class JudgeFaults:
    """All faults of the judge in a run."""

    def __init__(self) -> None:
        self._touched: dict[tuple[str, str], Touched] = {}

    def add(self, result: CaseResult) -> None:
        """Count the faults of one result."""
        here: set[tuple[str, str]] = set()
        for verdict in result.verdicts:
            key = find_fault(verdict)
            touched = self._touched.get(key) if key is not None else None
            if key is None or (touched is None and len(self._touched) >= MOST_KINDS):
                continue
            if touched is None:
                touched = self._touched[key] = Touched(reply_words(verdict))
            touched.checks += 1
            touched.cases += key not in here
            here.add(key)

    def is_repeated(self, verdict: Verdict) -> bool:
        """Return whether this fault affects several checks."""
        touched = self._touched.get(find_fault(verdict) or ("", ""))
        return touched is not None and touched.checks > 1

    def list_repeated(self) -> list[tuple[str, str, Touched]]:
        """List code, reason and reach of faults that affect several checks, widest first."""
        several = [(code, reason, touched) for (code, reason), touched in self._touched.items() if touched.checks > 1]
        return sorted(several, key=lambda row: -row[2].checks)


def find_fault(verdict: Verdict) -> tuple[str, str] | None:
    """Return code and reason of a verdict that the judge left open, or None."""
    code = verdict.code
    if verdict.outcome != "error" or code is None or not code.startswith("judge_"):
        return None
    return code, verdict.reason


MOST_CASE_FAULTS = 100
"""Different faults that are collected; others are shown with their cases."""
MOST_NAMES = 10
"""Cases named with a fault."""

Fault = tuple[str, str]


class Alike(msgspec.Struct):
    """Further cases with the same fault."""

    cases: int = 0
    names: list[str] = []
    others: bool = False
    """Whether there are more cases."""


class CaseFaults:
    """Faults of whole cases in a run."""

    def __init__(self) -> None:
        self._alike: dict[Fault, Alike] = {}

    def is_repeat(self, result: CaseResult) -> bool:
        """Return whether an earlier case had the same fault; then count this one with it."""
        fault = find_case_fault(result)
        if fault is None:
            return False
        alike = self._alike.get(fault)
        if alike is None:
            if len(self._alike) < MOST_CASE_FAULTS:
                self._alike[fault] = Alike()
            return False
        alike.cases += 1
        if result.case.id not in alike.names:
            # One more than is named shows that there are others; attempts of one case count once.
            if len(alike.names) < MOST_NAMES:
                alike.names.append(result.case.id)
            else:
                alike.others = True
        return True

    def forget(self, result: CaseResult) -> None:
        """Forget a fault whose case was not shown, so that later cases are not merged into it."""
        self._alike.pop(find_case_fault(result) or ("", ""), None)

    def find_alike(self, result: CaseResult) -> Alike | None:
        """Return the further cases with the same fault, if any."""
        alike = self._alike.get(find_case_fault(result) or ("", ""))
        return alike if alike is not None and alike.cases else None


def find_case_fault(result: CaseResult) -> Fault | None:
    """Return code and reason of a case that could not be decided, or None."""
    if result.outcome != "error" or result.code is None or not result.reason:
        return None
    return (result.code, result.reason) if all(verdict.code == result.code for verdict in result.verdicts) else None
