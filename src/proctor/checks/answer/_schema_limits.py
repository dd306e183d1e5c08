"""How much work a JSON Schema can cause, bounded before it is used.

The validator cannot be stopped, and a short schema can ask for endless work: each of forty definitions that refers twice to the next
doubles the effort. So a schema is read as a graph. An edge leads from a schema to one that applies to the same value (`$ref`, `allOf`,
`not`, ...) or to one that applies to a child of it (`properties`, `items`, ...). This bounds how many schemas are applied to one value
some levels down:

    to the same value, d = 0     1 + the sum over same-value edges
    d levels down                the sum over same-value edges at d, plus the child edges at d - 1;
                                 of the members of `properties` and of the items only the largest, since a child has one name or place

A schema that asks for too much at once is refused; one that does so from some depth on is used on values that stay above it.
The graph may have edges too many (a reference is matched by the end of its address), never too few.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from proctor.errors import CheckFault, SpecError
from proctor.model.evidence import Json

DEEPEST_VALUE: Final = 100
"""Levels of a value; the validator recurses into it and would crash on thousands."""
MOST_APPLICATIONS: Final = 100_000
"""To one value."""
MOST_WORK: Final = 50_000_000
"""Applications to all parts of a value; about a second."""
_HARMLESS: Final = 500
"""Applications to one value that are not worth counting its parts for."""
_LONGEST_CHAIN: Final = 300
"""Schemas applied one inside the other on one value; the validator recurses through them."""
_MOST_SCHEMAS: Final = 200_000
"""Parts of a schema after references are followed."""
_DEEPEST_SCHEMA: Final = 200
"""Levels of the schema document itself."""

_SAME_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SAME_ONE: Final = ("not", "if", "then", "else")
_SAME_MAPS: Final = ("dependentSchemas", "dependencies")
_CHILD_ONE: Final = ("additionalProperties", "unevaluatedProperties", "unevaluatedItems", "additionalItems", "contains", "propertyNames")
_PERCENT: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


class _Node:
    """One schema object: where it leads, and its bound at the depth under consideration."""

    __slots__ = ("before", "children", "exclusive", "homes", "now", "rank", "same", "schema")

    def __init__(self, schema: dict[str, Json]) -> None:
        self.schema = schema
        self.homes: dict[int, _Node] = {}
        """The resources that contain it, by identity: the document, and every enclosing part with an address of its own."""
        self.same: list[_Node] = []
        self.children: list[_Node] = []
        self.exclusive: list[list[_Node]] = []
        """Groups of children of which only one applies to a given child."""
        self.now = 0
        self.before = 0
        """The bound one level up."""
        self.rank = 0
        """The longest chain of same-value edges from here."""


class SchemaLimits:
    """What a schema may be used on."""

    __slots__ = ("_bounds", "deepest")

    def __init__(self, bounds: list[int], deepest: int | None) -> None:
        self._bounds = bounds
        self.deepest = deepest
        """The deepest value it can be used on; `None`: it looks only so many levels down and any value will do."""

    def count_applications(self, value: Json) -> int:
        """Return how many schemas may be applied to any one part of `value`. Raises `CheckFault` when it is too deep for this schema."""
        if self.deepest is None:
            return max(self._bounds)
        # Level by level and not by recursion, and no deeper than matters.
        depth = measure_depth(value, self.deepest)
        if depth > self.deepest:
            raise CheckFault("schema_limit", f"the value is nested more than {self.deepest} levels deep, too deep for this schema")
        return max(self._bounds[: depth + 1])

    def check_work(self, value: Json) -> None:
        """Raise `CheckFault` when checking `value` can take too much work."""
        each = self.count_applications(value)
        if each > _HARMLESS:
            most = MOST_WORK // each
            if measure_size(value, most) > most:
                raise CheckFault("schema_limit", f"the value has more than {most} parts, too many for this schema")

    def count_work(self, value: Json, enough: int) -> int:
        """Return the most applications that checking `value` can take; stops counting beyond `enough`."""
        each = self.count_applications(value)
        # Never by zero: the schema itself is applied to the value, so there is one application at least.
        return each * measure_size(value, enough // each)


def measure_depth(value: Json, enough: int) -> int:
    """Return how deeply lists and objects are nested; stops counting beyond `enough`."""
    depth = 0
    level = _list_containers([value])
    while level and depth <= enough:
        depth += 1
        level = _list_containers(child for one in level for child in _list_children(one))
    return depth


def measure_size(value: Json, enough: int) -> int:
    """Return how many values there are in a value, itself included; stops counting beyond `enough`."""
    total = 1
    pending = _list_containers([value])
    while pending and total <= enough:
        children = _list_children(pending.pop())
        total += len(children)
        pending.extend(_list_containers(children))
    return total


def _list_containers(values: Iterable[Json]) -> list[Json]:
    return [value for value in values if isinstance(value, (dict, list, tuple))]


def _list_children(value: Json) -> Collection[Json]:
    return value.values() if isinstance(value, dict) else value


def compute_limits(schema: Json) -> SchemaLimits:
    """Return the limits of a schema. Raises `SpecError` when there is no value it could be used on."""
    if not isinstance(schema, dict):
        return SchemaLimits([1], None)
    if measure_depth(schema, _DEEPEST_SCHEMA) > _DEEPEST_SCHEMA:
        raise SpecError(f"the schema is nested more than {_DEEPEST_SCHEMA} levels deep", field="schema")
    order = _sort_by_reach(_Graph(schema).nodes)
    bounds: list[int] = []
    for depth in range(DEEPEST_VALUE + 1):
        bound, settled = _next_level(order, depth)
        if bound > MOST_APPLICATIONS:
            if depth == 0:
                raise SpecError("the schema refers to itself too many times over to be checked in reasonable time", field="schema")
            return SchemaLimits(bounds, depth - 1)
        bounds.append(bound)
        # No schema reaches this level, so nothing below it is ever validated.
        if bound == 0:
            return SchemaLimits(bounds, None)
        if settled:
            # From here on every level is like this one.
            return SchemaLimits(bounds + [bound] * (DEEPEST_VALUE - depth), DEEPEST_VALUE)
    return SchemaLimits(bounds, DEEPEST_VALUE)


def _next_level(order: list[_Node], depth: int) -> tuple[int, bool]:
    """Move every node one level down; the largest bound, and whether none has changed."""
    for node in order:
        node.before = node.now
    largest, settled = 0, True
    for node in order:
        total = 1
        if depth:
            total = sum([child.before for child in node.children])
            for group in node.exclusive:
                # A child has one name and one place, so of these only one can apply to it.
                total += max([child.before for child in group])
        # The nodes come after those they lead to, so `now` of the others is that of this level already.
        for other in node.same:
            total += other.now
        # Cut off just above the bound: exact figures beyond it would grow to thousands of digits, and decide nothing.
        node.now = min(total, MOST_APPLICATIONS + 1)
        largest = max(largest, node.now)
        settled = settled and node.now == node.before
    return largest, settled


def _sort_by_reach(nodes: list[_Node]) -> list[_Node]:
    """Return nodes after those they lead to on the same value; an edge that closes a circle is dropped, as the validator stops there."""
    order: list[_Node] = []
    finished: dict[int, bool] = {}
    for start in nodes:
        if id(start) in finished:
            continue
        finished[id(start)] = False
        # A stack of our own: a schema may chain as many parts as it has characters.
        path: list[tuple[_Node, list[_Node], list[_Node]]] = [(start, list(start.same), [])]
        while path:
            node, waiting, same = path[-1]
            if not waiting:
                path.pop()
                _close(node, same)
                finished[id(node)] = True
                order.append(node)
                continue
            other = waiting.pop()
            if id(other) not in finished:
                finished[id(other)] = False
                path.append((other, list(other.same), []))
                same.append(other)
            # One that is not finished lies on the path itself: the edge closes a circle.
            elif finished[id(other)]:
                same.append(other)
    return order


def _close(node: _Node, same: list[_Node]) -> None:
    node.same = same
    node.rank = 1 + max((other.rank for other in same), default=0)
    if node.rank > _LONGEST_CHAIN:
        raise SpecError(f"the schema nests or chains more than {_LONGEST_CHAIN} schemas on one value", field="schema")


class _Graph:
    """All schemas of a document and the edges between them."""

    def __init__(self, root: dict[str, Json]) -> None:
        self.root = root
        self.nodes: list[_Node] = []
        self.by_object: dict[int, _Node] = {}
        self.anchors: dict[str, list[_Node]] = {}
        self.resources: dict[str, list[_Node]] = {}
        self._collect()
        for node in self.nodes:
            self._connect_node(node)

    def _collect(self) -> None:
        # Every object counts as a schema: a reference may point anywhere.
        pending: list[tuple[Json, dict[int, _Node]]] = [(self.root, {})]
        visits = 0
        while pending:
            value, around = pending.pop()
            if isinstance(value, dict):
                node = self.by_object.get(id(value)) or self._add(value)
                # An object that an alias puts into several places belongs to the resources of all of them.
                if node.homes and around.keys() <= node.homes.keys():
                    continue
                homes = {**node.homes, **around} if node.homes else around
                visits += 1
                if value is self.root or isinstance(value.get("$id"), str) or isinstance(value.get("id"), str):
                    homes = {**homes, id(node): node}
                    visits += len(homes)  # for the memory that they take
                if visits > _MOST_SCHEMAS:
                    raise SpecError(f"the schema has more than {_MOST_SCHEMAS} parts", field="schema")
                node.homes = homes
                pending.extend((child, node.homes) for child in value.values())
            elif isinstance(value, (list, tuple)):
                pending.extend((child, around) for child in value)

    def _add(self, schema: dict[str, Json]) -> _Node:
        node = _Node(schema)
        self.nodes.append(node)
        self.by_object[id(schema)] = node
        for key in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := schema.get(key), str):
                self.anchors.setdefault(name, []).append(node)
        for key in ("$id", "id"):
            if isinstance(address := schema.get(key), str):
                base, _, fragment = address.partition("#")
                self.resources.setdefault(_find_last_part(base), []).append(node)
                if fragment:
                    self.anchors.setdefault(fragment, []).append(node)
        return node

    def _connect_node(self, node: _Node) -> None:
        schema = node.schema
        for key in _REFERENCES:
            if isinstance(reference := schema.get(key), str):
                node.same.extend(self._find_targets(node, reference))
        if schema.get("$recursiveAnchor") is True or "$recursiveRef" in schema:
            node.same.extend(self._find_targets(node, "#"))
        for key in _SAME_LISTS:
            node.same.extend(self._list_nodes_of_values(schema.get(key)))
        for key in _SAME_ONE:
            node.same.extend(self._list_nodes_of_values([schema.get(key)]))
        for key in _SAME_MAPS:
            node.same.extend(self._list_nodes_of_members(schema.get(key)))
        for key in _CHILD_ONE:
            node.children.extend(self._list_nodes_of_values([schema.get(key)]))
        node.children.extend(self._list_nodes_of_members(schema.get("patternProperties")))
        items = schema.get("items")
        # A list under `items` is how drafts before 2020-12 write `prefixItems`.
        places = self._list_nodes_of_values(schema.get("prefixItems")) + self._list_nodes_of_values(
            items if isinstance(items, list) else [items]
        )
        node.exclusive = [group for group in (self._list_nodes_of_members(schema.get("properties")), places) if group]

    def _list_nodes_of_values(self, values: Json) -> list[_Node]:
        if not isinstance(values, (list, tuple)):
            return []
        return [self.by_object[id(value)] for value in values if isinstance(value, dict)]

    def _list_nodes_of_members(self, values: Json) -> list[_Node]:
        return self._list_nodes_of_values(list(values.values())) if isinstance(values, dict) else []

    def _find_targets(self, node: _Node, reference: str) -> list[_Node]:
        base, _, fragment = reference.partition("#")
        # Without an address it is relative to the enclosing resource; which one that is depends on the draft.
        homes = self.resources.get(_find_last_part(base), []) if base else list(node.homes.values())
        if not fragment:
            return homes
        if not fragment.startswith("/"):
            return self.anchors.get(fragment, [])
        found = [target for home in homes if (target := self._follow_pointer(home.schema, fragment)) is not None]
        # Each once: a target that is counted twice doubles the bound at every level of a tree.
        return list({id(target): target for target in found}.values())

    def _follow_pointer(self, start: Json, pointer: str) -> _Node | None:
        value = start
        for part in pointer.split("/")[1:]:
            key = _unescape(part)
            if isinstance(value, dict) and key in value:
                value = value[key]
            elif isinstance(value, list) and key.isascii() and key.isdigit() and len(key) < 9 and int(key) < len(value):
                value = value[int(key)]
            else:
                return None
        return self.by_object.get(id(value)) if isinstance(value, dict) else None


def _find_last_part(address: str) -> str:
    return address.rstrip("/").rsplit("/", 1)[-1]


def _unescape(part: str) -> str:
    # A pointer in a reference is percent-encoded as a whole, so that comes off first; then `~1` before `~0`, or `~01` would become `/`.
    raw = _PERCENT.sub(lambda found: bytes([int(found[1], 16)]), part.encode(errors="replace"))
    return raw.decode(errors="replace").replace("~1", "/").replace("~0", "~")
