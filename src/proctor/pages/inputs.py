"""Forms built from declared fields, and the JSON read back from what a person typed.

A `Field` (`service/verification/shared/fields.py`) determines the input: text, text area, number, choice, checkbox.
Objects are typed as JSON, lists of texts one per line. A rejected form keeps what was typed and shows each problem next to its input.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, cast, get_type_hints

import msgspec

from proctor.model.evidence import Json
from proctor.pages.forms import hides_value
from proctor.pages.words import name_field, read_typed_number
from proctor.service.refusals import Refusal
from proctor.service.schemas import derive_schema
from proctor.service.verification.shared.fields import Field, Kind, Table
from proctor.store.sql.compressed_json import to_json

Control = Literal["line", "area", "json", "number", "choice", "tick", "ticks", "secret", "time"]
_LONG_TEXT = 500
"""Longer texts get a text area."""
_MOST_ROWS = 24
_FIRST_NAME = re.compile(r"[\w-]+")


def derive_fields(kind: type[msgspec.Struct], *names: str) -> dict[str, Field]:
    """Return fields of a declared request (`service/resource.py`), all by default, as fields of a form."""
    hints = get_type_hints(kind, include_extras=True)
    found: dict[str, Field] = {}
    for field in msgspec.structs.fields(kind):
        if not names or field.name in names:
            schema = derive_schema(hints[field.name])
            found[field.name] = Field(
                # The service checks the values.
                Kind(schema, lambda value: value),
                schema.get("description", ""),
                required=field.required,
                null=not field.required,
                default=None if field.default is msgspec.NODEFAULT else field.default,
                example=schema.get("examples", [None])[0],
            )
    return found


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """One input of a form."""

    name: str
    label: str
    about: str
    control: Control
    value: str = ""
    """The text typed, or the value of the record."""
    options: tuple[tuple[str, str], ...] = ()
    """Value and label of each choice; suggestions for a text input."""
    required: bool = False
    longest: int | None = None
    whole: bool = False
    """Whether a number has no fraction."""
    example: str = ""
    problems: tuple[str, ...] = ()
    lost: bool = False
    """Whether a secret was typed that is not shown again."""

    @property
    def rows(self) -> int:
        """Lines of the text area."""
        return min(_MOST_ROWS, max(self.value.count("\n") + 2, 8 if self.control == "json" else 4))


def make_inputs(
    table: Table,
    typed: Mapping[str, str],
    *,
    problems: Mapping[str, Sequence[str]] | None = None,
    choices: Mapping[str, Sequence[tuple[str, str]]] | None = None,
    partial: bool = False,
) -> list[Input]:
    """Return the inputs of a form with typed values (except keys and secrets) and problems. `choices` are what an id is chosen from."""
    sorted_problems, chosen = sort_problems(table, problems or {}), choices or {}
    found: list[Input] = []
    for name, field in table.items():
        hidden = hides_value(name)
        control: Control = "secret" if hidden else _choose_control(name, field)
        value = typed.get(name, "") if typed else write_typed(field, field.default)
        options = tuple(chosen.get(name, ())) or tuple((word, word) for word in field.kind.schema.get("enum", ()))
        if name in chosen and _is_texts(field):
            control = "ticks"
            options += tuple((line, line) for line in value.splitlines() if all(line != known for known, _ in options))
        elif name in chosen and control in ("line", "number"):
            # A choice instead of an id; a value that is not listed stays.
            control = "choice"
            options += () if not value or any(value == known for known, _ in options) else ((value, value),)
        about = "; ".join(filter(None, (field.about.replace("`", ""), "one per line" if control == "area" and _is_texts(field) else "")))
        example = "" if field.example is None else write_typed(field, field.example)
        found.append(
            Input(
                name=name,
                label=name_field(name),
                about=about[:1].upper() + about[1:],
                control=control,
                value="" if hidden else value,
                options=options,
                # A field that must not be null cannot be emptied later; a new record gets its default.
                required=field.required or (partial and not field.null),
                longest=field.kind.schema.get("maxLength"),
                whole=field.kind.schema.get("type") == "integer",
                example=example,
                problems=tuple(sorted_problems.get(name, ())),
                lost=hidden and bool(value),
            )
        )
    return found


def sort_problems(table: Table, problems: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return problems by field: `assertion.fields[0].path` belongs to `assertion`, others to ""."""
    found: dict[str, list[str]] = {}
    for path, texts in problems.items():
        first = _FIRST_NAME.match(path)
        name = first[0] if first is not None and first[0] in table else ""
        rest = path[len(name) :].lstrip(".") if name else path
        found.setdefault(name, []).extend(f"{rest}: {text}" if rest else text for text in texts)
    return found


