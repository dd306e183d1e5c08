"""Parses text into a query: RFC 9535, and the forms that MCPLab's users write.

With syntax `mcplab` these are accepted too: a path without `$` in front (`a`, `f.g[0]`), names with hyphens and positions after a dot
(`order-id`, `items.0`), names in brackets without quotes, `[(@.length-1)]`, `.length` of lists and texts, `^` for the parent, `~` for the
name, and `===`, `!==` in filters. A filter in brackets (`[?(@.done)]`) tests for truth as its library does, not for existence. Everything
else is read as in RFC 9535.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, Literal, NamedTuple

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.show import nearest

# The tokens of JSONPath: blanks, names, numbers and quoted text, with the position of errors

# All of these are linear: each repetition is over one set of characters, and none can follow itself.
_BLANKS: Final = re.compile(r"[ \t\n\r]*")
_SHORTHAND: Final = re.compile("[A-Za-z_\x80-\ud7ff\ue000-\U0010ffff][A-Za-z_0-9\x80-\ud7ff\ue000-\U0010ffff]*")
_LOOSE_NAME: Final = re.compile(r"[^\s.\[\]^~*(),'\"`?@:;=<>&|!{}$\ud800-\udfff]+")
_FUNCTION: Final = re.compile(r"[a-z][a-z_0-9]*(?=\()")
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*")
_NUMBER: Final = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "/": "/", "\\": "\\"}
_UNICODE: Final = re.compile(r"\\u(?:([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|([0-9a-fA-F]{4}))")
_LARGEST: Final = 2**53 - 1
"""The largest integer that JSON readers agree on (RFC 9535, section 2.1)."""
_MOST_DIGITS: Final = 400
"""The maximum number of digits: converting a very long number takes quadratic time."""


class Scanner:
    """A position in the text of a path."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def make_fault(self, message: str, *, at: int | None = None, hint: str | None = None) -> PathError:
        """Return an error at the current position, or at another one."""
        return PathError(f"invalid JSONPath: {message}", offset=self.at if at is None else at, hint=hint)

    def make_unexpected_fault(self, wanted: str) -> PathError:
        """Return an error with the expected and the actual text."""
        found = f"found {self.text[self.at]!r}" if self.at < len(self.text) else "the path ends here"
        return self.make_fault(f"expected {wanted}, {found}")

    def peek(self) -> str:
        """Return the current character, or an empty text at the end."""
        return self.text[self.at : self.at + 1]

    def sees(self, token: str) -> bool:
        """Return whether `token` comes next."""
        return self.text.startswith(token, self.at)

    def accept(self, token: str) -> bool:
        """Skip `token` if it comes next."""
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def expect(self, token: str) -> None:
        """Skip `token`; anything else is an error."""
        if not self.accept(token):
            raise self.make_unexpected_fault(f"`{token}`")

    def skip_blanks(self) -> None:
        """Skip blanks."""
        self.take(_BLANKS)

    def take(self, pattern: re.Pattern[str]) -> str | None:
        """Skip and return what the pattern matches here."""
        if (match := pattern.match(self.text, self.at)) is None:
            return None
        self.at = match.end()
        return match[0]

    def read_integer(self) -> int | None:
        """Return a position or bound."""
        start = self.at
        digits = self.take(_INTEGER)
        if digits is None:
            # `-0` is not a position in RFC 9535; later the sign would be lost.
            if self.peek() == "-":
                raise self.make_fault("`-` must be followed by a number from 1 up")
            return None
        # `isdigit` also accepts digits of other scripts, which are not allowed here.
        if self.peek().isdigit() and self.peek().isascii():
            raise self.make_fault("a number must not begin with 0", at=start)
        # The limit has sixteen digits, plus a sign; a longer number is not even converted.
        if len(digits) > 17 or abs(int(digits)) > _LARGEST:
            raise self.make_fault(f"the number {digits[:20]} is out of range", at=start)
        return int(digits)

    def number(self) -> int | float | None:
        """Return a number literal."""
        start = self.at
        if (match := _NUMBER.match(self.text, start)) is None:
            return None
        if len(match[0]) > _MOST_DIGITS:
            raise self.make_fault("this number is too long")
        self.at = match.end()
        if self.peek().isdigit() and self.peek().isascii():
            raise self.make_fault("a number must not begin with 0", at=start)
        if match[2] is None and match[3] is None:
            return int(match[1])
        return float(match[0])

    def read_quoted(self) -> str | None:
        """Return a text in single or double quotes."""
        quote = self.peek()
        if quote not in ("'", '"') or not quote:
            return None
        start = self.at
        self.at += 1
        parts: list[str] = []
        while (character := self.peek()) != quote:
            if not character:
                raise self.make_fault("this text is never closed", at=start)
            if character == "\\":
                parts.append(self._escape(quote))
                continue
            if character < " " or "\ud800" <= character <= "\udfff":
                raise self.make_fault(f"the character {character!r} must be written as an escape")
            parts.append(character)
            self.at += 1
        self.at += 1
        return "".join(parts)

    def _escape(self, quote: str) -> str:
        start, kind = self.at, self.text[self.at + 1 : self.at + 2]
        self.at += 2
        # Only the enclosing quote is escaped; the other one is literal (RFC 9535, section 2.3.1.1).
        if kind == quote:
            return quote
        if kind in _ESCAPES:
            return _ESCAPES[kind]
        if kind != "u":
            raise self.make_fault(f"unknown escape `\\{kind}`", at=start)
        if (match := _UNICODE.match(self.text, start)) is None:
            raise self.make_fault("`\\u` must be followed by four hexadecimal digits", at=start)
        self.at = match.end()
        if match[3] is None:
            return chr(0x10000 + ((int(match[1], 16) - 0xD800) << 10) + int(match[2], 16) - 0xDC00)
        code = int(match[3], 16)
        # A lone surrogate is not a character, and no text with it can be written as UTF-8.
        if 0xD800 <= code <= 0xDFFF:
            raise self.make_fault(f"lone {'high' if code < 0xDC00 else 'low'} surrogate", at=start)
        return chr(code)


