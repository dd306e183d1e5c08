"""The verification API, in the shapes of Verial's clients: one route per operation that a noun declares."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, cast

from fastapi import APIRouter, Query, Request, Response
from fastapi import Body as BodyOf
from pydantic.alias_generators import to_camel

from proctor.formats.verial.spelling import spell_in_snake_case
from proctor.rest.resource_models import make_answer, make_body
from proctor.rest.route_parts import ClampedPaging, PageOf, TheCaller, TheHub, list_sent_fields, make_router
from proctor.service.verification.nouns import NOUNS
from proctor.service.verification.sandboxes.system_kinds import complete_addresses
from proctor.service.verification.shared.declaration import Operation, Resource
from proctor.store.sql.compressed_json import to_json


def make_routes(noun: Resource) -> APIRouter:
    """Return the routes of a noun."""
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
            # What is withheld from an answer is not written as null.
            response_model_exclude_unset=True,
            status_code=operation.status,
        )
    return router


def _make_endpoint(operation: Operation) -> Callable[..., Awaitable[object]]:
    """Return the function that FastAPI calls; its signature is what FastAPI reads."""

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
        found = complete_addresses(_spell_assertions(await operation.call(hub, *who, *ids, **options)), request.state.root)
        if operation.large:
            return Response(await asyncio.to_thread(to_json, found), operation.status, media_type="application/json")
        return found if operation.gives is not None else Response(status_code=operation.status)

    endpoint.__name__, endpoint.__doc__ = operation.name, operation.about
    endpoint.__signature__ = inspect.Signature(_list_parameters(operation))  # pyright: ignore[reportFunctionMemberAccess] - functions take any attribute
    return endpoint


def _spell_assertions(found: Any) -> Any:
    """Return an answer with its assertions in snake_case, however they were written: of criteria, of tasks and of what runs froze."""
    if not isinstance(found, dict):
        return found
    record = dict(cast(dict[str, Any], found))
    if "_meta" in record:
        return {**record, "data": [_spell_assertions(entry) for entry in record["data"]]}
    if isinstance(record.get("assertion"), dict):
        record["assertion"] = spell_in_snake_case(record["assertion"])
    if isinstance(record.get("criteria"), list):
        record["criteria"] = [_spell_assertions(entry) for entry in record["criteria"]]
    if isinstance(record.get("snapshot"), dict):
        record["snapshot"] = _spell_assertions(record["snapshot"])
    return record


def _list_parameters(operation: Operation) -> list[inspect.Parameter]:
    who = {} if operation.open else {"caller": TheCaller}
    types: dict[str, Any] = {"request": Request, "hub": TheHub, **who, **dict.fromkeys(operation.ids, str)}
    defaults: dict[str, Any] = {}
    if operation.takes is not None:
        types["body"] = _type_of_body(operation)
        if operation.takes_optional:
            defaults["body"] = None
    if operation.pages:
        types["paging"] = ClampedPaging
    if operation.within is not None:
        parent = operation.within.removesuffix("_id").replace("_", " ")
        types[operation.within] = Annotated[str | None, Query(description=f"of this {parent} only")]
        defaults[operation.within] = None
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(name, kind, annotation=one, default=defaults.get(name, inspect.Parameter.empty)) for name, one in types.items()
    ]


def _type_of_body(operation: Operation) -> Any:
    assert operation.takes is not None
    if operation.takes_whole:
        return dict[str, Any]
    model = make_body(operation.takes, operation.call.__module__, partial=operation.method == "PATCH")
    return Annotated[model | None, BodyOf()] if operation.takes_optional else model


router = APIRouter()
for _noun in NOUNS:
    # Not by `include_router`, which makes every route anew at the first request, while everybody else waits.
    router.routes.extend(make_routes(_noun).routes)
