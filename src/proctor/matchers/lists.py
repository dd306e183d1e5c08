"""Lists compare as multisets: the order is free, duplicates count, at every depth.

A list of plain values is compared by counting; one that holds wildcards or matchers by a maximum pairing, because a wildcard must
not take the element that another expectation needs. Both the depth and the amount of work are bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator

from proctor.expressions.scope import Scope
from proctor.matchers.assignment import find_maximum_pairing
from proctor.matchers.equal import deep_equal
from proctor.matchers.expected import Compound, Expected
from proctor.matchers.mismatch import Mismatch, different_mismatch
from proctor.matchers.weight import bound_product
from proctor.model.evidence import Json
from proctor.model.json_values import Missing
from proctor.model.show import count_rest, show
from proctor.model.verdict import TextRange

DEEPEST = 100
"""How deep an expected structure may be nested; what is deeper cannot be equal to one."""


_SPREAD = (1 << 61) - 1
"""What hashes of whole numbers are reduced by."""


class PlainList(Expected):
    """A list of plain values, order free."""

    __slots__ = ("_counts", "_elements", "_keys")

    def __init__(self, raw: list[Json], elements: tuple[Expected, ...]) -> None:
        super().__init__(raw, plain=True, size=1 + sum(element.size for element in elements))
        self._elements = elements
        self._keys = [make_canonical_key(value) for value in raw]
        self._counts = Counter(self._keys)

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        """Return None when both have the same elements, as often."""
        if not isinstance(actual, (list, tuple)):
            return different_mismatch(path, self.raw, actual)
        # Lists usually come in the order they are expected in, and then no key is made.
        if deep_equal(self.raw, actual):
            return None
        keys = [make_canonical_key(value) for value in actual]
        surplus = Counter(keys)
        surplus.subtract(self._counts)
        extra: list[int] = []
        # Equal elements are interchangeable, so the first of them count as the surplus.
        for index, key in enumerate(keys):
            if surplus[key] > 0:
                surplus[key] -= 1
                extra.append(index)
        lacking: list[int] = []
        for index, key in enumerate(self._keys):
            if surplus[key] < 0:
                surplus[key] += 1
                lacking.append(index)
        return explain(self, self._elements, actual, lacking, extra, scope, path) if extra or lacking else None


class MatcherList(Compound):
    """A list with wildcards or matchers among its elements, order free. An optional element may be absent."""

    __slots__ = ()

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        """Return None when the elements can be paired up."""
        if not isinstance(actual, (list, tuple)):
            return different_mismatch(path, self.raw, actual)
        # Before the table below, whose size is the product of two untrusted sizes.
        bound_product(self.size, actual, f"{path} has too many elements to be compared with {self.size} matchers in any order")
        elements = self._parts
        fits = [[j for j, element in enumerate(elements) if element.find_mismatch(value, scope, path) is None] for value in actual]
        # Every actual element needs a partner, and so does every expected one that is not optional. A pairing that covers the
        # one side and another that covers the other can always be joined into one (Mendelsohn and Dulmage).
        extra = [index for index, partner in enumerate(find_maximum_pairing(fits, len(elements))) if partner < 0]
        required = [j for j, element in enumerate(elements) if not element.optional]
        wanted: list[list[int]] = [[] for _ in elements]
        for index, partners in enumerate(fits):
            for j in partners:
                wanted[j].append(index)
        pairing = find_maximum_pairing([wanted[j] for j in required], len(actual))
        lacking = [j for j, partner in zip(required, pairing, strict=True) if partner < 0]
        return explain(self, elements, actual, lacking, extra, scope, path) if extra or lacking else None

    def iterate_ranges(self, actual: Json, scope: Scope, path: str) -> Iterator[TextRange]:
        """Yield what the first fitting element finds in each value."""
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
    """Return what to say about two lists that do not pair up."""
    if len(lacking) == len(extra) == 1:
        # One element changed: say what is wrong with it rather than quoting two lists.
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
    """Return a key that is equal for two values exactly when they are equal with lists in any order."""
    if isinstance(value, dict):
        if depth > DEEPEST:
            return object()  # Equal to nothing: no expected structure is that deep.
        return ("object", frozenset((key, make_canonical_key(item, depth + 1)) for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        if depth > DEEPEST:
            return object()
        # A set of elements and their numbers, not a sorted list: keys of different kinds have no order.
        return ("list", frozenset(Counter(make_canonical_key(item, depth + 1) for item in value).items()))
    # In Python `True` equals 1 and has its hash, so a bare boolean would count as a number.
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, (int, float)) and abs(value) >= _SPREAD:
        # Python gives multiples of this number the same place in a table, so a list of them would be walked again for each.
        # In hexadecimal: Python refuses to write thousands of decimal digits, which a suite can ask for.
        return ("large", hex(int(value)) if value - value == 0 else str(value))
    # NaN equals nothing, but a table would find the very same object by identity.
    if isinstance(value, float) and value != value:
        return object()
    return value
