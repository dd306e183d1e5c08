"""The service and caller of a request, for screens that `proctor view` does not have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

import msgspec
from starlette.requests import Request

from proctor.pages.ports import Record, Source
from proctor.service.access.callers import Caller
from proctor.service.access.keys import name_actors
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal, not_found

Answer = TypeVar("Answer")


class Desk(msgspec.Struct, frozen=True):
    """The hub and caller that functions of the service take."""

    hub: Hub
    caller: Caller


def get_hub(request: Request) -> Hub:
    """Return the service. Raises `Refusal` in `proctor view`."""
    found: Hub | None = getattr(request.app.state, "hub", None)
    if found is None:
        raise Refusal("NOT_FOUND", "this page is not available in `proctor view`", hint="use `proctor serve`")
    return found


def get_caller(request: Request) -> Caller:
    """Return the caller. Raises `Refusal` without one."""
    found: Caller | None = getattr(request.state, "caller", None)
    if found is None:
        raise Refusal("UNAUTHORIZED", "log in first")
    return found


def open_desk(request: Request, source: Source, *, to_write: bool = False) -> Desk:
    """Return the desk of the caller. Raises `Refusal` in `proctor view`, and for read-only keys if `to_write`."""
    hub = get_hub(request)
    if to_write and not source.may_write:
        raise Refusal("FORBIDDEN", "changes require an organization key")
    return Desk(hub, get_caller(request))


async def name_authors(desk: Desk, rows: Iterable[Mapping[str, Any]], field: str = "author") -> dict[str, str]:
    """Return the names of those who wrote rows, by the ids of their keys."""
    return await name_actors(desk.hub, desk.caller, [str(row[field]) for row in rows])


async def read_if_allowed(answer: Awaitable[Answer]) -> Answer | None:
    """Return the result, or None if the key may not read it."""
    try:
        return await answer
    except Refusal as refusal:
        if refusal.code != "FORBIDDEN":
            raise
        return None


async def find_project(request: Request, source: Source) -> Record:
    """Return the project that the path names, which the page then shows in its header."""
    request.state.project = await source.get_project(request.path_params["project"])
    return cast(Record, request.state.project)


async def find_in_project(
    request: Request, source: Source, noun: str, get: Callable[[Hub, Caller, str], Awaitable[Any]]
) -> tuple[Record, Record]:
    """Return the project and the object that the path names. Raises `Refusal` if either is missing or they do not belong together."""
    project = await find_project(request, source)
    found = cast(Record, await get(get_hub(request), get_caller(request), request.path_params[noun]))
    if found["project_id"] != project["id"]:
        raise not_found(noun, found["id"])
    return project, found
