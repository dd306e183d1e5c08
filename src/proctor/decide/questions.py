"""The questions that a case puts to a judge about some evidence: what was asked is not stored with a result, and found again here."""

from __future__ import annotations

import msgspec

from proctor.checks.registry import default_registry
from proctor.decide.judging import prepare_check
from proctor.decide.prepare import decide_guarded
from proctor.evidence.shared.turns import turn_evidence
from proctor.model.case import Case
from proctor.model.evidence import Evidence
from proctor.model.judgement import PendingVerdict, Question


def list_questions(case: Case, evidence: Evidence) -> dict[int, tuple[Question, ...]]:
    """Return the questions of each claim of the case that a judge decides, by the position of the claim. Other claims are not decided."""
    known = default_registry()
    if case.context or evidence.context:
        # As where it is decided: what the case fixes cannot be overridden by what a trace claims.
        evidence = msgspec.structs.replace(evidence, context={**(evidence.context or {}), **case.context})
    found: dict[int, tuple[Question, ...]] = {}
    for position, assertion in enumerate(case.assertions):
        entry = known.get_for(assertion.check, assertion.spec)
        if not entry.judged:
            continue
        scope = evidence if assertion.turn is None else turn_evidence(evidence, assertion.turn)
        verdict = None if scope is None else decide_guarded(prepare_check(entry, assertion, case), scope)
        if isinstance(verdict, PendingVerdict):
            found[position] = verdict.questions
    return found
