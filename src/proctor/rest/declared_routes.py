"""The routes of declared operations, with their schemas (`service/resource.py`)."""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
from fastapi import Path as PathValue
from fastapi import Query, Request, Response
from msgspec import NODEFAULT, Meta, Struct
from pydantic import BaseModel, Field, create_model
from starlette.routing import BaseRoute

from proctor.rest.route_parts import (
    Body,
    PageOf,
    TheCaller,
    TheHub,
    ThePaging,
    describe_endpoint,
    list_sent_fields,
    make_router,
    make_stored_response,
)
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.resource import OPERATIONS, Operation, Page

_DESCRIBED = ("description", "gt", "ge", "lt", "le", "min_length", "max_length", "pattern")
_PAGING = ("limit", "cursor")


@cache
def make_declared_routes(module: str) -> tuple[BaseRoute, ...]:
    """Return the routes of the operations that a module declares."""
    importlib.import_module(module)
    routes: list[BaseRoute] = []
    for operation in OPERATIONS:
        if operation.call.__module__ == module:
            router = make_router(operation.tag)
            returned = get_type_hints(operation.call)["return"]
            without = returned is type(None)
            router.add_api_route(
                operation.path,
                _make_endpoint(operation),
                methods=[operation.method],
                response_model=None if without else convert_type(returned),
                status_code=operation.status or (204 if without else 200),
            )
            routes += router.routes
    return tuple(routes)


Give = Callable[[dict[str, Any]], Any]
"""Returns an argument of the operation from the values that FastAPI has read."""


def _make_endpoint(operation: Operation) -> Callable[..., Awaitable[object]]:
    types_of, defaults, arguments, keywords = _plan_arguments(operation)

    async def endpoint(request: Request, **values: Any) -> object:
        result = await operation.call(*(give(values) for give in arguments), **{name: give(values) for name, give in keywords.items()})
        if result is None:
            return Response(status_code=204)
        if operation.stored:
            return make_stored_response(result)
        return msgspec.to_builtins(result) if isinstance(result, Struct) else result

    describe_endpoint(endpoint, operation.name, operation.call.__doc__, types_of, defaults)
    return endpoint


def _plan_arguments(operation: Operation) -> tuple[dict[str, Any], dict[str, Any], list[Give], dict[str, Give]]:
    """Return types and defaults for FastAPI, and the arguments of the operation by position and by name."""
    types_of: dict[str, Any] = {"request": Request}
    defaults: dict[str, Any] = {}
    arguments: list[Give] = []
    keywords: dict[str, Give] = {}
    ids = iter(operation.ids)
    hints = get_type_hints(operation.call, include_extras=True)
    for name, parameter in inspect.signature(operation.call).parameters.items():
        kind, metadata = _split(hints[name])
        shape = next((part for part in metadata if isinstance(part, type) and issubclass(part, Struct)), None)
        if kind in (Hub, Caller):
            types_of[name] = TheHub if kind is Hub else TheCaller
            give = _take(name)
        elif shape is not None or (isinstance(kind, type) and issubclass(kind, Struct)):
            give = _read_struct(operation, shape, kind, types_of, defaults)
        elif parameter.kind is parameter.VAR_KEYWORD or name in _PAGING:
            types_of["paging"] = ThePaging
            keywords |= {part: _take_from_paging(part) for part in (_PAGING if parameter.kind is parameter.VAR_KEYWORD else (name,))}
            continue
        elif parameter.kind is parameter.KEYWORD_ONLY or (id := next(ids, None)) is None:
            types_of[name], defaults[name] = Annotated[_override(kind, metadata), Query(**_describe(metadata))], parameter.default
            give = _take(name)
        else:
            types_of[id] = Annotated[kind, PathValue(**_describe(metadata))]
            give = _take(id)
        if parameter.kind is parameter.KEYWORD_ONLY:
            keywords[name] = give
        else:
            arguments.append(give)
    return types_of, {name: value for name, value in defaults.items() if value is not inspect.Parameter.empty}, arguments, keywords


def _take(name: str) -> Give:
    return lambda values: values[name]


def _take_from_paging(name: str) -> Give:
    return lambda values: getattr(values["paging"], name)


