"""Cases that are created on demand: a suite over a large data file does not keep them in memory.

`Suite.cases` of such a suite is a lazy sequence instead of a tuple; both are sequences of cases.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, overload

from proctor.model.case import Assertion, Case
from proctor.model.scratch import IN_MEMORY, Numbers, Scratch

# Rare traits of cases, recorded when each case is first created, so that a query over all cases need not create them again

RARE = ("turns", "user", "systems", "settings", "skip", "repetitions")
"""Fields that most cases do not set."""
EMPTY = "empty"
"""The trait of a case without claims."""


class CaseTraits:
    """Which rare fields and which checks occur in a suite. A selection of its cases shares this, so it may list more than it has itself."""

    def __init__(self) -> None:
        self.fields: set[str] = set()
        """The members of `RARE` that some case has, and `EMPTY`."""
        self.claims: dict[tuple[str, type], Assertion] = {}
        """One claim of each check."""

    def note(self, case: Case) -> None:
        """Add the traits of a case."""
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
    """Return the traits of all parts; None if those of one part are unknown."""
    joined = CaseTraits()
    for part in parts:
        if part is None:
            return None
        joined.fields |= part.fields
        joined.claims |= part.claims
    return joined


T = TypeVar("T")
U = TypeVar("U")


class LazySequence(Sequence[T]):
    """Items that are created by their number on demand; the last few are cached."""

    def __init__(
        self,
        count: int,
        make: Callable[[int], T],
        *,
        remember: int = 64,
        scratch: Scratch = IN_MEMORY,
        traits: CaseTraits | None = None,
    ) -> None:
        self._count = count
        self.scratch = scratch
        """Storage for facts about each item."""
        self.traits = traits
        """Facts about all cases together, if noted."""
        self._make = make
        self._remember = remember
        self._made: dict[int, T] = {}

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return tuple(self[number] for number in range(*index.indices(self._count)))
        if index < 0:
            index += self._count
        if not 0 <= index < self._count:
            raise IndexError(index)
        item = self._made.get(index)
        if item is None:
            item = self._make(index)
            if len(self._made) >= self._remember:
                # Use the first one; another thread may have created it at the same time.
                self._made.pop(next(iter(self._made), -1), None)
            self._made[index] = item
        return item


def join_cases(parts: Sequence[Sequence[Case]]) -> Sequence[Case]:
    """Return the cases of all parts in order: a tuple, unless one of them is lazy."""
    if all(isinstance(part, tuple) for part in parts):
        return tuple(case for part in parts for case in part)
    filled = [part for part in parts if len(part)]
    starts = [0]
    for part in filled:
        starts.append(starts[-1] + len(part))

    def make(index: int) -> Case:
        number = bisect_right(starts, index) - 1
        return filled[number][index - starts[number]]

    if len(filled) == 1:
        return filled[0]
    return LazySequence(starts[-1], make, remember=1, scratch=find_scratch(*filled), traits=join_traits(map(find_traits, filled)))


def map_sequence(items: Sequence[T], make: Callable[[T], U], *, remember: int = 256) -> Sequence[U]:
    """Return the results for each item: a tuple, or a lazy sequence if the items are lazy."""
    if isinstance(items, LazySequence):
        return LazySequence(len(items), lambda index: make(items[index]), remember=remember, scratch=items.scratch)
    return tuple(make(item) for item in items)


def pick_cases(cases: Sequence[Case], chooses: Callable[[Case], bool]) -> tuple[Sequence[Case], Sequence[Case]]:
    """Return the chosen cases and the others; both are lazy if the cases are."""
    chosen, others = _split_cases(cases, chooses, (True, False))
    return chosen, others


def group_cases(cases: Sequence[Case], find_key: Callable[[Case], str]) -> list[Sequence[Case]]:
    """Return the cases of each key, in order of first occurrence; all groups are lazy if the cases are."""
    return _split_cases(cases, find_key)


def _split_cases(cases: Sequence[Case], find_key: Callable[[Case], object], keys: Iterable[object] = ()) -> list[Sequence[Case]]:
    """Return the cases of each key, first those of `keys`, which may have none."""
    scratch = find_scratch(cases)
    positions = {key: scratch.make_numbers("I") for key in keys}
    for position, case in enumerate(cases):
        key = find_key(case)
        if key not in positions:
            positions[key] = scratch.make_numbers("I")
        positions[key].append(position)
    return [_pick(cases, group) for group in positions.values()]


def _pick(cases: Sequence[Case], positions: Numbers) -> Sequence[Case]:
    if isinstance(cases, tuple):
        return tuple(cases[position] for position in positions)
    return LazySequence(
        len(positions), lambda index: cases[positions[index]], remember=1, scratch=find_scratch(cases), traits=find_traits(cases)
    )


def find_traits(cases: Sequence[Case]) -> CaseTraits | None:
    """Return facts about all cases together; None for cases without notes."""
    if isinstance(cases, LazySequence):
        return cases.traits
    traits = CaseTraits()
    for case in cases:
        traits.note(case)
    return traits


def may_have(items: Iterable[object], *fields: str) -> bool:
    """Return False if it is known, without creating any, that no case has one of these fields (of `RARE`, or `EMPTY`)."""
    return not isinstance(items, LazySequence) or items.traits is None or not items.traits.fields.isdisjoint(fields)


def may_claim(cases: Iterable[Case], asks: Callable[[Assertion], bool]) -> bool:
    """Return False if it is known, without creating any, that no case has a claim for whose check `asks` is true."""
    return not isinstance(cases, LazySequence) or cases.traits is None or any(map(asks, cases.traits.claims.values()))


def find_scratch(*parts: Sequence[Case]) -> Scratch:
    """Return storage for facts about each case: in memory, unless some cases are created on demand."""
    return next((part.scratch for part in parts if isinstance(part, LazySequence)), IN_MEMORY)


def is_lazy(items: Iterable[object]) -> bool:
    """Return whether items are created on demand."""
    return isinstance(items, LazySequence)
