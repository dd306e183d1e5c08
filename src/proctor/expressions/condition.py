"""Conditions: claims about evidence in one line, `tool_calls[*].arguments.amount < 100`.

    condition  = all_of { "or" all_of }
    all_of     = negated { "and" negated }
    negated    = "not" negated | "(" condition ")" | quantified | comparison
    quantified = ( "all" | "any" ) "(" condition ")"
    comparison = value [ ( "==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not" "in" ) value ]
    value      = TEXT | NUMBER | "true" | "false" | "null" | "[" [ value { "," value } ] "]" | call | path
    call       = ( "len" | "exists" ) "(" path ")" | FUNCTION "(" [ value { "," value } ] ")"
    path       = NAME { "." NAME | "[" NUMBER "]" | "[" TEXT "]" | "[*]" }

This file has the tree and its parser; a syntax error is a `SpecError` with its offset. The check `that` decides. The language has no loops
and no definitions, so deciding always ends, and nothing is executed as code.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import msgspec

from proctor.errors import SpecError
from proctor.expressions.expression import WORDS, Literal, check_call, find_function, is_bare_call
from proctor.expressions.functions import FUNCTIONS, Function
from proctor.expressions.lexer import CONDITION_SYMBOLS, Token, TokenReader, split_tokens
from proctor.model.evidence import Evidence
from proctor.model.show import nearest, shorten


class Key(msgspec.Struct, frozen=True):
    """A member by its name, whatever characters that has."""

    name: str


Step = Key | int | None
"""A member, an index (negative from the end), or None for every item."""


class Path(msgspec.Struct, frozen=True):
    """A place in the evidence, or every place that fits."""

    steps: tuple[Step, ...]
    """The steps, starting at the evidence."""
    offset: int
    source: str

    @property
    def selects(self) -> bool:
        """Whether it may name several places."""
        return None in self.steps

    def get_prefix(self) -> tuple[Step, ...]:
        """Return the steps up to the last `[*]`, which identify one item."""
        last = max(index for index, step in enumerate(self.steps) if step is None)
        return self.steps[: last + 1]


class Listed(msgspec.Struct, frozen=True):
    """Several values in brackets."""

    items: tuple[Value, ...]
    offset: int


class Measure(msgspec.Struct, frozen=True):
    """`len(path)` or `exists(path)`."""

    name: str
    path: Path
    offset: int


class Call(msgspec.Struct, frozen=True):
    """A function of expressions and its arguments."""

    function: Function
    arguments: tuple[Value, ...]
    offset: int


Value = Literal | Path | Listed | Measure | Call


class Compare(msgspec.Struct, frozen=True):
    """Two values and how they relate."""

    operator: str
    left: Value
    right: Value
    offset: int
    source: str


class Truth(msgspec.Struct, frozen=True):
    """A value that must be true."""

    value: Value
    offset: int
    source: str


class Both(msgspec.Struct, frozen=True):
    """Conditions joined by `and` or by `or`."""

    word: str
    parts: tuple[Condition, ...]
    offset: int
    source: str


class Not(msgspec.Struct, frozen=True):
    """The opposite of a condition."""

    part: Condition
    offset: int
    source: str


class Each(msgspec.Struct, frozen=True):
    """A condition over the items of a list: `all` or `any` of them, or `every`, as a bare `[*]` means: all, and at least one."""

    kind: str
    body: Condition
    prefix: tuple[Step, ...]
    """The path of one item; paths in the body that begin with it refer to that item."""
    subject: Path | None
    """The only path about an item, if there is just one: items without it are not selected."""
    offset: int
    source: str


Condition = Compare | Truth | Both | Not | Each


def list_values(condition: Condition) -> list[Value]:
    """Return the values that a condition compares, including those inside quantifiers."""
    match condition:
        case Compare():
            return [condition.left, condition.right]
        case Truth():
            return [condition.value]
        case Both():
            return [value for part in condition.parts for value in list_values(part)]
        case Not():
            return list_values(condition.part)
        case Each():
            return list_values(condition.body)


def list_paths(value: Value) -> list[Path]:
    """Return the paths whose values are compared, without those that only `len` or `exists` examines."""
    match value:
        case Path():
            return [value]
        case Listed():
            return [path for item in value.items for path in list_paths(item)]
        case Call():
            return [path for argument in value.arguments for path in list_paths(argument)]
        case _:
            return []


def holds_call(value: Value) -> bool:
    """Return whether a value contains a function of expressions."""
    return isinstance(value, Call) or (isinstance(value, Listed) and any(holds_call(item) for item in value.items))


# The names that a path of a condition may use, checked when a suite is read: those of evidence and its parts

_HIDDEN = frozenset(("account", "no_run", "case"))
"""Fields of evidence that are about the record, not about the run."""


def list_roots() -> tuple[str, ...]:
    """Return the names that a path may begin with."""
    return tuple(name for name in Evidence.__struct_fields__ if name not in _HIDDEN)


def check_step(kind: Any, step: Step, at: str, offset: int) -> Any:
    """Return the type that a step leads to from a value of type `kind`; `at` is the path so far. Raises `SpecError`."""
    kind = _strip_none(kind)
    if kind is Any:
        return Any
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        names = list_roots() if kind is Evidence else kind.__struct_fields__
        if not isinstance(step, Key):
            raise SpecError(f"{at} is an object, not a list", offset=offset, hint=f"known here: {', '.join(names)}")
        if step.name not in names:
            where = "evidence" if kind is Evidence else at
            near = nearest(step.name, names)
            raise SpecError(f"unknown name {step.name!r} in {where}", offset=offset, nearest=near, hint=f"known here: {', '.join(names)}")
        return _get_types(kind)[step.name]
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (tuple, list):
        if isinstance(step, Key):
            raise SpecError(
                f"{at} is a list and has no member {step.name!r}",
                offset=offset,
                hint=f"{at}[*].{step.name} is that of every item, {at}[0].{step.name} that of the first",
            )
        return inner[0]
    if origin is dict:
        if not isinstance(step, Key):
            raise SpecError(f"{at} is an object, not a list", offset=offset, hint=f"name a member: {at}.name")
        return inner[1]
    raise SpecError(f"{at} is {'text' if kind is str else 'a single value'} and holds nothing to look into", offset=offset)


@functools.cache
def _get_types(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


def _strip_none(kind: Any) -> Any:
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        inner = [member for member in typing.get_args(kind) if member is not type(None)]
        # The actual kind is known only with the evidence, so any name is allowed below it.
        return inner[0] if len(inner) == 1 else Any
    return kind


DEEPEST = 50
"""The maximum nesting; parsing and deciding recurse."""
COMPARISONS = ("==", "!=", "<=", ">=", "<", ">")
_RESERVED = ("and", "or", "not", "in")
_QUANTIFIERS = ("all", "any")
_MEASURES = ("len", "exists")


def compile_condition(text: str, *, field: str | None = None) -> Condition:
    """Parse a condition; an error in it is a `SpecError` at `field` with its offset."""
    try:
        return _compile_cached(text)
    except SpecError as error:
        raise error.move_to(field) from None


# The field is not part of the key: one text may be in many fields, and only an error names its field.
@functools.lru_cache(maxsize=1024)
def _compile_cached(text: str) -> Condition:
    return _Parser(text).read_whole()


class _Parser(TokenReader):
    def __init__(self, text: str) -> None:
        super().__init__(split_tokens(text, CONDITION_SYMBOLS))
        self._text = text
        self._quantified = False
        self._depth = 0

    def read_whole(self) -> Condition:
        if self.peek().kind == "end":
            raise SpecError("the condition is empty", offset=0)
        condition = self._read_either()
        rest = self.peek()
        if rest.kind in COMPARISONS or self._is_word("in"):
            raise SpecError("comparisons are not chained", offset=rest.offset, hint="write `0 < x and x < 5`")
        if rest.kind != "end":
            raise SpecError(f"unexpected {shorten(rest.source, 40)!r} after the condition", offset=rest.offset)
        return condition

    def _is_word(self, *words: str, ahead: int = 0) -> bool:
        word = self.peek(ahead)
        return word.kind == "name" and word.value in words

    def _require(self, kind: str, where: str) -> Token:
        word = self.next()
        if word.kind != kind:
            raise SpecError(f"expected {kind!r} {where}, found {word.describe()}", offset=word.offset)
        return word

    def _get_source(self, start: int) -> str:
        last = self._tokens[self._at - 1]
        return self._text[start : last.offset + len(last.source)]

    @contextmanager
    def _deeper(self, offset: int) -> Generator[None]:
        self._depth += 1
        if self._depth > DEEPEST:
            raise SpecError(f"the condition is nested more than {DEEPEST} deep", offset=offset)
        yield
        # An error ends the parsing, so the depth after one does not matter.
        self._depth -= 1

    def _read_either(self) -> Condition:
        return self._read_joined("or", lambda: self._read_joined("and", self._read_negated))

    def _read_joined(self, word: str, read_part: Callable[[], Condition]) -> Condition:
        start = self.peek().offset
        parts = [read_part()]
        while self._is_word(word):
            self.next()
            parts.append(read_part())
        return parts[0] if len(parts) == 1 else Both(word, tuple(parts), start, self._get_source(start))

    def _read_negated(self) -> Condition:
        word = self.peek()
        with self._deeper(word.offset):
            if self._is_word("not"):
                self.next()
                part = self._read_negated()
                if _has_bare_selection(part):
                    raise SpecError(
                        "`not` before a condition on [*] could mean that none or that not all of them hold",
                        offset=word.offset,
                        hint="write `not any(...)`, `not all(...)`, or turn the comparison around (!=)",
                    )
                return Not(part, word.offset, self._get_source(word.offset))
            if word.kind == "(":
                self.next()
                inner = self._read_either()
                self._require(")", "after the condition")
                return inner
            if self._is_word(*_QUANTIFIERS) and self.peek(1).kind == "(":
                return self._read_quantified()
            return self._read_comparison()

    def _read_quantified(self) -> Condition:
        word = self.next()
        if self._quantified:
            raise SpecError(f"{word.value}(...) cannot stand inside of another all(...) or any(...)", offset=word.offset)
        self.next()
        self._quantified = True
        body = self._read_either()
        self._quantified = False
        self._require(")", f"after the condition of {word.value}")
        paths = [path for value in list_values(body) for path in list_paths(value) if path.selects]
        if not paths:
            raise SpecError(
                f"{word.value}(...) needs a path with [*] to go through", offset=word.offset, hint="for example tool_calls[*].name"
            )
        prefix = paths[0].get_prefix()
        other = next((path for path in paths if path.get_prefix() != prefix), None)
        if other is not None:
            raise SpecError(
                f"{paths[0].source} and {other.source} go through different lists",
                offset=other.offset,
                hint=f"all paths in one {word.value}(...) are about the same item",
            )
        subject = paths[0] if len(paths) == 1 and isinstance(body, (Compare, Truth)) else None
        return Each(word.value, body, prefix, subject, word.offset, self._get_source(word.offset))

    def _read_comparison(self) -> Condition:
        start = self.peek().offset
        left = self._read_value()
        word = self.peek()
        operator = None
        if word.kind in COMPARISONS or self._is_word("in"):
            operator = self.next().source
        elif self._is_word("not") and self._is_word("in", ahead=1):
            self._at += 2
            operator = "not in"
        if operator is None:
            condition: Compare | Truth = Truth(left, start, self._get_source(start))
        else:
            condition = Compare(operator, left, self._read_value(), start, self._get_source(start))
        return condition if self._quantified else _quantify_bare(condition)

    def _read_value(self) -> Value:
        word = self.next()
        with self._deeper(word.offset):
            if word.kind in ("text", "number"):
                return Literal(word.value, word.offset)
            if word.kind == "[":
                return Listed(self.read_items("]", "in the list", self._read_value), word.offset)
            if word.kind != "name" or word.value in _RESERVED:
                raise SpecError(f"expected a value or a path, found {word.describe()}", offset=word.offset)
            if self.peek().kind == "(":
                return self._read_call(word)
            if word.value in WORDS:
                return Literal(WORDS[word.value], word.offset)
            # `now` is a field of evidence and `NOW` a function: the exact name of a field is always a path.
            if is_bare_call(word.value) and word.value not in list_roots():
                return Call(FUNCTIONS[word.value.upper()], (), word.offset)
            return self._read_path(word)

    def _read_call(self, name: Token) -> Value:
        word = name.value.lower()
        if word in _QUANTIFIERS:
            raise SpecError(f"{word}(...) is a condition, not a value", offset=name.offset)
        self.next()
        if word in _MEASURES:
            first = self.next()
            if first.kind != "name" or first.value in (*_RESERVED, *WORDS):
                raise SpecError(f"{word}(...) takes a path, found {shorten(first.source, 40)!r}", offset=first.offset)
            path = self._read_path(first)
            self._require(")", f"after the path of {word}")
            return Measure(word, path, name.offset)
        function = find_function(name, *_QUANTIFIERS, *_MEASURES)
        arguments = self.read_items(")", f"in the arguments of {function.name}", self._read_value)
        check_call(function, name, arguments)
        return Call(function, arguments, name.offset)

    def _read_path(self, first: Token) -> Path:
        steps: list[Step] = [Key(first.value)]
        kind = check_step(Evidence, steps[0], "evidence", first.offset)
        while self.peek().kind in (".", "[", "[*]"):
            at = self._get_source(first.offset)
            word = self.next()
            place = self.peek().offset if word.kind != "[*]" else word.offset
            step = self._read_step(word)
            kind = check_step(kind, step, at, place)
            steps.append(step)
        return Path(tuple(steps), first.offset, self._get_source(first.offset))

    def _read_step(self, opening: Token) -> Step:
        if opening.kind == "[*]":
            return None
        word = self.next()
        if opening.kind == ".":
            if word.kind != "name":
                raise SpecError(
                    f"expected a name after '.', found {word.describe()}", offset=word.offset, hint='other keys are written ["..."]'
                )
            return Key(word.value)
        if word.kind == "text":
            step: Step = Key(word.value)
        elif word.kind == "number" and isinstance(word.value, int):
            step = word.value
        else:
            raise SpecError(f"expected an index, a key in quotes or * in brackets, found {shorten(word.source, 40)!r}", offset=word.offset)
        self._require("]", "after it")
        return step


def _has_bare_selection(condition: Condition) -> bool:
    """Return whether a condition uses [*] without `all` or `any`."""
    match condition:
        case Each():
            return condition.kind == "every"
        case Both():
            return any(_has_bare_selection(part) for part in condition.parts)
        case Not():
            return _has_bare_selection(condition.part)
        case _:
            return False


def _quantify_bare(condition: Compare | Truth) -> Condition:
    """Return a comparison on [*] as a comparison of every item; for `in`, the list on the right is one value."""
    values = [condition.value] if isinstance(condition, Truth) else [condition.left, condition.right]
    if isinstance(condition, Compare) and condition.operator in ("in", "not in") and isinstance(condition.right, Path):
        values = [condition.left]
    paths = [path for value in values for path in list_paths(value) if path.selects]
    if not paths:
        return condition
    if len(paths) > 1:
        raise SpecError(
            f"{paths[0].source} and {paths[1].source} both name many values",
            offset=paths[1].offset,
            hint="all(...) and any(...) compare two values of the same item",
        )
    return Each("every", condition, paths[0].get_prefix(), paths[0], condition.offset, condition.source)
