"""Alerts: rules over the results and scheduled runs of a project, with a message when one starts and stops firing.

`alert_kinds.py` declares the kinds of rules. With fewer results than `minimum` in the window a rule does not change. One message is sent
per change of state.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Literal, TypedDict, Unpack

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.network.addresses import AddressRefused
from proctor.network.guard import Guard
from proctor.service.access.callers import Caller
from proctor.service.access.secrets import make_box
from proctor.service.access.transactions import Transaction, read_visible, reading, writing
from proctor.service.field_checks import refuse_emptying
from proctor.service.hub import Hub, new_id, stamp
from proctor.service.notify.alert_kinds import KINDS, AlertKind, judge_counts, read_settings
from proctor.service.paging import read_page
from proctor.service.refusals import Refusal
from proctor.service.resource import Page, Paging, about, operation, show_row
from proctor.service.settings import MAIL_ADDRESS
from proctor.store.accounts import alerts as rows
from proctor.store.accounts.tenants import insert_row
from proctor.store.sql.pages import Row
from proctor.store.sql.queries import list_query
from proctor.store.sql.tables import alert_deliveries, alert_rules, cases, schedules

LONGEST_URL = 2_000


Channel = Literal["webhook", "slack", "email"]


class Alert(TypedDict):
    """A rule over results or scheduled runs, and where its messages go."""

    id: str
    project_id: str
    agent_id: Annotated[str | None, about("none: every agent of the project")]
    name: str
    kind: AlertKind
    settings: dict[str, Json]
    channel: Channel
    webhook_url: str | None
    email: str | None
    active: bool
    state: Annotated[str | None, about("firing, quiet, or null before there are enough results")]
    created_at: str
    updated_at: str


class NewAlertShown(Alert):
    """A new rule with its signing secret, shown only once."""

    secret: Annotated[str | None, about("none: only webhooks are signed")]


class Delivery(TypedDict):
    """A message of a rule."""

    id: str
    rule_id: str
    payload: dict[str, Json]
    status: Annotated[str, about("waiting, delivered, given up")]
    attempts: int
    delivered_at: str | None
    error: str | None
    created_at: str
    updated_at: str


Name = Annotated[str, about(min_length=1, max_length=200)]
Url = Annotated[
    str, about("receives a message when the rule starts and stops firing; for `webhook` and `slack`", min_length=1, max_length=LONGEST_URL)
]
Address = Annotated[str, about("the recipient, for `email`", min_length=3, max_length=254)]


class NewAlert(msgspec.Struct, frozen=True, kw_only=True):
    """A new rule."""

    project_id: str
    agent_id: Annotated[str | None, about("default: every agent of the project")] = None
    name: Name
    kind: AlertKind
    settings: Annotated[dict[str, Json] | None, about("; ".join(f"{name}: {', '.join(kind.settings)}" for name, kind in KINDS.items()))] = (
        None
    )
    channel: Annotated[Channel, about("`webhook`: signed JSON; `slack`: a Slack-compatible incoming webhook; `email`")] = "webhook"
    webhook_url: Url | None = None
    email: Address | None = None
    secret: Annotated[str | None, about("signs the messages of a webhook; default: generated", min_length=16, max_length=500)] = None
    active: Annotated[bool, about("whether the rule is evaluated")] = True


class AlertChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Changed fields of a rule."""

    name: Name | None = None
    settings: dict[str, Json] | None = None
    webhook_url: Url | None = None
    email: Address | None = None
    secret: Annotated[str | None, about(min_length=16, max_length=500)] = None
    active: bool | None = None


MOST_RESULTS = 20_000
LONGEST_DAYS = 90
_MOST_POINTS = 200
_MOST_PERIODS = 200
Past = Sequence[tuple[float, str, str | None]]
"""Time, outcome and code of each result, oldest first."""


class AlertDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that is tried out and not stored."""

    project_id: str
    agent_id: Annotated[str | None, about("default: every agent of the project")] = None
    kind: AlertKind
    settings: Annotated[dict[str, Json] | None, about("as in a rule; omitted settings have the defaults of `kind`")] = None
    days: Annotated[float, about("number of days to look back", gt=0, le=LONGEST_DAYS)] = 7


class FiringPeriod(TypedDict):
    """A period in which the rule would have fired."""

    since: str
    until: Annotated[str | None, about("none: it would fire now")]


class SeenPoint(TypedDict):
    """A measured value of the rule."""

    at: str
    value: Annotated[float | None, about("compared with the limit; none: too few results")]


class AlertPreview(TypedDict):
    """When a rule would have fired over the stored results."""

    kind: AlertKind
    settings: Annotated[dict[str, Json], about("complete")]
    since: Annotated[str, about("start of the evaluated period")]
    until: str
    complete: Annotated[bool, about("false: there are too many results, and `since` is later than requested")]
    results: Annotated[int, about("number of results in the period")]
    fired: Annotated[int, about("number of times it would have started to fire")]
    periods: Annotated[list[FiringPeriod], about("when it would have fired, oldest first; the newest 200")]
    points: Annotated[list[SeenPoint], about("measured values, oldest first; at most 200")]


# Their addresses may contain keys.
@operation("alerts", "GET /api/alerts", doing="reading alerts")
async def list_alerts(
    hub: Hub, caller: Caller, *, project_id: str | None = None, agent_id: str | None = None, **paging: Unpack[Paging]
) -> Page[Alert]:
    """List the rules."""
    query = list_query(alert_rules, {"organization_id": caller.organization_id, "project_id": project_id, "agent_id": agent_id})
    return await read_page(hub, query, alert_rules, _show_rule, **paging)


@operation("alerts", "POST /api/alerts", status=201, doing="creating alerts")
async def create_alert(hub: Hub, caller: Caller, spec: NewAlert) -> NewAlertShown:
    """Create a rule. The secret that signs its messages is shown only once."""
    _check_destination(hub, spec.channel, {"webhook_url": spec.webhook_url, "email": spec.email})
    complete = read_settings(spec.kind, spec.settings or {})
    if not KINDS[spec.kind].watched.of_agents and spec.agent_id is not None:
        raise Refusal("VALIDATION_ERROR", "some fields are invalid", fields={"agent_id": [f"not for {spec.kind}: runs belong to no agent"]})
    plain = (spec.secret or f"whsec_{secrets.token_urlsafe(32)}") if spec.channel == "webhook" else None
    # Outside the transaction: the first use stretches the key, which is slow, and SQLite has one writer.
    locked = None if plain is None else make_box(hub).lock(plain)
    computed = {"settings": complete, "webhook_url": spec.webhook_url or "", "secret": locked, "state": None}
    async with writing(hub, caller) as tx:
        await tx.check_place(spec.project_id, spec.agent_id)
        await _check_ids(tx, complete)
        values = {**msgspec.structs.asdict(spec), **computed}
        row = await tx.insert_row(alert_rules, "alert", "alr", values, {"name": spec.name, "kind": spec.kind})
    return show_row(NewAlertShown, row, webhook_url=row["webhook_url"] or None, secret=plain)


@operation("alerts", "POST /api/alerts/preview", doing="previewing alerts")
async def preview_alert(hub: Hub, caller: Caller, draft: AlertDraft) -> AlertPreview:
    """Compute when a rule would have fired over the stored results; stores and sends nothing."""
    settings = read_settings(draft.kind, draft.settings or {})
    now = hub.clock()
    begin = now - draft.days * 86_400
    async with reading(hub, caller) as tx:
        await tx.check_place(draft.project_id, draft.agent_id)
        await _check_ids(tx, settings)
        # From one window before the period: these results still count at its start.
        place = {"organization_id": caller.organization_id, "project_id": draft.project_id, "agent_id": draft.agent_id}
        selection = KINDS[draft.kind].watched.select(place, settings, stamp(begin - float(settings["window_s"])))
        outcomes = await rows.list_outcomes(tx.connection, selection, MOST_RESULTS + 1)
    complete = len(outcomes) <= MOST_RESULTS
    past = [(datetime.fromisoformat(at).timestamp(), outcome, code) for at, outcome, code in reversed(outcomes[:MOST_RESULTS])]
    since = begin if complete or not past else max(begin, past[0][0] + float(settings["window_s"]))
    followed = await asyncio.to_thread(follow_rule, draft.kind, settings, past, since, now)
    return {
        "kind": draft.kind,
        "settings": settings,
        "since": stamp(since),
        "until": stamp(now),
        "complete": complete,
        "results": sum(at >= since for at, _, _ in past),
        "fired": len(followed.periods),
        "periods": followed.periods[-_MOST_PERIODS:],
        "points": [{"at": stamp(at), "value": value} for at, value in thin_points(followed.values)],
    }


@operation("alerts", "GET /api/alerts/{alert_id}", doing="reading alerts")
async def get_alert(hub: Hub, caller: Caller, id: str) -> Alert:
    """Read a rule."""
    return _show_rule(await read_visible(hub, caller, alert_rules, "alert", id))


@operation("alerts", "PATCH /api/alerts/{alert_id}", doing="changing alerts")
async def update_alert(hub: Hub, caller: Caller, id: str, changes: Annotated[Mapping[str, Json], AlertChanges]) -> Alert:
    """Change a rule."""
    refuse_emptying(changes, "name", "settings", "webhook_url", "email", "secret", "active")
    values: dict[str, Json] = {name: changes[name] for name in ("name", "webhook_url", "email", "active") if name in changes}
    if "secret" in changes:
        values["secret"] = make_box(hub).lock(changes["secret"])
    async with writing(hub, caller) as tx:
        before = await tx.require_row(alert_rules, "alert", id, locked=True)
        if {"webhook_url", "email", "secret"} & set(changes):
            _check_destination(hub, before["channel"], {**before, **changes}, secret=changes.get("secret"))
        if "settings" in changes:
            values["settings"] = read_settings(before["kind"], {**(before["settings"] or {}), **changes["settings"]})
            await _check_ids(tx, values["settings"])
        if {"settings", "active"} & set(values):
            # The state under other settings is meaningless; the next check sets it.
            values["state"] = None
        return _show_rule(await tx.change_row(alert_rules, "alert", id, values, details={"fields": sorted(changes)}))


@operation("alerts", "DELETE /api/alerts/{alert_id}", doing="deleting alerts")
async def delete_alert(hub: Hub, caller: Caller, id: str) -> None:
    """Delete a rule with its deliveries."""
    async with writing(hub, caller) as tx:
        await tx.delete_row(alert_rules, "alert", id)
        await rows.delete_deliveries(tx.connection, id)


@operation("alerts", "GET /api/alerts/{alert_id}/deliveries", doing="reading alerts")
async def list_deliveries(hub: Hub, caller: Caller, id: str, **paging: Unpack[Paging]) -> Page[Delivery]:
    """List the deliveries of a rule, including failed ones."""
    await read_visible(hub, caller, alert_rules, "alert", id)
    query = list_query(alert_deliveries, {"organization_id": caller.organization_id, "rule_id": id})
    return await read_page(hub, query, alert_deliveries, _show_delivery, **paging)


@operation("alerts", "POST /api/alerts/{alert_id}/test", status=202, name="test_alert", doing="testing alerts")
async def send_test(hub: Hub, caller: Caller, id: str) -> Delivery:
    """Send a test message."""
    async with writing(hub, caller) as tx:
        rule = await tx.require_row(alert_rules, "alert", id)
        row = await _queue_delivery(tx.connection, hub, rule, "alert.test", {})
        await tx.note("test", "alert", id)
    return _show_delivery(row)


async def check_rules(hub: Hub) -> int:
    """Check every active rule once and return the number of changed states."""
    async with hub.database.reading() as connection:
        watched = await rows.list_active_rules(connection)
    return sum([await _check_rule(hub, rule) for rule in watched])


async def _check_rule(hub: Hub, rule: Row) -> bool:
    settings = {**KINDS[rule["kind"]].defaults, **(rule["settings"] or {})}
    since = hub.clock() - float(settings["window_s"])
    async with hub.database.reading() as connection:
        counts = await rows.count_outcomes(connection, KINDS[rule["kind"]].watched.select(rule, settings, stamp(since)))
    figures, _, firing = judge_counts(rule["kind"], settings, counts)
    if firing is None:
        return False
    before, after = rule["state"], "firing" if firing else "quiet"
    if before == after:
        return False
    async with hub.database.writing() as connection:
        # State and message in one transaction: otherwise a crash in between would lose the message.
        if not await rows.change_state(connection, rule["id"], before=before, after=after):
            return False
        # A new rule that is quiet sends no message.
        if before is not None or firing:
            await _queue_delivery(connection, hub, rule, "alert.firing" if firing else "alert.resolved", figures)
    return True


async def _queue_delivery(connection: AsyncConnection, hub: Hub, rule: Row, event: str, observed: dict[str, Json]) -> Row:
    now = hub.now()
    id = new_id("ald")
    rule_fields = {name: rule[name] for name in ("id", "name", "kind", "project_id", "agent_id", "settings")}
    payload: dict[str, Json] = {"id": id, "event": event, "at": now, "rule": rule_fields, "observed": observed}
    values = {"id": id, "organization_id": rule["organization_id"], "rule_id": rule["id"], "payload": payload, "next_at": hub.clock()}
    return await insert_row(connection, alert_deliveries, {**values, "created_at": now, "updated_at": now})


async def _check_ids(tx: Transaction, settings: Mapping[str, Json]) -> None:
    for what, table in (("case", cases), ("schedule", schedules)):
        if settings.get(f"{what}_id") is not None:
            await tx.require_row(table, what, settings[f"{what}_id"])


def _check_destination(hub: Hub, channel: Channel, values: Mapping[str, Json], *, secret: str | None = None) -> None:
    name, other = ("email", "webhook_url") if channel == "email" else ("webhook_url", "email")
    if not values.get(name) or values.get(other):
        fields = {other: [f"not for {channel}"]} if values.get(other) else {name: [f"required for {channel}"]}
        raise Refusal("VALIDATION_ERROR", "the destination is invalid", fields=fields)
    if channel != "email":
        url = values[name]
        try:
            if any(ord(char) <= 32 for char in url):
                raise AddressRefused("expected an address without spaces")
            # Only the address itself. Its DNS name is checked whenever a message is sent.
            Guard(hub.settings.allowed_addresses).check_url(url)
        except AddressRefused as error:
            raise Refusal("VALIDATION_ERROR", "the webhook is invalid", fields={"webhook_url": [str(error)]}) from None
    elif hub.settings.smtp_host is None:
        raise Refusal("CONFLICT", "this service sends no e-mail", hint="the administrator starts it with --smtp-host and --smtp-from")
    elif not MAIL_ADDRESS.fullmatch(values[name]):
        raise Refusal("VALIDATION_ERROR", "the destination is invalid", fields={name: ["expected one address, such as team@example.com"]})
    if secret is not None and channel != "webhook":
        raise Refusal("VALIDATION_ERROR", "the secret is invalid", fields={"secret": [f"not for {channel}"]})


def _show_rule(row: Row) -> Alert:
    return show_row(Alert, row, webhook_url=row["webhook_url"] or None)


def _show_delivery(row: Row) -> Delivery:
    waiting = row["delivered_at"] is None and row["next_at"] is not None
    status = "delivered" if row["delivered_at"] is not None else "waiting" if waiting else "given up"
    return show_row(Delivery, row, status=status)


# --- preview: when a rule would have fired over the stored results


class _Simulation(msgspec.Struct):
    """The simulation of a rule so far."""

    firing: bool | None = None
    periods: list[FiringPeriod] = msgspec.field(default_factory=lambda: list[FiringPeriod]())
    values: list[tuple[float, float | None]] = msgspec.field(default_factory=lambda: list[tuple[float, float | None]]())


def follow_rule(kind: AlertKind, settings: Mapping[str, Json], past: Past, since: float, until: float) -> _Simulation:
    """Simulate a rule over the past; results before `since` are counted but not reported."""
    window = float(settings["window_s"])
    # Every change of a count: a result arrives, and leaves when the window has passed it. Arrivals come first.
    steps = sorted(
        [(at, 0, number) for number, (at, _, _) in enumerate(past)] + [(at + window, 1, number) for number, (at, _, _) in enumerate(past)]
    )
    counts: Counter[tuple[str, str | None]] = Counter()
    simulation = _Simulation()
    for place, (at, leaves, number) in enumerate(steps):
        if at > until:
            break
        _, outcome, code = past[number]
        counts[outcome, code] += -1 if leaves else 1
        if place + 1 < len(steps) and steps[place + 1][0] == at:
            continue  # all changes at one time count together
        _, value, firing = judge_counts(kind, settings, [(*key, count) for key, count in counts.items() if count])
        if at >= since:
            simulation.values.append((at, value))
        if firing is None or firing == simulation.firing:
            continue
        if firing:
            simulation.periods.append({"since": stamp(max(at, since)), "until": None})
        elif simulation.periods:
            simulation.periods[-1]["until"] = stamp(at)
            if at < since:
                simulation.periods.pop()
        simulation.firing = firing
    return simulation


def thin_points(values: Sequence[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    """Return at most `_MOST_POINTS` points, including the first and the last."""
    if len(values) <= _MOST_POINTS:
        return list(values)
    step = (len(values) - 1) / (_MOST_POINTS - 1)
    return [values[round(number * step)] for number in range(_MOST_POINTS)]
