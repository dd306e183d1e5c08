"""The structure of a JSONPath query, as the parser builds it and the evaluator walks it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from proctor.errors import SpecError
from proctor.model.evidence import Json


class PathError(SpecError):
    """A JSONPath that cannot be read."""

    def __init__(self, message: str, *, offset: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, field="path", offset=offset, hint=hint)


class Name(NamedTuple):
    """A member by name. `loose`: the MCPLab reading, where `length` and positions are names too; its value is the position of the name."""

    name: str
    loose: Literal["", "child", "descendant", "filter"] = ""


class Index(NamedTuple):
    """An element by position; negative counts from the end. `loose`: also the member of an object whose name is that number."""

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
    """`[(@.length-1)]`: the element that many places before the end (MCPLab)."""

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
        """Return whether it selects at most one node, whatever the document."""
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
