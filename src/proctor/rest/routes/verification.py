"""The verification API of Verial's clients: one route per declared operation."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Query, Request, Response
from fastapi import Body as BodyOf
from pydantic import AliasChoices, AliasGenerator, BaseModel, ConfigDict, Field, create_model
from pydantic.alias_generators import to_camel

from proctor.formats.verial.assertions import spell_in_snake_case
from proctor.rest.route_parts import Body, ClampedPaging, PageOf, TheCaller, TheHub, describe_endpoint, list_sent_fields, make_router
from proctor.service.schemas import Schema, without_limits
from proctor.service.verification.nouns import NOUNS
from proctor.service.verification.sandboxes.system_kinds import complete_addresses
from proctor.service.verification.shared import fields
from proctor.service.verification.shared.declaration import Operation, Resource
from proctor.service.verification.shared.fields import Shape
from proctor.store.sql.compressed_json import to_json

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
    """A response; fields may be added."""

    model_config = ConfigDict(extra="allow")


@functools.cache
def make_body(shape: Shape, module: str, *, partial: bool = False) -> type[BaseModel]:
    """Return the model of a request; with `partial` nothing is required. `module` distinguishes models of the same name."""
    members: dict[str, Any] = {}
    for name, field in shape.fields.items():
        # A field with a second name is optional here: the service checks that one of the two is present.
        required = field.required and not partial and field.also is None
        default = None if partial else field.default
        members[name] = (_type_of(field, field.kind.schema), _describe(field, required=required, default=default))
        if field.also is not None:
            second = Field(default_factory=lambda: None, description=f"another name of `{name}`")
            members[field.also] = (_type_of(field, field.kind.schema), second)
    return _make_model(shape, Written, module, members)


@functools.cache
def make_answer(shape: Shape) -> type[BaseModel]:
    """Return the model of a response."""
    members: dict[str, Any] = {
        name: (
            _type_of(field, field.shown_as or without_limits(field.kind.schema)),
            Field(description=field.about or None) if field.always else Field(None, description=field.about or None),
        )
        for name, field in shape.fields.items()
    }
    return _make_model(shape, Shown, __name__, members)


def _make_model(shape: Shape, base: type[BaseModel], module: str, members: dict[str, Any]) -> type[BaseModel]:
    return create_model(shape.name, __base__=base, __doc__=shape.about, __module__=module, **members)


def _describe(field: fields.Field, *, required: bool, default: object) -> Any:
    more: dict[str, Any] = {"description": field.about or None, "examples": None if field.example is None else [field.example]}
    if required:
        return Field(**more)
    if default is None and field.null:
        return Field(None, **more)
    # A generated default is not shown: an empty list is obvious, and an omitted field of a change stays unchanged.
    return (
        Field(default_factory=lambda: default, **more) if default is None or isinstance(default, (list, dict)) else Field(default, **more)
    )


def _type_of(field: fields.Field, schema: Schema) -> Any:
    if field.kind.shape is not None:
        model = make_answer(field.kind.shape)
        python_type: Any = list[model] if schema["type"] == "array" else model
    else:
        python_type = _type_of_schema(schema)
    return python_type | None if field.null else python_type


def _type_of_schema(schema: Schema) -> Any:
    kinds: Any = schema["type"]
    if isinstance(kinds, list):
        first, *others = (_TYPES[kind] for kind in cast(list[str], kinds))
        return functools.reduce(lambda left, right: left | right, others, first)
    if "enum" in schema:
        return Literal.__getitem__(tuple(schema["enum"]))  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - the words are data
    python_type = _TYPES[kinds]
    if "items" in schema:
        python_type = list[_type_of_schema(schema["items"])]
    if "additionalProperties" in schema:
        python_type = dict[str, _type_of_schema(schema["additionalProperties"])]
    limits = {_LIMITS[key]: value for key, value in schema.items() if key in _LIMITS}
    return Annotated[python_type, Field(**limits)] if limits else python_type


def make_routes(noun: Resource) -> APIRouter:
    """Return the routes of a resource."""
    router = make_router(noun.tag)
    for operation in noun.operations:
        if not operation.rest:
            continue
        answer: Any = None if operation.gives is None else make_answer(operation.gives)
        router.add_api_route(
            operation.path,
            _make_endpoint(operation),
            methods=[operation.method],
            response_model=PageOf[answer] if operation.pages else answer,
            # Fields that are withheld are omitted, not null.
            response_model_exclude_unset=True,
            status_code=operation.status,
        )
    return router


def _make_endpoint(operation: Operation) -> Callable[..., Awaitable[object]]:
    async def endpoint(request: Request, hub: TheHub, caller: TheCaller | None = None, **values: Any) -> object:
        who = () if operation.open else (caller,)
        ids = [values[name] for name in operation.ids]
        options: dict[str, Any] = {}
        if operation.pages:
            options = {"limit": values["paging"].limit, "cursor": values["paging"].cursor}
        if operation.within is not None:
            narrowed = values[operation.within]
            options[operation.within] = narrowed if narrowed is not None else request.query_params.get(to_camel(operation.within))
        if operation.takes is not None:
            body = values["body"]
            ids.append(body if operation.takes_whole or body is None else list_sent_fields(body))
        result = complete_addresses(_spell_assertions(await operation.call(hub, *who, *ids, **options)), request.state.root)
        if operation.large:
            return Response(await asyncio.to_thread(to_json, result), operation.status, media_type="application/json")
        return result if operation.gives is not None else Response(status_code=operation.status)

    who = {} if operation.open else {"caller": TheCaller}
    types: dict[str, Any] = {"request": Request, "hub": TheHub, **who, **dict.fromkeys(operation.ids, str)}
    defaults: dict[str, Any] = {"body": None} if operation.takes_optional else {}
    if operation.takes is not None:
        types["body"] = _type_of_body(operation.takes, operation)
    if operation.pages:
        types["paging"] = ClampedPaging
    if operation.within is not None:
        parent = operation.within.removesuffix("_id").replace("_", " ")
        types[operation.within] = Annotated[str | None, Query(description=f"of this {parent} only")]
        defaults[operation.within] = None
    describe_endpoint(endpoint, operation.name, operation.about, types, defaults)
    return endpoint


def _spell_assertions(response: Any) -> Any:
    """Return a response with assertions in snake_case, whichever way they were written."""
    if not isinstance(response, dict):
        return response
    record = dict(cast(dict[str, Any], response))
    if "_meta" in record:
        return {**record, "data": [_spell_assertions(entry) for entry in record["data"]]}
    if isinstance(record.get("assertion"), dict):
        record["assertion"] = spell_in_snake_case(record["assertion"])
    if isinstance(record.get("criteria"), list):
        record["criteria"] = [_spell_assertions(entry) for entry in record["criteria"]]
    if isinstance(record.get("snapshot"), dict):
        record["snapshot"] = _spell_assertions(record["snapshot"])
    return record


def _type_of_body(shape: Shape, operation: Operation) -> Any:
    if operation.takes_whole:
        return dict[str, Any]
    model = make_body(shape, operation.call.__module__, partial=operation.method == "PATCH")
    return Annotated[model | None, BodyOf()] if operation.takes_optional else model


router = APIRouter()
for _noun in NOUNS:
    # `include_router` would copy every route at the first request.
    router.routes.extend(make_routes(_noun).routes)
