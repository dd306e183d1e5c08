"""Decides the cases of a run by the pool."""

from __future__ import annotations

from proctor.decide.judging import Ask
from proctor.model.case import Case
from proctor.model.evidence import Evidence
from proctor.model.result import CaseResult
from proctor.service.decisions.messages import make_undecided_result
from proctor.service.decisions.suite_verdicts import SuiteDecisions
from proctor.service.refusals import Refusal


class RunDecisions(SuiteDecisions):
    """Decides the cases of a run: where nothing can be decided now, that is the error of one attempt."""

    async def decide_one(
        self, case: Case, evidence: Evidence, *, attempt: int = 0, clock: str | None = None, ask: Ask | None = None
    ) -> CaseResult:
        """Return the result of a case, whatever happens."""
        try:
            return await super().decide_one(case, evidence, attempt=attempt, clock=clock, ask=ask)
        except Refusal as error:
            return make_undecided_result(case, "not_decided", error.message, attempt=attempt)
