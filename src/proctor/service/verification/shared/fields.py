"""The fields of the verification nouns: one declaration each, for every door.

A `Field` says what a value is (its `Kind`), who writes it and what people are told about it. Reading a request, the bodies and answers of
REST, the parameters and results of the MCP tools and the reference page are all made of it. Names are snake_case; a door that speaks
camelCase translates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar, cast

from proctor.model.evidence import Json
from proctor.model.json_values import is_finite, is_number
from proctor.model.show import kind_of, nearest, show
from proctor.service.field_checks import list_plain_secrets
from proctor.service.refusals import Refusal
from proctor.store.sql.pages import Row

LONGEST_TEXT = 10_000
_LONGEST_TAG, _MOST_TAGS = 200, 100
_LONGEST_OBJECT = 1_000_000
_MOST_TOLD = 50
"""Fields that nobody knows which are named in an answer."""
T = TypeVar("T")
Schema = dict[str, Json]
"""A JSON Schema of one value, without names for parts of it."""


@dataclass(frozen=True, eq=False)
class Kind:
    """What values a field takes."""

    schema: Schema
    """What may be written, with its limits."""
    read: Callable[[Json], Json]
    """Return the value as it is kept; a `ValueError` says what is wrong with it."""
    refers: str | None = None
    """The kind of record whose id it is."""
    shape: Shape | None = None
    """What an object, or each entry of a list, looks like."""
    form: str = ""
    """What a text must look like, in words."""


@dataclass(frozen=True, eq=False)
class Field:
    """One field of a noun."""

    kind: Kind
    about: str = ""
    """What it means, in a few words: in OpenAPI, in the tool, in the reference, beside the input of a form."""
    _: KW_ONLY
    required: bool = False
    """Whether a new record must have it."""
    default: Json = None
    """What a new record has without it."""
    null: bool = True
    """Whether it may be empty."""
    written: bool = True
    """Whether callers write it; the rest is the service's."""
    compute: Callable[[Row], Json] | None = None
    """Work it out when the record is shown, where it is not in the body."""
    joined: bool = False
    """Whether it holds other records, which are read with this one."""
    changeable: bool = True
    """Whether callers may change it later."""
    shown: bool = True
    """Whether answers have it."""
    full: bool = False
    """Whether lists leave it out."""
    always: bool = True
    """Whether every answer has it; some things are withheld from some."""
    also: str | None = None
    """Another name that callers may write."""
    example: Json = None
    in_tool: bool = True
    """Whether the MCP tool speaks of it."""
    tool: Schema | None = None
    """Where the MCP tool takes something else than REST: that part of its schema."""
    shown_as: Schema | None = None
    """Where an answer may hold something else than what is written."""


Table = Mapping[str, Field]


@dataclass(frozen=True, eq=False)
class Shape:
    """What a body or an answer looks like."""

    name: str
    about: str
    fields: Table
    group: str = ""
    """Shapes of one group show the same record, with more or less of it."""

    def extend(self, name: str, about: str, fields: Table) -> Shape:
        """Return this shape with more fields."""
        return Shape(name, about, {**self.fields, **fields}, self.group)

    def pick(self, name: str, about: str, *names: str) -> Shape:
        """Return a shape of its own with some of the fields."""
        return Shape(name, about, {one: self.fields[one] for one in names})


def label_of(name: str) -> str:
    """Return a field's name as people read it beside an input: `input_entity_id` is `Input entity`."""
    return name.removesuffix("_id").replace("_", " ").capitalize()


def without_limits(schema: Schema) -> Schema:
    """Return what kind of value a schema asks for, without its limits: they bind who writes, not who reads."""
    found = {key: value for key, value in schema.items() if key in ("type", "enum", "additionalProperties")}
    return {**found, "items": without_limits(schema["items"])} if "items" in schema else found


