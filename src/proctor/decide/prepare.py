"""Suites made ready to decide: every check compiled once, every case then decided on evidence after evidence.

The one place where an unexpected exception inside a check becomes a verdict: `error`, with the traceback in its details, so
that a bug in one check never takes the other cases down.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence

import msgspec

from proctor.checks.registry import Decide, Registry, default_registry
from proctor.decide.quick import Clock, DecideCase, quick_decide
from proctor.decide.turns import turn_evidence
from proctor.errors import CheckFault, EvidenceError, InputError
from proctor.model.case import Assertion, Case, Suite
from proctor.model.evidence import Evidence, Json, Source
from proctor.model.result import CaseResult
from proctor.model.verdict import Verdict, errored, missing, skipped
from proctor.scoring.score import score_case

_CLOCK_WORDS = frozenset({"expression", "$expr", "$date"})


class PreparedCase:
    """One case with its checks compiled."""

    def __init__(self, case: Case, registry: Registry) -> None:
        self.case = case
        self._checks: tuple[Decide, ...] = tuple(registry.prepare(a.check, a.spec) for a in case.assertions)
        self._uses_clock = any(_mentions_clock(msgspec.to_builtins(a.spec)) for a in case.assertions)
        self._plain = not self._uses_clock and not case.context and case.timezone is None
        # The common case needs no bookkeeping between assertions: no dependencies, no turns.
        self._straight = all(not a.depends_on and a.turn is None for a in case.assertions)
        self._order = _dependency_order(case.assertions)
        self._captures = _captures(case)

    def decide(self, evidence: Evidence, source: Source | None = None, attempt: int = 0, clock: Clock | None = None) -> CaseResult:
        """Decide every assertion of the case on `evidence`."""
        case = self.case
        if case.skip is not None:
            return skip_case(case, case.skip.code, case.skip.reason, source=source, attempt=attempt)
        if evidence.error is not None and not case.assertions:
            # Asserting nothing passes where the dialect says so, but a run that broke off is no success.
            reason = f"the run ended in an error: {evidence.error}"
            return CaseResult(case, "error", None, (), source, attempt=attempt, code="run_error", reason=reason)
        now: str | None = None
        if not self._plain:
            evidence, now = self._in_scope(evidence, clock)
        verdicts = self._straight_verdicts(evidence) if self._straight else self._ordered_verdicts(evidence)
        extracted = self._captures(evidence) if self._captures is not None else {}
        score = score_case(case.assertions, verdicts, case.scoring)
        return CaseResult(
            case, score.outcome, score.score, verdicts, source, score.verdict, score.axes, attempt, extracted, None, None, now
        )

    def quick(self) -> DecideCase:
        """The same as `decide`, in fewest steps where the case allows it: a boolean case whose assertions stand on their own.

        Over a stream everything around the checks themselves counts, so what is known of the case is settled here, once.
        """
        case = self.case
        even = case.scoring.mode == "boolean" and all(
            not a.advisory and a.weight == case.assertions[0].weight and a.when_missing == "fail" for a in case.assertions
        )
        if not (even and case.assertions and self._straight and self._plain and case.skip is None and self._captures is None):
            return self.decide
        return quick_decide(case, self._checks, self._straight_verdicts)

    def _straight_verdicts(self, evidence: Evidence) -> tuple[Verdict, ...]:
        return tuple([_as_wanted(a, guarded(decide, evidence)) for a, decide in zip(self.case.assertions, self._checks, strict=True)])

    def _ordered_verdicts(self, evidence: Evidence) -> tuple[Verdict, ...]:
        assertions = self.case.assertions
        verdicts: dict[int, Verdict] = {}
        outcome_of: dict[str, str] = {}
        turns: dict[int, Evidence | None] = {}
        for index in self._order:
            assertion = assertions[index]
            broken = next((wanted for wanted in assertion.depends_on if outcome_of.get(wanted) != "pass"), None)
            if broken is not None:
                verdict = skipped("dependency_failed", f"skipped: {broken!r} did not pass ({outcome_of.get(broken, 'not decided')})")
            else:
                scope: Evidence | None = evidence
                if assertion.turn is not None:
                    if assertion.turn not in turns:
                        turns[assertion.turn] = turn_evidence(evidence, assertion.turn)
                    scope = turns[assertion.turn]
                verdict = missing(f"turn {(assertion.turn or 0) + 1}") if scope is None else guarded(self._checks[index], scope)
                verdict = _as_wanted(assertion, verdict)
            verdicts[index] = verdict
            if assertion.id is not None:
                outcome_of[assertion.id] = verdict.outcome
        return tuple(verdicts[index] for index in range(len(assertions)))

    def _in_scope(self, evidence: Evidence, clock: Clock | None) -> tuple[Evidence, str | None]:
        """The evidence with the variables, zone and clock of this case; and the clock, where it is not the evidence's own."""
        changes: dict[str, Json] = {}
        now: str | None = None
        if self.case.context or evidence.context:
            # What the case fixes cannot be overridden by what the agent's trace claims.
            changes["context"] = {**(evidence.context or {}), **self.case.context}
        zone = changes.get("context", {}).get("timezone")
        if isinstance(zone, str) and zone:
            changes["timezone"] = zone
        elif self.case.timezone is not None:
            changes["timezone"] = self.case.timezone
        if self._uses_clock and evidence.now is None and clock is not None:
            changes["now"] = now = clock()
        return (msgspec.structs.replace(evidence, **changes) if changes else evidence), now


