"""What the cases of a suite need, found in one pass without compiling their checks."""

from __future__ import annotations

import msgspec

from proctor.checks.registry import Registry, default_registry
from proctor.checks.shared.missing_evidence import find_reads
from proctor.model.case import Assertion, Suite
from proctor.model.lazy_cases import may_claim


class Survey(msgspec.Struct, frozen=True):
    """What a suite needs."""

    judged: bool
    """Whether a judge has anything to say."""
    only_presence: bool
    """Whether every claim is that something is there."""


def survey_cases(suite: Suite, registry: Registry | None = None) -> Survey:
    """Examine every claim of every case once, shared claims only once."""
    known = registry or default_registry()
    judged, only_presence = False, True
    may_be_judged = may_claim(suite.cases, lambda claim: known.get_for(claim.check, claim.spec).judged)
    last: tuple[Assertion, ...] = ()
    for case in suite.cases:
        if not only_presence and judged == may_be_judged:
            # No other case changes the answer.
            break
        for assertion in case.assertions:
            if any(assertion is each for each in last):
                continue
            # Custom checks are found by their specs, in any registry.
            entry = known.get_for(assertion.check, assertion.spec)
            judged = judged or entry.judged
            reads = find_reads(entry.reads, assertion.spec) if only_presence else None
            only_presence = reads is not None and bool(reads.parts) and reads.claim == "presence"
        last = case.assertions
    return Survey(judged, only_presence)