def read_fields(table: Table, given: Mapping[str, Json], what: str, *, partial: bool = False) -> dict[str, Json]:
    """Return the fields in `given`; with `partial` only those that are there. Raises a `Refusal` that names every mistake."""
    wrong: dict[str, list[str]] = {}
    found: dict[str, Json] = {}
    given = _use_first_names(table, given)
    for name in given:
        if name not in table and len(wrong) < _MOST_TOLD:
            near = nearest(name, table)
            wrong[name] = [f"unknown field of a {what}" + (f"; nearest: {', '.join(near)}" if near else "")]
    for name, field in table.items():
        value = given.get(name)
        if value is None and (name not in given or not field.null):
            if name in given or (field.required and not partial):
                wrong[name] = ["required" if name not in given else "expected a value, got null"]
            elif not partial:
                found[name] = field.default
            continue
        try:
            found[name] = None if value is None else field.kind.read(value)
        except ValueError as error:
            wrong[name] = [str(error)]
    if wrong:
        raise invalid(what, wrong)
    return found


def _use_first_names(table: Table, given: Mapping[str, Json]) -> dict[str, Json]:
    found = dict(given)
    for name, field in table.items():
        if field.also in found and name not in found:
            found[name] = found.pop(field.also)
    return found


def invalid(what: str, fields: Mapping[str, list[str]]) -> Refusal:
    """Return the refusal of a request whose fields cannot be used."""
    name, texts = next(iter(fields.items()))
    more = f" (and {len(fields) - 1} more)" if len(fields) > 1 else ""
    return Refusal("VALIDATION_ERROR", f"the {what} cannot be kept: {name}: {texts[0]}{more}", fields=fields)


# --- kinds of values --------------------------------------------------------------------------------------------------


def text(longest: int = 200, shortest: int = 1) -> Kind:
    """A text of so many characters."""

    def read(value: Json) -> str:
        if not isinstance(value, str):
            raise ValueError(f"expected text, got {kind_of(value)}")
        if not shortest <= len(value) <= longest or (shortest and not value.strip()):
            raise ValueError(f"expected {shortest} to {longest} characters, got {len(value)}")
        return _check_keepable(value)

    limits: Schema = {"minLength": shortest, "maxLength": longest} if shortest else {"maxLength": longest}
    return Kind({"type": "string", **limits}, read)


def id_of(kind: str) -> Kind:
    """The id of a record of another noun."""
    return Kind({"type": "string"}, text(200).read, refers=kind)


def matching(pattern: str, expected: str) -> Kind:
    """A text that a pattern describes as a whole."""
    compiled = re.compile(pattern)

    def read(value: Json) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise ValueError(f"expected {expected}, got {show(value, 60)}")
        return value

    return Kind({"type": "string", "pattern": f"^{pattern}$"}, read, form=expected)


def number(*, above: float = 0.0, most: float = 1e9) -> Kind:
    """A number above a bound."""

    def read(value: Json) -> float:
        if not is_number(value):
            raise ValueError(f"expected a number, got {kind_of(value)}")
        if not is_finite(value) or not above < value <= most:
            raise ValueError(f"expected a number above {above:g} and at most {most:g}, got {show(value, 40)}")
        return value

    return Kind({"type": "number", "exclusiveMinimum": above, "maximum": most}, read)


def whole(*, least: int = 1, most: int = 1_000) -> Kind:
    """A whole number in a range."""

    def read(value: Json) -> int:
        # `int` raises for infinity and for what is no number, so these are told apart first.
        if not is_number(value) or value != value or abs(value) > 1e15 or int(value) != value:
            raise ValueError(f"expected a whole number, got {show(value, 40)}")
        if not least <= value <= most:
            raise ValueError(f"expected {least} to {most}, got {int(value)}")
        return int(value)

    return Kind({"type": "integer", "minimum": least, "maximum": most}, read)


def _read_flag(value: Json) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, got {kind_of(value)}")
    return value


