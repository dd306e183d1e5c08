"""What routes are made of: the hub, the caller, strict bodies, pages.

    router = routed("things")

    @router.get("/api/things", response_model=PageOf[Thing])
    async def list_things(hub: TheHub, caller: TheCaller, paging: Paging) -> object:
        return await things.list_things(hub, caller, limit=paging.limit, cursor=paging.cursor)

Every operation gets the error answers of its dialect in OpenAPI by itself (`openapi.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Generic, TypeVar, cast

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field

from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.store.bodies import to_json

T = TypeVar("T")


def hub(request: Request) -> Hub:
    """Return the service behind this request."""
    return cast(Hub, request.app.state.hub)


def caller(request: Request) -> Caller:
    """Return who asks; found out before the request came here."""
    found: Caller | None = getattr(request.state, "caller", None)
    if found is None:
        raise Refusal("UNAUTHORIZED", "a key is needed: Authorization: Bearer vk_..., or x-api-key")
    return found


TheHub = Annotated[Hub, Depends(hub)]
TheCaller = Annotated[Caller, Depends(caller)]


class Paging(msgspec.Struct, frozen=True):
    """Which page of a list is asked for."""

    limit: int | None = None
    cursor: str | None = None


def _paging(
    limit: Annotated[int | None, Query(description="how many, 1 to 100; 20 by default; brought into range")] = None,
    cursor: Annotated[str | None, Query(description="`_meta.next` or `_meta.prev` of another page")] = None,
) -> Paging:
    return Paging(limit, cursor or None)


ThePaging = Annotated[Paging, Depends(_paging)]


class Body(BaseModel):
    """A body that is read strictly: a field nobody knows is refused, not ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)


def as_kept(value: object) -> Response:
    """Return an answer with what others have sent: also halves of characters and numbers that only we would write down."""
    return Response(to_json(value), media_type="application/json")


def given(body: BaseModel) -> dict[str, Any]:
    """Return the fields that a caller did send, for changes: what was left out stays as it is."""
    return body.model_dump(exclude_unset=True)


class PageMeta(BaseModel):
    """The way on from a page."""

    next: str | None = Field(description="cursor of the page with older rows; there may be one behind a short page, too")
    prev: str | None = Field(description="cursor of the page with newer rows")
    limit: int


class PageOf(BaseModel, Generic[T]):
    """A page of a list, newest first."""

    model_config = ConfigDict(populate_by_name=True)

    data: list[T]
    meta: PageMeta = Field(alias="_meta")


class _StrictRequest(Request):
    async def json(self) -> Any:
        """Return the body by a strict reader: no NaN, no halves of characters, no numbers that nothing can print."""
        if not hasattr(self, "_strict_json"):
            try:
                self._strict_json = msgspec.json.decode(await self.body())
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
                raise json.JSONDecodeError(str(error), "", 0) from None
        return self._strict_json


class StrictRoute(APIRoute):
    """A route whose JSON is read strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of FastAPI, given our own reader."""
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return strict


def routed(tag: str) -> APIRouter:
    """Return a router of our kind; `tag` is its chapter in OpenAPI."""
    return APIRouter(tags=[tag], route_class=StrictRoute)
