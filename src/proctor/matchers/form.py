"""A matcher as the user wrote it, in either spelling, and the declaration of every matcher.

Word spelling: `{"matcher": "date", "expression": "TODAY()", "tolerance_minutes": 5, "optional": true}`. Short spelling: `{$date: {$expr:
"TODAY()"}, $tolerance_minutes: 5, $optional: true}`. Both become a `Form`, so that matchers handle only one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from proctor.errors import SpecError
from proctor.expressions.expression import Expression, compile_expression
from proctor.expressions.text_form import Scope
from proctor.matchers.expected import Expected, Object, Scalar, Use, from_expression
from proctor.matchers.lists import DEEPEST, PlainList
from proctor.model.evidence import Json
from proctor.model.json_values import is_finite, is_number
from proctor.model.show import kind_of, show

# Plain values as expected ones: no wildcard, no matcher, lists in any order. Results of expressions are compared this way


def compile_plain(value: Json, field: str = "value", depth: int = 0) -> Expected:
    """Return a value that equals only itself, with lists in any order."""
    if depth > DEEPEST:
        raise SpecError(f"nested more than {DEEPEST} deep", field=field)
    if isinstance(value, dict):
        return Object(value, {key: compile_plain(item, f"{field}.{key}", depth + 1) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        elements = tuple(compile_plain(item, f"{field}.{index}", depth + 1) for index, item in enumerate(value))
        return PlainList(list(value), elements)
    return Scalar(value, plain=True)


class Operand(msgspec.Struct, frozen=True):
    """The operand of a matcher: a constant, or an expression computed for each piece of evidence."""

    constant: Json
    expression: Expression | None
    uses: tuple[Use, ...] = ()

    def value(self, scope: Scope) -> Json:
        """Return the value to compare with."""
        return self.constant if self.expression is None else self.expression.evaluate(scope)

    def describe(self, value: Json) -> str:
        """Return a description of that value."""
        return show(value) if self.expression is None else from_expression(value, self.expression.text)


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """One matcher with the values of its keys and the field of each."""

    name: str
    keys: dict[str, Json]
    places: dict[str, str]
    field: str
    raw: Json

    def place(self, key: str) -> str:
        """Return the field of a key, or of the whole matcher if the key is absent."""
        return self.places.get(key, self.field)

    def read_operand(self) -> Operand:
        """Read `value` or `expression`, exactly one of them."""
        if ("value" in self.keys) == ("expression" in self.keys):
            fault = "has both 'value' and 'expression'" if "value" in self.keys else "needs 'value' or 'expression'"
            raise SpecError(f"matcher {self.name!r} {fault}", field=self.place("expression"))
        if "value" in self.keys:
            return Operand(self.keys["value"], None)
        text, place = self.keys["expression"], self.place("expression")
        if not isinstance(text, str):
            raise SpecError(f"an expression is text, found {kind_of(text)}", field=place)
        expression = compile_expression(text, field=place)
        return Operand(None, expression, tuple(Use(place, v.name, v.offset) for v in expression.list_variables()))

    def require(self, key: str) -> Json:
        """Return the value of a required key."""
        if key not in self.keys:
            raise SpecError(f"matcher {self.name!r} needs {key!r}", field=self.field)
        return self.keys[key]

    def read_text(self, key: str, default: str | None = None) -> str:
        """Return a key whose value is text."""
        value = self.require(key) if default is None else self.keys.get(key, default)
        if not isinstance(value, str):
            raise SpecError(f"matcher {self.name!r}: {key!r} must be text, found {kind_of(value)}", field=self.place(key))
        return value

    def number(self, key: str, default: float) -> float:
        """Return a key whose value is a number of at least zero."""
        value = self.keys.get(key, default)
        if not is_number(value) or not is_finite(value) or value < 0:
            raise SpecError(
                f"matcher {self.name!r}: {key!r} must be a number of at least 0, found {show(value, 60)}", field=self.place(key)
            )
        return value


class Nested(Protocol):
    """How a matcher compiles its inner values."""

    def __call__(self, value: Json, field: str) -> Expected:
        """Return the expected value written at `field`."""
        ...


class Matcher(msgspec.Struct, frozen=True, kw_only=True):
    """One way to compare, and its documentation."""

    name: str
    summary: str
    keys: dict[str, str]
    """Its keys apart from `matcher` and `optional`, each with its meaning."""
    example: dict[str, Json]
    """In word spelling."""
    short: dict[str, Json]
    """The same in short spelling."""
    build: Callable[[Form, Nested], Expected]
