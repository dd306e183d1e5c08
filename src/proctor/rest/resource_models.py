"""The bodies and answers of REST as pydantic models, made of the declarations of nouns.

FastAPI reads bodies with them and writes the OpenAPI document from them. Names of fields are snake_case; bodies are read in camelCase too.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any, Literal, cast

from pydantic import AliasChoices, AliasGenerator, BaseModel, ConfigDict, Field, create_model
from pydantic.alias_generators import to_camel

from proctor.rest.route_parts import Body
from proctor.service.verification.shared import fields
from proctor.service.verification.shared.fields import Schema, Shape, without_limits

_TYPES: dict[str, Any] = {"string": str, "number": float, "integer": int, "boolean": bool, "object": dict[str, Any], "array": list[Any]}
_LIMITS = {
    "minLength": "min_length",
    "maxLength": "max_length",
    "maxItems": "max_length",
    "pattern": "pattern",
    "minimum": "ge",
    "exclusiveMinimum": "gt",
    "maximum": "le",
}


def _read_both(name: str) -> AliasChoices | str:
    camel = to_camel(name)
    # The first choice is what OpenAPI shows.
    return AliasChoices(name, camel) if camel != name else name


class Written(Body):
    """A body whose names are read in snake_case and camelCase."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=AliasGenerator(validation_alias=_read_both))


class Shown(BaseModel):
    """Something that is shown. More may be added to it."""

    model_config = ConfigDict(extra="allow")


@functools.cache
def make_body(shape: Shape, module: str, *, partial: bool = False) -> type[BaseModel]:
    """Return the model of a request; with `partial` nothing is required. `module` tells models of one name apart."""
    found: dict[str, Any] = {}
    for name, field in shape.fields.items():
        # A required field with a second name is asked for by the service, which knows whether it came under either.
        required = field.required and not partial and field.also is None
        found[name] = (_type_of(field, field.kind.schema), _describe(field, required=required, default=None if partial else field.default))
        if field.also is not None:
            second = Field(default_factory=lambda: None, description=f"another name of `{name}`")
            found[field.also] = (_type_of(field, field.kind.schema), second)
    return _make_model(shape, Written, module, found)


@functools.cache
def make_answer(shape: Shape) -> type[BaseModel]:
    """Return the model of an answer."""
    found: dict[str, Any] = {
        name: (
            _type_of(field, field.shown_as or without_limits(field.kind.schema)),
            Field(description=field.about or None) if field.always else Field(None, description=field.about or None),
        )
        for name, field in shape.fields.items()
    }
    return _make_model(shape, Shown, __name__, found)


def _make_model(shape: Shape, base: type[BaseModel], module: str, found: dict[str, Any]) -> type[BaseModel]:
    return create_model(shape.name, __base__=base, __doc__=shape.about, __module__=module, **found)


def _describe(field: fields.Field, *, required: bool, default: object) -> Any:
    more: dict[str, Any] = {"description": field.about or None, "examples": None if field.example is None else [field.example]}
    if required:
        return Field(**more)
    if default is None and field.null:
        return Field(None, **more)
    # A default that is made is not told: that of a list says nothing, and what a change leaves out stays as it is.
    return (
        Field(default_factory=lambda: default, **more) if default is None or isinstance(default, (list, dict)) else Field(default, **more)
    )


def _type_of(field: fields.Field, schema: Schema) -> Any:
    if field.kind.shape is not None:
        model = make_answer(field.kind.shape)
        found: Any = list[model] if schema["type"] == "array" else model
    else:
        found = _type_of_schema(schema)
    return found | None if field.null else found


def _type_of_schema(schema: Schema) -> Any:
    kinds: Any = schema["type"]
    if isinstance(kinds, list):
        first, *others = (_TYPES[kind] for kind in cast(list[str], kinds))
        return functools.reduce(lambda left, right: left | right, others, first)
    if "enum" in schema:
        return Literal.__getitem__(tuple(schema["enum"]))  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - the words are data
    found = _TYPES[kinds]
    if "items" in schema:
        found = list[_type_of_schema(schema["items"])]
    if "additionalProperties" in schema:
        found = dict[str, _type_of_schema(schema["additionalProperties"])]
    limits = {_LIMITS[key]: value for key, value in schema.items() if key in _LIMITS}
    return Annotated[found, Field(**limits)] if limits else found
