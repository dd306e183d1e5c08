"""What some of very many cases have, noted when each was first made: a question about all of them need not make all of them again."""

from __future__ import annotations

from collections.abc import Iterable

from proctor.model.case import Assertion, Case

RARE = ("turns", "user", "systems", "settings", "skip", "repetitions")
"""Fields that most cases leave out."""
EMPTY = "empty"
"""Noted of a case without claims."""


class CaseTraits:
    """Notes about cases. Those of a selection are those of all: what is not noted, none of them has."""

    def __init__(self) -> None:
        self.fields: set[str] = set()
        """Of `RARE` what some case has, and `EMPTY`."""
        self.claims: dict[tuple[str, type], Assertion] = {}
        """One claim of each check."""

    def note(self, case: Case) -> None:
        """Take notes about one more case."""
        for field in RARE:
            if getattr(case, field):
                self.fields.add(field)
        for claim in case.assertions:
            key = claim.check, type(claim.spec)
            if key not in self.claims:
                self.claims[key] = claim
        if not case.assertions:
            self.fields.add(EMPTY)


def join_traits(parts: Iterable[CaseTraits | None]) -> CaseTraits | None:
    """Return the notes about all parts; None where nobody took notes about one of them."""
    joined = CaseTraits()
    for part in parts:
        if part is None:
            return None
        joined.fields |= part.fields
        joined.claims |= part.claims
    return joined
