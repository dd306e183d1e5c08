"""The language of `--where`, which selects the rows of a data set.

    agent = 'shop' and start >= '2026-10-01' and not (tier in ('free', 'trial') or tokens is null)

Names are columns of Parquet, keys of folders (`day=2026-10-01`) and keys of JSON lines; dots go into structs and objects, and a name with
other characters is written in double quotes. Texts are in single quotes, `''` is one of them. As in SQL, a comparison with a missing value
is neither true nor false, and a row is read only if the whole condition is true.
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
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
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


def list_names(condition: Condition) -> Iterator[str]:
    """Return the distinct names in a condition."""
    names: dict[str, None] = {}
    _gather_names(condition, names)
    return iter(names)


def _gather_names(condition: Condition, seen: dict[str, None]) -> None:
    if isinstance(condition, (Compare, IsNull)):
        seen.setdefault(condition.name)
    else:
        for part in (condition.part,) if isinstance(condition, Not) else condition.parts:
            _gather_names(part, seen)


def decide_row(condition: Condition, find: Lookup) -> bool | None:
    """Return whether a condition is true of a row; None if unknown."""
    if isinstance(condition, Compare):
        return _compare(condition, find(condition.name))
    if isinstance(condition, IsNull):
        return find(condition.name) is None
    if isinstance(condition, Not):
        result = decide_row(condition.part, find)
        return None if result is None else not result
    # For `or`, one true part decides, for `and`, one false part, even if other parts are unknown.
    decisive = isinstance(condition, Either)
    unknown = False
    for part in condition.parts:
        result = decide_row(part, find)
        if result is decisive:
            return decisive
        unknown = unknown or result is None
    return None if unknown else not decisive


def list_comparisons(condition: Condition) -> Iterator[Compare]:
    """Return the comparisons in a condition."""
    if isinstance(condition, Compare):
        yield condition
    elif not isinstance(condition, IsNull):
        for part in (condition.part,) if isinstance(condition, Not) else condition.parts:
            yield from list_comparisons(part)


def has_other_type(comparison: Compare, value: Json) -> bool:
    """Return whether the value has another type than the constant, so that the comparison is neither true nor false."""
    return value is not None and _compare(comparison, value) is None


def name_kind(value: Value) -> str:
    """Return the name of a value's kind."""
    return "text" if isinstance(value, str) else "value" if isinstance(value, bool) else "number"


def may_hold(condition: Condition, known: dict[str, str | None]) -> bool:
    """Return whether a condition can be true for any row of a file, given only the keys of its folders."""
    return _decide_file(condition, known) is not False


def _decide_file(condition: Condition, known: dict[str, str | None]) -> bool | None:
    # For `decide_row`, a missing value is null; here it means that no row has been read yet.
    if isinstance(condition, IsNull) and condition.name not in known:
        return None
    if isinstance(condition, (Compare, IsNull)):
        return decide_row(condition, known.get)
    if isinstance(condition, Not):
        result = _decide_file(condition.part, known)
        return None if result is None else not result
    # One true part decides an `or`, one false part decides an `and`.
    decisive = isinstance(condition, Either)
    results = [_decide_file(part, known) for part in condition.parts]
    otherwise = None if None in results else not decisive
    return decisive if decisive in results else otherwise


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
    return _COMPARE[condition.sign](actual, value)


def _read_text(text: str, like: Value) -> Json:
    if isinstance(like, bool):
        return {"true": True, "false": False}.get(text.lower())
    number = _read_number(text) if _NUMBER.fullmatch(text) else None
    return None if number is None or math.isinf(number) else number


def _read_number(text: str) -> int | float:
    """Return a number in ASCII digits; an integer preserves all of them, as ids require."""
    return int(text) if len(text) <= _MOST_DIGITS and text.lstrip("+-").isdigit() else float(text)


