"""Expressions: expected values that are computed when a case is decided.

    expression = call | TEXT | NUMBER | "true" | "false" | "null" | NAME
    call       = NAME "(" [ expression { "," expression } ] ")"

A name with parentheses is a function; case is ignored. A bare name is a variable of the context, but `TODAY` and `NOW` are calls
if the context has no such variable. There are no operators and no loops, so an expression always ends. Its depth, its length and the
amount of text that it may create or read are bounded.

A syntax error is a `SpecError` with its offset, raised when the suite is read. An error on one piece of evidence (a missing variable,
text that is not a date) is a `CheckFault` with code `expression_error`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, tzinfo

import msgspec

from proctor.errors import CheckFault, SpecError
from proctor.expressions.functions import FUNCTIONS, Function, Unfit
from proctor.expressions.lexer import Token, TokenReader, split_tokens
from proctor.expressions.moments import find_zone
from proctor.expressions.text_form import Scope
from proctor.model.evidence import Json
from proctor.model.show import nearest, shorten

DEEPEST = 50
"""The maximum nesting of calls; parsing and evaluation recurse."""
MOST_TEXT = 1_000_000
"""The maximum number of characters that one evaluation may create or read."""
WORDS: dict[str, Json] = {"true": True, "false": False, "null": None}


class Literal(msgspec.Struct, frozen=True):
    """A literal value."""

    value: Json
    offset: int


class Variable(msgspec.Struct, frozen=True):
    """A bare name."""

    name: str
    offset: int


class Call(msgspec.Struct, frozen=True):
    """A function and its arguments."""

    function: Function
    arguments: tuple[Literal | Variable | Call, ...]
    offset: int


Term = Literal | Variable | Call


class Expression:
    """A parsed expression; `evaluate` returns its value in a scope."""

    __slots__ = ("root", "text")

    def __init__(self, text: str, root: Term) -> None:
        self.text = text
        self.root = root

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def list_variables(self) -> tuple[Variable, ...]:
        """Return every bare name, in order, including calls without parentheses (`TODAY`)."""
        return tuple(_iterate_variables(self.root))

    def evaluate(self, scope: Scope) -> Json:
        """Return the value: JSON, or a `date`, or an aware `datetime`."""
        return Evaluation(self.text, scope).evaluate(self.root)


def is_bare_call(name: str) -> bool:
    """Return whether a bare name is a call, as `TODAY` is."""
    function = FUNCTIONS.get(name.upper())
    return function is not None and function.bare


def compile_expression(text: str, *, field: str | None = None) -> Expression:
    """Parse an expression; an error in it is a `SpecError` at `field` with its offset."""
    try:
        return _compile_cached(text)
    except SpecError as error:
        raise error.move_to(field) from None


# The field is not part of the key: one text may be in many fields, and only an error names its field.
@functools.lru_cache(maxsize=1024)
def _compile_cached(text: str) -> Expression:
    return Expression(text, _Parser(split_tokens(text)).read_whole())


def _iterate_variables(term: Term) -> Iterator[Variable]:
    if isinstance(term, Variable):
        yield term
    elif isinstance(term, Call):
        for argument in term.arguments:
            yield from _iterate_variables(argument)


def find_function(name: Token, *others: str) -> Function:
    """Return a function by its name. Raises `SpecError` with the known names, which include `others`."""
    function = FUNCTIONS.get(name.value.upper())
    if function is None:
        known = (*others, *FUNCTIONS)
        hint = "known functions: " + ", ".join(known)
        raise SpecError(f"unknown function {name.value!r}", offset=name.offset, nearest=nearest(name.value, known), hint=hint)
    return function


def check_call(function: Function, name: Token, arguments: Sequence[object]) -> None:
    """Reject a wrong number of arguments, and literals of a wrong kind."""
    if not function.accepts(len(arguments)):
        raise SpecError(f"wrong number of arguments ({len(arguments)}) in {name.value}; write {function.signature}", offset=name.offset)
    for index, argument in enumerate(arguments):
        if isinstance(argument, Literal):
            try:
                function.kind_at(index)(argument.value)
            except Unfit as error:
                message = f"{function.name}, argument {index + 1}: {error.message}"
                raise SpecError(message, offset=argument.offset, nearest=error.nearest) from None


class _Parser(TokenReader):
    def read_whole(self) -> Term:
        if self.peek().kind == "end":
            raise SpecError("the expression is empty", offset=0)
        term = self._read_term(0)
        rest = self.next()
        if rest.kind != "end":
            raise SpecError(f"unexpected {shorten(rest.source, 40)!r} after the expression", offset=rest.offset)
        return term

    def _read_term(self, depth: int) -> Term:
        word = self.next()
        if depth > DEEPEST:
            raise SpecError(f"the expression is nested more than {DEEPEST} deep", offset=word.offset)
        if word.kind in ("text", "number"):
            return Literal(word.value, word.offset)
        if word.kind != "name":
            found = "the end" if word.kind == "end" else repr(word.source)
            raise SpecError(f"expected a value or a function, found {found}", offset=word.offset)
        if self.peek().kind == "(":
            function = find_function(word)
            self.next()
            arguments = self.read_items(")", f"in the arguments of {function.name}", lambda: self._read_term(depth + 1))
            check_call(function, word, arguments)
            return Call(function, arguments, word.offset)
        return Literal(WORDS[word.value], word.offset) if word.value in WORDS else Variable(word.value, word.offset)


class Evaluation:
    """One evaluation: the scope, and how much text it may still create. It is the `Machine` of functions."""

    def __init__(self, text: str, scope: Scope) -> None:
        self._text = text
        self._scope = scope
        self._left = MOST_TEXT

    def read_clock(self) -> datetime:
        """Return the current time in the zone of the case."""
        # The zone first: an unknown zone leaves the scope without a clock, and its own fault gives the reason.
        zone = self.read_zone()
        if self._scope.now is None:
            raise Unfit("the evidence carries no clock that can be read")
        return self._scope.now.astimezone(UTC).astimezone(zone)

    def read_zone(self) -> tzinfo:
        """Return the zone of the case."""
        return find_zone(self._scope.zone)

    def spend(self, characters: int) -> None:
        """Count text that is about to be created or read."""
        self._left -= characters
        if self._left < 0:
            raise Unfit(f"more than {MOST_TEXT} characters of text")

    def evaluate(self, term: Term) -> Json:
        """Return the value of a term. Raises `CheckFault`."""
        match term:
            case Literal():
                return term.value
            case Variable():
                # The context first: a variable of the case hides a function of its name; the suite reader has warned about that.
                if term.name in self._scope.context:
                    return self._scope.context[term.name]
                if is_bare_call(term.name):
                    return self.apply(FUNCTIONS[term.name.upper()], (), term.offset)
                function = FUNCTIONS.get(term.name.upper())
                if function is not None:
                    raise self._make_fault(f"{term.name!r} is a function: write {function.signature}", term.offset)
                close = nearest(term.name, self._scope.context)
                raise self._make_fault(f"unknown variable {term.name!r}", term.offset, close)
            case Call():
                return self._call(term)

    def _call(self, term: Call) -> Json:
        values: list[Json] = []
        for index, argument in enumerate(term.arguments):
            raw = self.evaluate(argument)
            try:
                values.append(term.function.kind_at(index)(raw))
            except Unfit as error:
                message = f"{term.function.name}, argument {index + 1}: {error.message}"
                raise self._make_fault(message, argument.offset, error.nearest) from None
        return self.apply(term.function, values, term.offset)

    def apply(self, function: Function, values: list[Json] | tuple[()], offset: int) -> Json:
        """Return the result of a function for values of the right kinds. Raises `CheckFault`."""
        try:
            return function.apply(self, *values)
        except Unfit as error:
            raise self._make_fault(f"{function.name}: {error.message}", offset) from None
        # `datetime` raises either of them at the limits of the calendar.
        except (OverflowError, ValueError):
            raise self._make_fault(f"{function.name}: the result lies outside of the calendar (years 1 to 9999)", offset) from None

    def _make_fault(self, message: str, offset: int, close: Sequence[str] = ()) -> CheckFault:
        message += f"; nearest: {', '.join(map(repr, close))}" if close else ""
        return CheckFault("expression_error", f"expression {shorten(self._text, 120)!r}, column {offset + 1}: {message}")
