"""What a judge is asked about one case on one evidence, without asking it: for people who are to answer in its place."""

from __future__ import annotations

import msgspec

from proctor.checks.registry import Registry, default_registry
from proctor.decide.prepare import decide_guarded
from proctor.evidence.shared.turns import turn_evidence
from proctor.model.case import Case
from proctor.model.evidence import Evidence
from proctor.model.judgement import PendingVerdict, Question


def list_questions(case: Case, evidence: Evidence, registry: Registry | None = None) -> dict[int, tuple[Question, ...]]:
    """Return the questions of each claim of the case that a judge decides, by the position of the claim. Other claims are not decided."""
    known = registry or default_registry()
    if case.context or evidence.context:
        # As where it is decided: what the case fixes cannot be overridden by what a trace claims.
        evidence = msgspec.structs.replace(evidence, context={**(evidence.context or {}), **case.context})
    if evidence.input is None and case.input is not None:
        evidence = msgspec.structs.replace(evidence, input=case.input)
    found: dict[int, tuple[Question, ...]] = {}
    for position, assertion in enumerate(case.assertions):
        if not known.get_for(assertion.check, assertion.spec).judged:
            continue
        scope = evidence if assertion.turn is None else turn_evidence(evidence, assertion.turn)
        verdict = None if scope is None else decide_guarded(known.prepare(assertion.check, assertion.spec), scope)
        if isinstance(verdict, PendingVerdict):
            found[position] = verdict.questions
    return found