LONGEST_PATH: Final = 10_000
"""The maximum length of a path in characters."""
_DEEPEST: Final = 50
"""The maximum nesting of filters; they are parsed and evaluated recursively."""
# Longer ones first, as `<` begins `<=`.
_OPERATORS: Final = {token: token for token in ("==", "!=", "<=", ">=", "<", ">")}
_STRICT_OPERATORS: Final = {"===": "==", "!==": "!="}
_KEYWORDS: Final = {"true": True, "false": False, "null": None}


def parse(text: str, *, loose: bool) -> Query:
    """Parse a path; `loose` for MCPLab. Raises `PathError` with the position of the error."""
    if len(text) > LONGEST_PATH:
        raise PathError(f"the path has {len(text)} characters; at most {LONGEST_PATH} are allowed")
    if not text:
        raise PathError("invalid JSONPath: the path is empty", offset=0, hint="`$` selects the whole document")
    parser = _Parser(text, loose)
    query = parser.read_whole()
    if parser.at != len(text):
        raise parser.make_unexpected_fault("`.`, `..`, `[` or the end of the path")
    return query


class _Parser(Scanner):
    def __init__(self, text: str, loose: bool) -> None:
        super().__init__(text)
        self.loose = loose
        self.depth = 0
        self.truthy = False

    def read_whole(self) -> Query:
        if self.accept("$"):
            return Query(True, self.read_segments())
        if self.loose:
            first = Wildcard() if self.accept("*") else self.read_name_after_dot("child")
            if first is not None:
                return Query(True, (Segment((first,)), *self.read_segments()))
        # `read_shorthand` advances the scanner, so the position of the error is passed.
        raise self.make_fault("a path begins with `$`", hint=f"write `$.{self.text}`" if self.take(_SHORTHAND) else None, at=0)

    def read_segments(self) -> tuple[Segment | Step, ...]:
        segments: list[Segment | Step] = []
        while True:
            start = self.at
            self.skip_blanks()
            segment = self.read_segment()
            if segment is None:
                # Blanks belong to the next segment; a path must not end with them.
                self.at = start
                return tuple(segments)
            segments.append(segment)

    def read_segment(self) -> Segment | Step | None:
        if self.sees("["):
            return Segment(self.read_bracketed("child"))
        if self.accept(".."):
            if self.sees("["):
                return Segment(self.read_bracketed("descendant"), True)
            return Segment((self.read_after_dot("descendant"),), True)
        if self.accept("."):
            return Segment((self.read_after_dot("child"),))
        if self.loose and self.depth == 0:
            if self.accept("^"):
                return Step("parent")
            if self.accept("~"):
                return Step("key")
        return None

    def read_after_dot(self, where: str) -> Selector:
        if self.accept("*"):
            return Wildcard()
        if (name := self.read_name_after_dot(where)) is None:
            raise self.make_unexpected_fault("a name or `*`")
        return name

    def read_name_after_dot(self, where: str) -> Name | None:
        # Inside a filter a hyphen is not part of a name: `@.a-1` would be arithmetic.
        name = self.take(_LOOSE_NAME) if self.loose and self.depth == 0 else self.take(_SHORTHAND)
        return None if name is None else self.make_name(name, where)

    def make_name(self, name: str, where: str) -> Name:
        if not self.loose:
            return Name(name)
        return Name(name, "filter" if self.depth else "descendant" if where == "descendant" else "child")

    def read_bracketed(self, where: str) -> tuple[Selector, ...]:
        self.expect("[")
        selectors: list[Selector] = []
        while True:
            self.skip_blanks()
            selectors.append(self.read_selector(where))
            self.skip_blanks()
            if not self.accept(","):
                break
        if not self.accept("]"):
            raise self.make_unexpected_fault("`,` or `]`")
        return tuple(selectors)

    def read_selector(self, where: str) -> Selector:
        if self.accept("*"):
            return Wildcard()
        if self.accept("?"):
            return self.read_filter()
        text = self.read_quoted()
        if text is not None:
            return self.make_name(text, where)
        if self.loose and self.sees("("):
            start = self.at
            for token in ("(", "@", ".", "length", "-"):
                if not self.accept(token):
                    raise self.make_fault("of scripts only `(@.length-1)` is read", at=start)
                self.skip_blanks()
            places = self.read_integer()
            self.skip_blanks()
            if places is None or places < 1 or not self.accept(")"):
                raise self.make_fault("of scripts only `(@.length-1)` is read", at=start)
            return FromEnd(places)
        # Numbers before names without quotes, or `[0]` would be the name `0`.
        start = self.read_integer()
        if start is None and self.loose and self.depth == 0 and not self.sees(":"):
            name = self.take(_LOOSE_NAME)
            if name is not None:
                return self.make_name(name, where)
        before = self.at
        self.skip_blanks()
        if self.accept(":"):
            self.skip_blanks()
            end = self.read_integer()
            before = self.at
            self.skip_blanks()
            if not self.accept(":"):
                self.at = before
                return Slice(start, end, None)
            self.skip_blanks()
            return Slice(start, end, self.read_integer())
        self.at = before
        if start is None:
            raise self.make_unexpected_fault("a quoted name, a position, a slice, `*` or `?`")
        return Index(start, self.loose)

    def read_filter(self) -> Filter:
        self.skip_blanks()
        # A filter may be inside another one, whose state is restored afterwards.
        outer_truthy = self.truthy
        self.truthy = self.loose and (self.truthy or self.sees("("))
        expression = self.read_any_of()
        self.truthy = outer_truthy
        return Filter(expression)

    def read_any_of(self) -> Logical:
        parts = [self.read_all_of()]
        while self.reads_operator("||"):
            parts.append(self.read_all_of())
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def read_all_of(self) -> Logical:
        parts = [self.read_basic()]
        while self.reads_operator("&&"):
            parts.append(self.read_basic())
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def reads_operator(self, token: str) -> bool:
        start = self.at
        self.skip_blanks()
        if self.accept(token):
            self.skip_blanks()
            return True
        self.at = start
        return False

    def read_basic(self) -> Logical:
        with self.deeper():
            negated = self.accept("!")
            if negated:
                self.skip_blanks()
            if self.sees("("):
                inner = self.read_in_brackets()
            else:
                start = self.at
                left = self.read_operand()
                inner = self.test(left, start) if negated else self.read_comparison(left, start)
            return Not(inner) if negated else inner

    @contextmanager
    def deeper(self) -> Generator[None]:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.make_fault("the expression is nested too deeply")
        yield
        # An error ends the parsing of the whole path, so the depth after one does not matter.
        self.depth -= 1

    def read_comparison(self, left: Operand, start: int) -> Logical:
        if (operator := self.read_comparison_operator()) is None:
            return self.test(left, start)
        self.check_comparable(left, start)
        self.skip_blanks()
        start = self.at
        right = self.read_operand()
        self.check_comparable(right, start)
        return Comparison(left, operator, right)

    def read_in_brackets(self) -> Logical:
        self.expect("(")
        self.skip_blanks()
        inner = self.read_any_of()
        self.skip_blanks()
        if not self.accept(")"):
            raise self.make_unexpected_fault("`)`, `&&` or `||`")
        return inner

    def read_comparison_operator(self) -> str | None:
        start = self.at
        self.skip_blanks()
        # Those of MCPLab before the others, as `===` begins with `==`.
        for token, meaning in ({**_STRICT_OPERATORS, **_OPERATORS} if self.loose else _OPERATORS).items():
            if self.accept(token):
                return meaning
        if self.sees("="):
            raise self.make_fault("`=` is not an operator", hint="equality is written `==`")
        self.at = start
        return None

    def read_operand(self) -> Operand:
        if self.accept("@"):
            return Query(False, self.read_segments())
        if self.accept("$"):
            return Query(True, self.read_segments())
        text = self.read_quoted()
        if text is not None:
            return Constant(text)
        number = self.number()
        if number is not None:
            return Constant(number)
        start = self.at
        function = self.take(_FUNCTION)
        if function is not None:
            return self.call(function, start)
        word = self.take(_SHORTHAND)
        if word in _KEYWORDS:
            return Constant(_KEYWORDS[word])
        self.at = start
        raise self.make_unexpected_fault("`@`, `$`, a literal or a function")

    def call(self, name: str, start: int) -> Call:
        if name not in FUNCTIONS:
            close = nearest(name, FUNCTIONS)
            raise self.make_fault(f"unknown function `{name}`", at=start, hint=f"the functions are {', '.join(close or FUNCTIONS)}")
        parameters = FUNCTIONS[name][0]
        self.expect("(")
        arguments: list[Operand] = []
        self.skip_blanks()
        while not self.sees(")"):
            if arguments:
                self.expect(",")
                self.skip_blanks()
            # Before another argument is read, as it would have no expected kind.
            if len(arguments) == len(parameters):
                raise self.make_count_error(name, start)
            arguments.append(self.read_argument(name, parameters[len(arguments)]))
            self.skip_blanks()
        self.expect(")")
        if len(arguments) != len(parameters):
            raise self.make_count_error(name, start)
        return Call(name, tuple(arguments))

    def make_count_error(self, name: str, start: int) -> PathError:
        count = len(FUNCTIONS[name][0])
        return self.make_fault(f"`{name}` takes {count} argument{'s' if count > 1 else ''}", at=start)

    def read_argument(self, function: str, wanted: str) -> Operand:
        start = self.at
        with self.deeper():
            argument = self.read_operand()
        if wanted == "nodes":
            if not isinstance(argument, Query):
                raise self.make_fault(f"`{function}` takes a path", at=start)
        elif isinstance(argument, Query):
            if not argument.is_singular():
                raise self.make_fault(f"`{function}` takes a value; this path may select several", at=start)
        elif isinstance(argument, Call) and FUNCTIONS[argument.name][1] != "value":
            raise self.make_fault(f"`{function}` takes a value; `{argument.name}` returns true or false", at=start)
        return argument

    def test(self, subject: Operand, start: int) -> Test:
        if isinstance(subject, Query):
            return Test(subject, self.truthy and subject.is_singular())
        if isinstance(subject, Call):
            if FUNCTIONS[subject.name][1] == "value":
                raise self.make_fault(f"the result of `{subject.name}` must be compared with something", at=start)
            return Test(subject)
        raise self.make_fault("a literal must be compared with something", at=start)

    def check_comparable(self, operand: Operand, start: int) -> None:
        if isinstance(operand, Query) and not operand.is_singular():
            raise self.make_fault("a path that may select several values cannot be compared", at=start)
        if isinstance(operand, Call) and FUNCTIONS[operand.name][1] != "value":
            raise self.make_fault(f"`{operand.name}` returns true or false and cannot be compared", at=start)


