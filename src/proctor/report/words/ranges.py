"""The characters of the evidence that a verdict refers to.

Verdicts do not store positions; when a verdict is shown, its check is called again to locate what it found or forbids, a value that
differs from the expected one, or the quotes in a judge's reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import msgspec

from proctor.checks.registry import CheckEntry, default_registry
from proctor.errors import CheckFault, SpecError
from proctor.evidence.unknowns.account import turn_evidence
from proctor.model.case import Assertion
from proctor.model.evidence import Evidence
from proctor.model.result import CaseResult
from proctor.model.verdict import TextRange, Verdict
from proctor.work import begin_counting, end_counting

MOST_RANGES = 20
"""Ranges per verdict."""
MOST_LOOKED_AT = 200
"""Ranges examined for these: parts of a claim may find the same characters."""


def add_ranges(result: CaseResult, evidence: Evidence) -> CaseResult:
    """Return a result with the ranges of its verdicts; itself if there are none."""
    if result.ranges:
        return result
    ranges = tuple(find_ranges(entry.assertion, entry.verdict, evidence) for entry in result.assertions)
    return msgspec.structs.replace(result, ranges=ranges) if any(ranges) else result


def find_ranges(assertion: Assertion, verdict: Verdict, evidence: Evidence) -> tuple[TextRange, ...]:
    """Return the ranges of one verdict, in text order."""
    # Errors and skips found nothing; a code means that the outcome has another reason.
    if verdict.outcome not in ("pass", "fail") or verdict.code is not None:
        return ()
    observed = evidence if assertion.turn is None else turn_evidence(evidence, assertion.turn)
    counting = begin_counting()
    try:
        entry = default_registry().get_for(assertion.check, assertion.spec)
        if observed is None or not isinstance(assertion.spec, entry.spec):
            return ()
        ranges = _locate(entry, assertion.spec, observed, verdict)
        return tuple(islice(dict.fromkeys(islice(ranges, MOST_LOOKED_AT)), MOST_RANGES))
    # Without a range if a limit is reached or the plugin is no longer installed.
    except (CheckFault, SpecError, RecursionError):
        return ()
    finally:
        end_counting(counting)


def _locate(entry: CheckEntry, spec: msgspec.Struct, evidence: Evidence, verdict: Verdict) -> Iterable[TextRange]:
    if entry.locate_by is not None:
        return entry.locate_by(spec, evidence, verdict)
    return entry.locate(spec, evidence) if entry.locate is not None else ()