class PreparedSuite:
    """All cases of a suite, prepared, and found by the name an evidence gives."""

    def __init__(self, suite: Suite, registry: Registry | None = None) -> None:
        self.suite = suite
        known = registry or default_registry()
        self.cases: tuple[PreparedCase, ...] = tuple(PreparedCase(case, known) for case in suite.cases)
        every: tuple[DecideCase, ...] = tuple(prepared.quick() for prepared in self.cases)
        self.lookup: dict[str | None, tuple[DecideCase, ...]] = {None: every}
        """How to decide, by what an evidence calls its case: an id or a name; evidence that names none answers every case."""
        for case, decide in zip(suite.cases, every, strict=True):
            self.lookup.setdefault(case.id, (decide,))
        for case, decide in zip(suite.cases, every, strict=True):
            if case.name:
                self.lookup.setdefault(case.name, (decide,))

    def names(self) -> Iterable[str]:
        """Everything an evidence may call a case."""
        return [name for name in self.lookup if name is not None]


def _captures(case: Case) -> Callable[[Evidence], dict[str, Json]] | None:
    if not case.captures:
        return None
    from proctor.decide.captures import prepare_captures  # brings in the regex engine, which few cases need

    return prepare_captures(case.captures)


def guarded(decide: Decide, evidence: Evidence) -> Verdict:
    """Decide one check; whatever goes wrong inside becomes an `error` verdict."""
    try:
        return decide(evidence)
    except CheckFault as fault:
        return errored(fault.code, fault.message)
    except EvidenceError as error:
        return errored(error.code, error.message)
    except InputError as error:
        return errored("unusable_spec", str(error))
    except RecursionError:
        return errored("too_deep", "the evidence is nested too deeply to be checked")
    except Exception as error:
        return errored(
            "internal_error",
            f"a bug in this check: {type(error).__name__}: {error}",
            details={"traceback": traceback.format_exc(limit=8)},
        )


def skip_case(case: Case, code: str, reason: str, *, source: Source | None = None, attempt: int = 0) -> CaseResult:
    """A case that is not decided: every assertion skipped for the same reason."""
    verdict = skipped(code, reason)
    return CaseResult(case, "skip", None, (verdict,) * len(case.assertions), source, None, None, attempt, {}, code, reason)


def _as_wanted(assertion: Assertion, verdict: Verdict) -> Verdict:
    if verdict.code != "missing_evidence" or assertion.when_missing == verdict.outcome:
        return verdict
    return msgspec.structs.replace(verdict, outcome=assertion.when_missing)


def _mentions_clock(value: Json) -> bool:
    """Whether a spec holds an expression or a date, so that the clock of the evidence matters."""
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


def _dependency_order(assertions: Sequence[Assertion]) -> tuple[int, ...]:
    """Indexes with every dependency before its dependents, else in the order of the file.

    Readers refuse cycles and unknown ids; in a suite built by hand what cannot be ordered keeps its place and is skipped.
    """
    at = {a.id: index for index, a in enumerate(assertions) if a.id is not None}
    done: list[int] = []
    placed: set[int] = set()
    for start in range(len(assertions)):
        stack = [start]
        entered: set[int] = set()
        while stack:
            index = stack[-1]
            if index in placed:
                stack.pop()
                continue
            open_ones = [at[d] for d in assertions[index].depends_on if d in at and at[d] not in placed and at[d] not in entered]
            if index in entered or not open_ones:
                placed.add(index)
                done.append(index)
                stack.pop()
            else:
                entered.add(index)
                stack.extend(open_ones)
    return tuple(done)
