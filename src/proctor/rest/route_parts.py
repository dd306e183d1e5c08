"""What routes are made of: the hub, the caller, strict bodies, pages.

    router = routed("things")

    @router.get("/api/things", response_model=PageOf[Thing])
    async def list_things(hub: TheHub, caller: TheCaller, paging: Paging) -> object:
        return await things.list_things(hub, caller, limit=paging.limit, cursor=paging.cursor)

Every operation gets the error answers of its dialect in OpenAPI by itself (`openapi.py`).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Generic, TypeVar, cast

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
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
"""A comment, which readers pass over: proxies close a connection on which nothing comes for long."""


def write_event(event: Mapping[str, Json]) -> bytes:
    """Return an event as a stream carries it."""
    return f"id: {event['id']}\nevent: {event['kind']}\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n"


class Streams:
    """The streams that are open, by who follows them."""

    def __init__(self, per_key: int) -> None:
        self._per_key = per_key
        self._open: Counter[str] = Counter()

    def enter(self, who: str) -> None:
        """Count a stream of somebody. Raises `Refusal` when there are enough."""
        if self._open[who] >= self._per_key:
            told = f"there are {self._per_key} event streams with this key already (--streams-per-key)"
            raise Refusal("RATE_LIMITED", told, retry_after_s=_RETRY_AFTER_S)
        self._open[who] += 1

    def leave(self, who: str) -> None:
        """Stop counting a stream of somebody."""
        self._open[who] -= 1
        # Keys come and go; each would leave a count of 0 behind for ever.
        if self._open[who] <= 0:
            del self._open[who]


class CountedStream(StreamingResponse):
    """An event stream that is counted until it ends, however it ends."""

    def __init__(self, streams: Streams, who: str, *arguments: Any, **named: Any) -> None:
        # nginx would hold events back until its buffer is full.
        super().__init__(*arguments, media_type="text/event-stream", headers={"x-accel-buffering": "no"}, **named)
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
_DIGITS = re.compile(r"-?[0-9]{1,100}", re.ASCII)
_OTHER_KEYS = {"/v1/benchmark-runs": ("organization", "solver")}
"""Routes with a body that not only organization keys use."""
MOST_FIELDS = 1_000
"""Fields of a large request. Each that nobody knows is told about, which takes longer than reading it."""


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


def _read_digits(value: object) -> object:
    """Refuse numbers that only a programmer would write so, such as `1_0`."""
    if isinstance(value, str) and not _DIGITS.fullmatch(value):
        raise ValueError(f"expected a whole number of 1 to {LARGEST_LIMIT}")
    return value


_Cursor = Annotated[str | None, Query(description="`_meta.next` or `_meta.prev` of another page")]


def _paging(
    limit: Annotated[
        int | None, BeforeValidator(_read_digits), Query(ge=1, le=LARGEST_LIMIT, description="how many, 1 to 100; 20 by default")
    ] = None,
    cursor: _Cursor = None,
) -> Paging:
    return Paging(limit, cursor or None)


def _clamped_paging(
    limit: Annotated[
        int | None, BeforeValidator(_read_digits), Query(ge=1, description="how many, 1 to 100; 20 by default; more than 100 are 100")
    ] = None,
    cursor: _Cursor = None,
) -> Paging:
    return Paging(limit, cursor or None)


ThePaging = Annotated[Paging, Depends(_paging)]
ClampedPaging = Annotated[Paging, Depends(_clamped_paging)]
"""Of the verification API: its clients ask for as much as they like and get the largest page there is."""


class Body(BaseModel):
    """A body that is read strictly: a field nobody knows is refused, not ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)


def as_kept(value: object) -> Response:
    """Return an answer with what others have sent: also halves of characters and numbers that only we would write down."""
    return Response(to_json(value), media_type="application/json")


def list_sent_fields(body: BaseModel) -> dict[str, Any]:
    """Return the fields that a caller did send, for changes: what was left out stays as it is."""
    sent = {name: getattr(body, name) for name in type(body).model_fields if name in body.model_fields_set}
    if any(
        isinstance(one, BaseModel)
        for value in sent.values()
        for one in (cast(list[Any], value[:1]) if isinstance(value, list) else [value])
    ):
        return body.model_dump(exclude_unset=True)
    return sent  # as it was decoded: a copy of a large one takes long


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


_MIDDLING = 16_000
"""Bytes of a body from which on the memory it took is counted as given up."""


class DecodingTurns:
    """Decodes large bodies one after the other, beside the event loop.

    What looks at a decoded body next does so on the event loop. Since only one body is decoded at a time, the loop turns at least once
    between two of them: many large bodies at once do not keep others waiting for all of them.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="decode")

    async def decode(self, body: bytes) -> Any:
        """Return the JSON of a body. Raises `MsgspecError`, and `Refusal` for an object with more members than any request has."""
        if len(body) <= LARGE:
            # A crowd of middling bodies takes as much as a few large ones; the many small ones of every day are not worth a look.
            if len(body) > _MIDDLING:
                RELEASED.add(DECODED * len(body))
            return msgspec.json.decode(body)
        async with self._turn:
            value = await asyncio.get_running_loop().run_in_executor(self._pool, msgspec.json.decode, body)
        RELEASED.add(DECODED * len(body))
        if isinstance(value, dict) and len(cast(dict[str, Any], value)) > MOST_FIELDS:
            raise Refusal(
                "BAD_REQUEST", f"the body has {len(cast(dict[str, Any], value))} fields, and no request has more than {MOST_FIELDS}"
            )
        return value


def decoding(request: Request) -> DecodingTurns:
    """Return where the application that got this request decodes large bodies."""
    return cast(DecodingTurns, request.app.state.decoding)


class _StrictRequest(Request):
    async def json(self) -> Any:
        """Return the body by a strict reader: no NaN, no halves of characters, no numbers that nothing can print."""
        if not hasattr(self, "_strict_json"):
            try:
                self._strict_json = await decoding(self).decode(await self.body())
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
                # Of this error FastAPI makes the `json_invalid` that `errors.py` puts into words.
                raise json.JSONDecodeError(str(error), "", 0) from None
        return self._strict_json


class StrictRoute(APIRoute):
    """A route whose JSON is read strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of FastAPI, given our own reader."""
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            # Before the body is decoded: whoever may not do this does not get to spend anybody's time on it.
            if self.body_field is not None and caller(request).kind not in _OTHER_KEYS.get(self.path, ("organization",)):
                raise Refusal("FORBIDDEN", "this is done with an organization key only")
            return await handle(_StrictRequest(request.scope, request.receive))

        return strict


def make_router(tag: str) -> APIRouter:
    """Return a router of our kind; `tag` is its chapter in OpenAPI."""
    return APIRouter(tags=[tag], route_class=StrictRoute)
