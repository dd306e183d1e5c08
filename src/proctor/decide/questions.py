"""The questions that a case puts to a judge about some evidence: what was asked is not stored with a result, and found again here."""

from __future__ import annotations

import msgspec

from proctor.checks.registry import default_registry
from proctor.decide.judging import add_input
from proctor.decide.prepare import decide_guarded
from proctor.evidence.shared.turns import turn_evidence
from proctor.model.case import Assertion, Case
from proctor.model.evidence import Evidence
from proctor.model.judgement import PendingVerdict, Question


class PosedClaim(msgspec.Struct, frozen=True):
    """A claim that a judge decides, what it is decided on, and the questions."""

    assertion: Assertion
    evidence: Evidence
    questions: tuple[Question, ...]


def list_claims(case: Case, evidence: Evidence) -> dict[int, PosedClaim]:
    """Return the claims of the case that a judge decides, by their position. Other claims are not decided."""
    known = default_registry()
    if case.context or evidence.context:
        # As where it is decided: what the case fixes cannot be overridden by what a trace claims.
        evidence = msgspec.structs.replace(evidence, context={**(evidence.context or {}), **case.context})
    found: dict[int, PosedClaim] = {}
    for position, assertion in enumerate(case.assertions):
        entry = known.get_for(assertion.check, assertion.spec)
        if not entry.judged:
            continue
        scope = evidence if assertion.turn is None else turn_evidence(evidence, assertion.turn)
        if scope is None:
            continue
        scope = add_input(scope, assertion, case)
        verdict = decide_guarded(entry.prepare(assertion.spec), scope)
        if isinstance(verdict, PendingVerdict):
            found[position] = PosedClaim(assertion, scope, verdict.questions)
    return found
