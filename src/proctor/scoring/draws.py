"""Numbers that look drawn at random and are the same every time, on every machine and in every version of Python.

The generator is SplitMix64 (Steele, Lea and Flood 2014). It is written here because a report must not change when the standard library
changes how it shuffles; it is good enough for intervals and folds, and for nothing secret.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
"""The step of SplitMix64: 2**64 over the golden ratio, which spreads states evenly."""

Item = TypeVar("Item")


class Draws:
    """A stream of draws that its seed determines."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def _bits(self) -> int:
        self._state = (self._state + _GOLDEN) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def uniform(self) -> float:
        """Return a number from 0 to below 1."""
        return (self._bits() >> 11) * 2.0**-53

    def below(self, bound: int) -> int:
        """Return a whole number from 0 to below `bound`, none likelier than another."""
        # A number above the largest multiple of the bound is drawn again, or small numbers would be a little likelier.
        most = (1 << 64) - (1 << 64) % bound
        while (bits := self._bits()) >= most:
            pass
        return bits % bound

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """Return the items in another order."""
        mixed = list(items)
        for last in range(len(mixed) - 1, 0, -1):
            other = self.below(last + 1)
            mixed[last], mixed[other] = mixed[other], mixed[last]
        return mixed

    def beta(self, one: float, other: float) -> float:
        """Return a share, distributed as Beta(one, other); both above 0."""
        first, second = self._gamma(one), self._gamma(other)
        total = first + second
        # With shapes near 0 both draws can be rounded to 0.
        return first / total if total > 0 else 0.5

    def _gamma(self, shape: float) -> float:
        # Marsaglia and Tsang 2000; below 1 by the draw for shape + 1.
        if shape < 1:
            return self._gamma(shape + 1) * (1 - self.uniform()) ** (1 / shape)
        d = shape - 1 / 3
        c = 1 / math.sqrt(9 * d)
        while True:
            x = self._normal()
            v = (1 + c * x) ** 3
            if v > 0 and math.log(1 - self.uniform()) < 0.5 * x * x + d - d * v + d * math.log(v):
                return d * v

    def _normal(self) -> float:
        # From 1: `uniform` may give 0, which has no logarithm, and never gives 1.
        return math.sqrt(-2 * math.log(1 - self.uniform())) * math.cos(2 * math.pi * self.uniform())
