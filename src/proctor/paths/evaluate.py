"""Walking a document along a query, in bounded steps and without recursing into the document.

A node is a value, the name or position it was found under, and the node it was found in. Each node visited is one step; a query
that needs more than half a million is given up with `path_limit`. Order follows RFC 9535: children in document order, and
for `..` a node before what is below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from proctor.errors import CheckFault
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, Missing, is_number
from proctor.paths.query import (
    AllOf,
    AnyOf,
    Call,
    Comparison,
    Constant,
    Filter,
    FromEnd,
    Index,
    Logical,
    Name,
    Not,
    Operand,
    Query,
    Segment,
    Selector,
    Slice,
    Step,
    Test,
    Wildcard,
)
from proctor.patterns.iregexp import compile_iregexp
from proctor.patterns.offsets import measure_utf16_length
from proctor.work import spend

MOST_STEPS: Final = 500_000
"""Nodes that one evaluation may visit: filters inside descents grow with the square of a document."""

Found = tuple[Json, "str | int | None", "Found | None"]
"""Value, key, parent."""


class Walk:
    """One evaluation of a query on one document."""

    __slots__ = ("left", "root")

    def __init__(self, document: Json) -> None:
        self.root: Found = (document, None, None)
        self.left = MOST_STEPS

    def spend(self, steps: int) -> None:
        """Count steps; too many end the evaluation."""
        # Counted twice: against the bound of one path here, and against the budget of the whole check in `proctor.work`.
        self.left -= steps
        spend(steps)
        if self.left < 0:
            raise CheckFault("path_limit", f"the path visits more than {MOST_STEPS} nodes of this document")

    def select_query(self, query: Query, current: Found) -> list[Found]:
        """Return the nodes that `query` selects."""
        nodes = [self.root if query.from_root else current]
        for part in query.segments:
            nodes = self.step(part, nodes) if isinstance(part, Step) else self.select_segment(part, nodes)
            if not nodes:
                break
        return nodes

    def step(self, step: Step, nodes: list[Found]) -> list[Found]:
        """Select the parents of nodes, or their names instead of their values."""
        self.spend(len(nodes))
        if step.kind == "parent":
            return [node[2] for node in nodes if node[2] is not None]
        # A name is no part of the document, so it has no parent: `list_keys` then knows no place for it.
        return [(node[1], None, None) for node in nodes if node[1] is not None]

    def select_segment(self, segment: Segment, nodes: list[Found]) -> list[Found]:
        """Return the selectors of one segment on every node."""
        found: list[Found] = []
        selectors = segment.selectors
        for node in nodes:
            for start in self.iterate_below(node) if segment.descendant else (node,):
                self.spend(len(selectors))
                for selector in selectors:
                    found.extend(self.select(selector, start))
        return found

    def iterate_below(self, node: Found) -> Iterator[Found]:
        """Yield a node and everything below it, parents first."""
        pending = [node]
        while pending:
            top = pending.pop()
            yield top
            children = _list_children(top)
            if children:
                self.spend(len(children))
                # A stack gives back the last first, and RFC 9535 wants the order of the document.
                children.reverse()
                pending.extend(children)

    def select(self, selector: Selector, node: Found) -> list[Found]:
        """Return the children that one selector picks."""
        value = node[0]
        match selector:
            case Name(name, loose):
                if isinstance(value, dict):
                    return [(value[name], name, node)] if name in value else []
                return _find_loose_name(name, loose, node) if loose else []
            case Index(position, loose):
                if isinstance(value, (list, tuple)):
                    return _pick_element(node, position)
                if loose and isinstance(value, dict) and str(position) in value:
                    return [(value[str(position)], str(position), node)]
                return []
            case Wildcard():
                children = _list_children(node)
                self.spend(len(children))
                return children
            case Slice(start, end, step):
                return self.select_slice(node, start, end, step)
            case FromEnd(places):
                return _pick_element(node, -places) if isinstance(value, (list, tuple)) else []
            case Filter(expression):
                children = _list_children(node)
                self.spend(len(children))
                return [child for child in children if self.holds(expression, child)]

    def select_slice(self, node: Found, start: int | None, end: int | None, step: int | None) -> list[Found]:
        """Select the elements of a list; a step of 0 selects nothing."""
        value = node[0]
        if not isinstance(value, (list, tuple)) or step == 0:
            return []
        # Python clamps bounds and walks backwards as RFC 9535, section 2.3.4.2 asks, and slicing a range copies nothing.
        positions = range(len(value))[start:end:step]
        self.spend(len(positions))
        return [(value[position], position, node) for position in positions]

    def holds(self, expression: Logical, current: Found) -> bool:
        """Return whether a filter expression holds for a node."""
        self.spend(1)
        match expression:
            case AllOf(parts):
                return all(self.holds(part, current) for part in parts)
            case AnyOf(parts):
                return any(self.holds(part, current) for part in parts)
            case Not(inner):
                return not self.holds(inner, current)
            case Comparison(left, operator, right):
                return self.compare(self.find_value(left, current), operator, self.find_value(right, current))
            case Test(subject, truthy):
                if isinstance(subject, Call):
                    return self.matches(subject, current)
                nodes = self.select_query(subject, current)
                return bool(nodes) and (not truthy or _is_truthy(nodes[0][0]))

    def find_value(self, operand: Operand, current: Found) -> Json | Missing:
        """Return the one value of an operand, or `MISSING`."""
        match operand:
            case Constant(value):
                return value
            case Query():
                nodes = self.select_query(operand, current)
                return nodes[0][0] if len(nodes) == 1 else MISSING
            case Call(name, arguments):
                return self.call(name, arguments[0], current)

    def call(self, name: str, argument: Operand, current: Found) -> Json | Missing:
        """Return a function that gives a value."""
        if name == "length":
            # RFC 9535 counts characters here; only MCPLab's `.length` counts UTF-16 units, as JavaScript does.
            value = self.find_value(argument, current)
            return len(value) if isinstance(value, (str, list, tuple, dict)) else MISSING
        assert isinstance(argument, Query)
        nodes = self.select_query(argument, current)
        if name == "count":
            return len(nodes)
        # The function `value`: several nodes give nothing, as none do (RFC 9535, section 2.4.8).
        return nodes[0][0] if len(nodes) == 1 else MISSING

    def matches(self, call: Call, current: Found) -> bool:
        """Evaluate `match` and `search`: false for anything that is not text, and for a pattern that is not an I-Regexp."""
        text, source = (self.find_value(argument, current) for argument in call.arguments)
        if not isinstance(text, str) or not isinstance(source, str):
            return False
        pattern = compile_iregexp(source, whole=call.name == "match")
        return pattern is not None and pattern.search(text) is not None

    def compare(self, left: Json | Missing, operator: str, right: Json | Missing) -> bool:
        """Compare two values by RFC 9535, section 2.3.5.2.2: order exists among numbers and among texts only."""
        match operator:
            case "==":
                return self.equal(left, right)
            case "!=":
                return not self.equal(left, right)
            case "<":
                return _is_less(left, right)
            case ">":
                return _is_less(right, left)
            case "<=":
                return _is_less(left, right) or self.equal(left, right)
            case _:
                return _is_less(right, left) or self.equal(left, right)

    def equal(self, left: Json | Missing, right: Json | Missing) -> bool:
        """Compare JSON values for equality without recursion; nothing equals nothing."""
        pending = [(left, right)]
        while pending:
            a, b = pending.pop()
            self.spend(1)
            if isinstance(a, dict) and isinstance(b, dict):
                if a.keys() != b.keys():
                    return False
                pending.extend((value, b[key]) for key, value in a.items())
            elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
                if len(a) != len(b):
                    return False
                pending.extend(zip(a, b, strict=True))
            elif not _is_same_scalar(a, b):
                return False
        return True


def _list_children(node: Found) -> list[Found]:
    value = node[0]
    if isinstance(value, dict):
        return [(child, name, node) for name, child in value.items()]
    if isinstance(value, (list, tuple)):
        return [(child, position, node) for position, child in enumerate(value)]
    return []


def _pick_element(node: Found, position: int) -> list[Found]:
    value = node[0]
    size = len(value)
    if not -size <= position < size:
        return []
    # Counted from the front, also for negative positions: `list_keys` makes pointers of these.
    position %= size
    return [(value[position], position, node)]


def _find_loose_name(name: str, where: str, node: Found) -> list[Found]:
    """Return what MCPLab's library finds by name outside objects: `length`, and positions written as names."""
    value = node[0]
    if isinstance(value, (list, tuple)):
        if name == "length":
            return [(len(value), name, node)]
        # `01` is a name and no position.
        if name.isascii() and name.isdigit() and len(name) <= 9 and str(int(name)) == name:
            return _pick_element(node, int(name))
    elif isinstance(value, str) and name == "length" and (where == "filter" or (where == "child" and value)):
        # There an empty text has a length only inside filters, and `..length` never looks into texts.
        return [(measure_utf16_length(value), name, node)]
    return []


def _is_truthy(value: Json) -> bool:
    # As in JavaScript: an empty object or list is true, while 0, empty text and null are not.
    return isinstance(value, (dict, list, tuple)) or bool(value)


def _is_same_scalar(a: Json | Missing, b: Json | Missing) -> bool:
    if is_number(a) and is_number(b):
        return a == b
    # By type, because `True == 1` in Python.
    return type(a) is type(b) and a == b


def _is_less(a: Json | Missing, b: Json | Missing) -> bool:
    if is_number(a) and is_number(b):
        return a < b
    return isinstance(a, str) and isinstance(b, str) and a < b