class _Reader:
    """Reads one condition from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = list(self._split())
        self._next = 0
        self._depth = 0

    def _split(self) -> Iterator[_Word]:
        position = 0
        end = len(self._text.rstrip())
        while position < end:
            match = _TOKEN.match(self._text, position)
            if match is None or match.end() == position:
                rest = self._text[position:].lstrip()
                raise self._refuse(end - len(rest.rstrip()), f"found {rest[:20]!r}; write a text in single quotes")
            kind = str(match.lastgroup)
            word = match.group(kind)
            lowered = word.lower()
            is_word = kind == "word" and lowered in _WORDS
            yield _Word(lowered if is_word else kind, word, match.start(kind))
            position = match.end()

    def read(self) -> Condition:
        if not self._words:
            raise InputError("--where: the condition is empty; expected for example \"agent = 'shop'\"")
        condition = self._read_either()
        if self._next < len(self._words):
            word = self._words[self._next]
            raise self._refuse(word.column, f"expected `and` or `or`, found {word.text!r}")
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
            raise self._refuse(self._find_column(), f"more than {_DEEPEST} brackets inside each other")
        try:
            if self._take("not"):
                return Not(self._read_not())
            if self._take_sign("("):
                condition = self._read_either()
                self._expect_sign(")")
                return condition
            return self._read_comparison()
        finally:
            self._depth -= 1

    def _read_comparison(self) -> Condition:
        name = self._read_name()
        if self._take("is"):
            negated = self._take("not")
            self._expect("null")
            return Not(IsNull(name)) if negated else IsNull(name)
        negated = self._take("not")
        if self._take("in"):
            condition = Either(tuple(Compare(name, "=", value) for value in self._read_list()))
            return Not(condition) if negated else condition
        if negated:
            raise self._refuse(self._find_column(), "expected `in` after `not`")
        sign = self._words[self._next] if self._next < len(self._words) else None
        operator = "" if sign is None else _SAME.get(sign.text, sign.text)
        if sign is None or sign.kind != "sign" or operator not in _COMPARE:
            raise self._refuse(self._find_column(), f"expected a comparison after {name!r}: {' '.join(_COMPARE)}, in, is null")
        self._next += 1
        return Compare(name, operator, self._read_value())

    def _read_name(self) -> str:
        word = self._words[self._next] if self._next < len(self._words) else None
        if word is None or word.kind not in ("word", "quoted"):
            raise self._refuse(self._find_column(), "expected the name of a column" + (f", found {word.text!r}" if word else ""))
        self._next += 1
        return word.text.strip('"') if word.kind == "quoted" else word.text

    def _read_list(self) -> Iterator[Value]:
        self._expect_sign("(")
        yield self._read_value()
        while self._take_sign(","):
            yield self._read_value()
        self._expect_sign(")")

    def _read_value(self) -> Value:
        word = self._words[self._next] if self._next < len(self._words) else None
        kind = "" if word is None else word.kind
        if word is None or kind not in ("text", "number", "true", "false"):
            hints = {"word": "; write a text in single quotes", "quoted": "; write a text in single quotes", "null": "; write `is null`"}
            found = "" if word is None else f", found {word.text}"
            raise self._refuse(self._find_column(), f"expected a value{found}{hints.get(kind, '')}")
        self._next += 1
        if kind == "text":
            return word.text[1:-1].replace("''", "'")
        if kind == "number":
            return _read_number(word.text)
        return kind == "true"

    def _take(self, kind: str) -> bool:
        matches = self._next < len(self._words) and self._words[self._next].kind == kind
        self._next += matches
        return matches

    def _take_sign(self, sign: str) -> bool:
        matches = self._next < len(self._words) and (self._words[self._next].kind, self._words[self._next].text) == ("sign", sign)
        self._next += matches
        return matches

    def _expect(self, kind: str) -> None:
        if not self._take(kind):
            raise self._refuse(self._find_column(), f"expected `{kind}`")

    def _expect_sign(self, sign: str) -> None:
        if not self._take_sign(sign):
            raise self._refuse(self._find_column(), f"expected {sign!r}")

    def _find_column(self) -> int:
        return self._words[self._next].column if self._next < len(self._words) else len(self._text)

    def _refuse(self, column: int, why: str) -> InputError:
        return InputError(f"--where, character {column + 1}: {why}\n  {self._text}\n  {' ' * column}^")


def describe_unknown(name: str, known: list[str]) -> str:
    """Return the error text for an unknown column, with the nearest name."""
    hint = suggest_one(name, known)
    return f"--where: there is no column {name!r}{hint}; it has {', '.join(known) or 'none'}"
