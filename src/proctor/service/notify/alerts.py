"""Alerts: rules over the results of a project or an agent, with a message when one starts and stops firing.

    pass_rate          {below: 0.9, window_s: 3600, minimum: 10}       the share of passed results is below
    failing_case       {case_id: ..., times: 1, window_s: 3600}        a case (any, if none is named) failed or errored that often
    missing_evidence   {above: 0.1, window_s: 3600, minimum: 10}       the share of results with missing evidence is above

With fewer results than `minimum` in the window a rule does not change. One message is sent per change of state.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.network.addresses import AddressRefused
from proctor.network.guard import Guard
from proctor.service.access.audit import note
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import check_place, require_writer
from proctor.service.access.secrets import make_box
from proctor.service.field_checks import check_fields, refuse_emptying
from proctor.service.hub import Hub, new_id, stamp
from proctor.service.paging import fetch_page_or_refuse, require_row, show_page
from proctor.service.refusals import Refusal, not_found
from proctor.store.accounts import alerts as rows
from proctor.store.accounts.tenants import change_row, delete_row, insert_row
from proctor.store.sql.pages import Row
from proctor.store.sql.queries import list_query
from proctor.store.sql.tables import alert_deliveries, alert_rules, cases

AlertKind = Literal["pass_rate", "failing_case", "missing_evidence"]
DEFAULTS: dict[str, dict[str, Json]] = {
    "pass_rate": {"below": 0.9, "window_s": 3600, "minimum": 10},
    "failing_case": {"case_id": None, "times": 1, "window_s": 3600},
    "missing_evidence": {"above": 0.1, "window_s": 3600, "minimum": 10},
}
LONGEST_WINDOW_S = 30 * 86_400
LONGEST_URL = 2_000
_SHOWN = ("id", "project_id", "agent_id", "name", "kind", "settings", "webhook_url", "active", "state", "created_at", "updated_at")
_DELIVERY = ("id", "rule_id", "payload", "attempts", "delivered_at", "error", "created_at", "updated_at")


class RuleSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A new rule and its webhook."""

    project_id: str
    name: str
    kind: AlertKind
    webhook_url: str
    agent_id: str | None = None
    """None for every agent of the project."""
    settings: Mapping[str, Json] | None = None
    """Overrides of the `DEFAULTS` of its kind."""
    secret: str | None = None
    """Signs the messages; None: generated."""
    active: bool = True


async def create_rule(hub: Hub, caller: Caller, spec: RuleSpec) -> dict[str, Json]:
    """Create a rule. Its signing secret is shown only once."""
    require_writer(caller, "creating alerts")
    check_fields({"name": spec.name})
    _check_url(hub, spec.webhook_url)
    complete = read_settings(spec.kind, spec.settings or {})
    plain = spec.secret or f"whsec_{secrets.token_urlsafe(32)}"
    _check_secret(plain)
    # Outside the transaction: the first use stretches the key, which is slow, and SQLite has one writer.
    locked = make_box(hub).lock(plain)
    now = hub.now()
    async with hub.database.writing() as connection:
        await check_place(connection, caller, spec.project_id, spec.agent_id)
        await check_case(connection, caller, complete)
        row = await insert_row(
            connection,
            alert_rules,
            {
                "id": new_id("alr"),
                "organization_id": caller.organization_id,
                "project_id": spec.project_id,
                "agent_id": spec.agent_id,
                "name": spec.name,
                "kind": spec.kind,
                "settings": complete,
                "webhook_url": spec.webhook_url,
                "secret": locked,
                "active": spec.active,
                "state": None,
                "created_at": now,
                "updated_at": now,
            },
        )
        await note(connection, hub, caller, "create", "alert", row["id"], {"name": spec.name, "kind": spec.kind})
    return {**_show_rule(row), "secret": plain}


