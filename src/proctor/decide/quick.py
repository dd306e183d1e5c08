"""The shortest road from evidence to the result of a case.

For a boolean case whose assertions stand on their own: no dependencies, turns, weights or variables. Over a stream everything around the
checks counts as much as the checks, so a clean pass, which most evidence of a healthy agent gives, is recognised by the verdicts
themselves: a check returns one and the same object for every plain pass. Evidence of which something may not be known (it has an account,
or broke off) goes the careful way, and so does every verdict with a code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from proctor.checks.registry import Decide
from proctor.model.case import Case
from proctor.model.evidence import Evidence, Json, Source
from proctor.model.result import CaseResult
from proctor.model.verdict import Verdict
from proctor.scoring.score import score_evenly

Clock = Callable[[], str]
DecideCase = Callable[[Evidence, Source | None, int, Clock | None], CaseResult]
_Steps = tuple[tuple[int, Decide, Verdict | None], ...]
_CLOCK_WORDS = frozenset({"expression", "$expr", "$date"})


def make_quick_decision(case: Case, checks: Sequence[Decide], careful: DecideCase) -> DecideCase:
    """Return a function that decides `case` by `checks`; `careful` decides what one of them raises on, and what may not be known."""
    checks = tuple(checks)
    # The result of the last clean pass, and its verdicts beside their checks. Both are in one value that is replaced as a whole: threads
    # share it, and whoever has read it compares with, and returns, what belongs together. Before the first pass nothing compares equal.
    remembered: tuple[CaseResult, _Steps] = (CaseResult(case, "pass", 1.0, ()), ((0, checks[0], None),) if checks else ())

    def decide(evidence: Evidence, source: Source | None = None, attempt: int = 0, clock: Clock | None = None) -> CaseResult:
        nonlocal remembered
        # Whether something was not recorded, or not come to, changes what a claim of absence is worth; only the careful way weighs that.
        if evidence.account is not None or evidence.error is not None:
            return careful(evidence, source, attempt, clock)
        clean, steps = remembered
        try:
            for position, check, passed in steps:  # noqa: B007 - where it broke off is asked below
                verdict = check(evidence)
                if verdict is not passed:
                    break
            else:
                # Evidence handed over in code has no source, so one result, which nobody can change, is the result of all of it.
                if clean.source is source and clean.attempt == attempt:
                    return clean
                # With the empty object of the clean one: making another costs as much as the smallest check.
                return CaseResult(case, "pass", 1.0, clean.verdicts, source, None, None, attempt, clean.extracted)
            # Those before this one were the remembered ones; no check is asked twice.
            verdicts = (*clean.verdicts[:position], verdict, *[check(evidence) for check in checks[position + 1 :]])
        except Exception:  # one of them could not be decided; the careful way finds out which
            return careful(evidence, source, attempt, clock)
        for verdict in verdicts:
            # A code may change the outcome of the case (an error, missing evidence), and the rules for that stand in one place.
            if verdict.code is not None:
                # Without a clock: a case that looks at it is never decided in this way.
                return careful(evidence, source, attempt, None)
        outcome, score = score_evenly(verdicts)
        result = CaseResult(case, outcome, score, verdicts, source, None, None, attempt)
        if outcome == "pass" and score == 1.0:
            remembered = (result, tuple(zip(range(len(checks)), checks, verdicts, strict=True)))
        return result

    return decide


def needs_clock(spec: msgspec.Struct) -> bool:
    """Return whether the clock of the evidence matters for this spec; one that knows better says so by a method of this name."""
    own = getattr(spec, "needs_clock", None)
    return own() if own is not None else _mentions_clock(msgspec.to_builtins(spec))


def _mentions_clock(value: Json) -> bool:
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, dict):
            if not _CLOCK_WORDS.isdisjoint(current) or current.get("matcher") == "date":
                return True
            waiting.extend(current.values())
        elif isinstance(current, (list, tuple)):
            waiting.extend(current)
    return False
