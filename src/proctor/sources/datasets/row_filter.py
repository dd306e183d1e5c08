"""The language of `--where`, which selects the rows of a data set.

    agent = 'shop' and start >= '2026-10-01' and not (tier in ('free', 'trial') or tokens is null)

Names are columns of Parquet, keys of folders (`day=2026-10-01`) and keys of JSON lines; dots select members of structs and objects, and a
name with other characters is written in double quotes. Texts are in single quotes; `''` is a single quote inside a text. As in SQL, a
comparison with a missing value is neither true nor false, and a row is read only if the whole condition is true.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from proctor.errors import InputError
from proctor.model.evidence import Json
from proctor.model.show import suggest_one

Value = str | int | float | bool
Lookup = Callable[[str], Json]
"""Returns the value of a name; None if it is missing or not yet known."""
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_SAME = {"==": "=", "<>": "!="}
_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<quoted>\"[^\"]+\")|(?P<number>[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<word>[^\W\d][\w.-]*)|(?P<sign><=|>=|<>|!=|==|=|<|>|\(|\)|,))"
)
_NUMBER = re.compile(r"[+-]?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,9})?")
"""A number in the name of a folder: `float` would also accept `nan`, `1_0` and the digits of other scripts."""
_WORDS = ("and", "or", "not", "in", "is", "null", "true", "false")
_LONGEST = 10_000
_MOST_DIGITS = 40
"""Maximum digits of an integer that is compared exactly: a UUID in decimal has 39."""
_DEEPEST = 50
"""Maximum nesting of brackets and `not`."""


class Compare(msgspec.Struct, frozen=True):
    """A name compared with a value."""

    name: str
    sign: str
    value: Value


class IsNull(msgspec.Struct, frozen=True):
    """Whether the value of a name is missing or null."""

    name: str


class Not(msgspec.Struct, frozen=True):
    """The negation."""

    part: Condition


class Both(msgspec.Struct, frozen=True):
    """Whether all parts are true."""

    parts: tuple[Condition, ...]


class Either(msgspec.Struct, frozen=True):
    """Whether one of the parts is true."""

    parts: tuple[Condition, ...]


Condition = Compare | IsNull | Not | Both | Either


class _Word(msgspec.Struct, frozen=True):
    kind: str
    text: str
    column: int


def read_filter(text: str) -> Condition:
    """Parse a condition. Raises `InputError` with the position of an error."""
    if len(text) > _LONGEST:
        raise InputError(f"--where: longer than {_LONGEST:,} characters")
    return _Reader(text).read()


def list_leaves(condition: Condition) -> Iterator[Compare | IsNull]:
    """Yield the comparisons in a condition and its tests for null."""
    if isinstance(condition, (Compare, IsNull)):
        yield condition
    else:
        for part in (condition.part,) if isinstance(condition, Not) else condition.parts:
            yield from list_leaves(part)


def list_names(condition: Condition) -> list[str]:
    """Return the distinct names in a condition."""
    return list(dict.fromkeys(leaf.name for leaf in list_leaves(condition)))


def list_comparisons(condition: Condition) -> list[Compare]:
    """Return the comparisons in a condition."""
    return [leaf for leaf in list_leaves(condition) if isinstance(leaf, Compare)]


def decide_row(condition: Condition, find: Lookup, is_read: Callable[[str], bool] = lambda name: True) -> bool | None:
    """Return whether a condition is true of a row; None if unknown. A missing value is null only if its name `is_read` already."""
    if isinstance(condition, Compare):
        return _compare(condition, find(condition.name))
    if isinstance(condition, IsNull):
        return find(condition.name) is None if is_read(condition.name) else None
    if isinstance(condition, Not):
        result = decide_row(condition.part, find, is_read)
        return None if result is None else not result
    # For `or`, one true part decides, for `and`, one false part, even if other parts are unknown.
    decisive = isinstance(condition, Either)
    unknown = False
    for part in condition.parts:
        result = decide_row(part, find, is_read)
        if result is decisive:
            return decisive
        unknown = unknown or result is None
    return None if unknown else not decisive


def has_other_type(comparison: Compare, value: Json) -> bool:
    """Return whether the value has another type than the constant, so that the comparison is neither true nor false."""
    return value is not None and _compare(comparison, value) is None


def name_kind(value: Value) -> str:
    """Return the name of a value's kind."""
    return "text" if isinstance(value, str) else "value" if isinstance(value, bool) else "number"


def may_hold(condition: Condition, known: dict[str, str | None]) -> bool:
    """Return whether a condition can be true for any row of a file, given only the keys of its folders."""
    return decide_row(condition, known.get, known.__contains__) is not False


def find_member(record: Json, name: str) -> Json:
    """Return the value of a name in an object; dots descend into objects, but a key that contains the dots wins."""
    if not isinstance(record, dict):
        return None
    if name in record:
        return record[name]
    head, dot, rest = name.partition(".")
    return find_member(record.get(head), rest) if dot else None


def has_member(record: Json, name: str) -> bool:
    """Return whether an object has a name, even with the value null."""
    if not isinstance(record, dict):
        return False
    head, dot, rest = name.partition(".")
    return name in record or (bool(dot) and has_member(record.get(head), rest))


