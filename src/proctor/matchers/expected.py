"""Expected values, ready for comparison: plain values, the wildcard, objects, and the `optional` wrapper.

Everything that compares is an `Expected`. `find_mismatch` returns None if the actual value fits, else the first mismatch. An absent value
(`MISSING`) fits only optional values.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import msgspec

from proctor.expressions.text_form import Scope, write_text_form
from proctor.matchers.mismatch import Mismatch, absent_mismatch, different_mismatch, join_path, unexpected_mismatch
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, Missing, is_same_scalar
from proctor.model.show import show
from proctor.model.verdict import TextRange


class Use(msgspec.Struct, frozen=True):
    """A variable used by an expected value: its field, its name, and its position in the text."""

    field: str
    name: str
    offset: int


class Expected:
    """An expected value."""

    __slots__ = ("dynamic", "optional", "plain", "raw", "size", "uses")

    def __init__(
        self, raw: Json, *, dynamic: bool = False, uses: tuple[Use, ...] = (), size: int = 1, plain: bool = False, optional: bool = False
    ) -> None:
        self.raw = raw
        """The expected value as it was written."""
        self.dynamic = dynamic
        """Whether comparing needs variables, the clock or the zone."""
        self.uses = uses
        self.size = size
        """The number of values in it, itself included."""
        self.plain = plain
        """Whether it is a pure literal: no wildcard, no matcher."""
        self.optional = optional
        """Whether an absent value fits."""

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        """Return None if `actual` fits, else the first mismatch."""
        raise TypeError(f"{type(self).__name__} does not compare")

    def iterate_ranges(self, actual: Json, scope: Scope, path: str) -> Iterator[TextRange]:
        """Yield the ranges of characters that made `actual` fit; none if it is not text."""
        return iter(())

    def describe(self) -> str:
        """Return a description of the expected value."""
        return show(self.raw)


class Compound(Expected):
    """A combination of expected values, with their variables and their total size."""

    __slots__ = ("_parts",)

    def __init__(self, raw: Json, parts: tuple[Expected, ...]) -> None:
        super().__init__(
            raw,
            dynamic=any(part.dynamic for part in parts),
            uses=tuple(use for part in parts for use in part.uses),
            size=1 + sum(part.size for part in parts),
        )
        self._parts = parts


class Scalar(Expected):
    """Text, a number, a boolean or null: equal only to itself. `1` equals `1.0`, but not `true`."""

    __slots__ = ()

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        """Return None when the values are equal, else their first difference."""
        return None if is_same_scalar(self.raw, actual) else different_mismatch(path, self.raw, actual)

    def iterate_ranges(self, actual: Json, scope: Scope, path: str) -> Iterator[TextRange]:
        """Yield the whole text."""
        if isinstance(actual, str) and actual:
            yield TextRange(path, 0, len(actual))


class Present(Expected):
    """Any present value, null included."""

    __slots__ = ()

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        """Return None if there is a value."""
        return absent_mismatch(path, "any value") if actual is MISSING else None


class Object(Expected):
    """Exactly these members, each as expected."""

    __slots__ = ("_members",)

    def __init__(self, raw: Json, members: dict[str, Expected]) -> None:
        super().__init__(
            raw,
            dynamic=any(member.dynamic for member in members.values()),
            uses=tuple(use for member in members.values() for use in member.uses),
            size=1 + sum(member.size for member in members.values()),
            plain=all(member.plain for member in members.values()),
        )
        # Each path step is formatted once, here, because comparing is frequent and paths are rarely shown.
        self._members = tuple((key, join_path("", key), member) for key, member in members.items())

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        """Return the first member that is missing, different or unexpected."""
        if not isinstance(actual, dict):
            return different_mismatch(path, self.raw, actual)
        seen = 0
        for key, step, member in self._members:
            if key in actual:
                seen += 1
                mismatch = member.find_mismatch(actual[key], scope, path + step)
            else:
                # Compared anyway: an optional member accepts an absent value.
                mismatch = member.find_mismatch(MISSING, scope, path + step)
            if mismatch is not None:
                return mismatch
        # Counted first, so that the set of known keys is built only if there is an extra key.
        if seen < len(actual):
            known = {key for key, _, _ in self._members}
            extra = next(key for key in actual if key not in known)
            return unexpected_mismatch(join_path(path, extra), actual[extra])
        return None

    def iterate_ranges(self, actual: Json, scope: Scope, path: str) -> Iterator[TextRange]:
        """Yield the ranges of every member."""
        for key, step, member in self._members:
            if isinstance(actual, dict) and key in actual:
                yield from member.iterate_ranges(actual[key], scope, path + step)


class Optional(Expected):
    """The expected value, or null, or an absent value."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Expected, raw: Json) -> None:
        super().__init__(raw, dynamic=inner.dynamic, uses=inner.uses, size=inner.size, optional=True)
        self._inner = inner

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        """Return None when absent or null, else the mismatch of the inner value."""
        return None if actual is MISSING or actual is None else self._inner.find_mismatch(actual, scope, path)

    def iterate_ranges(self, actual: Json, scope: Scope, path: str) -> Iterator[TextRange]:
        """Yield the ranges of the inner value."""
        return iter(()) if actual is None else self._inner.iterate_ranges(actual, scope, path)


def from_expression(value: Json, source: str) -> str:
    """Return a description of a computed value, with its expression."""
    return f"{show(write_text_form(value) if isinstance(value, date) else value)} (from {source})"
