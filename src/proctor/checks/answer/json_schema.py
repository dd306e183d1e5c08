"""Claims about the shape of a JSON answer, by JSON Schema.

Draft 2020-12 unless `$schema` names another one. A remote reference is rejected when the suite is read: nothing is ever fetched; only the
published meta-schemas are available. `format` is an annotation, as the drafts define it.

`pattern` runs on a linear-time engine without look-around and back references; a schema that uses them is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.answer import answer_json
from proctor.checks.shared.places import open_answer, write_pointer
from proctor.errors import CheckFault, SpecError
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import MISSING
from proctor.model.show import count_rest, describe_value, shorten, show
from proctor.model.verdict import TextRange, Verdict, failed, passed
from proctor.paths.dotted import find_dotted, trace_dotted

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError


class JsonSchema(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer, or one field of it, conforms to a JSON Schema."""

    schema: Json
    """The schema: an object, or true or false."""
    field: str | None = None
    """A dot path of the value to validate; left out: the whole answer."""


_MOST_ERRORS: Final = 5
"""The maximum number of violations in the reason of a verdict."""
_MOST_WORK_TO_EXPLAIN: Final = 50_000
"""The maximum number of schema applications for which all violations are collected; beyond it, only their existence is checked."""
# The library names the address only inside its message.
_NOT_HERE: Final = "is not present in a registry"
_UNKNOWN_META: Final = "Unknown meta-schema"


def _locate(spec: JsonSchema, evidence: Evidence) -> Iterator[TextRange]:
    """Find the values that do not conform; none if the field itself is missing."""
    document = open_answer(evidence)
    keys = () if document is None or spec.field is None else trace_dotted(document.value, spec.field)
    if document is None or keys is None:
        return iter(())
    value = document.value if spec.field is None else find_dotted(document.value, spec.field)
    limits = compute_limits(spec.schema)
    limits.check_work(value)
    if limits.count_work(value, _MOST_WORK_TO_EXPLAIN) > _MOST_WORK_TO_EXPLAIN:
        return iter(())
    try:
        errors: list[ValidationError] = list(_build_validator(spec.schema).iter_errors(value))
    except ValueError:
        # As in deciding: text that is not valid Unicode, or nesting beyond the library's limit.
        return iter(())
    return document.locate((*keys, *error.instance_path) for error in errors)


@check(
    "json_schema",
    shorthand="schema",
    example="json_schema: {schema: {type: object, required: [status]}}",
    reads=Reads(("answer",), "exact", "fail"),
    locate=_locate,
)
def json_schema(spec: JsonSchema) -> Decide:
    """The answer, or one field of it, conforms to a JSON Schema."""
    limits = compute_limits(spec.schema)
    validator = _build_validator(spec.schema)
    what = spec.field or "the answer"
    good = passed(f"{what} conforms to the schema")

    def decide(evidence: Evidence) -> Verdict:
        if isinstance(answer := answer_json(evidence), Verdict):
            return answer
        value, pointer = answer
        if spec.field is not None:
            value = find_dotted(value, spec.field)
            if value is MISSING:
                return failed(
                    f"expected a value at {spec.field}, found nothing in {show(answer.value)}",
                    details={"field": spec.field},
                    pointers=(pointer,),
                )
            pointer = f"{pointer}.{spec.field}"
        # Before the validator runs: the library is compiled code and cannot be stopped.
        limits.check_work(value)
        try:
            # First the plain yes or no, which stops at the first violation; all of them are collected only if that is cheap.
            if validator.is_valid(value):
                return good
            explained = limits.count_work(value, _MOST_WORK_TO_EXPLAIN) <= _MOST_WORK_TO_EXPLAIN
            errors: list[ValidationError] = list(validator.iter_errors(value)) if explained else []
        except ValueError as error:
            # Text that is not valid Unicode, or nesting beyond the library's limit.
            raise CheckFault("schema_limit", f"{what} cannot be checked by the schema: {shorten(str(error))}") from None
        found = [(write_pointer(pointer, error.instance_path), shorten(error.message)) for error in errors[:_MOST_ERRORS]]
        if not found:
            return failed(f"{what} does not conform to the schema; too large to locate the error: {show(value)}", pointers=(pointer,))
        more = count_rest(len(errors), _MOST_ERRORS, ", and")
        return failed(
            f"{what} does not conform to the schema: " + "; ".join(f"{place}: {message}" for place, message in found) + more,
            details={"errors": [{"path": place, "message": message} for place, message in found], "count": len(errors)},
            pointers=tuple(dict.fromkeys(place for place, _ in found)),
        )

    return decide


def _build_validator(schema: Json) -> Any:
    # Takes a quarter of the start-up time of a small run, so only suites with a schema import it.
    import jsonschema_rs

    if not isinstance(schema, (dict, bool)):
        raise SpecError(f"expected a schema (an object, true or false), found {describe_value(schema)}", field="schema")
    try:
        return jsonschema_rs.validator_for(schema, offline=True, pattern_options=jsonschema_rs.RegexOptions(), validate_formats=False)
    except jsonschema_rs.ValidationError as error:
        raise _unusable_schema_error(error.message, [str(part) for part in error.instance_path]) from None
    except ValueError as error:
        raise _unusable_schema_error(str(error), []) from None


