"""Pages for the objects of the verification API ("nouns"): finds the operation of an address, and the fields of tables.

Everything is derived from `service/verification/nouns.py`. A page has the REST path below `/ui`, with `/new`, `/change` and `/delete`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proctor.model.evidence import Json
from proctor.pages.words import quote_part
from proctor.service.verification.nouns import NOUNS
from proctor.service.verification.shared.declaration import Operation, Resource
from proctor.service.verification.shared.fields import Field, Shape, Table, id_of, label_of

OLDER = ("runs", "v1")
"""First path segments of older aliases and of routes for agents."""
TITLES = ("name", "label", "alias", "reference", "agent")
"""Fields used as the title of a record, best first."""
_HIDDEN = ("id", "organization_id", "updated_at", "createdAt", "snapshot")
_WORDS = ("outcome", "verdict", "status")
_MOST_COLUMNS = 8
GROUPS = {
    "Design": ("benchmarks", "tasks", "criteria", "datasets"),
    "Run": ("benchmark-runs", "task-runs", "criterion-runs", "solvers"),
    "Systems": ("environments", "simulators", "playgrounds", "sandboxes"),
}
"""The lists in the navigation; others are older names of these."""
OPERATIONS: tuple[Operation, ...] = tuple(
    operation
    for noun in NOUNS
    for operation in noun.operations
    if operation.rest and not operation.open and operation.path.split("/")[1] not in OLDER
)
"""All operations that pages offer to logged-in users."""
Parts = Sequence[str]


def find_operation(method: str, parts: Parts) -> Operation | None:
    """Return the operation at an address: `("POST", ["benchmarks", "bench_1", "publish"])`."""
    return next((operation for operation in OPERATIONS if operation.method == method and _matches(operation, parts)), None)


def find_link(method: str, parts: Parts) -> Operation | None:
    """Return the operation that links another record, such as adding a simulator to an environment."""
    found = find_operation(method, [*parts, ""])
    return found if found is not None and found.takes is None and len(parts) > 1 else None


def list_nouns() -> list[tuple[str, Resource]]:
    """Return the nouns that have a list, with its path."""
    return [(each.path[1:], each.noun) for each in OPERATIONS if each.method == "GET" and each.pages and each.path.count("/") == 1]


def list_below(parts: Parts) -> list[tuple[Operation, list[str]]]:
    """Return the lists of records that belong to a record, each with its address."""
    record = find_operation("GET", parts)
    if record is None or not record.ids:
        return []
    id_name = record.ids[-1]
    nested = [(operation, [*parts, operation.path.rpartition("/")[2]]) for operation in OPERATIONS if _is_inside(operation, parts)]
    related = {
        # If two nouns show the same records (criteria and the older evals), the first is listed.
        operation.noun.kind: (operation, [operation.path[1:]])
        for operation in reversed(OPERATIONS)
        if operation.within == id_name and operation.method == "GET" and len(parts) == 2
    }
    return [*reversed(related.values()), *nested]


def list_apart(parts: Parts) -> list[tuple[Operation, list[str]]]:
    """Return other documents of a record with their addresses, such as the state of a sandbox."""
    record = find_operation("GET", parts)
    if record is None or not record.ids:
        return []
    documents = [each for each in OPERATIONS if each.method == "GET" and not each.path.endswith("}")]
    below = [(each, [*parts, each.path.rpartition("/")[2]]) for each in documents]
    return [(operation, address) for operation, address in below if _matches(operation, address) and not _is_inside(operation, parts)]


def list_actions(parts: Parts) -> list[tuple[str, Operation]]:
    """Return the actions of a record: the end of the page's address, and the operation."""
    actions: list[tuple[str, Operation]] = []
    for operation in OPERATIONS:
        *_, above, last = operation.path.split("/")
        method, depth = operation.method, operation.path.count("/") - len(parts)
        if depth == 1 and method in ("POST", "PUT") and not last.startswith("{") and _matches(operation, [*parts, last]):
            actions.append((f"{last}/new" if find_operation("GET", [*parts, last]) else last, operation))
        elif depth == 2 and method in ("POST", "DELETE") and find_link(method, [*parts, above]) is operation:
            if method == "POST":
                actions.append((above, operation))
            elif find_operation("GET", [*parts, above]) is None and not _has_list(parts, above):
                actions.append((f"{above}/remove", operation))
    return actions


def is_possible(last: str, record: Mapping[str, Json]) -> bool:
    """Return whether an action applies to the record in its current state; the service checks again."""
    is_closed = record.get("status") not in (None, "active")
    if last in ("complete", "cancel", "state", "teardown", "reset"):
        return not is_closed
    if last in ("publish", "unpublish") and "status" in record:
        return bool(record.get("published")) if last == "unpublish" else is_closed and not record.get("published")
    return True


