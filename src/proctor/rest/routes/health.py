"""Whether the service is well, and what it measures of itself."""

from __future__ import annotations

from typing import Literal

from fastapi import Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field
from starlette.requests import Request

from proctor import __version__
from proctor.rest import metrics
from proctor.rest.route_parts import TheCaller, TheHub, make_router
from proctor.service.access.permissions import require_operator
from proctor.service.upkeep.health import find_watch, read_figures

router = make_router("operations")


class HealthReason(BaseModel):
    """Something that is not as it should be."""

    code: str
    message: str
    degree: Literal["ok", "degraded", "failing"]


class Health(BaseModel):
    """How the service is."""

    status: Literal["ok", "degraded", "failing"]
    version: str
    database: Literal["reachable", "unreachable"]
    reasons: list[HealthReason] = []


@router.get("/health", response_model=Health, responses={503: {"model": Health, "description": "What is sent cannot be kept."}})
async def health(request: Request, hub: TheHub, response: Response) -> object:
    """How the service is, in degrees: `ok` and `degraded` (it works, and somebody should look) are 200, `failing` (what is sent cannot be
    kept) is 503. It is answered within two seconds whatever the database does.
    """
    watch = find_watch(request.app.state, hub)
    found = await watch.get_health()
    if found.status == "failing":
        response.status_code = 503
    reasons = [HealthReason(code=each.code, message=each.message, degree=each.degree) for each in found.reasons]
    return Health(status=found.status, version=__version__, database=found.database, reasons=reasons)


class QueueFigures(BaseModel):
    """What waits."""

    traces: int = Field(description="to be evaluated; up to 100,000")
    trace_wait_s: float = Field(description="how long the first of them could have been evaluated")
    runs_queued: int
    runs_running: int
    run_wait_s: float = Field(description="how long the first of them has been in the queue")
    deliveries: int = Field(description="messages of alerts to be sent")


class StorageFigures(BaseModel):
    """The room there is."""

    database: Literal["sqlite", "postgresql"]
    database_bytes: int | None = Field(description="of a database in a file")
    free_bytes: int | None = Field(description="on the disk of the workspace")


class RetentionFigures(BaseModel):
    """What is kept for how long; none: without a bound."""

    days: float | None
    bytes: int | None


class WorkerFigures(BaseModel):
    """What this process does at once."""

    runs: int
    traces: int


class ServiceFigures(BaseModel):
    """What whoever runs the service wants to see at a glance."""

    queue: QueueFigures
    storage: StorageFigures
    retention: RetentionFigures
    workers: WorkerFigures


@router.get("/api/service", response_model=ServiceFigures)
async def read_service(hub: TheHub, caller: TheCaller) -> object:
    """What waits, the room there is and what is kept for how long; for whoever may read `/metrics`."""
    return await read_figures(hub, caller)


@router.get("/metrics", response_class=PlainTextResponse)
async def read_metrics(request: Request, hub: TheHub, caller: TheCaller) -> PlainTextResponse:
    """What this process has done, in the text format of Prometheus; with an organization key. It is about all organizations: where there
    are several, only keys of the one that the administrator named (`--metrics-organization`) read it.
    """
    await require_operator(hub, caller)
    return PlainTextResponse(
        await metrics.write_page(hub, request.app.state.metrics), media_type="text/plain; version=0.0.4; charset=utf-8"
    )
