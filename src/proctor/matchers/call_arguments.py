"""Expected arguments of a tool call: prepared once per suite, compared with every call.

A rule lists arguments by name, top level only, and reads their values in one of three ways:

* `matchers`: matcher objects anywhere, `*`, lists in any order;
* `placeholders`: the words `any`, `string`, `number`, `boolean`, `object`, `array`, `null` (trimmed, any case) stand for a
  type, everything else is compared as JSON text with sorted keys would be, so that NaN and infinities equal null;
* `literal`: plain deep equality.

A *partial* rule allows further arguments; an *exact* one allows none and has no placeholders. Integers are exact at any size. Missing
arguments (null) count as an empty object; arguments that are not an object match only an empty rule.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from proctor.errors import CheckFault
from proctor.expressions.text_form import Scope
from proctor.matchers.mismatch import Mismatch, absent_mismatch, find_difference, join_path, unexpected_mismatch
from proctor.model.evidence import Json
from proctor.model.json_values import JAVASCRIPT_BLANKS, MISSING, Missing, equal, is_number, is_same_scalar
from proctor.model.show import kind_of, show
from proctor.model.verdict import TextRange

if TYPE_CHECKING:
    from proctor.matchers.expected import Expected

WILDCARD = "*"

ArgumentMatch = Literal["partial", "exact", "ignore"]
ArgumentValues = Literal["matchers", "placeholders", "literal"]

_PLACEHOLDERS: dict[str, Callable[[Json], bool]] = {
    "any": lambda value: True,
    "string": lambda value: isinstance(value, str),
    "number": is_number,
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, (list, tuple)),
    "null": lambda value: value is None,
}


class Difference(msgspec.Struct, frozen=True):
    """One argument that does not fit: its path in the evidence, and a sentence about it."""

    path: str
    sentence: str


class _FieldTest(Protocol):
    """A claim about one argument."""

    def fits(self, actual: Json | Missing, scope: Scope) -> bool: ...

    def explain(self, actual: Json | Missing, scope: Scope, path: str) -> str: ...

    def iterate_ranges(self, actual: Json, scope: Scope, path: str) -> Iterator[TextRange]: ...


class _Equal:
    """Equality; `same` compares values that are neither list nor object."""

    __slots__ = ("_same", "_value")

    def __init__(self, value: Json, same: Callable[[Json, Json], bool] = is_same_scalar) -> None:
        self._value = value
        self._same = same

    def fits(self, actual: Json | Missing, scope: Scope) -> bool:
        return actual is not MISSING and equal(self._value, actual, same=self._same)

    def explain(self, actual: Json | Missing, scope: Scope, path: str) -> str:
        mismatch = absent_mismatch(path, show(self._value)) if actual is MISSING else find_difference(self._value, actual, path)
        return mismatch.describe() if mismatch is not None else f"{path} is different: expected {show(self._value)}, found {show(actual)}"

    def iterate_ranges(self, actual: Json, scope: Scope, path: str) -> Iterator[TextRange]:
        if isinstance(actual, str) and actual:
            yield TextRange(path, 0, len(actual))


class _Placeholder:
    """A word that means a type."""

    __slots__ = ("_test", "_word")

    def __init__(self, word: str) -> None:
        self._word = word
        self._test = _PLACEHOLDERS[word]

    def fits(self, actual: Json | Missing, scope: Scope) -> bool:
        return actual is not MISSING and self._test(actual)

    def explain(self, actual: Json | Missing, scope: Scope, path: str) -> str:
        wanted = "any value" if self._word == "any" else f"any value of type {self._word}"
        mismatch = absent_mismatch(path, wanted) if actual is MISSING else Mismatch(path, f"is {kind_of(actual)}", wanted, actual)
        return mismatch.describe()

    def iterate_ranges(self, actual: Json, scope: Scope, path: str) -> Iterator[TextRange]:
        return iter(())


class _Matcher:
    """A literal that may contain matchers."""

    __slots__ = ("_expected",)

    def __init__(self, expected: "Expected") -> None:
        self._expected = expected

    def fits(self, actual: Json | Missing, scope: Scope) -> bool:
        return self._expected.find_mismatch(actual, scope) is None

    def explain(self, actual: Json | Missing, scope: Scope, path: str) -> str:
        mismatch = self._expected.find_mismatch(actual, scope, path)
        return mismatch.describe() if mismatch is not None else f"{path} fits"

    def iterate_ranges(self, actual: Json, scope: Scope, path: str) -> Iterator[TextRange]:
        return self._expected.iterate_ranges(actual, scope, path)


class ArgumentRule:
    """A prepared claim about the arguments of one call."""

    __slots__ = ("_closed", "_fields", "dynamic", "plain")

    def __init__(self, fields: tuple[tuple[str, _FieldTest], ...], *, closed: bool, dynamic: bool, plain: dict[str, Json] | None) -> None:
        self._fields = fields
        self._closed = closed
        self.dynamic = dynamic
        """Whether the clock or the context of the evidence matters."""
        self.plain = plain
        """The listed arguments if `==` is enough to compare them; otherwise empty."""

    def fits(self, arguments: Json, scope: Scope) -> bool:
        """Return whether these arguments satisfy the rule."""
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            return not self._fields and not self._closed
        for name, test in self._fields:
            if not test.fits(arguments.get(name, MISSING), scope):
                return False
        return not self._closed or not self._list_unexpected(arguments)

    def list_differences(self, arguments: Json, scope: Scope, path: str) -> list[Difference]:
        """Return every argument that does not fit; `path` is the path of the arguments in the evidence."""
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            why = f"{path} is {kind_of(arguments)} instead of object: found {show(arguments)}"
            return [] if self.fits(arguments, scope) else [Difference(path, why)]
        differences: list[Difference] = []
        for name, test in self._fields:
            actual = arguments.get(name, MISSING)
            at = join_path(path, name)
            # One mismatch decides the verdict; a later argument that cannot be compared must not undo it.
            try:
                if not test.fits(actual, scope):
                    differences.append(Difference(at, test.explain(actual, scope, at)))
            except CheckFault as fault:
                differences.append(Difference(at, f"{at} could not be compared: {fault.message}"))
        for name in self._list_unexpected(arguments) if self._closed else ():
            at = join_path(path, name)
            differences.append(Difference(at, unexpected_mismatch(at, arguments[name]).describe()))
        return differences

    def iterate_ranges(self, arguments: Json, scope: Scope, path: str) -> Iterator[TextRange]:
        """Yield the ranges of characters that made the arguments fit."""
        for name, test in self._fields:
            if isinstance(arguments, dict) and name in arguments:
                yield from test.iterate_ranges(arguments[name], scope, join_path(path, name))

    def _list_unexpected(self, arguments: dict[str, Json]) -> list[str]:
        listed = {name for name, _ in self._fields}
        return [name for name in arguments if name not in listed]


def build_argument_rule(
    expected: Mapping[str, Json] | None,
    *,
    match: ArgumentMatch = "partial",
    values: ArgumentValues = "literal",
    strict: bool = False,
    field: str = "arguments",
) -> ArgumentRule | None:
    """Return the prepared rule, or None if any arguments are accepted. An invalid matcher raises `SpecError`."""
    if match == "ignore":
        expected = None
    exact = match == "exact" and expected is not None
    listed = dict(expected or {})
    closed = exact or strict
    if not listed and not closed:
        return None
    fields: list[tuple[str, _FieldTest]] = []
    # A closed rule also rejects unlisted arguments, which `==` on the listed ones would miss.
    plain = not closed
    dynamic = False
    for name, value in listed.items():
        test, moving = _build_field_test(value, values, exact=exact, field=f"{field}.{name}")
        fields.append((name, test))
        dynamic = dynamic or moving
        plain = plain and not moving and not isinstance(test, _Placeholder) and _compares_plainly(value)
    return ArgumentRule(tuple(fields), closed=closed, dynamic=dynamic, plain=listed if plain else None)


def _build_field_test(value: Json, values: ArgumentValues, *, exact: bool, field: str) -> tuple[_FieldTest, bool]:
    """Return the test, and whether it is dynamic."""
    if values == "matchers" and (isinstance(value, (dict, list, tuple)) or value == WILDCARD):
        from proctor.matchers.compile import compile_expected  # imports every matcher; most arguments are plain values

        expected = compile_expected(value, field=field)
        return _Matcher(expected), expected.dynamic
    if values in ("matchers", "literal"):
        return _Equal(value), False
    word = value.strip(JAVASCRIPT_BLANKS).lower() if isinstance(value, str) and not exact else ""
    if word in _PLACEHOLDERS:
        return _Placeholder(word), False
    return _Equal(value, is_same_javascript_scalar), False


def _compares_plainly(value: Json) -> bool:
    """Return whether Python's `==` is the right comparison in every reading of the value.

    It is not for `*`, for 0 and 1, which equal a boolean, nor for null and values that JSON writes as null (NaN, infinities).
    """
    if isinstance(value, str):
        return value != WILDCARD
    # 0 and 1 equal false and true in Python, and infinities must equal null, so `==` is wrong for both.
    return isinstance(value, (int, float)) and value not in (0, 1) and (isinstance(value, int) or math.isfinite(value))


def is_same_javascript_scalar(a: Json, b: Json) -> bool:
    """Return whether `JSON.stringify` writes two values alike, which is how MCPJam compares arguments.

    NaN and infinities are written as null, so they equal null and each other. Unlike in JavaScript, integers above 2^53 stay exact.
    """
    a, b = (None if isinstance(value, float) and not math.isfinite(value) else value for value in (a, b))
    return is_same_scalar(a, b)