def _read_struct(operation: Operation, shape: type[Struct] | None, kind: Any, types_of: dict[str, Any], defaults: dict[str, Any]) -> Give:
    """Return how to read the body, or the query of a list."""
    if operation.method != "GET":
        types_of["body"] = make_model(shape or kind)
        if shape is not None:
            return lambda values: list_sent_fields(values["body"])
        return lambda values: kind(**list_sent_fields(values["body"]))
    hints = get_type_hints(kind, include_extras=True)
    fields = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    for field in msgspec.structs.fields(kind):
        plain, metadata = _split(hints[field.name])
        types_of[field.encode_name] = Annotated[_override(plain, metadata), Query(**_describe(metadata))]
        defaults[field.encode_name] = inspect.Parameter.empty if field.default is NODEFAULT else field.default
    return lambda values: kind(**{name: values[value] for name, value in fields.items()})


def _split(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(hint) is NotRequired:
        return _split(get_args(hint)[0])
    return (get_args(hint)[0], hint.__metadata__) if get_origin(hint) is Annotated else (hint, ())


def _override(plain: Any, metadata: tuple[Any, ...]) -> Any:
    """Return the type that an annotation names for the schema, such as `Annotated[str, Outcome]`."""
    other = next((part for part in metadata if isinstance(part, type) or get_origin(part) is Literal), plain)
    return other | None if other is not plain and type(None) in get_args(plain) else other


def _describe(metadata: tuple[Any, ...]) -> dict[str, Any]:
    """Return the keywords of a pydantic field from the descriptions and limits of a declared one."""
    metas = [part for part in metadata if isinstance(part, Meta)]
    return {name: value for part in metas for name in _DESCRIBED if (value := getattr(part, name)) is not None}


@cache
def make_model(kind: type, *, answer: bool = False) -> type[BaseModel]:
    """Return the model of a declared value, or of a request."""
    hints = get_type_hints(kind, include_extras=True)
    base = Body if issubclass(kind, Struct) and not answer else BaseModel
    fields: dict[str, Any] = {}
    for name, default in _list_defaults(kind, answer).items():
        plain, metadata = _split(hints[name])
        described = _describe(metadata)
        if name.startswith("_"):
            described["alias"] = name
        if default is NODEFAULT:
            value = Field(**described)
        elif isinstance(default, dict) and issubclass(kind, Struct):
            value = Field(default_factory=dict, **described)
        else:
            value = Field(default, **described)
        fields[name.lstrip("_")] = (convert_type(_override(plain, metadata), answer=answer), value)
    return create_model(kind.__name__, __base__=base, __doc__=kind.__doc__, __module__=kind.__module__.rpartition(".")[0], **fields)


def _list_defaults(kind: type, answer: bool) -> dict[str, Any]:
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        return {name: _find_empty(_split(hint)[0]) if get_origin(hint) is NotRequired else NODEFAULT for name, hint in hints.items()}
    fields = msgspec.structs.fields(kind)
    if answer:
        return {field.name: NODEFAULT for field in fields}
    factories: dict[str, Any] = {field.name: field.default_factory for field in fields}
    return {field.name: field.default if factories[field.name] is NODEFAULT else factories[field.name]() for field in fields}


def _find_empty(hint: Any) -> Any:
    """Return the default of a field that a value may omit."""
    return None if type(None) in get_args(hint) else (get_origin(hint) or hint)()


def convert_type(hint: Any, *, answer: bool = True) -> Any:
    """Return a type for pydantic: every declared value in it is a model."""
    origin, parts = get_origin(hint), get_args(hint)
    if is_typeddict(hint) or (isinstance(hint, type) and issubclass(hint, Struct)):
        return make_model(hint, answer=answer)
    if origin is None or origin is Literal:
        return hint
    if origin is Annotated:
        plain, metadata = _split(hint)
        return Annotated[convert_type(_override(plain, metadata), answer=answer), Field(**_describe(metadata))]
    converted = tuple(convert_type(part, answer=answer) for part in parts)
    if origin is Page:
        return PageOf[converted[0]]
    if origin in (Union, types.UnionType):
        return reduce(or_, converted)
    if origin is tuple:
        return list[converted[0]]
    if origin is Mapping or getattr(origin, "__name__", "") == "Mapping":
        return dict[str, converted[1]]
    return origin[converted]
