"""Claims about one turn of the agent, as `stop_when` and the rules of a script make them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from proctor.checks.registry import Registry
from proctor.decide.prepare import PreparedCase
from proctor.errors import TargetError
from proctor.model.case import Assertion, Case
from proctor.model.evidence import Evidence

Holds = Callable[[Evidence], Awaitable[bool]]
Clock = Callable[[], str]


def prepare_claim(assertion: Assertion, case: Case, registry: Registry, clock: Clock) -> Holds:
    """Return how to see whether a claim holds of a turn; what was not recorded holds of none.

    Variables, zone and clock are those of the case. Asking raises `TargetError` where the claim cannot be decided, such as a pattern that
    runs out of time.
    """
    alone = Case(id=case.id, context=case.context, timezone=case.timezone, assertions=(assertion,))
    prepared = PreparedCase(alone, registry)

    async def holds(evidence: Evidence) -> bool:
        # In a thread: a suite that was sent may have written a claim that takes its time, and other conversations go on meanwhile.
        verdict = (await asyncio.to_thread(prepared.decide, evidence, None, 0, clock)).verdicts[0]
        # That nobody recorded what is asked for is an answer (no); a check that broke is none.
        if verdict.outcome == "error" and verdict.code != "missing_evidence":
            told = f"the simulated user waits for {assertion.label or assertion.check!r}, which could not be decided: {verdict.reason}"
            raise TargetError(told, code=verdict.code or "user_unavailable")
        return verdict.outcome == "pass"

    return holds
