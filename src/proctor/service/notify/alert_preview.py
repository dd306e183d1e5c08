"""When a rule would have fired over the results that are kept, before anybody is woken by it.

The rule is followed through the past as the service follows it through the present: the results of its window are counted each time one
comes in or leaves the window, and the rule fires, is quiet, or stays as it is where there are too few. Looked at are the newest results
of the period, at most `MOST_RESULTS`; when there are more, the answer says from when on it is true.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import check_place, require_writer
from proctor.service.hub import Hub, stamp
from proctor.service.notify.alerts import AlertKind, check_case, judge_counts, read_settings
from proctor.service.refusals import Refusal
from proctor.store.accounts import alerts as rows

MOST_RESULTS = 20_000
LONGEST_DAYS = 90
_MOST_POINTS = 200
_MOST_PERIODS = 200
Past = Sequence[tuple[float, str, str | None]]
"""When each result came, its outcome and its code, oldest first."""


class RuleDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that is tried out and not kept."""

    project_id: str
    kind: AlertKind
    agent_id: str | None = None
    settings: Mapping[str, Json] | None = None
    days: float = 7


class _Followed(msgspec.Struct):
    """What following a rule through the past has found so far."""

    firing: bool | None = None
    periods: list[dict[str, Json]] = msgspec.field(default_factory=lambda: list[dict[str, Json]]())
    values: list[tuple[float, float | None]] = msgspec.field(default_factory=lambda: list[tuple[float, float | None]]())


async def preview_rule(hub: Hub, caller: Caller, draft: RuleDraft) -> dict[str, Json]:
    """Return when a rule would have fired during the last days, and what it would have seen."""
    require_writer(caller, "alerts are tried")
    if not 0 < draft.days <= LONGEST_DAYS:
        raise Refusal("VALIDATION_ERROR", "the period cannot be used", fields={"days": [f"expected a number up to {LONGEST_DAYS}"]})
    settings = read_settings(draft.kind, draft.settings or {})
    now = hub.clock()
    begin = now - draft.days * 86_400
    async with hub.database.reading() as connection:
        await check_place(connection, caller, draft.project_id, draft.agent_id)
        await check_case(connection, caller, settings)
        # From one window before the period on: what came then still counts at its beginning.
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
    """Follow a rule through the past; what came before `since` is counted, but nothing is told of it."""
    window = float(settings["window_s"])
    # Whatever changes a count: a result comes in, and leaves again when the window has passed it. One that comes goes first.
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
            continue  # everything of one moment counts together
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
    """Return the number that the rule compares with its limit; None where there are too few results to say."""
    if firing is None:
        return None
    if kind == "failing_case":
        return float(seen["results"] - seen["passed"])
    return float(seen["pass_rate" if kind == "pass_rate" else "share"])


def thin_points(values: Sequence[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    """Return at most so many points that a picture can show; the first and the last stay."""
    if len(values) <= _MOST_POINTS:
        return list(values)
    step = (len(values) - 1) / (_MOST_POINTS - 1)
    return [values[round(number * step)] for number in range(_MOST_POINTS)]
