"""Building blocks of routes: hub, caller, strict bodies, paging, event streams.

    router = routed("things")

    @router.get("/api/things", response_model=PageOf[Thing])
    async def list_things(hub: TheHub, caller: TheCaller, paging: Paging) -> object:
        return await things.list_things(hub, caller, limit=paging.limit, cursor=paging.cursor)

`openapi.py` adds the error responses of the dialect to every operation.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Generic, TypeVar, cast

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import Receive, Scope, Send

from proctor.model.evidence import Json
from proctor.rest.memory import RELEASED
from proctor.rest.trace_bodies import DECODED, LARGE
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.store.sql.compressed_json import to_json
from proctor.store.sql.pages import LARGEST_LIMIT

_RETRY_AFTER_S = 5.0


STILL_HERE = b": still here\n\n"
"""A comment line, since proxies close connections that are idle for long."""


def write_event(event: Mapping[str, Json]) -> bytes:
    """Return a server-sent event."""
    return f"id: {event['id']}\nevent: {event['kind']}\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n"


class Streams:
    """Counts the open streams of each caller."""

    def __init__(self, per_key: int) -> None:
        self._per_key = per_key
        self._open: Counter[str] = Counter()

    def enter(self, who: str) -> None:
        """Count a stream. Raises `Refusal` at the limit."""
        if self._open[who] >= self._per_key:
            reason = f"this key already has {self._per_key} event streams (--streams-per-key)"
            raise Refusal("RATE_LIMITED", reason, retry_after_s=_RETRY_AFTER_S)
        self._open[who] += 1

    def leave(self, who: str) -> None:
        """Stop counting a stream."""
        self._open[who] -= 1
        # Keys come and go; counts of 0 would accumulate.
        if self._open[who] <= 0:
            del self._open[who]


class CountedStream(StreamingResponse):
    """An event stream that is counted until it ends."""

    def __init__(self, streams: Streams, who: str, *arguments: Any, **keywords: Any) -> None:
        # nginx would buffer events.
        super().__init__(*arguments, media_type="text/event-stream", headers={"x-accel-buffering": "no"}, **keywords)
        streams.enter(who)
        self._streams = streams
        self._who = who

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.leave(self._who)


T = TypeVar("T")
_OTHER_KEYS = {"/v1/benchmark-runs": ("organization", "solver"), "/api/proposals": ("organization", "project")}
"""Routes with a body that other kinds of keys may use, too."""


def hub(request: Request) -> Hub:
    """Return the hub."""
    return cast(Hub, request.app.state.hub)


def caller(request: Request) -> Caller:
    """Return the caller, which `Authentication` has found."""
    caller_of_request: Caller | None = getattr(request.state, "caller", None)
    if caller_of_request is None:
        raise Refusal("UNAUTHORIZED", "a key is required: Authorization: Bearer proctor_org_..., or x-api-key")
    return caller_of_request


TheHub = Annotated[Hub, Depends(hub)]
TheCaller = Annotated[Caller, Depends(caller)]


class Paging(msgspec.Struct, frozen=True):
    """The requested page of a list."""

    limit: int | None = None
    cursor: str | None = None


_Cursor = Annotated[str | None, Query(description="`_meta.next` or `_meta.prev` of another page")]


def _paging(
    limit: Annotated[int | None, Query(ge=1, le=LARGEST_LIMIT, description="how many, 1 to 100; 20 by default")] = None,
    cursor: _Cursor = None,
) -> Paging:
    return Paging(limit, cursor or None)


def _clamped_paging(
    limit: Annotated[int | None, Query(ge=1, description="how many, 1 to 100; 20 by default; more than 100 are 100")] = None,
    cursor: _Cursor = None,
) -> Paging:
    return Paging(limit, cursor or None)


ThePaging = Annotated[Paging, Depends(_paging)]
ClampedPaging = Annotated[Paging, Depends(_clamped_paging)]
"""For the verification API, whose clients may request any number and get the largest page."""


class Body(BaseModel):
    """A body that is read strictly: unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid", strict=True)


def make_stored_response(value: object) -> Response:
    """Return stored data as JSON, including lone surrogates and unusual numbers."""
    return Response(to_json(value), media_type="application/json")


def list_sent_fields(body: BaseModel) -> dict[str, Any]:
    """Return the fields that the caller sent, for changes: omitted ones stay unchanged."""
    sent_fields = {name: getattr(body, name) for name in type(body).model_fields if name in body.model_fields_set}
    if any(
        isinstance(item, BaseModel)
        for value in sent_fields.values()
        for item in (cast(list[Any], value[:1]) if isinstance(value, list) else [value])
    ):
        return body.model_dump(exclude_unset=True)
    return sent_fields  # not a copy, which is slow for a large body


class PageMeta(BaseModel):
    """The cursors of a page."""

    next: str | None = Field(description="cursor of the page with older rows; also present after a short page")
    prev: str | None = Field(description="cursor of the page with newer rows")
    limit: int


class PageOf(BaseModel, Generic[T]):
    """A page of a list, newest first."""

    model_config = ConfigDict(populate_by_name=True)

    data: list[T]
    meta: PageMeta = Field(alias="_meta")


_MIDDLING = 16_000
"""Size in bytes from which the memory of a decoded body is counted as freed."""


class DecodingTurns:
    """Decodes large bodies one at a time in a thread."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="decode")

    async def decode(self, body: bytes) -> Any:
        """Return the decoded body. Raises `MsgspecError`."""
        if len(body) <= LARGE:
            # Many middle-sized bodies need as much memory as a few large ones; small ones do not matter.
            if len(body) > _MIDDLING:
                RELEASED.add(DECODED * len(body))
            return msgspec.json.decode(body)
        value = await asyncio.get_running_loop().run_in_executor(self._pool, msgspec.json.decode, body)
        RELEASED.add(DECODED * len(body))
        return value


def decoding(request: Request) -> DecodingTurns:
    """Return the decoder of the application."""
    return cast(DecodingTurns, request.app.state.decoding)


class _StrictRequest(Request):
    async def json(self) -> Any:
        """Return the body, decoded strictly: no NaN, no lone surrogates, no unprintable numbers."""
        if not hasattr(self, "_strict_json"):
            try:
                self._strict_json = await decoding(self).decode(await self.body())
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
                # FastAPI turns this error into `json_invalid`, which `errors.py` describes.
                raise json.JSONDecodeError(str(error), "", 0) from None
        return self._strict_json


class StrictRoute(APIRoute):
    """A route whose JSON is read strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler, with our own reader."""
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            # Before decoding: a caller without permission must not cost time.
            if self.body_field is not None and caller(request).kind not in _OTHER_KEYS.get(self.path, ("organization",)):
                raise Refusal("FORBIDDEN", "this requires an organization key")
            return await handle(_StrictRequest(request.scope, request.receive))

        return strict


def describe_endpoint(endpoint: Callable[..., Any], name: str, about: str | None, types: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Give the function that FastAPI calls its name, its description, and the signature that FastAPI reads."""
    endpoint.__name__, endpoint.__doc__ = name, about
    kind, none = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    parameters = [inspect.Parameter(each, kind, annotation=hint, default=defaults.get(each, none)) for each, hint in types.items()]
    endpoint.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess] - functions take any attribute


def make_router(tag: str) -> APIRouter:
    """Return a router; `tag` is its section in OpenAPI."""
    return APIRouter(tags=[tag], route_class=StrictRoute)
