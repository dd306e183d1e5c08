"""Reads the members of one of Verial's typed assertions by name, and reports invalid ones.

An invalid assertion is not an error of the file: as in Verial, it becomes a criterion that fails with the reason. Here it raises
`Malformed`, with the position and the nearest valid word. An unknown key is invalid too: ignoring a condition could let a claim pass that
its author meant to be stricter.

Names are read in snake_case and camelCase. `{entity.field}` in `search`, `correlate_by` and `expected` is replaced from the entity
the criterion is bound to: alone it keeps its JSON type, inside longer text (and in a search) it is written as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from proctor.formats.text.located import Located, Reading, locate_value
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, NotJson, is_integer, read_json, write_as_text
from proctor.model.show import nearest, show
from proctor.paths.dotted import find_dotted

_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PLACEHOLDER = re.compile(r"\{entity\.([A-Za-z0-9_.-]{1,200})\}")
_REMARKS = ("assert", "description", "label", "name", "comment", "notes", "id", "simulator_id", "sandbox_id", "version")
_TWO_SPELLINGS = "{!r} and {!r} are two spellings of one key"

Entity = Mapping[str, Json]


class Malformed(Exception):
    """An invalid assertion: the reason, the position, and the nearest valid word."""

    def __init__(self, message: str, node: Located, near: tuple[str, ...] = (), *, key: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.node = node
        self.near = near
        self.key = key
        """The key of `node` that is wrong, if the key itself is."""


class Translated(msgspec.Struct, frozen=True):
    """A parsed assertion: the check, its spec, and the positions of the spec's fields."""

    check: str
    spec: msgspec.Struct
    fields: dict[str, Located]

    def find_place(self, field: str | None, otherwise: Located) -> Located:
        """Return the position of a spec field: that of the longest known part of its path."""
        while field:
            if field in self.fields:
                return self.fields[field]
            field = field.rpartition(".")[0]
        return otherwise


def to_snake_case(key: str) -> str:
    """Return `correlateBy` as `correlate_by`."""
    # A longer key is not one of our names and need not be converted.
    return _HUMPS.sub("_", key).lower() if len(key) <= 200 else key


def list_members(node: Located) -> dict[str, Located]:
    """Return the members of an object under their snake_case names; of two spellings, the last that is not null."""
    members: dict[str, Located] = {}
    for key, value in node.members():
        name = to_snake_case(key)
        if name not in members or value.value is not None:
            members[name] = value
    return members


def list_stated(node: Located) -> dict[str, Located]:
    """Return the members of an object that are not null, under their snake_case names."""
    return {name: value for name, value in list_members(node).items() if value.value is not None}


def find_repeated(node: Located) -> tuple[str, str] | None:
    """Return two keys of an object that are spellings of one name and are both set, or None."""
    spellings: dict[str, str] = {}
    for key, value in node.members():
        first = spellings.setdefault(to_snake_case(key), key) if value.value is not None else key
        if first != key:
            return first, key
    return None


def refuse_repeated(node: Located) -> None:
    """Raise `Malformed` if an object has a key in two spellings."""
    repeated = find_repeated(node)
    if repeated is not None:
        raise Malformed(_TWO_SPELLINGS.format(*repeated), node, key=repeated[1])


