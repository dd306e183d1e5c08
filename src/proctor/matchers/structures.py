"""Matchers about the value as a whole: `exact`, `literal`, `object`, `any`, `not`, `type`, `one_of`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date

from proctor.errors import CheckFault, SpecError
from proctor.expressions.moments import find_zone, to_instant
from proctor.expressions.text_form import Scope, write_text_form
from proctor.matchers.expected import Compound, Expected, Object, Present, Scalar, from_expression
from proctor.matchers.form import Form, Matcher, Nested, Operand, compile_plain
from proctor.matchers.lists import bound_product, make_canonical_key
from proctor.matchers.mismatch import Mismatch, absent_mismatch, find_difference
from proctor.matchers.ordering import moment_of
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, Missing, is_number
from proctor.model.show import kind_of, nearest, show
from proctor.model.verdict import TextRange
from proctor.patterns.engine import Pattern, compile_pattern

KINDS: dict[str, Callable[[Json], bool]] = {
    "text": lambda value: isinstance(value, str),
    "number": is_number,
    "integer": lambda value: is_number(value) and (isinstance(value, int) or value.is_integer()),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "list": lambda value: isinstance(value, (list, tuple)),
    "object": lambda value: isinstance(value, dict),
}
"""A test for each name; a whole number written `1.0` is an integer."""
KINDS.update(string=KINDS["text"], array=KINDS["list"])


def read_kinds(value: Json, field: str) -> tuple[str, ...]:
    """Return one name or a list of names, all of them known."""
    names = value if isinstance(value, list) else [value]
    for name in names:
        if not isinstance(name, str) or name not in KINDS:
            raise SpecError(
                f"unknown type {show(name, 60)}; expected one of {', '.join(KINDS)}",
                field=field,
                nearest=nearest(name, KINDS) if isinstance(name, str) else (),
            )
    if not names:
        raise SpecError("a list of types needs at least one", field=field)
    return tuple(names)


_SCHEMA_KEYS = ("type", "pattern", "enum", "const", "minimum", "maximum")
_FEW = 4
"""The maximum number of variants that are compared without counting work."""


class _Computed(Expected):
    """Equal to the result of an expression. A date is compared as an instant; a day is its midnight."""

    __slots__ = ("_operand",)

    def __init__(self, raw: Json, operand: Operand) -> None:
        super().__init__(raw, dynamic=True, uses=operand.uses)
        self._operand = operand

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        value = self._operand.value(scope)
        shown = self._operand.describe(value)
        if actual is MISSING:
            return absent_mismatch(path, shown)
        if isinstance(value, date):
            zone = find_zone(scope.zone)
            if (mismatch := moment_of(actual, scope)) is None:
                return Mismatch(path, f"is {kind_of(actual)} that does not read as a date", shown, actual)
            try:
                same = to_instant(mismatch, zone) == to_instant(value, zone)
            except OverflowError:
                # The zone moved a time out of the calendar's range: no other time can equal it.
                same = False
            return None if same else Mismatch(path, "is another date", shown, actual)
        try:
            expected = compile_plain(value)
        except SpecError as error:
            # The depth of a computed value is known only with the evidence, so this is not an error of the suite.
            raise CheckFault("value_too_deep", f"{shown}: {error.message}") from None
        mismatch = expected.find_mismatch(actual, scope, path)
        if mismatch is None or self._operand.expression is None:
            return mismatch
        source = from_expression(value, self._operand.expression.text) if mismatch.path == path else f"{mismatch.expected} (in {shown})"
        return Mismatch(mismatch.path, mismatch.why, source, mismatch.actual)


class _Literal(Expected):
    """Plain equality, lists in order."""

    __slots__ = ("_value",)

    def __init__(self, form: Form) -> None:
        super().__init__(form.raw)
        self._value = form.require("value")

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        return absent_mismatch(path, show(self._value)) if actual is MISSING else find_difference(self._value, actual, path)


class _Not(Expected):
    """A present value that does not fit the inner one."""

    __slots__ = ("_inner",)

    def __init__(self, raw: Json, inner: Expected) -> None:
        super().__init__(raw, dynamic=inner.dynamic, uses=inner.uses, size=inner.size)
        self._inner = inner

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        shown = f"anything but {self._inner.describe()}"
        # Otherwise `not` would pass for an absent field.
        if actual is MISSING:
            return absent_mismatch(path, shown)
        if self._inner.find_mismatch(actual, scope, path) is not None:
            return None
        return Mismatch(path, "is not allowed", shown, actual)


class _OfKind(Expected):
    """A value of one of several kinds."""

    __slots__ = ("_names",)

    def __init__(self, raw: Json, names: tuple[str, ...]) -> None:
        super().__init__(raw)
        self._names = names

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        shown = " or ".join(self._names)
        if actual is MISSING:
            return absent_mismatch(path, shown)
        if any(KINDS[name](actual) for name in self._names):
            return None
        return Mismatch(path, f"is {kind_of(actual)}", shown, actual)


class _SchemaVariant(Expected):
    """A variant written like a small JSON Schema."""

    __slots__ = ("_allowed", "_maximum", "_minimum", "_names", "_pattern")

    def __init__(self, raw: dict[str, Json], field: str) -> None:
        groups: list[tuple[Expected, ...]] = []
        if "const" in raw:
            groups.append((compile_plain(raw["const"], f"{field}.const"),))
        if "enum" in raw:
            if not isinstance(raw["enum"], list) or not raw["enum"]:
                raise SpecError("'enum' is a list of at least one value", field=f"{field}.enum")
            groups.append(tuple(compile_plain(value, f"{field}.enum.{index}") for index, value in enumerate(raw["enum"])))
        self._allowed = tuple(groups)
        super().__init__(raw, size=1 + sum(choice.size for group in self._allowed for choice in group))
        self._names = read_kinds(raw["type"], f"{field}.type") if "type" in raw else ()
        self._pattern = self._read_pattern(raw, field)
        self._minimum, self._maximum = (self._read_bound(raw, key, field) for key in ("minimum", "maximum"))

    @staticmethod
    def _read_pattern(raw: dict[str, Json], field: str) -> Pattern | None:
        if "pattern" not in raw:
            return None
        if not isinstance(raw["pattern"], str):
            raise SpecError(f"a pattern is text, found {kind_of(raw['pattern'])}", field=f"{field}.pattern")
        return pattern_at(raw["pattern"], "", f"{field}.pattern")

    @staticmethod
    def _read_bound(raw: dict[str, Json], key: str, field: str) -> float | None:
        if key in raw and not KINDS["number"](raw[key]):
            raise SpecError(f"{key!r} is a number, found {kind_of(raw[key])}", field=f"{field}.{key}")
        return raw.get(key)

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        if actual is MISSING:
            return absent_mismatch(path, self.describe())
        fits = not self._names or any(KINDS[name](actual) for name in self._names)
        if fits and self._pattern is not None:
            fits = isinstance(actual, str) and self._pattern.search(actual) is not None
        if fits and self._allowed:
            # Before the choices are compared: the value and the list may both be long, and the cost is their product.
            bound_product(self.size, actual, f"{path} is too large to be compared with a variant of {self.size} parts")
            fits = all(any(choice.find_mismatch(actual, scope, path) is None for choice in group) for group in self._allowed)
        if fits and (self._minimum is not None or self._maximum is not None):
            fits = KINDS["number"](actual) and not self._is_out_of_bounds(actual)
        return None if fits else Mismatch(path, "does not fit the variant", self.describe(), actual)

    def _is_out_of_bounds(self, actual: Json) -> bool:
        # `not >=` instead of `<`: every comparison with NaN is false, and NaN must not count as within bounds.
        return (self._minimum is not None and not actual >= self._minimum) or (self._maximum is not None and not actual <= self._maximum)


class _OneOf(Compound):
    """Any one of several."""

    __slots__ = ("_others", "_plain_keys")

    def __init__(self, raw: Json, parts: tuple[Expected, ...]) -> None:
        super().__init__(raw, parts)
        # A long list of words is looked up instead of searched for each value.
        plain = [part for part in parts if isinstance(part, Scalar)]
        self._plain_keys = frozenset(make_canonical_key(part.raw) for part in plain)
        self._others = tuple(part for part in parts if not isinstance(part, Scalar))

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        # A list or object equals no plain value, and building its key would walk all of it.
        if actual is not MISSING and not isinstance(actual, (dict, list, tuple)) and make_canonical_key(actual) in self._plain_keys:
            return None
        # Comparing with a few variants is cheap; with many, the work is the product of two untrusted sizes.
        if len(self._others) > _FEW:
            bound_product(self.size, actual, f"{path} is too large to be compared with {len(self._others)} variants")
        for variant in self._others:
            if variant.find_mismatch(actual, scope, path) is None:
                return None
        shown = " or ".join(variant.describe() for variant in self._parts[:5])
        if len(self._parts) > 5:
            shown += f" or {len(self._parts) - 5} more"
        if actual is MISSING:
            return absent_mismatch(path, shown)
        return Mismatch(path, f"fits none of {len(self._parts)} variants", shown, actual)

    def iterate_ranges(self, actual: Json, scope: Scope, path: str) -> Iterator[TextRange]:
        fitting = next((part for part in self._parts if part.find_mismatch(actual, scope, path) is None), None)
        return iter(()) if fitting is None else fitting.iterate_ranges(actual, scope, path)


def _compile_variant(value: Json, field: str, nested: Nested) -> Expected:
    # An empty object is an object without members, not a schema that accepts everything.
    if not isinstance(value, dict) or not value or isinstance(value.get("matcher"), str):
        return nested(value, field)
    unknown = [key for key in value if key not in _SCHEMA_KEYS]
    if not unknown:
        return _SchemaVariant(value, field)
    named = value.get("type")
    close = nearest(unknown[0], _SCHEMA_KEYS)
    if isinstance(named, str) and named in KINDS and close:
        # `{"type": "string", "patern": ...}` is a typo, not a literal object.
        raise SpecError(f"unknown key {unknown[0]!r} in a variant", field=field, nearest=close)
    return nested(value, field)


class AllOf(Compound):
    """Several matchers that must all fit."""

    __slots__ = ()

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        """Return the first mismatch of a matcher."""
        if len(self._parts) > _FEW:
            bound_product(self.size, actual, f"{path} is too large to be compared with {len(self._parts)} matchers")
        mismatches = (part.find_mismatch(actual, scope, path) for part in self._parts)
        return next((mismatch for mismatch in mismatches if mismatch is not None), None)

    def iterate_ranges(self, actual: Json, scope: Scope, path: str) -> Iterator[TextRange]:
        """Yield the ranges of each matcher."""
        for part in self._parts:
            yield from part.iterate_ranges(actual, scope, path)


# Matchers that look at text: `contains`, `starts_with`, `ends_with`, `regex`.
# The first three cast both sides to text (see `expressions.text_form`). `regex` searches numbers and booleans as their JSON text; null,
# lists and objects never match.


class _TextTest(Expected):
    """A test between both sides as text."""

    __slots__ = ("_operand", "_phrase", "_test")

    def __init__(self, form: Form, phrase: str, test: Callable[[str, str], bool]) -> None:
        self._operand = form.read_operand()
        super().__init__(form.raw, dynamic=self._operand.expression is not None, uses=self._operand.uses)
        self._phrase = phrase
        self._test = test

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        value = self._operand.value(scope)
        if actual is MISSING:
            return absent_mismatch(path, f"text that {self._phrase}s {self._operand.describe(value)}")
        if self._test(write_text_form(actual), write_text_form(value)):
            return None
        return Mismatch(path, f"does not {self._phrase} the text", self._operand.describe(value), actual)

    def iterate_ranges(self, actual: Json, scope: Scope, path: str) -> Iterator[TextRange]:
        wanted = write_text_form(self._operand.value(scope))
        if isinstance(actual, str) and wanted and self._test(actual, wanted):
            at = actual.rfind(wanted) if self._phrase.startswith("end") else actual.find(wanted)
            yield TextRange(path, at, at + len(wanted))


class _Regex(Expected):
    """A pattern, searched anywhere in the value."""

    __slots__ = ("_pattern",)

    def __init__(self, raw: Json, pattern: Pattern) -> None:
        super().__init__(raw)
        self._pattern = pattern

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        wanted = f"a match of {show(self._pattern.source)}"
        if actual is MISSING:
            return absent_mismatch(path, wanted)
        if actual is None or isinstance(actual, (dict, list, tuple)):
            return Mismatch(path, f"is {kind_of(actual)}, which no pattern matches", wanted, actual)
        if self._pattern.search(write_text_form(actual)) is not None:
            return None
        return Mismatch(path, "does not match the pattern", wanted, actual)

    def iterate_ranges(self, actual: Json, scope: Scope, path: str) -> Iterator[TextRange]:
        match = self._pattern.search(actual) if isinstance(actual, str) else None
        if match is not None:
            yield TextRange(path, match.start, match.end)


def pattern_at(source: str, flags: str, field: str) -> Pattern:
    """Return a compiled pattern; an error in it is reported at `field`."""
    try:
        return compile_pattern(source, flags)
    except SpecError as error:
        # The engine reports positions inside the pattern and does not know the suite around it.
        raise error.move_to(field) from None


def _build_exact(form: Form, nested: Nested) -> Expected:
    operand = form.read_operand()
    return nested(operand.constant, form.place("value")) if operand.expression is None else _Computed(form.raw, operand)


def _build_object(form: Form, nested: Nested) -> Expected:
    value = form.require("value")
    if not isinstance(value, dict):
        raise SpecError(f"matcher 'object': expected an object, found {kind_of(value)}", field=form.place("value"))
    return Object(value, {key: nested(item, f"{form.place('value')}.{key}") for key, item in value.items()})


def _build_one_of(form: Form, nested: Nested) -> Expected:
    variants, place = form.require("variants"), form.place("variants")
    if not isinstance(variants, list) or not variants:
        raise SpecError("matcher 'one_of' needs a list of at least one variant", field=place)
    return _OneOf(form.raw, tuple(_compile_variant(value, f"{place}.{index}", nested) for index, value in enumerate(variants)))


def _text_matcher(name: str, verb: str, phrase: str, example: str, test: Callable[[str, str], bool]) -> Matcher:
    return Matcher(
        name=name,
        summary=f"The value, as text, {verb} a text.",
        keys={"value": "the text to look for", "expression": "an expression that gives it"},
        example={"matcher": name, "value": example},
        short={f"${name}": example},
        build=lambda form, nested: _TextTest(form, phrase, test),
    )


STRUCTURE_MATCHERS: tuple[Matcher, ...] = (
    Matcher(
        name="exact",
        summary='The value is equal, lists in any order; `"*"` inside means any value, matchers inside keep their meaning.',
        keys={"value": "the value", "expression": "an expression that gives it; a date is compared as an instant"},
        example={"matcher": "exact", "value": "Paris"},
        short={"$exact": "Paris"},
        build=_build_exact,
    ),
    Matcher(
        name="literal",
        summary='The value is equal, lists in order; nothing inside has a special meaning, `"*"` is a star.',
        keys={"value": "the value"},
        example={"matcher": "literal", "value": ["*", "a"]},
        short={"$literal": ["*", "a"]},
        build=lambda form, nested: _Literal(form),
    ),
    Matcher(
        name="object",
        summary="The value is an object with exactly these members; its keys are taken as written, even `matcher` or `$gt`.",
        keys={"value": "the object; matchers inside its members keep their meaning"},
        example={"matcher": "object", "value": {"$gt": 5}},
        short={"$object": {"$gt": 5}},
        build=_build_object,
    ),
    Matcher(
        name="any",
        summary="The value only has to be there; null is.",
        keys={},
        example={"matcher": "any"},
        short={"$any": True},
        build=lambda form, nested: Present(form.raw),
    ),
    Matcher(
        name="not",
        summary="The value is there and does not fit what is given.",
        keys={"value": "a value or a matcher"},
        example={"matcher": "not", "value": {"matcher": "contains", "value": "error"}},
        short={"$not": {"$contains": "error"}},
        build=lambda form, nested: _Not(form.raw, nested(form.require("value"), form.place("value"))),
    ),
    Matcher(
        name="type",
        summary="The value is of a kind: text, number, integer, boolean, null, list, object.",
        keys={"value": "the kind, or a list of kinds; `string` and `array` are understood too"},
        example={"matcher": "type", "value": "integer"},
        short={"$type": "integer"},
        build=lambda form, nested: _OfKind(form.raw, read_kinds(form.require("value"), form.place("value"))),
    ),
    Matcher(
        name="one_of",
        summary="The value fits at least one variant.",
        keys={"variants": "a list: literals, matchers, or objects with `type`, `pattern`, `enum`, `const`, `minimum`, `maximum`"},
        example={"matcher": "one_of", "variants": [{"type": "string", "pattern": "^(metric|si)$"}, "celsius"]},
        short={"$one_of": ["metric", "celsius"]},
        build=_build_one_of,
    ),
)
TEXT_MATCHERS: tuple[Matcher, ...] = (
    _text_matcher("contains", "contains", "contain", "onboarding", lambda actual, wanted: wanted in actual),
    _text_matcher("starts_with", "begins with", "begin with", "ORD-", str.startswith),
    _text_matcher("ends_with", "ends with", "end with", ".pdf", str.endswith),
    Matcher(
        name="regex",
        summary="The value matches an ECMAScript regular expression, searched anywhere; case-sensitive unless flagged.",
        keys={"value": "the pattern", "flags": "ECMAScript flags: any of `i`, `m`, `s`, `u`"},
        example={"matcher": "regex", "value": "^ORD-\\d{4}$"},
        short={"$regex": "^ORD-\\d{4}$"},
        build=lambda form, nested: _Regex(form.raw, pattern_at(form.read_text("value"), form.read_text("flags", ""), form.place("value"))),
    ),
)
