"""Compares lists as multisets: the order is free, duplicates count, at every depth.

A list of plain values is compared by counting; a list with wildcards or matchers by a maximum pairing, because a wildcard must not take
the element that another expectation needs. The pairing is a maximum matching of a bipartite graph (Hopcroft and Karp): taking the first
partner that fits would miss pairings, as with expected `["*", "a"]` and actual `["a", "b"]`. Both the depth and the amount of work are
limited, by an estimate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from proctor.errors import CheckFault
from proctor.expressions.text_form import Scope
from proctor.matchers.expected import Compound, Expected
from proctor.matchers.mismatch import Mismatch, different_mismatch
from proctor.model.evidence import Json
from proctor.model.json_values import Missing, equal
from proctor.model.show import count_rest, show
from proctor.model.verdict import TextRange
from proctor.work import spend

DEEPEST = 100
"""The maximum nesting of an expected structure; a deeper value equals none."""


_SPREAD = (1 << 61) - 1
"""The modulus of Python's integer hashes."""


class PlainList(Expected):
    """A list of plain values, order free."""

    __slots__ = ("_counts", "_elements", "_keys")

    def __init__(self, raw: list[Json], elements: tuple[Expected, ...]) -> None:
        super().__init__(raw, plain=True, size=1 + sum(element.size for element in elements))
        self._elements = elements
        self._keys = [make_canonical_key(value) for value in raw]
        self._counts = Counter(self._keys)

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        """Return None if both have the same elements equally often."""
        if not isinstance(actual, (list, tuple)):
            return different_mismatch(path, self.raw, actual)
        # Lists usually come in the expected order, and then no key is built.
        if equal(self.raw, actual):
            return None
        keys = [make_canonical_key(value) for value in actual]
        # Equal elements are interchangeable, so the first of them are reported as surplus.
        extra = _list_surplus(keys, Counter(keys) - self._counts)
        missing = _list_surplus(self._keys, self._counts - Counter(keys))
        return explain(self, self._elements, actual, missing, extra, scope, path) if extra or missing else None


def _list_surplus(keys: list[Hashable], surplus: Counter[Hashable]) -> list[int]:
    """Return the first positions of the keys, as many of each as `surplus` counts."""
    found: list[int] = []
    for index, key in enumerate(keys):
        if surplus[key] > 0:
            surplus[key] -= 1
            found.append(index)
    return found


class MatcherList(Compound):
    """A list with wildcards or matchers among its elements, order free. An optional element may be absent."""

    __slots__ = ()

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        """Return None if the elements can be paired up."""
        if not isinstance(actual, (list, tuple)):
            return different_mismatch(path, self.raw, actual)
        # Before the table below, whose size is the product of two untrusted sizes.
        bound_product(self.size, actual, f"{path} has too many elements to be compared with {self.size} matchers in any order")
        elements = self._parts
        fits = [[j for j, element in enumerate(elements) if element.find_mismatch(value, scope, path) is None] for value in actual]
        # Every actual element needs a partner, and so does every required expected element. A pairing that covers one side and another that
        # covers the other can always be combined (Mendelsohn and Dulmage).
        extra = [index for index, partner in enumerate(find_maximum_pairing(fits, len(elements))) if partner < 0]
        required = [j for j, element in enumerate(elements) if not element.optional]
        wanted: list[list[int]] = [[] for _ in elements]
        for index, partners in enumerate(fits):
            for j in partners:
                wanted[j].append(index)
        pairing = find_maximum_pairing([wanted[j] for j in required], len(actual))
        missing = [j for j, partner in zip(required, pairing, strict=True) if partner < 0]
        return explain(self, elements, actual, missing, extra, scope, path) if extra or missing else None

    def iterate_ranges(self, actual: Json, scope: Scope, path: str) -> Iterator[TextRange]:
        """Yield the ranges of the first fitting element for each value."""
        for index, value in enumerate(actual if isinstance(actual, (list, tuple)) else ()):
            fitting = next((element for element in self._parts if element.find_mismatch(value, scope, path) is None), None)
            if fitting is not None:
                yield from fitting.iterate_ranges(value, scope, f"{path}[{index}]")


