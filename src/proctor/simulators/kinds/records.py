"""A plain records API for every trade: collections of JSON rows (orders, tickets, calendars) with a schema, filters and simple rules.

    GET    /orders?status=open&total__gte=10&_sort=-total&_limit=20&_offset=0      {"rows": [...], "total": 3}
    POST   /orders            201 with the row; it gets an `id` where it has none
    GET    /orders/7          the row
    PUT    /orders/7          replace it (or make it)
    PATCH  /orders/7          change some members (JSON Merge Patch)
    DELETE /orders/7          204

A rejected request is answered with `{"error": {"code", "message"}}`: 404 for a missing row, 409 for a violated rule, 422 for a row that
does not match the schema.

A collection in a suite, with its rules for rows:

    orders:
      schema: {type: object, required: [item], properties: {quantity: {type: integer, minimum: 1}}}
      unique: [number]                      # no two rows have the same value there
      read_only: false
      rows: [{id: 7, item: lamp, quantity: 1, status: open}]
      rules:
        - {on: create, set: {status: open}}
        - {on: update, was: {status: shipped}, refuse: a shipped order cannot be changed}
        - {on: delete, refuse: orders are never deleted}

A rule holds for the requests it names (`on`; left out: all), where the row before (`was`) and the row as it would be (`when`) have the
given members: a value, a matcher (`{$gt: 5}`), or null for one that is absent or null. `refuse` ends the request with 409 and these words;
`set` changes members of the row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal, cast

import msgspec

from proctor.codecs.http import decode_percent, encode_percent
from proctor.codecs.json_patch import merge_patch
from proctor.errors import SpecError
from proctor.expressions.text_form import write_text_form
from proctor.model.evidence import Json, State
from proctor.model.json_values import MISSING, equal, is_integer, is_number, read_digits
from proctor.model.show import kind_of, shorten, show, suggest
from proctor.paths.dotted import find_dotted
from proctor.simulators import seeds
from proctor.simulators.exchange import Refused, Request, Response, answer_json, read_json, refusal_message, refuse, require_method
from proctor.simulators.ports import Desk, Simulator, Tool
from proctor.simulators.rows import Draft
from proctor.simulators.seeds import NotHeld
from proctor.simulators.tools import make_query
from proctor.work import spend

# --- selects the rows of a query: filters on members, order, and a page of the result

Row = dict[str, Json]
MOST_ROWS = 1_000
"""Maximum and default number of rows in one answer."""
MOST_FILTERS, MOST_SORT_KEYS = 100, 20
"""Parameters and sort keys of one request."""


def select_rows(rows: Sequence[Row], query: Sequence[tuple[str, str]]) -> tuple[list[Row], int]:
    """Return the rows that match a query, and their total number. Raises `Refused` (400) for an invalid query."""
    filters: dict[str, list[str]] = {}
    for name, value in query:
        filters.setdefault(name, []).append(value)
    limit, offset = (_read_number(name, filters.pop(name, None), default) for name, default in (("_limit", MOST_ROWS), ("_offset", 0)))
    order = filters.pop("_sort", [""])[-1]
    unknown = next((name for name in filters if name.startswith("_")), None)
    if unknown is not None:
        raise refuse(400, "unknown_parameter", f"unknown parameter {show(unknown)}; there are _sort, _limit and _offset")
    keys = [key for key in order.split(",") if key]
    for what, count, most in (("filters", len(query), MOST_FILTERS), ("sort keys", len(keys), MOST_SORT_KEYS)):
        if count > most:
            raise refuse(400, "too_costly", f"{count} {what} in one request; at most {most} are allowed")
    # Names are paths and values may be lists: longer ones take longer per row.
    spend(len(rows) * (len(keys) + sum(1 + (len(name) + len(value)) // 8 for name, value in query)))
    matching = [row for row in rows if all(_fits(row, name, values) for name, values in filters.items())]
    for key in reversed(keys):
        matching = _sort(matching, key.lstrip("-"), descending=key.startswith("-"))
    return matching[offset : offset + min(limit, MOST_ROWS)], len(matching)


def _read_number(name: str, values: list[str] | None, default: int) -> int:
    if values is None:
        return default
    if (number := read_digits(values[-1], 9)) is None:
        raise refuse(400, "wrong_parameter", f"{name}: expected a whole number, found {show(values[-1])}")
    return number


def _fits(row: Row, name: str, values: list[str]) -> bool:
    path, _, word = name.partition("__")
    compare = _COMPARISONS.get(word)
    if compare is None:
        suggestion = suggest(word, _COMPARISONS)
        raise refuse(400, "unknown_parameter", f"unknown comparison {show(word)} in {show(name)}{suggestion}")
    actual = find_dotted(row, path)
    if word == "exists":
        return all((actual is not MISSING and actual is not None) is (value == "true") for value in values)
    if word in ("", "in", "contains"):
        return actual is not MISSING and any(compare(actual, value) for value in values)
    return actual is not MISSING and all(compare(actual, value) for value in values)


def _is_equal(actual: Json, value: str) -> bool:
    if isinstance(actual, list):
        spend(len(cast("list[Json]", actual)))
        return any(_is_equal(item, value) for item in actual)
    number = _read_decimal(actual)
    return number == _read_decimal(value) if number is not None and not isinstance(actual, str) else write_text_form(actual) == value


def _write_counted(actual: Json) -> str:
    text = write_text_form(actual)
    spend(1 + len(text) // 8)
    return text


def _read_decimal(value: Json) -> Decimal | None:
    if not isinstance(value, str) and not is_number(value):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() and abs(number.adjusted()) < 400 else None


def _compare(actual: Json, value: str, holds: Callable[[Json, Json], bool]) -> bool:
    left, other = _read_decimal(actual), _read_decimal(value)
    if left is not None and other is not None:
        return holds(left, other)
    return isinstance(actual, str) and holds(actual, value)


_COMPARISONS: dict[str, Callable[[Json, str], bool]] = {
    "": _is_equal,
    "ne": lambda found, value: not _is_equal(found, value),
    "gt": lambda found, value: _compare(found, value, lambda one, other: one > other),
    "gte": lambda found, value: _compare(found, value, lambda one, other: one >= other),
    "lt": lambda found, value: _compare(found, value, lambda one, other: one < other),
    "lte": lambda found, value: _compare(found, value, lambda one, other: one <= other),
    "in": lambda found, value: any(_is_equal(found, one) for one in value.split(",")),
    "contains": lambda found, value: value.casefold() in _write_counted(found).casefold(),
    "exists": lambda found, value: True,
}


def _sort(rows: list[Row], path: str, *, descending: bool) -> list[Row]:
    """Return rows in order, those without a value last; numbers come before texts."""

    def make_key(row: Row) -> tuple[int, Json]:
        value = find_dotted(row, path)
        number = _read_decimal(value) if not isinstance(value, str) else None
        return (0, number) if number is not None else (1, write_text_form(value))

    with_value = [row for row in rows if find_dotted(row, path) not in (MISSING, None)]
    without = [row for row in rows if find_dotted(row, path) in (MISSING, None)]
    return sorted(with_value, key=make_key, reverse=descending) + without


_ROW: dict[str, Json] = {"type": "object", "description": "The members of the row."}
_NAME: dict[str, Json] = {"type": "string", "description": "The name of the collection."}
_ID: dict[str, Json] = {"type": "string", "description": "The id of the row."}
_FILTERS: dict[str, Json] = {
    "type": "object",
    "additionalProperties": {"type": "string"},
    "description": "Members with the value they must have; a suffix such as __gte, __contains or __in compares otherwise.",
}


class RecordsSimulator(Simulator):
    """A records API."""

    kind = "records"
    summary = "A plain records API: collections of JSON rows with a schema, filters and simple rules."
    steps = ("add_row",)

    def seed(self, seed: Json, desk: Desk) -> None:
        """Create the collections: an object of names, each with its rows, or with `rows`, `schema`, `unique`, `read_only` and `rules`."""
        if not isinstance(seed, dict):
            raise SpecError(f"expected an object of collections, found {kind_of(seed)}")
        for name, content in cast("dict[str, Json]", seed).items():
            collection, rows = read_collection(name, content)
            desk.rows.put(CONFIG, name, msgspec.to_builtins(collection))
            for index, row in enumerate(rows):
                try:
                    self._insert(collection, row, desk)
                except Refused as refused:
                    message = msgspec.json.decode(refused.response.body)["error"]["message"]
                    raise SpecError(message, field=f"{name}.{index}" if isinstance(content, list) else f"{name}.rows.{index}") from None

    def perform(self, step: str, content: Json, desk: Desk) -> None:
        """Add a row: `add_row: {collection: tickets, row: {...}}`."""
        if not isinstance(content, dict) or not isinstance(content.get("collection"), str) or not isinstance(content.get("row"), dict):
            raise SpecError("expected an object with collection and row")
        try:
            collection = _find_collection(content["collection"], desk.rows)
        except Refused as refused:
            raise NotHeld(refusal_message(refused)) from None
        try:
            self._insert(collection, content["row"], desk)
        except Refused as refused:
            raise SpecError(refusal_message(refused)) from None

    def answer(self, request: Request, desk: Desk) -> Response:
        """Answer a request. Raises `Refused`."""
        parts = [decode_percent(part) for part in request.path.strip("/").split("/")]
        if parts == [""]:
            return self._list_collections(request, desk.rows)
        collection = _find_collection(parts[0], desk.rows)
        if len(parts) == 1:
            return self._handle_all(collection, request, desk)
        if len(parts) == 2:
            return self._handle_one(collection, parts[1], request, desk)
        raise refuse(404, "not_found", "a row is at /COLLECTION/ID")

    def _list_collections(self, request: Request, rows: Draft) -> Response:
        require_method(request, "GET")
        return answer_json(200, {"collections": [{"name": name, "rows": len(rows.list(name))} for name in rows.list(CONFIG)]})

    def _handle_all(self, collection: Collection, request: Request, desk: Desk) -> Response:
        require_method(request, "GET", "POST")
        if request.method == "GET":
            rows, total = select_rows(list(desk.rows.list(collection.name).values()), request.query)
            return answer_json(200, {"rows": rows, "total": total})
        _require_writable(collection)
        row = apply_rules(collection, "create", None, _read_row(request))
        row = self._insert(collection, row, desk)
        return answer_json(201, row, headers={"location": f"{request.base}/{collection.name}/{encode_percent(str(row['id']))}"})

    def _handle_one(self, collection: Collection, key: str, request: Request, desk: Desk) -> Response:
        require_method(request, "GET", "PUT", "PATCH", "DELETE")
        old: Json = desk.rows.get(collection.name, key)
        if old is None and request.method != "PUT":
            raise refuse(404, "not_found", f"there is no row {show(key)} in {collection.name}")
        if request.method == "GET":
            return answer_json(200, old)
        _require_writable(collection)
        if request.method == "DELETE":
            apply_rules(collection, "delete", old, old or {})
            desk.rows.remove(collection.name, key)
            return Response(status=204)
        body = _read_row(request)
        row_id = key if old is None else old["id"]
        row = {"id": row_id, **(merge_patch(old, body) if request.method == "PATCH" else body)}
        if str(_check_id(row["id"])) != key:
            raise refuse(422, "wrong_id", f"the row at /{collection.name}/{key} cannot have the id {show(row['id'])}")
        row = apply_rules(collection, "create" if old is None else "update", old, row)
        check_row(collection, row, desk.rows, replaces=key)
        desk.rows.put(collection.name, key, row)
        return answer_json(201 if old is None else 200, row)

    def _insert(self, collection: Collection, row: dict[str, Json], desk: Desk) -> dict[str, Json]:
        sent_id = row.get("id")
        # The id stays as the author wrote it, a number or a text; in addresses it is text.
        row_id = _check_id(sent_id) if "id" in row else desk.around.new_id()
        key = str(row_id)
        if desk.rows.get(collection.name, key) is not None:
            raise refuse(409, "duplicate_id", f"there is a row {show(key)} in {collection.name} already")
        row = {**row, "id": row_id}
        check_row(collection, row, desk.rows, replaces=None)
        desk.rows.put(collection.name, key, row)
        return row

    def read_state(self, desk: Desk) -> State:
        """Return all rows by collection."""
        return State(records={name: list(desk.rows.list(name).values()) for name in desk.rows.list(CONFIG)})

    def list_tools(self) -> tuple[Tool, ...]:
        """Return the tools for the records."""
        filtered = {"collection": _NAME, "filters": _FILTERS}
        return (
            _make_tool("records_list", "List rows of a collection that fit filters.", filtered, ("collection",), "GET"),
            _make_tool("records_get", "Read one row.", {"collection": _NAME, "id": _ID}, ("collection", "id"), "GET"),
            _make_tool("records_create", "Add a row.", {"collection": _NAME, "row": _ROW}, ("collection", "row"), "POST"),
            _make_tool(
                "records_update",
                "Change some members of a row; null removes one.",
                {"collection": _NAME, "id": _ID, "row": _ROW},
                ("collection", "id", "row"),
                "PATCH",
            ),
            _make_tool("records_delete", "Delete a row.", {"collection": _NAME, "id": _ID}, ("collection", "id"), "DELETE"),
        )


def _make_tool(name: str, description: str, properties: dict[str, Json], required: tuple[str, ...], method: str) -> Tool:
    def make_request(arguments: dict[str, Json]) -> Request:
        parts = [encode_percent(str(arguments[key])) for key in ("collection", "id") if key in arguments]
        return Request(
            method=method,
            path="/" + "/".join(parts),
            query=make_query(arguments.get("filters") or {}),
            body=msgspec.json.encode(arguments["row"]) if "row" in arguments else b"",
        )

    schema: dict[str, Json] = {"type": "object", "properties": properties, "required": list(required)}
    return Tool(name=name, description=description, schema=schema, make_request=make_request)


def _find_collection(name: str, rows: Draft) -> Collection:
    collection = rows.load(CONFIG, name, Collection)
    if collection is None:
        suggestion = suggest(name, rows.list(CONFIG))
        raise refuse(404, "not_found", f"there is no collection {show(name)}{suggestion}")
    return collection


def _require_writable(collection: Collection) -> None:
    if collection.read_only:
        raise refuse(409, "read_only", f"{collection.name} can be read only")


def _check_id(row_id: Json) -> str | int:
    if not (isinstance(row_id, str) or is_integer(row_id)) or not str(row_id):
        raise refuse(422, "wrong_id", f"id: expected text or a whole number, found {show(row_id)}")
    return row_id


def _read_row(request: Request) -> dict[str, Json]:
    row = read_json(request)
    if not isinstance(row, dict):
        raise refuse(422, "wrong_row", f"a row is an object, found {kind_of(row)}")
    return cast("dict[str, Json]", row)


SIMULATOR = RecordsSimulator()


CONFIG = "_collections"
"""The collection with the settings of collections."""
On = Literal["create", "update", "delete"]
_ON: tuple[On, ...] = ("create", "update", "delete")


def _read_on(value: Json, at: str) -> tuple[On, ...]:
    words = value if isinstance(value, list) else [value]
    return tuple(cast(On, seeds.read_word(word, at, among=_ON)) for word in cast("list[Json]", words))


def _read_changes(value: Json, at: str) -> dict[str, Json]:
    return seeds.read_members(value or {}, value or (), at)


def _read_schema(value: Json, at: str) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise SpecError(f"expected an object, found {kind_of(value)}", field=at)
    schema = cast("dict[str, Json]", value)
    _build_validator(msgspec.json.encode(schema), at.removesuffix(".schema"))
    return schema


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One rule of a collection."""

    on: Annotated[tuple[On, ...], seeds.ReadBy(_read_on)] = _ON
    was: seeds.Wanted = {}
    when: seeds.Wanted = {}
    refuse: str | None = None
    set: Annotated[dict[str, Json], seeds.ReadBy(_read_changes)] = {}

    def __post_init__(self) -> None:
        if self.refuse is None and not self.set:
            raise SpecError("a rule that neither refuses nor sets anything does nothing; write refuse or set")
        if not self.on or (self.on == ("create",) and self.was):
            raise SpecError("a rule that never holds: before a row is made there is none", field="was" if self.on else "on")
        if "id" in self.set:
            raise SpecError("the id of a row stays what it is", field="set.id")