class Parts:
    """The members of one assertion, read by name; members that are never read are unknown."""

    def __init__(self, node: Located, kind: str, entity: Entity | None) -> None:
        self.node = node
        self.kind = kind
        self.entity = entity
        refuse_repeated(node)
        self.members = list_members(node)
        self.fields: dict[str, Located] = {}
        self._known_keys: set[str] = set()

    def finish(self, check: str, spec: msgspec.Struct) -> Translated:
        """Return the result after checking for unknown keys."""
        for key, _ in self.node.members():
            if to_snake_case(key) not in self._known_keys and to_snake_case(key) not in _REMARKS:
                raise Malformed(f"unknown key {key!r} in {self.kind}", self.node, nearest(to_snake_case(key), self._known_keys), key=key)
        return Translated(check, spec, self.fields)

    def take(self, *names: str) -> Located | None:
        """Return the member under the first of its names; null counts as absent."""
        self._known_keys.update(names)
        present = [self.members[name] for name in names if name in self.members and self.members[name].value is not None]
        if len(present) > 1:
            raise Malformed(
                f"{' and '.join(name for name in names if name in self.members)} say the same in a {self.kind} assertion", present[1]
            )
        if present:
            # Stored under the first name, which is the field of our spec: problems of the spec are located by it.
            self.fields[names[0]] = present[0]
        return present[0] if present else None

    def read_text(self, *names: str, required: bool = False) -> str | None:
        """Return a text; a number such as `271` is accepted as text."""
        node = self.take(*names)
        if node is None:
            if required:
                raise Malformed(f"a {self.kind} assertion needs {names[0]!r}", self.node)
            return None
        value = self.resolve(node)
        if not isinstance(value, str) and not is_integer(value):
            raise Malformed(f"{names[0]}: expected text, found {node.kind}", node)
        return str(value)

    def read_value(self, *names: str) -> Json:
        """Return any value, including a matcher; an absent one is null."""
        node = self.take(*names)
        return None if node is None else self.resolve(node)

    def read_word(self, name: str, *words: str) -> str | None:
        """Return one of some words."""
        node = self.take(name)
        if node is not None and node.value not in words:
            raise Malformed(f"{name}: expected {', '.join(words[:-1])} or {words[-1]}, found {show(node.plain())}", node)
        return None if node is None else str(node.value)

    def read_count(self, name: str) -> int | None:
        """Return an integer."""
        node = self.take(name)
        value = None if node is None else node.value
        if node is not None and not is_integer(value):
            raise Malformed(f"{name}: expected a whole number, found {node.kind}", node)
        return value

    def read_flag(self, name: str) -> bool:
        """Return a flag; the default is false."""
        node = self.take(name)
        if node is not None and not isinstance(node.value, bool):
            raise Malformed(f"{name}: expected true or false, found {node.kind}", node)
        return node is not None and node.value

    def read_texts(self, *names: str) -> tuple[str, ...]:
        """Return a list of texts; a single text is a list of one."""
        node = self.take(*names)
        if node is None:
            return ()
        entries = list(node.items()) if node.is_list else [node]
        for index, entry in enumerate(entries):
            self.fields[f"{names[0]}.{index}"] = entry
            if not isinstance(entry.value, str):
                raise Malformed(f"{names[0]}: expected texts, found {entry.kind}", entry)
        return tuple(str(self.resolve(entry)) for entry in entries)

    def read_object(self, name: str) -> dict[str, Located]:
        """Return the members of an object; empty if it is absent."""
        node = self.take(name)
        if node is None:
            return {}
        if not node.is_object:
            raise Malformed(f"{name}: expected an object, found {node.kind}", node)
        members = dict(node.members())
        self.fields.update({f"{name}.{key}": value for key, value in members.items()})
        return members

    def iterate_field_rows(self, *names: str) -> Iterator[tuple[Located, dict[str, Located]]]:
        """Yield the entries of a field list, each with its members."""
        node = self.take(*names)
        if node is None:
            return
        if not node.is_list:
            raise Malformed(f"{names[0]}: expected a list, found {node.kind}", node)
        for index, entry in enumerate(node.items()):
            row = list_members(entry)
            if not entry.is_object:
                raise Malformed(f"{names[0]}[{index}]: expected an object with path and expected, found {entry.kind}", entry)
            for key, _ in entry.members():
                if to_snake_case(key) not in ("path", "expected", "fhirpath"):
                    raise Malformed(f"unknown key {key!r} in a field", entry, nearest(key, ("path", "expected", "fhirpath")), key=key)
            refuse_repeated(entry)
            self.fields[f"fields.{index}"] = entry
            self.fields.update({f"fields.{index}.{key}": value for key, value in row.items()})
            yield entry, row

    def iterate_rows(self, *names: str) -> Iterator[tuple[str, Json]]:
        """Yield the path and the expected value of each field."""
        for entry, row in self.iterate_field_rows(*names):
            for key in ("path", "expected"):
                if key not in row:
                    raise Malformed(f"a field needs {key!r}", entry)
            yield read_path(row["path"]), self.resolve(row["expected"])

    def resolve(self, node: Located) -> Json:
        """Return the value with its entity placeholders replaced."""
        return _replace(node.plain(), node, self.entity)

    def read_correlation(self, aliases: tuple[str, ...] = ()) -> dict[str, Json]:
        """Read `correlate_by`; aliases are also accepted in camelCase, every other key as written."""
        correlation: dict[str, Json] = {}
        for key, value in self.read_object("correlate_by").items():
            name = to_snake_case(key) if to_snake_case(key) in aliases else key
            if name in correlation:
                first = next(member for member in self.read_object("correlate_by") if to_snake_case(member) == name)
                raise Malformed(_TWO_SPELLINGS.format(first, key), self.fields["correlate_by"], key=key)
            correlation[name] = self.resolve(value)
        return correlation