def _read_object(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {kind_of(value)}")
    return _check_keepable(cast(dict[str, Json], value), _LONGEST_OBJECT)


def _read_config(value: Json) -> dict[str, Json]:
    config = _read_object(value)
    wrong = list_plain_secrets(config, "config")
    if wrong:
        raise ValueError(f"{wrong[0]} looks like a secret; write ${{NAME}} in its place")
    return config


def _read_object_or_list(value: Json) -> Json:
    if not isinstance(value, (dict, list)):
        raise ValueError(f"expected an object or a list, got {kind_of(value)}")
    return _check_keepable(cast(Json, value))


def _read_texts(value: Json) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in cast(list[Json], value)):
        raise ValueError(f"expected a list of texts, got {kind_of(value)}")
    found = cast(list[str], value)
    if len(found) > _MOST_TAGS or any(not 1 <= len(entry) <= _LONGEST_TAG for entry in found):
        raise ValueError(f"expected at most {_MOST_TAGS} texts of 1 to {_LONGEST_TAG} characters")
    return list(dict.fromkeys(_check_keepable(found)))


FLAG = Kind({"type": "boolean"}, _read_flag)
OBJECT = Kind({"type": "object"}, _read_object)
CONFIG = Kind({"type": "object"}, _read_config)
"""Settings, in which no secret stands in plain."""
OBJECT_OR_LIST = Kind({"type": ["object", "array"]}, _read_object_or_list)
TEXTS = Kind({"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": _LONGEST_TAG}, "maxItems": _MOST_TAGS}, _read_texts)
"""Short texts, each once."""


def one_of(*words: str, aliases: Mapping[str, str] | None = None, exact: bool = False) -> Kind:
    """One of some words, in any case and with or without punctuation; with `exact` the doors take none but these."""
    known = {_strip_marks(word): word for word in words} | {_strip_marks(word): meant for word, meant in (aliases or {}).items()}

    def read(value: Json) -> str:
        if not isinstance(value, str):
            raise ValueError(f"expected one of {', '.join(words)}, got {kind_of(value)}")
        if (found := known.get(_strip_marks(value))) is None:
            near = nearest(value, words)
            raise ValueError(
                f"expected one of {', '.join(words)}, got {show(value, 60)}" + (f"; nearest: {', '.join(near)}" if near else "")
            )
        return found

    return Kind({"type": "string", "enum": list(words)} if exact else {"type": "string"}, read)


def _strip_marks(word: str) -> str:
    return "".join(letter for letter in word[:100].lower() if letter.isalnum())


def _check_keepable(value: T, longest: int | None = None) -> T:
    """Return the same value; what no encoding and no other program can carry is refused, and so is what is longer than `longest`."""
    try:
        # Not in ASCII: there half a surrogate pair is written as an escape, passes, and cannot be kept later.
        written = json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"it cannot be kept as JSON: {error}") from None
    if longest is not None and len(written) > longest:
        raise ValueError(f"expected at most {longest} bytes of JSON, got {len(written)}")
    return value


# --- what only the service writes -------------------------------------------------------------------------------------


def _refuse(value: Json) -> Json:
    raise ValueError("only the service writes it")


def read_only(type: str, about: str = "", *, null: bool = False, **more: Any) -> Field:
    """Return a field that callers read and never write; `more` is of the field, or else of its schema."""
    of_field = {name: more.pop(name) for name in ("default", "full", "joined", "compute", "in_tool") if name in more}
    return Field(Kind({"type": type, **more}, _refuse), about, null=null, written=False, **of_field)


def read_only_json(about: str = "") -> Field:
    """Return a field with any JSON in it, which callers read and never write."""
    return Field(Kind({"type": ["object", "array", "string", "number", "boolean"]}, _refuse), about, written=False)


def read_only_id(kind: str, about: str = "", *, null: bool = False) -> Field:
    """Return the id of another record, which callers read and never write."""
    return Field(Kind({"type": "string"}, _refuse, refers=kind), about, null=null, written=False)


def nested_field(shape: Shape, about: str = "", *, many: bool = True, full: bool = False) -> Field:
    """Return a field with other records in it, or without `many` with one."""
    kind = Kind({"type": "array" if many else "object"}, _refuse, shape=shape)
    return Field(kind, about, null=False, written=False, full=full, joined=True)


NAME = Field(text(200), "what it is called", required=True, null=False)
DESCRIPTION = Field(text(1000, 0), "what it is for")