async def list_rules(
    hub: Hub,
    caller: Caller,
    *,
    project_id: str | None = None,
    agent_id: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> dict[str, Json]:
    """Return a page of rules. Their addresses may contain keys, so that reading them requires an organization key."""
    require_writer(caller, "reading alerts")
    wanted = {"project_id": project_id, "agent_id": agent_id}
    query = list_query(alert_rules, {"organization_id": caller.organization_id, **wanted})
    async with hub.database.reading() as connection:
        return show_page(await fetch_page_or_refuse(connection, query, alert_rules, limit=limit, cursor=cursor), _show_rule)


async def get_rule(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Return one rule."""
    require_writer(caller, "reading alerts")
    async with hub.database.reading() as connection:
        return _show_rule(await _find_rule(connection, caller, id))


async def update_rule(hub: Hub, caller: Caller, id: str, changes: Mapping[str, Json]) -> dict[str, Json]:
    """Change the fields in `changes`: name, settings, webhook_url, secret, active. A changed rule starts again."""
    require_writer(caller, "changing alerts")
    refuse_emptying(changes, "name", "settings", "webhook_url", "secret", "active")
    check_fields({"name": changes.get("name")})
    if "webhook_url" in changes:
        _check_url(hub, changes["webhook_url"])
    values: dict[str, Json] = {name: changes[name] for name in ("name", "webhook_url", "active") if name in changes}
    if "secret" in changes:
        _check_secret(changes["secret"])
        values["secret"] = make_box(hub).lock(changes["secret"])
    async with hub.database.writing() as connection:
        before = await require_row(connection, alert_rules, caller.organization_id, "alert", id, locked=True)
        if "settings" in changes:
            values["settings"] = read_settings(before["kind"], {**(before["settings"] or {}), **changes["settings"]})
            await check_case(connection, caller, values["settings"])
        if {"settings", "active"} & set(values):
            # The state under other settings is meaningless; the next check sets it.
            values["state"] = None
        row = await change_row(connection, alert_rules, caller.organization_id, id, {**values, "updated_at": hub.now()})
        await note(connection, hub, caller, "update", "alert", id, {"fields": sorted(set(changes))})
    assert row is not None
    return _show_rule(row)


async def delete_rule(hub: Hub, caller: Caller, id: str) -> None:
    """Delete a rule with its deliveries."""
    require_writer(caller, "deleting alerts")
    async with hub.database.writing() as connection:
        if not await delete_row(connection, alert_rules, caller.organization_id, id):
            raise not_found("alert", id)
        await rows.delete_deliveries(connection, id)
        await note(connection, hub, caller, "delete", "alert", id)


async def list_deliveries(hub: Hub, caller: Caller, id: str, *, limit: int | None = None, cursor: str | None = None) -> dict[str, Json]:
    """Return a page of the messages of a rule, including failed ones."""
    require_writer(caller, "reading alerts")
    async with hub.database.reading() as connection:
        await _find_rule(connection, caller, id)
        query = list_query(alert_deliveries, {"organization_id": caller.organization_id, "rule_id": id})
        return show_page(await fetch_page_or_refuse(connection, query, alert_deliveries, limit=limit, cursor=cursor), _show_delivery)


async def send_test(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Queue a test message."""
    require_writer(caller, "testing alerts")
    async with hub.database.writing() as connection:
        rule = await _find_rule(connection, caller, id)
        row = await _queue_delivery(connection, hub, rule, "alert.test", {})
        await note(connection, hub, caller, "test", "alert", id)
    return _show_delivery(row)


async def check_rules(hub: Hub) -> int:
    """Check every active rule once and return the number of changed states."""
    async with hub.database.reading() as connection:
        watched = await rows.list_active_rules(connection)
    changed = 0
    for rule in watched:
        changed += await _check_rule(hub, rule)
    return changed


async def _check_rule(hub: Hub, rule: Row) -> bool:
    settings = {**DEFAULTS[rule["kind"]], **(rule["settings"] or {})}
    since = stamp(hub.clock() - float(settings["window_s"]))
    async with hub.database.reading() as connection:
        counts = await rows.count_outcomes(
            connection,
            rule["organization_id"],
            rule["project_id"],
            since,
            agent_id=rule["agent_id"],
            case_id=settings.get("case_id"),
        )
    seen, firing = judge_counts(rule["kind"], settings, counts)
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
            await _queue_delivery(connection, hub, rule, "alert.firing" if firing else "alert.resolved", seen)
    return True


def judge_counts(kind: str, settings: Mapping[str, Json], counts: list[tuple[str, str | None, int]]) -> tuple[dict[str, Json], bool | None]:
    """Return the counts, and whether the rule fires; None if there are too few results."""
    decided = sum(count for outcome, _, count in counts if outcome != "skip")
    passed = sum(count for outcome, _, count in counts if outcome == "pass")
    lacking = sum(count for _, code, count in counts if code == "missing_evidence")
    seen: dict[str, Json] = {"results": decided, "passed": passed, "missing_evidence": lacking}
    if kind == "failing_case":
        return seen, decided - passed >= settings["times"]
    if decided < max(1, settings["minimum"]):
        return seen, None
    if kind == "pass_rate":
        seen["pass_rate"] = passed / decided
        return seen, passed / decided < settings["below"]
    seen["share"] = lacking / decided
    return seen, lacking / decided > settings["above"]


async def _queue_delivery(connection: AsyncConnection, hub: Hub, rule: Row, event: str, seen: dict[str, Json]) -> Row:
    now = hub.now()
    id = new_id("ald")
    shown = {name: rule[name] for name in ("id", "name", "kind", "project_id", "agent_id", "settings")}
    payload: dict[str, Json] = {"id": id, "event": event, "at": now, "rule": shown, "observed": seen}
    values = {"id": id, "organization_id": rule["organization_id"], "rule_id": rule["id"], "payload": payload, "next_at": hub.clock()}
    return await insert_row(connection, alert_deliveries, {**values, "created_at": now, "updated_at": now})


async def _find_rule(connection: AsyncConnection, caller: Caller, id: str) -> Row:
    return await require_row(connection, alert_rules, caller.organization_id, "alert", id)


async def check_case(connection: AsyncConnection, caller: Caller, settings: Mapping[str, Json]) -> None:
    """Reject settings with an unknown case."""
    case_id = settings.get("case_id")
    if case_id is not None:
        await require_row(connection, cases, caller.organization_id, "case", case_id)


def _check_url(hub: Hub, url: str) -> None:
    try:
        if len(url) > LONGEST_URL or any(ord(char) <= 32 for char in url):
            raise AddressRefused(f"expected at most {LONGEST_URL} characters, without spaces")
        # Only the address itself. Its DNS name is checked whenever a message is sent.
        Guard(hub.settings.allowed_addresses).check_url(url)
    except AddressRefused as error:
        raise Refusal("VALIDATION_ERROR", "the webhook is invalid", fields={"webhook_url": [str(error)]}) from None


def _check_secret(secret: str) -> None:
    if not 16 <= len(secret) <= 500:
        raise Refusal("VALIDATION_ERROR", "the secret is invalid", fields={"secret": ["expected 16 to 500 characters"]})


def read_settings(kind: str, given: Mapping[str, Json]) -> dict[str, Json]:
    """Return settings with the defaults of their kind. Raises `Refusal` with every mistake."""
    defaults = DEFAULTS[kind]
    fields: dict[str, list[str]] = {}
    for name, value in given.items():
        reason = _explain_wrong(name, value) if name in defaults else f"unknown for a {kind} rule; known: {', '.join(defaults)}"
        if reason is not None:
            fields[f"settings.{name}"] = [reason]
    if fields:
        raise Refusal("VALIDATION_ERROR", "the settings are invalid", fields=fields)
    return {**defaults, **given}


def _explain_wrong(name: str, value: Any) -> str | None:
    if name == "case_id":
        return None if value is None or isinstance(value, str) else "expected the id of a case"
    if not is_number(value):
        return "expected a number"
    least, most = {"window_s": (1, LONGEST_WINDOW_S), "minimum": (1, 1_000_000), "times": (1, 1_000_000)}.get(name, (0, 1))
    return None if least <= value <= most else f"expected a number from {least} to {most}"


def _show_rule(row: Row) -> dict[str, Json]:
    return {name: row[name] for name in _SHOWN}


def _show_delivery(row: Row) -> dict[str, Json]:
    waiting = row["delivered_at"] is None and row["next_at"] is not None
    status = "delivered" if row["delivered_at"] is not None else "waiting" if waiting else "given up"
    return {**{name: row[name] for name in _DELIVERY}, "status": status}


# --- preview: when a rule would have fired over the stored results


MOST_RESULTS = 20_000
LONGEST_DAYS = 90
_MOST_POINTS = 200
_MOST_PERIODS = 200
Past = Sequence[tuple[float, str, str | None]]
"""Time, outcome and code of each result, oldest first."""


class RuleDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that is tried out and not stored."""

    project_id: str
    kind: AlertKind
    agent_id: str | None = None
    settings: Mapping[str, Json] | None = None
    days: float = 7


class _Followed(msgspec.Struct):
    """The simulation of a rule so far."""

    firing: bool | None = None
    periods: list[dict[str, Json]] = msgspec.field(default_factory=lambda: list[dict[str, Json]]())
    values: list[tuple[float, float | None]] = msgspec.field(default_factory=lambda: list[tuple[float, float | None]]())


async def preview_rule(hub: Hub, caller: Caller, draft: RuleDraft) -> dict[str, Json]:
    """Return when a rule would have fired during the last days, and its measured values."""
    require_writer(caller, "previewing alerts")
    if not 0 < draft.days <= LONGEST_DAYS:
        raise Refusal("VALIDATION_ERROR", "the period is invalid", fields={"days": [f"expected a number up to {LONGEST_DAYS}"]})
    settings = read_settings(draft.kind, draft.settings or {})
    now = hub.clock()
    begin = now - draft.days * 86_400
    async with hub.database.reading() as connection:
        await check_place(connection, caller, draft.project_id, draft.agent_id)
        await check_case(connection, caller, settings)
        # From one window before the period: these results still count at its start.
        found = await rows.list_outcomes(
            connection,
            caller.organization_id,
            draft.project_id,
            stamp(begin - float(settings["window_s"])),
            limit=MOST_RESULTS + 1,
            agent_id=draft.agent_id,
            case_id=settings.get("case_id"),
        )
    complete = len(found) <= MOST_RESULTS
    past = [(datetime.fromisoformat(at).timestamp(), outcome, code) for at, outcome, code in reversed(found[:MOST_RESULTS])]
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


def follow_rule(kind: AlertKind, settings: Mapping[str, Json], past: Past, since: float, until: float) -> _Followed:
    """Simulate a rule over the past; results before `since` are counted but not reported."""
    window = float(settings["window_s"])
    # Every change of a count: a result arrives, and leaves when the window has passed it. Arrivals come first.
    steps = sorted(
        [(at, 0, number) for number, (at, _, _) in enumerate(past)] + [(at + window, 1, number) for number, (at, _, _) in enumerate(past)]
    )
    counts: Counter[tuple[str, str | None]] = Counter()
    found = _Followed()
    for place, (at, leaves, number) in enumerate(steps):
        if at > until:
            break
        _, outcome, code = past[number]
        counts[outcome, code] += -1 if leaves else 1
        if place + 1 < len(steps) and steps[place + 1][0] == at:
            continue  # all changes at one time count together
        seen, firing = judge_counts(kind, settings, [(*key, count) for key, count in counts.items() if count])
        _note_step(found, at, since, firing, _choose_value(kind, seen, firing))
    return found


def _note_step(found: _Followed, at: float, since: float, firing: bool | None, value: float | None) -> None:
    if at >= since:
        found.values.append((at, value))
    if firing is None or firing == found.firing:
        return
    if firing:
        found.periods.append({"since": stamp(max(at, since)), "until": None})
    elif found.periods:
        found.periods[-1]["until"] = stamp(at)
        if at < since:
            found.periods.pop()
    found.firing = firing


def _choose_value(kind: AlertKind, seen: Mapping[str, Json], firing: bool | None) -> float | None:
    """Return the value that the rule compares with its limit; None if there are too few results."""
    if firing is None:
        return None
    if kind == "failing_case":
        return float(seen["results"] - seen["passed"])
    return float(seen["pass_rate" if kind == "pass_rate" else "share"])


def thin_points(values: Sequence[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    """Return at most `_MOST_POINTS` points, including the first and the last."""
    if len(values) <= _MOST_POINTS:
        return list(values)
    step = (len(values) - 1) / (_MOST_POINTS - 1)
    return [values[round(number * step)] for number in range(_MOST_POINTS)]
