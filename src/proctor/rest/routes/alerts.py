"""`/api/alerts`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import BaseModel, Field

from proctor.rest.route_parts import Body, PageOf, TheCaller, TheHub, ThePaging, list_sent_fields, make_router
from proctor.service.notify import alerts
from proctor.service.notify.alerts import LONGEST_DAYS, AlertKind

router = make_router("alerts")


class Alert(BaseModel):
    """A rule over results, and the webhook that it calls."""

    id: str
    project_id: str
    agent_id: str | None = Field(description="none: every agent of the project")
    name: str
    kind: AlertKind
    settings: dict[str, Any]
    webhook_url: str
    active: bool
    state: str | None = Field(description="firing, quiet, or null before there are enough results")
    created_at: str
    updated_at: str


class NewAlertShown(Alert):
    """A new rule with its signing secret, shown only once."""

    secret: str


class Delivery(BaseModel):
    """A message to a webhook."""

    id: str
    rule_id: str
    payload: dict[str, Any]
    status: str = Field(description="waiting, delivered, given up")
    attempts: int
    delivered_at: str | None
    error: str | None
    created_at: str
    updated_at: str


class NewAlert(Body):
    """A new rule."""

    project_id: str
    agent_id: str | None = Field(None, description="default: every agent of the project")
    name: str = Field(min_length=1, max_length=200)
    kind: AlertKind
    settings: dict[str, Any] | None = Field(
        None,
        description="pass_rate: below, window_s, minimum; failing_case: case_id, times, window_s; "
        "missing_evidence: above, window_s, minimum",
    )
    webhook_url: str = Field(min_length=1, max_length=2000)
    secret: str | None = Field(None, min_length=16, max_length=500, description="signs the messages; default: generated")
    active: bool = True


class AlertChanges(Body):
    """Changed fields of a rule."""

    name: str | None = Field(None, min_length=1, max_length=200)
    settings: dict[str, Any] | None = None
    webhook_url: str | None = Field(None, min_length=1, max_length=2000)
    secret: str | None = Field(None, min_length=16, max_length=500)
    active: bool | None = None


class AlertDraft(Body):
    """A rule that is tried out and not stored."""

    project_id: str
    agent_id: str | None = Field(None, description="default: every agent of the project")
    kind: AlertKind
    settings: dict[str, Any] | None = Field(None, description="as in a rule; omitted settings have the defaults of `kind`")
    days: float = Field(7, gt=0, le=LONGEST_DAYS, description="number of days to look back")


class FiringPeriod(BaseModel):
    """A period in which the rule would have fired."""

    since: str
    until: str | None = Field(description="none: it would fire now")


class SeenPoint(BaseModel):
    """A measured value of the rule."""

    at: str
    value: float | None = Field(description="compared with the limit; none: too few results")


class AlertPreview(BaseModel):
    """When a rule would have fired over the stored results."""

    kind: AlertKind
    settings: dict[str, Any] = Field(description="complete")
    since: str = Field(description="start of the evaluated period")
    until: str
    complete: bool = Field(description="false: there are too many results, and `since` is later than requested")
    results: int = Field(description="number of results in the period")
    fired: int = Field(description="number of times it would have started to fire")
    periods: list[FiringPeriod] = Field(description="when it would have fired, oldest first; the newest 200")
    points: list[SeenPoint] = Field(description="measured values, oldest first; at most 200")


@router.get("/api/alerts", response_model=PageOf[Alert])
async def list_alerts(
    hub: TheHub,
    caller: TheCaller,
    paging: ThePaging,
    project_id: Annotated[str | None, Query()] = None,
    agent_id: Annotated[str | None, Query()] = None,
) -> object:
    """List the rules."""
    return await alerts.list_rules(hub, caller, project_id=project_id, agent_id=agent_id, limit=paging.limit, cursor=paging.cursor)


@router.post("/api/alerts", response_model=NewAlertShown, status_code=201)
async def create_alert(hub: TheHub, caller: TheCaller, body: NewAlert) -> object:
    """Create a rule. The secret that signs its messages is shown only once."""
    return await alerts.create_rule(hub, caller, alerts.RuleSpec(**list_sent_fields(body)))


@router.post("/api/alerts/preview", response_model=AlertPreview)
async def preview_alert(hub: TheHub, caller: TheCaller, body: AlertDraft) -> object:
    """Compute when a rule would have fired over the stored results; stores and sends nothing."""
    return await alerts.preview_rule(hub, caller, alerts.RuleDraft(**list_sent_fields(body)))


@router.get("/api/alerts/{alert_id}", response_model=Alert)
async def get_alert(hub: TheHub, caller: TheCaller, alert_id: str) -> object:
    """Read a rule."""
    return await alerts.get_rule(hub, caller, alert_id)


@router.patch("/api/alerts/{alert_id}", response_model=Alert)
async def update_alert(hub: TheHub, caller: TheCaller, alert_id: str, body: AlertChanges) -> object:
    """Change a rule."""
    return await alerts.update_rule(hub, caller, alert_id, list_sent_fields(body))


@router.delete("/api/alerts/{alert_id}", status_code=204, response_class=Response)
async def delete_alert(hub: TheHub, caller: TheCaller, alert_id: str) -> Response:
    """Delete a rule with its deliveries."""
    await alerts.delete_rule(hub, caller, alert_id)
    return Response(status_code=204)


@router.get("/api/alerts/{alert_id}/deliveries", response_model=PageOf[Delivery])
async def list_deliveries(hub: TheHub, caller: TheCaller, paging: ThePaging, alert_id: str) -> object:
    """List the deliveries of a rule, including failed ones."""
    return await alerts.list_deliveries(hub, caller, alert_id, limit=paging.limit, cursor=paging.cursor)


@router.post("/api/alerts/{alert_id}/test", response_model=Delivery, status_code=202)
async def test_alert(hub: TheHub, caller: TheCaller, alert_id: str) -> object:
    """Send a test message."""
    return await alerts.send_test(hub, caller, alert_id)
