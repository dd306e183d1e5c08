"""Health and metrics of the service."""

from __future__ import annotations

import msgspec
from fastapi import Response
from fastapi.responses import PlainTextResponse
from starlette.requests import Request

from proctor.rest import metrics
from proctor.rest.declared_routes import convert_type
from proctor.rest.route_parts import TheCaller, TheHub, make_router
from proctor.service.access.permissions import require_operator
from proctor.service.upkeep.health import Health, find_watch

router = make_router("operations")
_HEALTH = convert_type(Health)


@router.get("/health", response_model=_HEALTH, responses={503: {"model": _HEALTH, "description": "Incoming data cannot be stored."}})
async def health(request: Request, hub: TheHub, response: Response) -> object:
    """Return the health of the service: `ok` and `degraded` (working, needs attention) are 200, `failing` (data cannot be stored) is 503.

    The response takes at most two seconds, whatever the state of the database.
    """
    service_health = await find_watch(request.app.state, hub).get_health()
    if service_health.status == "failing":
        response.status_code = 503
    return msgspec.to_builtins(service_health)


@router.get("/metrics", response_class=PlainTextResponse)
async def read_metrics(request: Request, hub: TheHub, caller: TheCaller) -> PlainTextResponse:
    """Read the metrics of this process in the Prometheus text format; requires an organization key.

    They cover all organizations: if there are several, only keys of `--metrics-organization` have access.
    """
    await require_operator(hub, caller)
    return PlainTextResponse(
        await metrics.write_page(hub, request.app.state.metrics), media_type="text/plain; version=0.0.4; charset=utf-8"
    )
