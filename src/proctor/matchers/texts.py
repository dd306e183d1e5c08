"""Matchers that look at text: `contains`, `starts_with`, `ends_with`, `regex`.

The first three cast both sides to text (see `expressions.text_form`). `regex` searches numbers and booleans as their JSON text;
null, lists and objects never match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from proctor.errors import SpecError
from proctor.expressions.scope import Scope
from proctor.expressions.text_form import write_text_form
from proctor.matchers.expected import Expected
from proctor.matchers.form import Form, Matcher, Nested, matcher
from proctor.matchers.mismatch import Mismatch, absent_mismatch
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, Missing
from proctor.model.show import kind_of, show
from proctor.model.verdict import TextRange
from proctor.patterns.engine import Pattern, compile_pattern


class TextTest(Expected):
    """Both sides as text, and a test between them."""

    __slots__ = ("_operand", "_phrase", "_test")

    def __init__(self, form: Form, phrase: str, test: Callable[[str, str], bool]) -> None:
        self._operand = form.read_operand()
        super().__init__(form.raw, dynamic=self._operand.expression is not None, uses=self._operand.uses)
        self._phrase = phrase
        self._test = test

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        """Return None when the test holds."""
        value = self._operand.value(scope)
        if actual is MISSING:
            return absent_mismatch(path, f"text that {self._phrase}s {self._operand.describe(value)}")
        if self._test(write_text_form(actual), write_text_form(value)):
            return None
        return Mismatch(path, f"does not {self._phrase} the text", self._operand.describe(value), actual)

    def iterate_ranges(self, actual: Json, scope: Scope, path: str) -> Iterator[TextRange]:
        """Yield the position of the text: the first one, or the last one if the value must end with it."""
        wanted = write_text_form(self._operand.value(scope))
        if isinstance(actual, str) and wanted and self._test(actual, wanted):
            at = actual.rfind(wanted) if self._phrase.startswith("end") else actual.find(wanted)
            yield TextRange(path, at, at + len(wanted))


_TEXT_KEYS = {"value": "the text to look for", "expression": "an expression that gives it"}


@matcher("contains", "The value, as text, contains a text.", _TEXT_KEYS, example={"value": "onboarding"}, short={"$contains": "onboarding"})
def contains(form: Form, nested: Nested) -> Expected:
    """Build `contains`."""
    return TextTest(form, "contain", lambda actual, wanted: wanted in actual)


@matcher("starts_with", "The value, as text, begins with a text.", _TEXT_KEYS, example={"value": "ORD-"}, short={"$starts_with": "ORD-"})
def starts_with(form: Form, nested: Nested) -> Expected:
    """Build `starts_with`."""
    return TextTest(form, "begin with", str.startswith)


@matcher("ends_with", "The value, as text, ends with a text.", _TEXT_KEYS, example={"value": ".pdf"}, short={"$ends_with": ".pdf"})
def ends_with(form: Form, nested: Nested) -> Expected:
    """Build `ends_with`."""
    return TextTest(form, "end with", str.endswith)


class Regex(Expected):
    """A pattern, searched anywhere in the value."""

    __slots__ = ("_pattern",)

    def __init__(self, raw: Json, pattern: Pattern) -> None:
        super().__init__(raw)
        self._pattern = pattern

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str = "$") -> Mismatch | None:
        """Return None when the pattern is found."""
        wanted = f"a match of {show(self._pattern.source)}"
        if actual is MISSING:
            return absent_mismatch(path, wanted)
        if actual is None or isinstance(actual, (dict, list, tuple)):
            return Mismatch(path, f"is {kind_of(actual)}, which no pattern matches", wanted, actual)
        if self._pattern.search(write_text_form(actual)) is not None:
            return None
        return Mismatch(path, "does not match the pattern", wanted, actual)

    def iterate_ranges(self, actual: Json, scope: Scope, path: str) -> Iterator[TextRange]:
        """Yield the leftmost match."""
        found = self._pattern.search(actual) if isinstance(actual, str) else None
        if found is not None:
            yield TextRange(path, found.start, found.end)


@matcher(
    "regex",
    "The value matches an ECMAScript regular expression, searched anywhere; case-sensitive unless flagged.",
    {"value": "the pattern", "flags": "ECMAScript flags: any of `i`, `m`, `s`, `u`"},
    example={"value": "^ORD-\\d{4}$"},
    short={"$regex": "^ORD-\\d{4}$"},
)
def regex(form: Form, nested: Nested) -> Expected:
    """Build `regex`."""
    return Regex(form.raw, pattern_at(form.read_text("value"), form.read_text("flags", ""), form.place("value")))


def pattern_at(source: str, flags: str, field: str) -> Pattern:
    """Return a compiled pattern; a fault in it is reported at `field`."""
    try:
        return compile_pattern(source, flags)
    except SpecError as error:
        # The engine knows places inside the pattern and nothing of the suite around it.
        raise error.move_to(field) from None


TEXT_MATCHERS: tuple[Matcher, ...] = (contains, starts_with, ends_with, regex)
