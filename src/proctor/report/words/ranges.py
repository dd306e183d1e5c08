"""The characters of the evidence that a verdict is about, found where the verdict is shown.

Deciding hands out one and the same verdict for every plain pass and knows nothing of characters. Whoever shows a verdict beside its
evidence asks the check again, this time for the place: what it looked for and found, or what it forbids and found; inside of a text, where
no pointer leads, also the value that is not as expected; of a judge's reason, what it quotes. Claims that found nothing have no range;
their pointers lead to the text that was searched.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import msgspec

from proctor.checks.registry import CheckEntry, default_registry
from proctor.errors import CheckFault, SpecError
from proctor.evidence.shared.turns import turn_evidence
from proctor.model.case import Assertion
from proctor.model.evidence import Evidence
from proctor.model.result import CaseResult
from proctor.model.verdict import TextRange, Verdict
from proctor.work import begin_counting, end_counting

MOST_RANGES = 20
"""Ranges told of one verdict."""
MOST_LOOKED_AT = 200
"""Ranges that are looked at for these: two parts of a claim may find the same characters."""


def add_ranges(result: CaseResult, evidence: Evidence) -> CaseResult:
    """Return a result with the characters that its verdicts are about; itself where none is about any."""
    if result.ranges:
        return result
    ranges = tuple(find_ranges(entry.assertion, entry.verdict, evidence) for entry in result.assertions)
    return msgspec.structs.replace(result, ranges=ranges) if any(ranges) else result


def find_ranges(assertion: Assertion, verdict: Verdict, evidence: Evidence) -> tuple[TextRange, ...]:
    """Return the characters that one verdict is about, in the order of the text."""
    # Neither an error nor a skip has found anything; a code says that the outcome has another reason than what was found.
    if verdict.outcome not in ("pass", "fail") or verdict.code is not None:
        return ()
    seen = evidence if assertion.turn is None else turn_evidence(evidence, assertion.turn)
    counting = begin_counting()
    try:
        entry = default_registry().get_for(assertion.check, assertion.spec)
        if seen is None or not isinstance(assertion.spec, entry.spec):
            return ()
        found = _locate(entry, assertion.spec, seen, verdict)
        return tuple(islice(dict.fromkeys(islice(found, MOST_LOOKED_AT)), MOST_RANGES))
    # The verdict stands without the place: a limit that deciding kept within is reached, or a plugin of that time is not installed.
    except (CheckFault, SpecError, RecursionError):
        return ()
    finally:
        end_counting(counting)


def _locate(entry: CheckEntry, spec: msgspec.Struct, evidence: Evidence, verdict: Verdict) -> Iterable[TextRange]:
    if entry.locate_by is not None:
        return entry.locate_by(spec, evidence, verdict)
    return entry.locate(spec, evidence) if entry.locate is not None else ()