def _unusable_schema_error(message: str, path: list[str]) -> SpecError:
    first = message.split("\n", 1)[0]
    place = ".".join(["schema", *path])
    address = first.split("'")[1] if first.count("'") >= 2 else first
    if first.startswith(_UNKNOWN_META):
        return SpecError(
            f"`$schema` {show(address)} is not a published draft; remote references are never fetched",
            field="schema.$schema",
        )
    if _NOT_HERE in first:
        return SpecError(
            f"the schema refers to {show(address)}, which is not part of it; remote references are never fetched",
            field="schema",
            hint="copy the referenced schema into `$defs` and refer to it as `#/$defs/name`",
        )
    if first.endswith('is not a "regex"'):
        return SpecError(
            f"invalid schema: {shorten(first)}", field=place, hint="patterns in schemas have no look-around and no back references"
        )
    return SpecError(f"invalid schema: {shorten(first)}", field=place)


# The validator cannot be stopped, and a short schema can ask for endless work: each of forty definitions that refers twice to the next
# doubles the effort. So a schema is read as a graph. An edge leads from a schema to one that applies to the same value (`$ref`, `allOf`,
# `not`, ...) or to one that applies to a child of it (`properties`, `items`, ...). This bounds how many schemas are applied to one value
# some levels down:
#
#     to the same value, d = 0     1 + the sum over same-value edges
#     d levels down                the sum over same-value edges at d, plus the child edges at d - 1;
#                                  of the members of `properties` and of the items only the largest, since a child has one name or place
#
# A schema that asks for too much at once is refused; one that does so from some depth on is used on values that stay above it.
# The graph may have edges too many (a reference is matched by the end of its address), never too few.

DEEPEST_VALUE: Final = 100
"""The maximum depth of a value; the validator recurses into it and would crash on thousands of levels."""
MOST_APPLICATIONS: Final = 100_000
"""The maximum number of applications to one value."""
MOST_WORK: Final = 50_000_000
"""The maximum number of applications to all parts of a value; about a second."""
_HARMLESS: Final = 500
"""The number of applications to one value below which its parts are not counted."""
_LONGEST_CHAIN: Final = 300
"""The maximum nesting of schemas applied to one value; the validator recurses through them."""
_MOST_SCHEMAS: Final = 200_000
"""The maximum number of parts of a schema after references are followed."""
_DEEPEST_SCHEMA: Final = 200
"""The maximum depth of the schema document itself."""

_SAME_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SAME_ONE: Final = ("not", "if", "then", "else")
_SAME_MAPS: Final = ("dependentSchemas", "dependencies")
_CHILD_ONE: Final = ("additionalProperties", "unevaluatedProperties", "unevaluatedItems", "additionalItems", "contains", "propertyNames")
_PERCENT: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


class _Node:
    """One schema object: its edges, and its bound at the current depth."""

    __slots__ = ("before", "children", "exclusive", "homes", "now", "rank", "same", "schema")

    def __init__(self, schema: dict[str, Json]) -> None:
        self.schema = schema
        self.homes: dict[int, _Node] = {}
        """The identities of the resources that contain it: the document, and every enclosing part with its own address."""
        self.same: list[_Node] = []
        self.children: list[_Node] = []
        self.exclusive: list[list[_Node]] = []
        """Groups of children; for a given child only one of a group applies."""
        self.now = 0
        self.before = 0
        """The bound one level up."""
        self.rank = 0
        """The longest chain of same-value edges from here."""


