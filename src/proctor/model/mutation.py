"""The result of planting faults in recorded evidence."""

from __future__ import annotations

from typing import Literal

import msgspec

FaultStatus = Literal["detected", "survived", "free"]
"""`free`: it survived, and the case declares that this may vary."""


KIND_NAMES = {
    "call_dropped": "call missing",
    "call_repeated": "call made twice",
    "calls_swapped": "calls in another order",
    "call_replaced": "another tool called",
    "argument_wrong": "argument with another value",
    "argument_missing": "argument missing",
    "argument_extra": "additional argument",
    "argument_mistyped": "argument of another type",
    "extra_effect": "additional effect",
    "error_swallowed": "tool error ignored",
    "answer_empty": "answer empty",
    "answer_different": "another answer",
    "answer_truncated": "answer ends early",
    "answer_leaks": "answer with a secret",
    "step_dropped": "step did not run",
    "state_wrong": "wrong value in the end state",
    "state_extra": "additional change of the end state",
    "slow": "too slow",
    "costly": "too many tokens",
}
"""The kinds of faults, as reports name them."""


class PlantedFault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault in one record, and whether the case detected it."""

    case: str
    record: str
    """Where the evidence was read from."""
    kind: str
    place: str
    status: FaultStatus
    claim: str = ""
    """For a survivor, a claim of a native suite that detects it and holds of the original; empty if none was found."""


class FaultCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Faults by their status."""

    detected: int = 0
    survived: int = 0
    free: int = 0

    @property
    def planted(self) -> int:
        """The faults that count: detected or survived."""
        return self.detected + self.survived

    @property
    def share(self) -> float | None:
        """The detected share; None without faults."""
        return self.detected / self.planted if self.planted else None


class ProposedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that would detect survivors of a case."""

    case: str
    line: str
    """The claim as one line of a native suite."""
    survivors: int
    """How many of the survivors of this case it was verified to detect."""
    kinds: tuple[str, ...]


class MutationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of measuring a suite."""

    suite_name: str
    suite_path: str | None
    dialect: str
    records: int
    """Records that were used: they passed their case."""
    total: FaultCounts
    kinds: dict[str, FaultCounts]
    cases: dict[str, FaultCounts]
    faults: tuple[PlantedFault, ...]
    proposals: tuple[ProposedClaim, ...]
    unused: tuple[tuple[str, str], ...]
    """Case and label of the claims that detected no fault."""
    claims: int
    skipped: dict[str, int]
    """Why other records were not used, with counts."""
    judged: int
    """Claims that were left out because they need a judge."""
