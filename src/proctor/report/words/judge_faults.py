"""Why a judge gave no answer, counted: a judge that is away is away for every claim, and is told of once.

Only what the judge did not do is gathered here; what it said stays with the claim it said it of.
"""

from __future__ import annotations

import msgspec

from proctor.model.result import CaseResult
from proctor.model.verdict import Verdict
from proctor.report.words.judge import reply_words
from proctor.report.words.wording import count_noun

MOST_KINDS = 100
"""How many different faults are counted; further ones are told with their claims."""


class Touched(msgspec.Struct):
    """How far one fault reaches."""

    replied: str
    """What the judge said first that could not be used; empty where it said nothing."""
    checks: int = 0
    cases: int = 0

    def describe(self) -> str:
        """Return how much was touched in words: `3 checks in 2 cases`."""
        return f"{count_noun(self.checks, 'check')} in {count_noun(self.cases, 'case')}"


class JudgeFaults:
    """Every fault of the judge in a run, and what it touches."""

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
        """Return whether this is a fault that touches others too."""
        touched = self._touched.get(find_fault(verdict) or ("", ""))
        return touched is not None and touched.checks > 1

    def list_repeated(self) -> list[tuple[str, str, Touched]]:
        """List code, reason and reach of every fault that touches more than one check, the widest first."""
        several = [(code, reason, touched) for (code, reason), touched in self._touched.items() if touched.checks > 1]
        return sorted(several, key=lambda row: -row[2].checks)


def find_fault(verdict: Verdict) -> tuple[str, str] | None:
    """Return the code and the reason of a verdict that the judge left open, or None for any other."""
    code = verdict.code
    if verdict.outcome != "error" or code is None or not code.startswith("judge_"):
        return None
    return code, verdict.reason
