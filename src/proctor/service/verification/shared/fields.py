"""The fields of verification resources, declared once.

A `Field` has a `Kind`, access rules and a description. Request parsing, REST bodies, MCP parameters and results, and the reference page use
it. Names are snake_case; others are translated.
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
_MOST_UNKNOWN = 50
"""Unknown fields that are listed in a response."""
T = TypeVar("T")
Schema = dict[str, Json]
"""A JSON Schema of one value, without references."""


@dataclass(frozen=True, eq=False)
class Kind:
    """The values of a field."""

    schema: Schema
    """The accepted values, with limits."""
    read: Callable[[Json], Json]
    """Return the stored value; a `ValueError` describes a problem."""
    refers: str | None = None
    """The kind of record whose id it is."""
    shape: Shape | None = None
    """The shape of an object, or of each list entry."""
    form: str = ""
    """The expected format of a text, in words."""


@dataclass(frozen=True, eq=False)
class Field:
    """One field of a resource."""

    kind: Kind
    about: str = ""
    """A short description for OpenAPI, the tool, the reference and forms."""
    _: KW_ONLY
    required: bool = False
    """Whether a new record must have it."""
    default: Json = None
    """Its value in a new record without it."""
    null: bool = True
    written: bool = True
    """Whether callers write it."""
    compute: Callable[[Row], Json] | None = None
    """Computes the value from a record, if it is not in the body."""
    joined: bool = False
    """Whether it contains other records."""
    changeable: bool = True
    shown: bool = True
    """Whether responses have it."""
    full: bool = False
    """Whether lists omit it."""
    always: bool = True
    """Whether every response has it, or it may be withheld."""
    also: str | None = None
    """Another accepted name."""
    example: Json = None
    in_tool: bool = True
    """Whether the MCP tool has it."""
    tool: Schema | None = None
    """Overrides of its schema in the MCP tool."""
    shown_as: Schema | None = None
    """Its schema in responses, if different."""


Table = Mapping[str, Field]


@dataclass(frozen=True, eq=False)
class Shape:
    """The shape of a request or response body."""

    name: str
    about: str
    fields: Table
    group: str = ""
    """Shapes of one group show the same record in more or less detail."""

    def extend(self, name: str, about: str, fields: Table) -> Shape:
        """Return this shape with more fields."""
        return Shape(name, about, {**self.fields, **fields}, self.group)

    def pick(self, name: str, about: str, *names: str) -> Shape:
        """Return a new shape with some of the fields."""
        return Shape(name, about, {field_name: self.fields[field_name] for field_name in names})


def label_of(name: str) -> str:
    """Return the label of a field: `input_entity_id` is `Input entity`."""
    return name.removesuffix("_id").replace("_", " ").capitalize()


def without_limits(schema: Schema) -> Schema:
    """Return a schema without limits, which do not apply to responses."""
    copied_keys = {key: value for key, value in schema.items() if key in ("type", "enum", "additionalProperties")}
    return {**copied_keys, "items": without_limits(schema["items"])} if "items" in schema else copied_keys


def read_fields(table: Table, request_body: Mapping[str, Json], what: str, *, partial: bool = False) -> dict[str, Json]:
    """Return the checked fields in `given`; with `partial` only those present. Raises `Refusal` with every mistake."""
    wrong: dict[str, list[str]] = {}
    values: dict[str, Json] = {}
    request_body = dict(request_body)
    for name, field in table.items():
        if field.also in request_body and name not in request_body:
            request_body[name] = request_body.pop(field.also)
    for name in request_body:
        if name not in table and len(wrong) < _MOST_UNKNOWN:
            near = nearest(name, table)
            wrong[name] = [f"unknown field of a {what}" + (f"; nearest: {', '.join(near)}" if near else "")]
    for name, field in table.items():
        value = request_body.get(name)
        if value is None and (name not in request_body or not field.null):
            if name in request_body or (field.required and not partial):
                wrong[name] = ["required" if name not in request_body else "expected a value, got null"]
            elif not partial:
                values[name] = field.default
            continue
        try:
            values[name] = None if value is None else field.kind.read(value)
        except ValueError as error:
            wrong[name] = [str(error)]
    if wrong:
        raise invalid(what, wrong)
    return values


def invalid(what: str, fields: Mapping[str, list[str]]) -> Refusal:
    """Return the refusal of a request with invalid fields."""
    name, texts = next(iter(fields.items()))
    more = f" (and {len(fields) - 1} more)" if len(fields) > 1 else ""
    return Refusal("VALIDATION_ERROR", f"the {what} is invalid: {name}: {texts[0]}{more}", fields=fields)


def text(longest: int = 200, shortest: int = 1) -> Kind:
    """A text of `shortest` to `longest` characters."""

    def read(value: Json) -> str:
        if not isinstance(value, str):
            raise ValueError(f"expected text, got {kind_of(value)}")
        if not shortest <= len(value) <= longest or (shortest and not value.strip()):
            raise ValueError(f"expected {shortest} to {longest} characters, got {len(value)}")
        return _check_storable(value)

    limits: Schema = {"minLength": shortest, "maxLength": longest} if shortest else {"maxLength": longest}
    return Kind({"type": "string", **limits}, read)


def id_of(kind: str) -> Kind:
    """The id of a record."""
    return Kind({"type": "string"}, text(200).read, refers=kind)


def matching(pattern: str, expected: str) -> Kind:
    """A text that matches a pattern as a whole."""
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
        # `int` raises for infinity and NaN, which are rejected first.
        if not is_number(value) or value != value or abs(value) > 1e15 or int(value) != value:
            raise ValueError(f"expected a whole number, got {show(value, 40)}")
        if not least <= value <= most:
            raise ValueError(f"expected {least} to {most}, got {int(value)}")
        return int(value)

    return Kind({"type": "integer", "minimum": least, "maximum": most}, read)


def _read_as(expected: str, *kinds: type, longest: int | None = None) -> Callable[[Json], Json]:
    def read(value: Json) -> Json:
        if not isinstance(value, kinds):
            raise ValueError(f"expected {expected}, got {kind_of(value)}")
        return _check_storable(value, longest)

    return read


_read_object = _read_as("an object", dict, longest=_LONGEST_OBJECT)


def _read_config(value: Json) -> Json:
    config = _read_object(value)
    wrong = list_plain_secrets(config, "config")
    if wrong:
        raise ValueError(f"{wrong[0]} looks like a secret; write ${{NAME}} in its place")
    return config


def _read_texts(value: Json) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in cast(list[Json], value)):
        raise ValueError(f"expected a list of texts, got {kind_of(value)}")
    texts = cast(list[str], value)
    if len(texts) > _MOST_TAGS or any(not 1 <= len(entry) <= _LONGEST_TAG for entry in texts):
        raise ValueError(f"expected at most {_MOST_TAGS} texts of 1 to {_LONGEST_TAG} characters")
    return list(dict.fromkeys(_check_storable(texts)))


FLAG = Kind({"type": "boolean"}, _read_as("true or false", bool))
OBJECT = Kind({"type": "object"}, _read_object)
CONFIG = Kind({"type": "object"}, _read_config)
"""Settings without plain secrets."""
OBJECT_OR_LIST = Kind({"type": ["object", "array"]}, _read_as("an object or a list", dict, list))
TEXTS = Kind({"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": _LONGEST_TAG}, "maxItems": _MOST_TAGS}, _read_texts)
"""Short texts, each once."""


def one_of(*words: str, aliases: Mapping[str, str] | None = None, exact: bool = False) -> Kind:
    """One of some words, ignoring case and punctuation; with `exact` the schema lists them."""
    known = {_strip_marks(word): word for word in words} | {_strip_marks(word): meant for word, meant in (aliases or {}).items()}

    def read(value: Json) -> str:
        if not isinstance(value, str):
            raise ValueError(f"expected one of {', '.join(words)}, got {kind_of(value)}")
        if (choice := known.get(_strip_marks(value))) is None:
            near = nearest(value, words)
            raise ValueError(
                f"expected one of {', '.join(words)}, got {show(value, 60)}" + (f"; nearest: {', '.join(near)}" if near else "")
            )
        return choice

    return Kind({"type": "string", "enum": list(words)} if exact else {"type": "string"}, read)


def _strip_marks(word: str) -> str:
    return "".join(letter for letter in word[:100].lower() if letter.isalnum())


def _check_storable(value: T, longest: int | None = None) -> T:
    """Return the value. Raises `ValueError` if it cannot be encoded as JSON, or is too long."""
    try:
        # Not ASCII, which would accept lone surrogates that cannot be stored.
        written = json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"it cannot be stored as JSON: {error}") from None
    if longest is not None and len(written) > longest:
        raise ValueError(f"expected at most {longest} bytes of JSON, got {len(written)}")
    return value


def _refuse(value: Json) -> Json:
    raise ValueError("read-only")


def read_only(type: str, about: str = "", *, null: bool = False, **more: Any) -> Field:
    """Return a read-only field; `more` are arguments of the field or its schema."""
    of_field = {name: more.pop(name) for name in ("default", "full", "joined", "compute", "in_tool") if name in more}
    return Field(Kind({"type": type, **more}, _refuse), about, null=null, written=False, **of_field)


def read_only_json(about: str = "") -> Field:
    """Return a read-only field with any JSON."""
    return Field(Kind({"type": ["object", "array", "string", "number", "boolean"]}, _refuse), about, written=False)


def read_only_id(kind: str, about: str = "", *, null: bool = False) -> Field:
    """Return a read-only id of another record."""
    return Field(Kind({"type": "string"}, _refuse, refers=kind), about, null=null, written=False)


def nested_field(shape: Shape, about: str = "", *, many: bool = True, full: bool = False) -> Field:
    """Return a field with nested records, or one without `many`."""
    kind = Kind({"type": "array" if many else "object"}, _refuse, shape=shape)
    return Field(kind, about, null=False, written=False, full=full, joined=True)


NAME = Field(text(200), "the name", required=True, null=False)
DESCRIPTION = Field(text(1000, 0), "the purpose")