class PathError(SpecError):
    """An invalid JSONPath."""

    def __init__(self, message: str, *, offset: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, field="path", offset=offset, hint=hint)


class Name(NamedTuple):
    """A member by name. `loose`: as in MCPLab, `length` and positions are names too; its value is the position of the name."""

    name: str
    loose: Literal["", "child", "descendant", "filter"] = ""


class Index(NamedTuple):
    """An element by position; negative counts from the end. `loose`: also the member of an object with that number as its name."""

    position: int
    loose: bool = False


class Slice(NamedTuple):
    """Elements from `start` up to `end`, by `step`."""

    start: int | None
    end: int | None
    step: int | None


class Wildcard(NamedTuple):
    """All children."""


class FromEnd(NamedTuple):
    """`[(@.length-1)]`: the element that many positions before the end (MCPLab)."""

    places: int


class Filter(NamedTuple):
    """Children for which an expression holds."""

    expression: Logical


Selector = Name | Index | Slice | Wildcard | FromEnd | Filter


class Segment(NamedTuple):
    """Selectors applied to each node, or to each node and all below it."""

    selectors: tuple[Selector, ...]
    descendant: bool = False


class Step(NamedTuple):
    """`^`, the parent, or `~`, the name of a node instead of its value (MCPLab)."""

    kind: Literal["parent", "key"]