def read_inputs(table: Table, form: Mapping[str, str], *, before: Mapping[str, str] | None = None) -> dict[str, Json]:
    """Return typed values as JSON. With `before` (the values the form was opened with), return only changes.

    Empty inputs are left out, or null in a change. Raises a `Refusal` that names every invalid input.
    """
    inputs: dict[str, Json] = {}
    wrong: dict[str, list[str]] = {}
    for name, field in table.items():
        text = _normalise(form.get(name, ""))
        # Unchanged inputs are not sent: an input may not show all of a value.
        if before is not None and text == before.get(name, ""):
            continue
        try:
            value = _read_value(field, text)
        except ValueError as error:
            wrong[name] = [str(error)]
            continue
        if value is not None or before is not None:
            inputs[name] = value
    if wrong:
        raise Refusal("VALIDATION_ERROR", "the form cannot be read", fields=wrong)
    return inputs


def write_typed(field: Field, value: Json) -> str:
    """Return a value as input text."""
    if value is None:
        return ""
    if _is_flag(field):
        return "on" if value else ""
    if _is_texts(field):
        return "\n".join(str(item) for item in cast(list[Json], value))
    if isinstance(value, str):
        return _normalise(value)
    if isinstance(value, (dict, list)):
        return msgspec.json.format(to_json(value), indent=2).decode(errors="replace")
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def write_record(table: Table, record: Mapping[str, Json]) -> dict[str, str]:
    """Return a record as input texts."""
    return {name: write_typed(field, record.get(name)) for name, field in table.items()}


def _read_value(field: Field, text: str) -> Json:
    kind = field.kind.schema.get("type")
    if _is_flag(field):
        return text == "on"
    if not text.strip():
        return None
    if _is_texts(field):
        return [line.strip() for line in text.splitlines() if line.strip()]
    if kind in ("number", "integer"):
        return read_typed_number(text, whole=kind == "integer")
    if kind == "string":
        return text if _is_long(field) else text.strip()
    return read_json(text)


def read_json(text: str) -> Json:
    """Return typed JSON. Raises `ValueError` with the position."""
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        message = str(error)
        at = re.search(r"\(byte (\d+)\)", message)
        place = ""
        if at is not None:
            # msgspec counts bytes, people count characters.
            before = text.encode(errors="replace")[: int(at[1])].decode(errors="ignore")
            place = f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}: "
        reason = re.sub(r"JSON is malformed: | ?\(byte \d+\)", "", message) or "unexpected end"
        raise ValueError(f"{place}invalid JSON: {reason}") from None


def _choose_control(name: str, field: Field) -> Control:
    schema = field.kind.schema
    if _is_flag(field):
        return "tick"
    if "enum" in schema:
        return "choice"
    if schema.get("type") in ("number", "integer"):
        return "number"
    if _is_texts(field) or (schema.get("type") == "string" and _is_long(field) and not name.endswith("_url")):
        return "area"
    if schema.get("type") == "string":
        return "time" if name.endswith("_at") or name in ("since", "until") else "line"
    return "json"


def _is_flag(field: Field) -> bool:
    return field.kind.schema.get("type") == "boolean"


def _is_texts(field: Field) -> bool:
    schema = field.kind.schema
    return schema.get("type") == "array" and schema.get("items", {}).get("type") == "string"


def _is_long(field: Field) -> bool:
    return int(field.kind.schema.get("maxLength", 0)) > _LONG_TEXT


def _normalise(text: str) -> str:
    """Return a text with LF line ends; browsers send CR LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