class Collection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of a collection."""

    name: Annotated[str, seeds.NotRead] = ""
    schema: Annotated[dict[str, Json], seeds.ReadBy(_read_schema)] | None = None
    unique: tuple[str, ...] = ()
    read_only: bool = False
    rules: tuple[Rule, ...] = ()


_KEYS = ("rows", "schema", "unique", "read_only", "rules")


def read_collection(name: str, settings: Json) -> tuple[Collection, list[dict[str, Json]]]:
    """Return a collection and its rows from a suite: a list of rows, or an object. Raises `SpecError`."""
    if not name or name.startswith("_") or "/" in name:
        raise SpecError(f"not a name of a collection: {show(name)}", field=name)
    if not isinstance(settings, (dict, list)):
        raise SpecError(f"expected a list of rows or an object, found {kind_of(settings)}", field=name)
    config = {"rows": settings} if isinstance(settings, list) else dict(cast("dict[str, Json]", settings))
    seeds.read_members(config, _KEYS, name)
    rows = config.pop("rows", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SpecError("rows: expected a list of objects", field=f"{name}.rows")
    return msgspec.structs.replace(seeds.read_as(Collection, config, name), name=name), rows


def apply_rules(collection: Collection, on: On, before: dict[str, Json] | None, row: dict[str, Json]) -> dict[str, Json]:
    """Return the row after applying the rules. Raises `Refused` with 409 if one forbids the request."""
    for rule in collection.rules:
        if on in rule.on and _has_members(before, rule.was) and _has_members(row, rule.when):
            if rule.refuse is not None:
                raise refuse(409, "refused_by_rule", rule.refuse)
            row = {**row, **rule.set}
    return row


def _has_members(row: dict[str, Json] | None, condition: dict[str, Json]) -> bool:
    # Before a row is created there is no row, which differs from an empty one.
    return not condition if row is None else seeds.holds_condition(condition, lambda key: row.get(key, MISSING))


def check_row(collection: Collection, row: dict[str, Json], rows: Draft, *, replaces: str | None) -> None:
    """Check whether a row may be stored. Raises `Refused`: 422 if it violates the schema, 409 if a unique value is repeated."""
    if collection.schema is not None:
        errors = list(_build_validator(msgspec.json.encode(collection.schema), collection.name).iter_errors(row))
        if errors:
            reason = "; ".join(f"{'.'.join(map(str, error.instance_path)) or 'the row'}: {shorten(error.message)}" for error in errors[:5])
            raise refuse(422, "wrong_row", reason)
    for name in collection.unique:
        value = row.get(name)
        duplicates = (key for key, other in rows.list(collection.name).items() if key != replaces and equal(other.get(name), value))
        if value is not None and (other := next(duplicates, None)) is not None:
            raise refuse(409, "not_unique", f"{name} {show(value)} is taken by the row {show(other)}")


@functools.lru_cache(maxsize=256)
def _build_validator(schema: bytes, name: str) -> Any:
    import jsonschema_rs  # slow to load, and few collections have a schema

    try:
        # Nothing is fetched, and patterns run on a linear-time engine.
        return jsonschema_rs.validator_for(
            msgspec.json.decode(schema), offline=True, pattern_options=jsonschema_rs.RegexOptions(), validate_formats=False
        )
    except (jsonschema_rs.ValidationError, ValueError) as error:
        raise SpecError(f"schema: {shorten(str(error))}", field=f"{name}.schema") from None
