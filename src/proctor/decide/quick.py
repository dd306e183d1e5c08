"""Decides a case in the fewest steps.

For a boolean case with independent assertions: no dependencies, turns, weights or variables. Over a stream, the code around the checks
costs as much as the checks, so a clean pass, the usual result of a healthy agent, is recognised by its verdicts: a check returns the same
object for every plain pass. Evidence with an unknown part, an error or steps that did not happen goes to `careful`, and so does every
verdict with a code. Both ways give the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from proctor.checks.registry import Decide
from proctor.model.case import Case
from proctor.model.evidence import Evidence, Json, Source, get_stored_account
from proctor.model.result import CaseResult
from proctor.model.verdict import Verdict
from proctor.scoring.score import score_evenly

Clock = Callable[[], str]
AddAccount = Callable[[CaseResult, Evidence], CaseResult]
DecideCase = Callable[[Evidence, Source | None, int, Clock | None], CaseResult]
_Steps = tuple[tuple[int, Decide, Verdict | None], ...]
_CLOCK_WORDS = frozenset({"expression", "$expr", "$date"})


def make_quick_decision(
    case: Case, checks: Sequence[Decide], careful: DecideCase, add_account: AddAccount | None = None, *, only_presence: bool = False
) -> DecideCase:
    """Return a function that decides `case` by `checks`; it calls `careful` if a check raises or a part is unknown.

    With `only_presence` every claim requires that something is present. Unknown parts cannot overturn such a pass, so they are searched
    for only after a failure.
    """
    checks = tuple(checks)
    # The result of the last clean pass, with its verdicts and checks: one value that is replaced atomically, because threads share it.
    remembered: tuple[CaseResult, _Steps] = (CaseResult(case, "pass", 1.0, ()), ((0, checks[0], None),) if checks else ())

    def decide(evidence: Evidence, source: Source | None = None, attempt: int = 0, clock: Clock | None = None) -> CaseResult:
        nonlocal remembered
        # Only `careful` decides claims about parts that are unknown, and runs that did not finish.
        # Only a subclass searches for its account; reading the attribute is faster than the call.
        account = get_stored_account(evidence) if only_presence and type(evidence) is not Evidence else evidence.account
        if evidence.error is not None or evidence.no_run is not None or (account is not None and (account.unknown or account.unplayed)):
            return careful(evidence, source, attempt, clock)
        clean, steps = remembered
        try:
            for position, check, passed in steps:  # noqa: B007 - used below
                verdict = check(evidence)
                if verdict is not passed:
                    break
            else:
                # Evidence without a source shares one result, which is immutable.
                is_same = clean.source is source and clean.attempt == attempt
                result = clean if is_same else CaseResult(case, "pass", 1.0, clean.verdicts, source, None, None, attempt, clean.extracted)
                return result if account is None or add_account is None else add_account(result, evidence)
            # The earlier verdicts equal the remembered ones, so no check runs twice.
            verdicts = (*clean.verdicts[:position], verdict, *_decide_rest(checks, position + 1, evidence))
        except Exception:  # `careful` finds out which check could not be decided
            return careful(evidence, source, attempt, clock)
        for verdict in verdicts:
            # A code may change the outcome of the case (an error, missing evidence); only `careful` has those rules.
            if verdict.code is not None:
                # Without a clock: cases that need one are never decided here.
                return careful(evidence, source, attempt, None)
        outcome, score = score_evenly(verdicts)
        if only_presence and account is None and outcome != "pass" and evidence.account is not None:
            return careful(evidence, source, attempt, clock)
        result = CaseResult(case, outcome, score, verdicts, source, None, None, attempt)
        if outcome == "pass" and score == 1.0:
            remembered = (result, tuple(zip(range(len(checks)), checks, verdicts, strict=True)))
        return result if account is None or add_account is None else add_account(result, evidence)

    return decide


def _decide_rest(checks: Sequence[Decide], start: int, evidence: Evidence) -> list[Verdict]:
    # Apart: a comprehension in `decide` would make `evidence` a cell, which is slower to read.
    return [check(evidence) for check in checks[start:]]


def needs_clock(spec: msgspec.Struct) -> bool:
    """Return whether the clock of the evidence matters for this spec, which may define a method of this name."""
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