def explain(
    whole: Expected,
    elements: tuple[Expected, ...],
    actual: list[Json] | tuple[Json, ...],
    lacking: list[int],
    extra: list[int],
    scope: Scope,
    path: str,
) -> Mismatch:
    """Return the mismatch of two lists that do not pair up."""
    if len(lacking) == len(extra) == 1:
        # One element changed: report its mismatch rather than quoting two lists.
        inner = elements[lacking[0]].find_mismatch(actual[extra[0]], scope, f"{path}[{extra[0]}]")
        if inner is not None:
            return inner
    parts: list[str] = []
    if lacking:
        parts.append("lacks " + ", ".join(elements[index].describe() for index in lacking[:3]) + count_rest(len(lacking), 3))
    if extra:
        parts.append("has the unexpected " + ", ".join(show(actual[index], 60) for index in extra[:3]) + count_rest(len(extra), 3))
    return Mismatch(path, " and ".join(parts), whole.describe(), actual)


def make_canonical_key(value: Json, depth: int = 0) -> Hashable:
    """Return a key that is the same for two values exactly if they are equal with lists in any order."""
    if isinstance(value, dict):
        if depth > DEEPEST:
            return object()  # Equal to no other key: no expected structure is that deep.
        return ("object", frozenset((key, make_canonical_key(item, depth + 1)) for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        if depth > DEEPEST:
            return object()
        # A set of elements and their counts, because keys of different kinds have no order.
        return ("list", frozenset(Counter(make_canonical_key(item, depth + 1) for item in value).items()))
    # In Python `True` equals 1 and has the same hash, so a bare boolean would count as a number.
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, (int, float)) and abs(value) >= _SPREAD:
        # Python gives multiples of this number the same hash, so a list of them would take quadratic time. In hexadecimal, because Python
        # refuses to write thousands of decimal digits.
        return ("large", hex(int(value)) if value - value == 0 else str(value))
    # NaN equals nothing, but a table would find the same object by identity.
    if isinstance(value, float) and value != value:
        return object()
    return value


_FREE = -1


def find_maximum_pairing(edges: Sequence[Sequence[int]], width: int) -> list[int]:
    """Return for every left element its right partner, or -1, with as many pairs as possible.

    `edges[left]` lists the right elements that fit it; there are `width` right elements.
    """
    right_of = [_FREE] * len(edges)
    left_of = [_FREE] * width
    for start in range(len(edges)):
        reached_from: dict[int, int] = {}
        queue, end = [start], _FREE
        # Breadth first along alternating paths to a free right element. The list grows while it is iterated: a queue without removals.
        for left in queue:
            spend(1 + len(edges[left]) // 16)
            for right in edges[left]:
                if right not in reached_from:
                    reached_from[right] = left
                    if left_of[right] == _FREE:
                        end = right
                        break
                    queue.append(left_of[right])
            if end != _FREE:
                break
        # Swapping every pair on the path frees no element and pairs one more.
        while end != _FREE:
            left = reached_from[end]
            left_of[end], right_of[left], end = left, end, right_of[left]
    return right_of


MOST_WORK = 1_000_000
"""The maximum number of steps for comparing one value with all candidates."""


def bound_product(size: int, actual: Json, why: str) -> None:
    """Count the steps of comparing a value with `size` others. Raises `CheckFault` if there are too many."""
    # Counting stops once the product exceeds the limit, so that a huge value is not walked to its end.
    steps = size * estimate_work(actual, MOST_WORK // size)
    if steps > MOST_WORK:
        raise CheckFault("too_much_work", f"{why}: that takes at least {steps} steps; the maximum is {MOST_WORK}")
    spend(steps)


def estimate_work(value: Json, limit: int) -> int:
    """Estimate the work of comparing a value once; stop counting above `limit`."""
    total = 0
    waiting: list[Json] = [value]
    while waiting and total <= limit:
        current = waiting.pop()
        total += 1
        if isinstance(current, str):
            # Texts are compared dozens of characters at a time, and keys are looked up instead of compared.
            total += len(current) // 64
        elif isinstance(current, dict):
            waiting.extend(current.values())
        elif isinstance(current, (list, tuple)):
            waiting.extend(current)
    return total
