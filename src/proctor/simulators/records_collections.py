"""Collections of a records API: their settings in a suite, and the rules for rows.

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
from typing import Any, Literal, cast

import msgspec

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING
from proctor.model.show import kind_of, nearest, shorten, show
from proctor.simulators import seeds
from proctor.simulators.exchange import refuse
from proctor.simulators.rows import Draft

CONFIG = "_collections"
"""The collection with the settings of collections."""
On = Literal["create", "update", "delete"]
_ON: tuple[On, ...] = ("create", "update", "delete")


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One simple rule of a collection."""

    on: tuple[On, ...] = _ON
    was: dict[str, Json] = {}
    when: dict[str, Json] = {}
    refuse: str | None = None
    set: dict[str, Json] = {}


class Collection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a collection keeps to."""

    name: str
    schema: dict[str, Json] | None = None
    unique: tuple[str, ...] = ()
    read_only: bool = False
    rules: tuple[Rule, ...] = ()


_KEYS = ("rows", "schema", "unique", "read_only", "rules")


def read_collection(name: str, given: Json) -> tuple[Collection, list[dict[str, Json]]]:
    """Return a collection and its rows as a suite writes them: a list of rows, or an object. Raises `SpecError`."""
    if not name or name.startswith("_") or "/" in name:
        raise SpecError(f"not a name of a collection: {show(name)}", field=name)
    if not isinstance(given, (dict, list)):
        raise SpecError(f"expected a list of rows or an object, found {kind_of(given)}", field=name)
    config = {"rows": given} if isinstance(given, list) else cast("dict[str, Json]", given)
    for key in config:
        if key not in _KEYS:
            raise SpecError(f"unknown key {show(key)}", field=f"{name}.{key}", nearest=nearest(key, _KEYS))
    rows = config.get("rows", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SpecError("rows: expected a list of objects", field=f"{name}.rows")
    places = seeds.read_items(config.get("rules"), f"{name}.rules")
    collection = Collection(
        name=name,
        schema=_read_schema(config.get("schema"), name),
        unique=tuple(seeds.read_word(item, at) for at, item in seeds.read_items(config.get("unique"), f"{name}.unique")),
        read_only=seeds.read_flag(config.get("read_only"), f"{name}.read_only"),
        rules=tuple(_read_rule(item, at) for at, item in places),
    )
    return collection, rows


def _read_schema(value: Json, name: str) -> dict[str, Json] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise SpecError(f"expected an object, found {kind_of(value)}", field=f"{name}.schema")
    schema = cast("dict[str, Json]", value)
    _build_validator(msgspec.json.encode(schema), name)
    return schema


def _read_rule(value: Json, at: str) -> Rule:
    """Return a rule. Raises `SpecError` also for one that would never do anything."""
    given = seeds.read_members(value, Rule.__struct_fields__, at)
    on = given.get("on", list(_ON))
    listed = cast("list[Json]", on) if isinstance(on, list) else [on]
    words = tuple(seeds.read_word(word, f"{at}.on", among=_ON) for word in listed)
    parts = {key: seeds.read_condition(given.get(key), f"{at}.{key}") for key in ("was", "when")}
    parts["set"] = seeds.read_members(given.get("set") or {}, given.get("set") or (), f"{at}.set")
    reason = None if given.get("refuse") is None else seeds.read_word(given["refuse"], f"{at}.refuse")
    if reason is None and not parts["set"]:
        raise SpecError("a rule that neither refuses nor sets anything does nothing; write refuse or set", field=at)
    if not words or (words == ("create",) and parts["was"]):
        raise SpecError("a rule that never holds: before a row is made there is none", field=f"{at}.{'was' if words else 'on'}")
    if "id" in parts["set"]:
        raise SpecError("the id of a row stays what it is", field=f"{at}.set.id")
    return Rule(on=cast("tuple[On, ...]", words), refuse=reason, **parts)


def apply_rules(collection: Collection, on: On, before: dict[str, Json] | None, row: dict[str, Json]) -> dict[str, Json]:
    """Return the row as the rules leave it. Raises `Refused` with 409 where one forbids the request."""
    for rule in collection.rules:
        if on in rule.on and _has_members(before, rule.was) and _has_members(row, rule.when):
            if rule.refuse is not None:
                raise refuse(409, "refused_by_rule", rule.refuse)
            row = {**row, **rule.set}
    return row


def _has_members(row: dict[str, Json] | None, wanted: dict[str, Json]) -> bool:
    # Before a row is made there is none, not one without members.
    return not wanted if row is None else seeds.holds_condition(wanted, lambda key: row.get(key, MISSING))


def check_row(collection: Collection, row: dict[str, Json], rows: Draft, *, replaces: str | None) -> None:
    """Look whether a row may be put. Raises `Refused`: 422 where it does not fit the schema, 409 where a value must be unique."""
    if collection.schema is not None:
        errors = list(_build_validator(msgspec.json.encode(collection.schema), collection.name).iter_errors(row))
        if errors:
            reason = "; ".join(f"{'.'.join(map(str, error.instance_path)) or 'the row'}: {shorten(error.message)}" for error in errors[:5])
            raise refuse(422, "wrong_row", reason)
    for name in collection.unique:
        value = row.get(name)
        taken = (key for key, other in rows.list(collection.name).items() if key != replaces and other.get(name) == value)
        if value is not None and (other := next(taken, None)) is not None:
            raise refuse(409, "not_unique", f"{name} {show(value)} is taken by the row {show(other)}")


@functools.lru_cache(maxsize=256)
def _build_validator(schema: bytes, name: str) -> Any:
    import jsonschema_rs  # slow to load, and few collections have a schema

    try:
        # Nothing is fetched, and patterns run on an engine that takes linear time.
        return jsonschema_rs.validator_for(
            msgspec.json.decode(schema), offline=True, pattern_options=jsonschema_rs.RegexOptions(), validate_formats=False
        )
    except (jsonschema_rs.ValidationError, ValueError) as error:
        raise SpecError(f"schema: {shorten(str(error))}", field=f"{name}.schema") from None
