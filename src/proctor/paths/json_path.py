"""JSONPath: compile once, query many documents.

`rfc9535` is exactly the language of our own format; `mcplab` adds the forms listed in `parser`.

A query is evaluated in limited steps and without recursing into the document. A node is a value, the name or position it was found under,
and its parent node. Each visited node is one step; a query that needs more than half a million is abandoned with `path_limit`. Order
follows RFC 9535: children in document order, and for `..` a node before its descendants.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Final, Literal, cast

from proctor.errors import CheckFault
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, Missing, equal, is_number
from proctor.paths.parser import (
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
    PathError,
    Query,
    Segment,
    Selector,
    Slice,
    Step,
    Test,
    Wildcard,
    parse,
)
from proctor.patterns.faults import measure_utf16_length
from proctor.patterns.iregexp import compile_iregexp
from proctor.work import spend

__all__ = ["CompiledPath", "PathError", "Syntax", "compile_path", "list_keys"]

Syntax = Literal["rfc9535", "mcplab"]


class CompiledPath:
    """A parsed path."""

    __slots__ = ("query", "steps", "syntax", "text")

    def __init__(self, text: str, syntax: str, query: Query) -> None:
        self.text = text
        self.syntax = syntax
        self.query = query
        # Most paths do not branch. They are followed without nodes and without a limit, since each name costs one step. MCPLab's are
        # excluded, because a name may mean a length or a position there.
        self.steps = _list_straight_steps(query) if syntax == "rfc9535" else None
        """The names and positions of a path that does not branch."""

    def __repr__(self) -> str:
        return f"CompiledPath({self.text!r})"

    def find(self, document: Json) -> list[Json]:
        """Return the selected values, in order. Raises `CheckFault` with code `path_limit` if there is too much to visit."""
        if self.steps is not None:
            value = document
            for step in self.steps:
                if isinstance(step, str):
                    if not isinstance(value, dict) or step not in value:
                        return []
                    value = value[step]
                else:
                    if not isinstance(value, (list, tuple)) or not -len(value) <= step < len(value):
                        return []
                    value = value[step]
            return [value]
        return [node[0] for node in self.find_nodes(document)]

    def find_nodes(self, document: Json) -> list[Node]:
        """Return the result of `find` as nodes, for `list_keys`."""
        walk = Walk(document)
        return walk.select_query(self.query, walk.root)


def list_keys(node: Node, document: Json) -> tuple[str | int, ...] | None:
    """Return the keys and positions that lead to a node; None for one outside the document, such as a length."""
    keys: list[str | int] = []
    value, key, parent = node
    while parent is not None and key is not None:
        # A name on a value that is not an object: `length`, which is computed and has no position.
        if isinstance(parent[0], dict) != isinstance(key, str):
            return None
        keys.append(key)
        value, key, parent = parent
    # The result of `~` has no parent, so its chain does not lead back to the document.
    return tuple(reversed(keys)) if value is document else None


@functools.lru_cache(maxsize=2048)
def compile_path(text: str, syntax: str = "rfc9535") -> CompiledPath:
    """Parse a path. Raises `PathError` with the offset of the error."""
    return CompiledPath(text, syntax, parse(text, loose=syntax == "mcplab"))


def _list_straight_steps(query: Query) -> tuple[str | int, ...] | None:
    if not query.is_singular():
        return None
    selectors = [cast(Segment, part).selectors[0] for part in query.segments]
    return tuple(selector.name if isinstance(selector, Name) else cast(Index, selector).position for selector in selectors)


MOST_STEPS: Final = 500_000
"""The maximum number of nodes that one evaluation may visit: filters inside descents take quadratic time."""

Node = tuple[Json, "str | int | None", "Node | None"]
"""Value, key, parent."""


class Walk:
    """One evaluation of a query on one document."""

    __slots__ = ("left", "root")

    def __init__(self, document: Json) -> None:
        self.root: Node = (document, None, None)
        self.left = MOST_STEPS

    def spend(self, steps: int) -> None:
        """Count steps; too many end the evaluation."""
        # Counted twice: against the limit of one path here, and against the budget of the whole check in `proctor.work`.
        self.left -= steps
        spend(steps)
        if self.left < 0:
            raise CheckFault("path_limit", f"the path visits more than {MOST_STEPS} nodes of this document")

    def select_query(self, query: Query, current: Node) -> list[Node]:
        """Return the nodes that `query` selects."""
        nodes = [self.root if query.from_root else current]
        for part in query.segments:
            nodes = self.step(part, nodes) if isinstance(part, Step) else self.select_segment(part, nodes)
            if not nodes:
                break
        return nodes

    def step(self, step: Step, nodes: list[Node]) -> list[Node]:
        """Select the parents of nodes, or their names instead of their values."""
        self.spend(len(nodes))
        if step.kind == "parent":
            return [node[2] for node in nodes if node[2] is not None]
        # A name is not part of the document, so it has no parent, and `list_keys` finds no place for it.
        return [(node[1], None, None) for node in nodes if node[1] is not None]

    def select_segment(self, segment: Segment, nodes: list[Node]) -> list[Node]:
        """Return the results of one segment's selectors on every node."""
        found: list[Node] = []
        selectors = segment.selectors
        for node in nodes:
            for start in self.iterate_below(node) if segment.descendant else (node,):
                self.spend(len(selectors))
                for selector in selectors:
                    found.extend(self.select(selector, start))
        return found

    def iterate_below(self, node: Node) -> Iterator[Node]:
        """Yield a node and everything below it, parents first."""
        pending = [node]
        while pending:
            top = pending.pop()
            yield top
            children = _list_children(top)
            if children:
                self.spend(len(children))
                # A stack returns the last item first, and RFC 9535 requires document order.
                children.reverse()
                pending.extend(children)

    def select(self, selector: Selector, node: Node) -> list[Node]:
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
                if not isinstance(value, (list, tuple)) or step == 0:
                    return []
                # Python clamps bounds and walks backwards as RFC 9535, section 2.3.4.2 requires, and slicing a range copies nothing.
                positions = range(len(value))[start:end:step]
                self.spend(len(positions))
                return [(value[position], position, node) for position in positions]
            case FromEnd(places):
                return _pick_element(node, -places) if isinstance(value, (list, tuple)) else []
            case Filter(expression):
                children = _list_children(node)
                self.spend(len(children))
                return [child for child in children if self.holds(expression, child)]

    def holds(self, expression: Logical, current: Node) -> bool:
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

    def find_value(self, operand: Operand, current: Node) -> Json | Missing:
        """Return the one value of an operand, or `MISSING`."""
        match operand:
            case Constant(value):
                return value
            case Query():
                nodes = self.select_query(operand, current)
                return nodes[0][0] if len(nodes) == 1 else MISSING
            case Call(name, arguments):
                return self.call(name, arguments[0], current)

    def call(self, name: str, argument: Operand, current: Node) -> Json | Missing:
        """Return the result of a function that returns a value."""
        if name == "length":
            # RFC 9535 counts characters here; only MCPLab's `.length` counts UTF-16 units, as JavaScript does.
            value = self.find_value(argument, current)
            return len(value) if isinstance(value, (str, list, tuple, dict)) else MISSING
        assert isinstance(argument, Query)
        nodes = self.select_query(argument, current)
        if name == "count":
            return len(nodes)
        # The function `value`: several nodes give nothing, like no node (RFC 9535, section 2.4.8).
        return nodes[0][0] if len(nodes) == 1 else MISSING

    def matches(self, call: Call, current: Node) -> bool:
        """Evaluate `match` and `search`: false for anything that is not text, and for a pattern that is not an I-Regexp."""
        text, source = (self.find_value(argument, current) for argument in call.arguments)
        if not isinstance(text, str) or not isinstance(source, str):
            return False
        pattern = compile_iregexp(source, whole=call.name == "match")
        return pattern is not None and pattern.search(text) is not None

    def compare(self, left: Json | Missing, operator: str, right: Json | Missing) -> bool:
        """Compare two values by RFC 9535, section 2.3.5.2.2: only numbers and texts have an order."""
        if operator in ("==", "!="):
            return equal(left, right, spend=self.spend) == (operator == "==")
        if operator.startswith(">"):
            left, right = right, left
        return _is_less(left, right) or (operator.endswith("=") and equal(left, right, spend=self.spend))


