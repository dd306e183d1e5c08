"""Conditions: claims about evidence in one line, `tool_calls[*].arguments.amount < 100`.

    condition  = all_of { "or" all_of }
    all_of     = negated { "and" negated }
    negated    = "not" negated | "(" condition ")" | quantified | comparison
    quantified = ( "all" | "any" ) "(" condition ")"
    comparison = value [ ( "==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not" "in" ) value ]
    value      = TEXT | NUMBER | "true" | "false" | "null" | "[" [ value { "," value } ] "]" | call | path
    call       = ( "len" | "exists" ) "(" path ")" | FUNCTION "(" [ value { "," value } ] ")"
    path       = NAME { "." NAME | "[" NUMBER "]" | "[" TEXT "]" | "[*]" }

This file has the tree; `condition_parser` reads it, `condition_paths` knows the names of evidence, and the check `that` decides. There
is no loop and no definition in the language, so that deciding always ends; nothing is ever run as code.
"""

from __future__ import annotations

import msgspec

from proctor.expressions.functions import Function
from proctor.model.evidence import Json


class Key(msgspec.Struct, frozen=True):
    """A member by its name, whatever characters that has."""

    name: str


Step = Key | int | None
"""A member, an index (from the end where it is negative), or None for every item."""


class Constant(msgspec.Struct, frozen=True):
    """A value written down."""

    value: Json
    offset: int


class Path(msgspec.Struct, frozen=True):
    """A place in the evidence, or every place that fits."""

    steps: tuple[Step, ...]
    """From the evidence on."""
    offset: int
    source: str

    @property
    def selects(self) -> bool:
        """Whether it names many places."""
        return None in self.steps

    def get_prefix(self) -> tuple[Step, ...]:
        """Return the steps up to the last `[*]`: what one item is."""
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


Value = Constant | Path | Listed | Measure | Call


class Compare(msgspec.Struct, frozen=True):
    """Two values and how they relate."""

    operator: str
    left: Value
    right: Value
    offset: int
    source: str


class Truth(msgspec.Struct, frozen=True):
    """A value that is to be true by itself."""

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
    """What one item is; paths in the body that begin so are about that item."""
    subject: Path | None
    """The one path about an item, where there is one: items without it are not selected."""
    offset: int
    source: str


Condition = Compare | Truth | Both | Not | Each


def list_values(condition: Condition) -> list[Value]:
    """Return the values that a condition compares, those inside of quantifiers included."""
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
    """Return the paths in a value that stand for a value by themselves; those that are counted are not among them."""
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