def make_address(parts: Parts) -> str:
    """Return the address of a page."""
    return "/ui/" + "/".join(quote_part(part) for part in parts)


def find_record_address(kind: str | None, id: str) -> str | None:
    """Return the page of a record that a field refers to."""
    for operation in OPERATIONS:
        is_record = operation.method == "GET" and not operation.pages and operation.path.count("/") == 2 and operation.gives is not None
        if is_record and operation.noun.kind == kind:
            return make_address([operation.path.split("/")[1], id])
    return None


def find_title(record: Mapping[str, Json], names: Mapping[str, str] | None = None) -> str:
    """Return the title of a record: its own name, else the name of what it refers to in `names`, else its id."""
    title = next((str(record[name]) for name in TITLES if record.get(name)), None)
    find_name = (names or {}).get
    return title or next(
        (called for field, id in record.items() if field.endswith("_id") and (called := find_name(str(id)))), str(record.get("id", ""))
    )


def make_heading(called: str, record: Mapping[str, Json], names: Mapping[str, str] | None = None) -> str:
    """Return the heading of a record: its title, or what it is and of whom, but never its id."""
    title = find_title(record, names)
    if title != str(record.get("id", "")):
        return title
    owner = next((str(record[name]) for name in ("agent", "type", "kind", "created_at") if record.get(name)), "")
    return f"{called[:1].upper()}{called[1:]}" + (
        f" · {owner[:16].replace('T', ' ') if owner == record.get('created_at') else owner}" if owner else ""
    )


def collect_names(value: Json) -> dict[str, str]:
    """Return the names of all records inside a document by id."""
    found: dict[str, str] = {}
    if isinstance(value, dict):
        if value.get("id") and (called := find_title(value)) != str(value["id"]):
            found[str(value["id"])] = called
        for part in value.values():
            found |= collect_names(part)
    elif isinstance(value, list):
        for part in value:
            found |= collect_names(part)
    return found


def choose_columns(shape: Shape) -> list[tuple[str, Field]]:
    """Return the columns of a table besides the title: outcome first, no large fields."""
    if "pass_rate" in shape.fields:
        # A row of several runs: the verdict of one of them would mislead.
        return [(name, shape.fields[name]) for name in ("rank", "agent_version", "score", "passed", "decided", "runs")]
    title = next((name for name in TITLES if name in shape.fields), "id")
    columns = {name: field for name, field in shape.fields.items() if name not in (*_HIDDEN, title) and _is_short(field)}
    ranked = sorted(columns, key=lambda name: (name not in _WORDS, name != "score", name == "created_at", name == "description"))
    return [(name, columns[name]) for name in ranked[:_MOST_COLUMNS]]


def choose_facts(shape: Shape, parts: Parts) -> tuple[Table, Table, Table]:
    """Return the fields of a record in three groups: short, large, and nested records not listed below."""
    listed = {operation.path.rpartition("/")[2].replace("-", "_") for operation, _ in list_below(parts)}
    fields = {name: field for name, field in shape.fields.items() if name not in ("id", "organization_id") and name not in listed}
    nested = {name: field for name, field in fields.items() if field.kind.shape is not None}
    short = {name: field for name, field in fields.items() if _is_short(field) and name not in TITLES}
    return short, {name: field for name, field in fields.items() if name not in {*nested, *short, *TITLES}}, nested


def make_link_field(operation: Operation) -> Table:
    """Return the field for the id at the end of the address."""
    name = operation.ids[-1]
    return {name: Field(id_of(name.removesuffix("_id")), f"the id of the {label_of(name).lower()}", required=True, null=False)}


def find_ids(operation: Operation, parts: Parts) -> list[str]:
    """Return the ids in the address of an operation."""
    return [part for word, part in zip(operation.path[1:].split("/"), parts, strict=True) if word.startswith("{")]


def _matches(operation: Operation, parts: Parts) -> bool:
    words = operation.path[1:].split("/")
    return len(words) == len(parts) and all(word.startswith("{") or word == part for word, part in zip(words, parts, strict=True))


def _is_inside(operation: Operation, parts: Parts) -> bool:
    last = operation.path.rpartition("/")[2]
    # An answer without records, such as the state of a sandbox, is not a list.
    lists = operation.gives is not None and any(field.kind.shape is not None for field in operation.gives.fields.values())
    return operation.method == "GET" and (operation.pages or lists) and not last.startswith("{") and _matches(operation, [*parts, last])


def _has_list(parts: Parts, word: str) -> bool:
    record = find_operation("GET", parts)
    return record is not None and record.gives is not None and word in record.gives.fields


def _is_short(field: Field) -> bool:
    kind = field.kind.schema.get("type")
    texts = kind == "array" and field.kind.schema.get("items", {}).get("type") == "string"
    return field.kind.shape is None and (kind in ("string", "number", "integer", "boolean") or texts)
