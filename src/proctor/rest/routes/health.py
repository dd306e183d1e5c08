"""Health and metrics of the service."""

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
    """A reason why the service is not healthy."""

    code: str
    message: str
    degree: Literal["ok", "degraded", "failing"]


class Health(BaseModel):
    """The state of the service."""

    status: Literal["ok", "degraded", "failing"]
    version: str
    database: Literal["reachable", "unreachable"]
    reasons: list[HealthReason] = []


@router.get("/health", response_model=Health, responses={503: {"model": Health, "description": "Incoming data cannot be stored."}})
async def health(request: Request, hub: TheHub, response: Response) -> object:
    """Return the health of the service: `ok` and `degraded` (working, needs attention) are 200, `failing` (data cannot be stored) is 503.

    The response takes at most two seconds, whatever the state of the database.
    """
    watch = find_watch(request.app.state, hub)
    service_health = await watch.get_health()
    if service_health.status == "failing":
        response.status_code = 503
    reasons = [HealthReason(code=each.code, message=each.message, degree=each.degree) for each in service_health.reasons]
    return Health(status=service_health.status, version=__version__, database=service_health.database, reasons=reasons)


class QueueFigures(BaseModel):
    """Queue lengths and waiting times."""

    traces: int = Field(description="waiting for evaluation; at most 100,000")
    trace_wait_s: float = Field(description="age of the oldest due trace")
    runs_queued: int
    runs_running: int
    run_wait_s: float = Field(description="age of the oldest queued run")
    deliveries: int = Field(description="alert messages to send")


class StorageFigures(BaseModel):
    """Storage."""

    database: Literal["sqlite", "postgresql"]
    database_bytes: int | None = Field(description="of a SQLite file")
    free_bytes: int | None = Field(description="free on the disk of the workspace")


class RetentionFigures(BaseModel):
    """Retention limits; none: unlimited."""

    days: float | None
    bytes: int | None


class WorkerFigures(BaseModel):
    """Concurrency of this process."""

    runs: int
    traces: int


class ServiceFigures(BaseModel):
    """Figures for the administrator."""

    queue: QueueFigures
    storage: StorageFigures
    retention: RetentionFigures
    workers: WorkerFigures


@router.get("/api/service", response_model=ServiceFigures)
async def read_service(hub: TheHub, caller: TheCaller) -> object:
    """Read queues, storage and retention; same access as `/metrics`."""
    return await read_figures(hub, caller)


@router.get("/metrics", response_class=PlainTextResponse)
async def read_metrics(request: Request, hub: TheHub, caller: TheCaller) -> PlainTextResponse:
    """Read the metrics of this process in the Prometheus text format; requires an organization key.

    They cover all organizations: if there are several, only keys of `--metrics-organization` have access.
    """
    await require_operator(hub, caller)
    return PlainTextResponse(
        await metrics.write_page(hub, request.app.state.metrics), media_type="text/plain; version=0.0.4; charset=utf-8"
    )