def _list_children(node: Node) -> list[Node]:
    value = node[0]
    if isinstance(value, dict):
        return [(child, name, node) for name, child in value.items()]
    if isinstance(value, (list, tuple)):
        return [(child, position, node) for position, child in enumerate(value)]
    return []


def _pick_element(node: Node, position: int) -> list[Node]:
    value = node[0]
    size = len(value)
    if not -size <= position < size:
        return []
    # Counted from the front, also for negative positions: `list_keys` builds pointers from these.
    position %= size
    return [(value[position], position, node)]


def _find_loose_name(name: str, where: str, node: Node) -> list[Node]:
    """Return what MCPLab's library finds by name outside objects: `length`, and positions written as names."""
    value = node[0]
    if isinstance(value, (list, tuple)):
        if name == "length":
            return [(len(value), name, node)]
        # `01` is a name, not a position.
        if name.isascii() and name.isdigit() and len(name) <= 9 and str(int(name)) == name:
            return _pick_element(node, int(name))
    elif isinstance(value, str) and name == "length" and (where == "filter" or (where == "child" and value)):
        # In that library an empty text has a length only inside filters, and `..length` never looks into texts.
        return [(measure_utf16_length(value), name, node)]
    return []


def _is_truthy(value: Json) -> bool:
    # As in JavaScript: an empty object or list is true, while 0, empty text and null are not.
    return isinstance(value, (dict, list, tuple)) or bool(value)


def _is_less(a: Json | Missing, b: Json | Missing) -> bool:
    if is_number(a) and is_number(b):
        return a < b
    return isinstance(a, str) and isinstance(b, str) and a < b