class SchemaLimits:
    """The values that a schema may be used on."""

    __slots__ = ("_bounds", "deepest")

    def __init__(self, bounds: list[int], deepest: int | None) -> None:
        self._bounds = bounds
        self.deepest = deepest
        """The deepest value it can be used on; `None` means any value, because the schema looks only a limited number of levels down."""

    def count_applications(self, value: Json) -> int:
        """Return how many schemas may be applied to any one part of `value`. Raises `CheckFault` if it is too deep for this schema."""
        if self.deepest is None:
            return max(self._bounds)
        # Level by level instead of by recursion, and only as deep as needed.
        depth = measure_depth(value, self.deepest)
        if depth > self.deepest:
            raise CheckFault("schema_limit", f"the value is nested more than {self.deepest} levels deep, too deep for this schema")
        return max(self._bounds[: depth + 1])

    def check_work(self, value: Json) -> None:
        """Raise `CheckFault` if checking `value` can take too much work."""
        each = self.count_applications(value)
        if each > _HARMLESS:
            most = MOST_WORK // each
            if measure_size(value, most) > most:
                raise CheckFault("schema_limit", f"the value has more than {most} parts, too many for this schema")

    def count_work(self, value: Json, enough: int) -> int:
        """Return the maximum number of applications for checking `value`; stops counting beyond `enough`."""
        each = self.count_applications(value)
        # Never division by zero: the schema itself is applied to the value at least once.
        return each * measure_size(value, enough // each)


def measure_depth(value: Json, enough: int) -> int:
    """Return how deeply lists and objects are nested; stops counting beyond `enough`."""
    depth = 0
    level = [value] if isinstance(value, _CONTAINERS) else []
    while level and depth <= enough:
        depth += 1
        level = [child for one in level for child in _list_children(one) if isinstance(child, _CONTAINERS)]
    return depth


def measure_size(value: Json, enough: int) -> int:
    """Return the number of values in a value, itself included; stops counting beyond `enough`."""
    total = 1
    pending = [value] if isinstance(value, _CONTAINERS) else []
    while pending and total <= enough:
        children = _list_children(pending.pop())
        total += len(children)
        pending.extend(child for child in children if isinstance(child, _CONTAINERS))
    return total


_CONTAINERS: Final = (dict, list, tuple)


def _list_children(value: Json) -> Collection[Json]:
    return value.values() if isinstance(value, dict) else value


def compute_limits(schema: Json) -> SchemaLimits:
    """Return the limits of a schema. Raises `SpecError` if it cannot be used on any value."""
    if not isinstance(schema, dict):
        return SchemaLimits([1], None)
    if measure_depth(schema, _DEEPEST_SCHEMA) > _DEEPEST_SCHEMA:
        raise SpecError(f"the schema is nested more than {_DEEPEST_SCHEMA} levels deep", field="schema")
    order = _sort_by_reach(_Graph(schema).nodes)
    bounds: list[int] = []
    for depth in range(DEEPEST_VALUE + 1):
        bound, settled = _descend_level(order, depth)
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


def _descend_level(order: list[_Node], depth: int) -> tuple[int, bool]:
    """Move every node one level down; return the largest bound, and whether no bound has changed."""
    for node in order:
        node.before = node.now
    largest, settled = 0, True
    for node in order:
        total = 1
        if depth:
            total = sum([child.before for child in node.children])
            for group in node.exclusive:
                # A child has one name and one position, so only one of these can apply to it.
                total += max([child.before for child in group])
        # Nodes come after those they lead to, so `now` of the others already belongs to this level.
        for other in node.same:
            total += other.now
        # Capped just above the limit: exact figures would grow to thousands of digits without changing the result.
        node.now = min(total, MOST_APPLICATIONS + 1)
        largest = max(largest, node.now)
        settled = settled and node.now == node.before
    return largest, settled


def _sort_by_reach(nodes: list[_Node]) -> list[_Node]:
    """Return nodes after those they lead to on the same value; an edge that closes a cycle is dropped, as the validator stops there."""
    order: list[_Node] = []
    finished: dict[int, bool] = {}
    for start in nodes:
        if id(start) in finished:
            continue
        finished[id(start)] = False
        # An explicit stack: a schema may chain as many parts as it has characters.
        path: list[tuple[_Node, list[_Node], list[_Node]]] = [(start, list(start.same), [])]
        while path:
            node, waiting, same = path[-1]
            if not waiting:
                path.pop()
                node.same = same
                node.rank = 1 + max((other.rank for other in same), default=0)
                if node.rank > _LONGEST_CHAIN:
                    raise SpecError(f"the schema nests or chains more than {_LONGEST_CHAIN} schemas on one value", field="schema")
                finished[id(node)] = True
                order.append(node)
                continue
            other = waiting.pop()
            if id(other) not in finished:
                finished[id(other)] = False
                path.append((other, list(other.same), []))
                same.append(other)
            # An unfinished node is on the path itself, so the edge closes a cycle.
            elif finished[id(other)]:
                same.append(other)
    return order


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
            value, resources = pending.pop()
            if isinstance(value, dict):
                node = self.by_object.get(id(value)) or self._add(value)
                # An object that an alias puts in several places belongs to the resources of all of them.
                if node.homes and resources.keys() <= node.homes.keys():
                    continue
                homes = {**node.homes, **resources} if node.homes else resources
                visits += 1
                if value is self.root or isinstance(value.get("$id"), str) or isinstance(value.get("id"), str):
                    homes = {**homes, id(node): node}
                    visits += len(homes)  # limits their memory
                if visits > _MOST_SCHEMAS:
                    raise SpecError(f"the schema has more than {_MOST_SCHEMAS} parts", field="schema")
                node.homes = homes
                pending.extend((child, node.homes) for child in value.values())
            elif isinstance(value, (list, tuple)):
                pending.extend((child, resources) for child in value)

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
        # Without an address it is relative to the enclosing resource, which depends on the draft.
        homes = self.resources.get(_find_last_part(base), []) if base else list(node.homes.values())
        if not fragment:
            return homes
        if not fragment.startswith("/"):
            return self.anchors.get(fragment, [])
        found = [target for home in homes if (target := self._follow_pointer(home.schema, fragment)) is not None]
        # Each target once: a duplicate would double the bound at every level of a tree.
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
    # A pointer in a reference is percent-encoded as a whole, so decode that first; then `~1` before `~0`, or `~01` would become `/`.
    raw = _PERCENT.sub(lambda found: bytes([int(found[1], 16)]), part.encode(errors="replace"))
    return raw.decode(errors="replace").replace("~1", "/").replace("~0", "~")
