"""Claims that nothing changed in simulated systems except what is listed.

Every difference from the initial state is examined. It is allowed if its place is in `besides`, or if an entry of `allowed` accepts it, up
to the entry's count. A place is `SYSTEM/PLACE`: `clinic/Appointment/17`, `shop/orders/7`, `drop/outbox/a.json`, or a pattern, in which `*`
stays inside a segment and `**` crosses segments.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.missing_evidence import Reads
from proctor.errors import SpecError
from proctor.model.evidence import Evidence, StateChange
from proctor.model.show import count_rest, show
from proctor.model.verdict import Verdict, failed, missing, passed
from proctor.patterns.globs import compile_address, matches_glob
from proctor.work import spend

_PER_CHANGE = 5
"""The number of steps for comparing one change, apart from its path."""
_SHOWN = 3
"""The maximum number of changes in a reason."""


class AllowedChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Changes that are meant to be there."""

    place: str
    """A place or a pattern: `clinic/Appointment/*`."""
    change: Literal["added", "changed", "removed"] | None = None
    """What happened there; left out: anything."""
    at_most: int | None = None
    """How many such changes; left out: any number."""


class Unchanged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Nothing differs in the simulated systems but what is named."""

    besides: tuple[str, ...] = ()
    """Places that may differ: `clinic/Appointment/*`."""
    allowed: tuple[AllowedChange, ...] = ()
    """Changes that may be there, of one kind or so many."""


@check(
    "unchanged",
    shorthand="besides",
    example="unchanged: {allowed: [{place: clinic/Appointment/*, change: added, at_most: 1}]}",
    reads=Reads(("state",), "absence"),
    product=True,
)
def unchanged(spec: Unchanged) -> Decide:
    """Nothing differs in the simulated systems but what is named."""
    besides = tuple(compile_address(place, f"besides.{index}") for index, place in enumerate(spec.besides))
    allowed = tuple((entry, compile_address(entry.place, f"allowed.{index}.place")) for index, entry in enumerate(spec.allowed))
    for index, entry in enumerate(spec.allowed):
        if entry.at_most is not None and entry.at_most < 0:
            raise SpecError(f"at_most: expected 0 or more, found {entry.at_most}", field=f"allowed.{index}.at_most")

    def decide(evidence: Evidence) -> Verdict:
        changes = evidence.state.changes if evidence.state is not None else None
        if changes is None:
            return missing("changes of simulated systems")
        left = [entry.at_most for entry, _ in allowed]
        unexpected: list[tuple[int, StateChange]] = []
        for index, change in enumerate(changes):
            spend(_PER_CHANGE)
            place = f"{change.system}/{change.place}"
            # Before `allowed`: changes in `besides` must not use up the count of an entry.
            if any(matches_glob(glob, place, spend) for glob in besides):
                continue
            if not _use_allowance(change, place, allowed, left):
                unexpected.append((index, change))
        details = {"changes": len(changes), "unexpected": [describe_change(change) for _, change in unexpected[:100]]}
        if not unexpected:
            return passed(f"nothing else changed in the systems ({len(changes)} changes in all)", details=details)
        more = count_rest(len(unexpected), _SHOWN)
        listed = ", ".join(describe_change(change) for _, change in unexpected[:_SHOWN])
        pointers = tuple(f"$.state.changes[{index}]" for index, _ in unexpected[:10])
        return failed(f"expected no other change, found {listed}{more}", details=details, pointers=pointers)

    return decide


def _use_allowance(
    change: StateChange, place: str, allowed: tuple[tuple[AllowedChange, tuple[str, ...]], ...], left: list[int | None]
) -> bool:
    """Return whether an entry accepts the change, and decrease its remaining count."""
    for position, (entry, glob) in enumerate(allowed):
        remaining = left[position]
        if entry.change in (None, change.change) and remaining != 0 and matches_glob(glob, place, spend):
            left[position] = None if remaining is None else remaining - 1
            return True
    return False


def describe_change(change: StateChange) -> str:
    """Return a change in a few words: `clinic/Appointment/17 added`."""
    return f"{show(f'{change.system}/{change.place}', 100)[1:-1]} {change.change}"