def read_path(node: Located) -> str:
    """Return the path that a field names."""
    if not isinstance(node.value, str) or not node.value:
        raise Malformed(f"path: expected text, found {node.kind}", node)
    return node.value


def _replace(value: Json, node: Located, entity: Entity | None) -> Json:
    if isinstance(value, dict):
        return {key: _replace(entry, node, entity) for key, entry in value.items()}
    if isinstance(value, list):
        return [_replace(entry, node, entity) for entry in value]
    if not isinstance(value, str) or "{entity." not in value:
        return value
    whole = _PLACEHOLDER.fullmatch(value)
    if whole is not None:
        return _read_entity_field(whole.group(1), node, entity)
    return _PLACEHOLDER.sub(lambda match: write_as_text(_read_entity_field(match.group(1), node, entity)), value)


def _read_entity_field(name: str, node: Located, entity: Entity | None) -> Json:
    if entity is None:
        raise Malformed(f"{{entity.{name}}}: the criterion is bound to no entity", node)
    value = find_entity_field(entity, name)
    if value is MISSING:
        raise Malformed(f"{{entity.{name}}}: the entity has no field {name!r}", node, nearest(name, entity))
    return value


def find_entity_field(entity: Entity, name: str) -> Json:
    """Return a field of an entity by dot path: next to its id, or inside `data` or `fields`; `MISSING` if it has none."""
    for holder in (entity, entity.get("data"), entity.get("fields")):
        if isinstance(holder, dict):
            field_value = find_dotted(holder, name)
            if field_value is not MISSING:
                return field_value
    return MISSING


def report(reading: Reading, problem: Malformed) -> None:
    """Warn about an assertion that will fail because it is invalid."""
    message = f"{problem.message}; the criterion will fail"
    if problem.key is not None:
        reading.warn_at_key(problem.node, problem.key, message, nearest=problem.near, code="unsupported_assertion")
    else:
        reading.warn(problem.node, message, nearest=problem.near, code="unsupported_assertion")


def warn_unknown(reading: Reading, node: Located, known: tuple[str, ...], what: str) -> None:
    """Report a key in two spellings, and warn about unknown keys."""
    repeated = find_repeated(node)
    if repeated is not None:
        reading.error_at_key(node, repeated[1], _TWO_SPELLINGS.format(*repeated), code="duplicate_key")
    for key, _ in node.members():
        if to_snake_case(key) not in known:
            near = nearest(to_snake_case(key), known)
            reading.warn_at_key(node, key, f"unknown key {key!r} in {what} is left out", nearest=near, code="unknown_key")


def decode_text(text: str, node: Located) -> Located:
    """Return the JSON inside a text, with every value at the position of the text."""
    try:
        return locate_value(read_json(text), node)
    except NotJson as error:
        raise Malformed(f"the assertion is text that begins like JSON, but is none: {error}", node) from None