def _compare(condition: Compare, actual: Json) -> bool | None:
    value = condition.value
    if isinstance(actual, str) and not isinstance(value, str):
        # The keys of folders are texts.
        actual = _read_text(actual, value)
    same_kind = isinstance(actual, str) if isinstance(value, str) else isinstance(actual, (int, float))
    # True and false are numbers in Python: without the last comparison, `paid = 1` would match true.
    if actual is None or not same_kind or isinstance(actual, bool) is not isinstance(value, bool):
        return None
    return COMPARE[condition.sign](actual, value)


def _read_text(text: str, like: Value) -> Json:
    if isinstance(like, bool):
        return {"true": True, "false": False}.get(text.lower())
    number = _read_number(text) if _NUMBER.fullmatch(text) else None
    return None if number is None or math.isinf(number) else number


def _read_number(text: str) -> int | float:
    """Return a number in ASCII digits; an integer preserves all of them, as ids require."""
    return int(text) if len(text) <= _MOST_DIGITS and text.lstrip("+-").isdigit() else float(text)


class _Reader:
    """Reads one condition from left to right. The kind of a sign is the sign itself, that of a keyword the keyword."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = [*self._split(), _Word("end", "", len(text))]
        self._next = 0
        self._depth = 0

    def _split(self) -> Iterator[_Word]:
        position = 0
        end = len(self._text.rstrip())
        while position < end:
            match = _TOKEN.match(self._text, position)
            if match is None or match.end() == position:
                rest = self._text[position:].lstrip()
                raise self._refuse(f"found {rest[:20]!r}; write a text in single quotes", end - len(rest.rstrip()))
            kind = str(match.lastgroup)
            word = match.group(kind)
            if kind == "sign":
                kind = _SAME.get(word, word)
            elif kind == "word" and word.lower() in _WORDS:
                kind = word.lower()
            yield _Word(kind, word, match.start(match.lastgroup or 0))
            position = match.end()

    @property
    def _word(self) -> _Word:
        """The next word."""
        return self._words[self._next]

    def read(self) -> Condition:
        if self._word.kind == "end":
            raise InputError("--where: the condition is empty; expected for example \"agent = 'shop'\"")
        condition = self._read_either()
        if self._word.kind != "end":
            raise self._refuse(f"expected `and` or `or`, found {self._word.text!r}")
        return condition

    def _read_either(self) -> Condition:
        parts = [self._read_both()]
        while self._take("or"):
            parts.append(self._read_both())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _read_both(self) -> Condition:
        parts = [self._read_not()]
        while self._take("and"):
            parts.append(self._read_not())
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def _read_not(self) -> Condition:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._refuse(f"more than {_DEEPEST} brackets inside each other")
        try:
            if self._take("not"):
                return Not(self._read_not())
            if self._take("("):
                condition = self._read_either()
                self._expect(")")
                return condition
            return self._read_comparison()
        finally:
            self._depth -= 1

    def _read_comparison(self) -> Condition:
        word = self._word
        if word.kind not in ("word", "quoted"):
            raise self._refuse("expected the name of a column" + (f", found {word.text!r}" if word.text else ""))
        self._next += 1
        name = word.text.strip('"') if word.kind == "quoted" else word.text
        if self._take("is"):
            negated = self._take("not")
            self._expect("null")
            return Not(IsNull(name)) if negated else IsNull(name)
        negated = self._take("not")
        if self._take("in"):
            condition = Either(tuple(Compare(name, "=", value) for value in self._read_list()))
            return Not(condition) if negated else condition
        if negated:
            raise self._refuse("expected `in` after `not`")
        sign = self._word.kind
        if sign not in COMPARE:
            raise self._refuse(f"expected a comparison after {name!r}: {' '.join(COMPARE)}, in, is null")
        self._next += 1
        return Compare(name, sign, self._read_value())

    def _read_list(self) -> Iterator[Value]:
        self._expect("(")
        yield self._read_value()
        while self._take(","):
            yield self._read_value()
        self._expect(")")

    def _read_value(self) -> Value:
        word = self._word
        if word.kind not in ("text", "number", "true", "false"):
            hints = {"word": "; write a text in single quotes", "quoted": "; write a text in single quotes", "null": "; write `is null`"}
            found = f", found {word.text}" if word.text else ""
            raise self._refuse(f"expected a value{found}{hints.get(word.kind, '')}")
        self._next += 1
        if word.kind == "text":
            return word.text[1:-1].replace("''", "'")
        return _read_number(word.text) if word.kind == "number" else word.kind == "true"

    def _take(self, kind: str) -> bool:
        matches = self._word.kind == kind
        self._next += matches
        return matches

    def _expect(self, kind: str) -> None:
        if not self._take(kind):
            raise self._refuse(f"expected `{kind}`" if kind.isalpha() else f"expected {kind!r}")

    def _refuse(self, why: str, column: int | None = None) -> InputError:
        column = self._word.column if column is None else column
        return InputError(f"--where, character {column + 1}: {why}\n  {self._text}\n  {' ' * column}^")


def describe_unknown(name: str, known: list[str]) -> str:
    """Return the error text for an unknown column, with the nearest name."""
    hint = suggest_one(name, known)
    return f"--where: there is no column {name!r}{hint}; it has {', '.join(known) or 'none'}"
