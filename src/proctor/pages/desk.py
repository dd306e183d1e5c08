"""The service behind a request, for screens that have no twin over a folder: its hub, who asks, and what an address names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import msgspec
from starlette.requests import Request

from proctor.pages.ports import Record, Source
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal, not_found

Answer = TypeVar("Answer")


class Desk(msgspec.Struct, frozen=True):
    """What verbs of the service are called with."""

    hub: Hub
    caller: Caller


def get_hub(request: Request) -> Hub:
    """Return the service. Raises `Refusal` over the runs of a folder."""
    found: Hub | None = getattr(request.app.state, "hub", None)
    if found is None:
        raise Refusal("NOT_FOUND", "there is no such page over the runs of a folder", hint="`proctor serve` has it")
    return found


def get_caller(request: Request) -> Caller:
    """Return who asks. Raises `Refusal` for a stranger."""
    found: Caller | None = getattr(request.state, "caller", None)
    if found is None:
        raise Refusal("UNAUTHORIZED", "log in first")
    return found


def open_desk(request: Request, source: Source, *, to_write: bool = False) -> Desk:
    """Return the desk for whoever asks. Raises `Refusal` over the runs of a folder, and for readers where something is to be written."""
    hub = get_hub(request)
    if to_write and not source.may_write:
        raise Refusal("FORBIDDEN", "things are changed with an organization key only")
    return Desk(hub, get_caller(request))


async def read_if_allowed(answer: Awaitable[Answer]) -> Answer | None:
    """Return what was asked for, or None where the reader's key does not read it."""
    try:
        return await answer
    except Refusal as refusal:
        if refusal.code != "FORBIDDEN":
            raise
        return None


async def find_in_project(
    request: Request, source: Source, noun: str, get: Callable[[Hub, Caller, str], Awaitable[Any]]
) -> tuple[Record, Record]:
    """Return the project and the thing that an address names. Raises `Refusal` when one is not there, or it is of another project."""
    project = await source.get_project(request.path_params["project"])
    found = cast(Record, await get(get_hub(request), get_caller(request), request.path_params[noun]))
    if found["project_id"] != project["id"]:
        raise not_found(noun, found["id"])
    return project, found
