"""Expected values, ready to be compared: plain values, the wildcard, objects, and the `optional` wrapper.

Everything that compares is an `Expected`. `mismatch` gives nothing when the actual value fits, else the first thing that does not.
An absent value (`MISSING`) fits nothing but what is optional.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import msgspec

from proctor.expressions.scope import Scope
from proctor.expressions.text_form import write_text_form
from proctor.matchers.equal import join_path, unexpected_mismatch
from proctor.matchers.mismatch import Mismatch, absent_mismatch, different_mismatch
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, Missing
from proctor.model.show import show
from proctor.model.verdict import TextRange


class Use(msgspec.Struct, frozen=True):
    """A variable that an expected value looks up: in which field, by which name, and where in the text."""

    field: str
    name: str
    offset: int


class Expected:
    """What a value must be like."""

    __slots__ = ("dynamic", "optional", "plain", "raw", "size", "uses")

    def __init__(
        self, raw: Json, *, dynamic: bool = False, uses: tuple[Use, ...] = (), size: int = 1, plain: bool = False, optional: bool = False
    ) -> None:
        self.raw = raw
        """The expected value as it was written."""
        self.dynamic = dynamic
        """Whether comparing looks at variables, clock or zone."""
        self.uses = uses
        self.size = size
        """How many values it holds, itself included."""
        self.plain = plain
        """Whether it is a literal through and through: no wildcard, no matcher."""
        self.optional = optional
        """Whether an absent value fits."""

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        """Return None when `actual` fits, else the first thing that does not."""
        raise TypeError(f"{type(self).__name__} does not compare")

    def iterate_ranges(self, actual: Json, scope: Scope, path: str) -> Iterator[TextRange]:
        """Yield the characters of `actual`, which fits, that made it fit; nothing where it is not a matter of text."""
        return iter(())

    def describe(self) -> str:
        """Return the expected value in a sentence."""
        return show(self.raw)


class Compound(Expected):
    """What is made of several expected values: it looks up what they look up, and costs what they cost."""

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
    """Text, null: equal to itself and nothing else."""

    __slots__ = ()

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        """Return None when the values are equal, else their first difference."""
        return None if actual == self.raw else different_mismatch(path, self.raw, actual)

    def iterate_ranges(self, actual: Json, scope: Scope, path: str) -> Iterator[TextRange]:
        """Yield the whole text."""
        if isinstance(actual, str) and actual:
            yield TextRange(path, 0, len(actual))


class Number(Expected):
    """A number: `1` equals `1.0`, never `true`."""

    __slots__ = ()

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        """Return None when the values are equal, else their first difference."""
        return None if actual == self.raw and not isinstance(actual, bool) else different_mismatch(path, self.raw, actual)


class Boolean(Expected):
    """True or false, never a number."""

    __slots__ = ()

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        """Return None when the values are equal, else their first difference."""
        # By identity, because `1 == True` in Python.
        return None if actual is self.raw else different_mismatch(path, self.raw, actual)


class Present(Expected):
    """Any value that is there, null included."""

    __slots__ = ()

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        """Return None when there is a value."""
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
        # The step of each path is written once, here: comparing happens for every value and shows hardly any path.
        self._members = tuple((key, join_path("", key), member) for key, member in members.items())

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        """Return the first member that is missing, different or not expected."""
        if not isinstance(actual, dict):
            return different_mismatch(path, self.raw, actual)
        seen = 0
        for key, step, member in self._members:
            if key in actual:
                seen += 1
                found = member.find_mismatch(actual[key], scope, path + step)
            else:
                # Compared all the same: an optional member accepts an absent value.
                found = member.find_mismatch(MISSING, scope, path + step)
            if found is not None:
                return found
        # By count first, so that the set of known keys is made only where there is a key too many.
        if seen < len(actual):
            known = {key for key, _, _ in self._members}
            extra = next(key for key in actual if key not in known)
            return unexpected_mismatch(join_path(path, extra), actual[extra])
        return None

    def iterate_ranges(self, actual: Json, scope: Scope, path: str) -> Iterator[TextRange]:
        """Yield what each member finds."""
        for key, step, member in self._members:
            if isinstance(actual, dict) and key in actual:
                yield from member.iterate_ranges(actual[key], scope, path + step)


class Optional(Expected):
    """What is expected, or null, or nothing at all."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Expected, raw: Json) -> None:
        super().__init__(raw, dynamic=inner.dynamic, uses=inner.uses, size=inner.size, optional=True)
        self._inner = inner

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        """Return None when absent or null, else the mismatch of the inner value."""
        return None if actual is MISSING or actual is None else self._inner.find_mismatch(actual, scope, path)

    def iterate_ranges(self, actual: Json, scope: Scope, path: str) -> Iterator[TextRange]:
        """Yield what the inner value finds."""
        return iter(()) if actual is None else self._inner.iterate_ranges(actual, scope, path)


def from_expression(value: Json, source: str) -> str:
    """Return a computed value in a sentence, with the expression it came from."""
    return f"{show(write_text_form(value) if isinstance(value, date) else value)} (from {source})"
