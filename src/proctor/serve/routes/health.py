"""Whether the service is well, and what it measures of itself."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from fastapi import Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel
from starlette.requests import Request

import proctor
from proctor.errors import StoreError
from proctor.serve import metrics
from proctor.serve.wiring import TheCaller, TheHub, routed
from proctor.service.access import require_operator

router = routed("operations")


class Health(BaseModel):
    """How the service is."""

    status: Literal["ok", "unavailable"]
    version: str
    database: Literal["reachable", "unreachable"]


@router.get("/health", response_model=Health, responses={503: {"model": Health, "description": "The database cannot be reached."}})
async def health(hub: TheHub, response: Response) -> object:
    """Whether the service can do its work: 200, or 503 when the database cannot be reached."""
    try:
        async with hub.database.reading() as connection:
            await connection.execute(sa.select(1))
    except StoreError:
        response.status_code = 503
        return Health(status="unavailable", version=proctor.__version__, database="unreachable")
    return Health(status="ok", version=proctor.__version__, database="reachable")


@router.get("/metrics", response_class=PlainTextResponse)
async def read_metrics(request: Request, hub: TheHub, caller: TheCaller) -> PlainTextResponse:
    """What this process has done, in the text format of Prometheus; with an organization key. It is about all organizations: where there
    are several, only keys of the one that the administrator named (`--metrics-organization`) read it.
    """
    await require_operator(hub, caller)
    return PlainTextResponse(await metrics.page(hub, request.app.state.metrics), media_type="text/plain; version=0.0.4; charset=utf-8")
