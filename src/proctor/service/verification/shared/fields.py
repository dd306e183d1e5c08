"""The fields of verification resources, declared once.

A `Field` has a `Kind`, access rules and a description. Request parsing, REST bodies, MCP parameters and results, and the reference page use
it. Names are snake_case; others are translated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from proctor.model.evidence import Json
from proctor.model.show import nearest, show
from proctor.service.field_checks import list_plain_secrets
from proctor.service.refusals import Refusal
from proctor.service.schemas import Schema, check_value, describe_wrong_word
from proctor.store.sql.compressed_json import to_json
from proctor.store.sql.pages import Row

LONGEST_TEXT = 10_000
_LONGEST_OBJECT = 1_000_000
_MOST_UNKNOWN = 50
"""Unknown fields that are listed in a response."""


@dataclass(frozen=True, eq=False)
class Kind:
    """The values of a field."""

    schema: Schema
    """The accepted values, with limits."""
    reader: Callable[[Json], Json] | None = None
    """Returns the stored value, if it is not any value that fits the schema; a `ValueError` describes a problem."""
    refers: str | None = None
    """The kind of record whose id it is."""
    shape: Shape | None = None
    """The shape of an object, or of each list entry."""
    form: str = ""
    """The expected format of a text, in words."""

    def read(self, value: Json) -> Json:
        """Return the stored value. Raises `ValueError`."""
        return check_value(value, self.schema) if self.reader is None else self.reader(value)


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
    limits: Schema = {"minLength": shortest, "maxLength": longest} if shortest else {"maxLength": longest}
    return Kind({"type": "string", **limits})


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
    return Kind({"type": "number", "exclusiveMinimum": above, "maximum": most})


def whole(*, least: int = 1, most: int = 1_000) -> Kind:
    """A whole number in a range."""
    return Kind({"type": "integer", "minimum": least, "maximum": most})


def _read_object(value: Json) -> Json:
    size = len(to_json(check_value(value, {"type": "object"})))
    if size > _LONGEST_OBJECT:
        raise ValueError(f"expected at most {_LONGEST_OBJECT} bytes of JSON, got {size}")
    return value


def _read_config(value: Json) -> Json:
    wrong = list_plain_secrets(_read_object(value), "config")
    if wrong:
        raise ValueError(f"{wrong[0]} looks like a secret; write ${{NAME}} in its place")
    return value


FLAG = Kind({"type": "boolean"})
OBJECT = Kind({"type": "object"}, _read_object)
CONFIG = Kind({"type": "object"}, _read_config)
"""Settings without plain secrets."""
OBJECT_OR_LIST = Kind({"type": ["object", "array"]})
_TEXTS: Schema = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 200}, "maxItems": 100}
TEXTS = Kind(_TEXTS, lambda value: list(dict.fromkeys(check_value(value, _TEXTS))))
"""Short texts, each once."""


def one_of(*words: str, aliases: Mapping[str, str] | None = None, exact: bool = False) -> Kind:
    """One of some words, ignoring case and punctuation; with `exact` the schema lists them."""
    known = {_strip_marks(word): word for word in words} | {_strip_marks(word): meant for word, meant in (aliases or {}).items()}

    def read(value: Json) -> str:
        choice = known.get(_strip_marks(check_value(value, {"type": "string"})))
        if choice is None:
            raise ValueError(describe_wrong_word(value, list(words)))
        return choice

    return Kind({"type": "string", "enum": list(words)} if exact else {"type": "string"}, read)


def _strip_marks(word: str) -> str:
    return "".join(letter for letter in word[:100].lower() if letter.isalnum())


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