class Query(NamedTuple):
    """A path from the root (`$`) or from the current node (`@`)."""

    from_root: bool
    segments: tuple[Segment | Step, ...]

    def is_singular(self) -> bool:
        """Return whether it selects at most one node in any document."""
        return all(
            isinstance(part, Segment) and not part.descendant and len(part.selectors) == 1 and isinstance(part.selectors[0], (Name, Index))
            for part in self.segments
        )


class Constant(NamedTuple):
    """A literal in a filter."""

    value: Json


class Call(NamedTuple):
    """A function call."""

    name: str
    arguments: tuple[Operand, ...]


class Test(NamedTuple):
    """A query that selects something, or a function that returns true. `truthy`: the one value selected must not be empty or false."""

    subject: Query | Call
    truthy: bool = False


class Comparison(NamedTuple):
    """Two values and an operator."""

    left: Operand
    operator: str
    right: Operand


class Not(NamedTuple):
    """The opposite."""

    inner: Logical


class AllOf(NamedTuple):
    """`&&`."""

    parts: tuple[Logical, ...]


class AnyOf(NamedTuple):
    """`||`."""

    parts: tuple[Logical, ...]


Logical = Test | Comparison | Not | AllOf | AnyOf
Operand = Query | Constant | Call

FUNCTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "length": (("value",), "value"),
    "count": (("nodes",), "value"),
    "value": (("nodes",), "value"),
    "match": (("value", "value"), "logical"),
    "search": (("value", "value"), "logical"),
}
"""The types of the parameters and of the result (RFC 9535, section 2.4)."""
