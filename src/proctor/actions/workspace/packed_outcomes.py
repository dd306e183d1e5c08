"""What two runs are compared by, as bytes: of each case how its attempts ended, its medians, and why it failed first.

A comparison asks for the median of what the attempts of a case took, never for each of them, so that a hundred thousand attempts of a
thousand cases are some ten thousand bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.actions.workspace.run_tally import CaseTally, RunTally
from proctor.model.run import EntryDigest
from proctor.scoring.amounts import find_median


class _KeptCase(msgspec.Struct, frozen=True, array_like=True, gc=False):
    case: str
    outcomes: dict[str, int]
    attempts: int | tuple[int, ...]
    """Their numbers; how many there are, where none is left out."""
    ms: float | None
    tokens: float | None
    cost: float | None
    failed: tuple[EntryDigest, ...]
    lacks: bool
    answered: bool


class KeptTally(msgspec.Struct, frozen=True):
    """All cases of a run, in the order in which the first attempt of each ended."""

    cases: tuple[_KeptCase, ...]
    has_costs: bool


def shorten_tally(tally: RunTally) -> KeptTally:
    """Return what is kept of a tally of digests."""
    return KeptTally(tuple(_keep_case(case, one) for case, one in tally.cases.items()), tally.has_costs)


def restore_tally(kept: KeptTally) -> RunTally:
    """Return a tally that compares as the one that was kept did."""
    tally = RunTally()
    tally.cases = {one.case: _restore_case(one) for one in kept.cases}
    tally.has_costs = kept.has_costs
    return tally


def _keep_case(case: str, tally: CaseTally) -> _KeptCase:
    numbers = sorted(tally.attempts)
    count = len(numbers)
    return _KeptCase(
        case=case,
        outcomes=tally.outcomes,
        attempts=count if numbers == list(range(count)) else tuple(numbers),
        ms=_find_middle(tally.times_ms),
        tokens=_find_middle(tally.tokens),
        cost=_find_middle(tally.costs),
        failed=tuple(entry for entry in tally.failed if isinstance(entry, EntryDigest)),
        lacks=tally.lacks,
        answered=tally.answered,
    )


def _find_middle(amounts: Sequence[float]) -> float | None:
    return find_median(amounts) if amounts else None


def _restore_case(kept: _KeptCase) -> CaseTally:
    tally = CaseTally()
    tally.outcomes = kept.outcomes
    tally.attempts = list(range(kept.attempts)) if isinstance(kept.attempts, int) else list(kept.attempts)
    # A single amount is its own median, and a comparison asks for no more.
    tally.times_ms, tally.tokens, tally.costs = ([] if one is None else [one] for one in (kept.ms, kept.tokens, kept.cost))
    tally.failed = list(kept.failed)
    tally.lacks, tally.answered = kept.lacks, kept.answered
    return tally
