"""Cron expressions: a table of due times, a slow and obvious implementation to compare with, and every error."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import InputError
from proctor.service.runs.cron import Cron, find_zone, parse_cron
from tests.tables import rows


@rows("service/schedules/cases/cron.yaml")
def test_an_expression_is_due_at_these_times(row: dict[str, Any]) -> None:
    zone = ZoneInfo(row.get("zone", "UTC"))
    after = datetime.fromisoformat(row["after"])
    found = islice(parse_cron(row["cron"]).iterate(after, zone), len(row["expect"]))
    shown = [moment.astimezone(zone).isoformat(timespec="minutes") for moment in found]
    assert shown == [time if "zone" in row else f"{time}+00:00" for time in row["expect"]]


@rows("service/schedules/cases/cron_refused.yaml")
def test_an_invalid_expression_is_reported_with_what_was_expected(row: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        parse_cron(row["cron"])
    assert row["message"] in str(caught.value)


def walk(cron: Cron, after: datetime, zone: ZoneInfo, until: datetime) -> list[datetime]:
    """The due times, minute by minute: each local time at its first occurrence, a skipped one at the first minute after the gap."""
    found: list[datetime] = []
    seen = after.astimezone(zone).replace(tzinfo=None)
    # The local time before: a repeated hour is not new.
    seen = max(seen, *((after - timedelta(minutes=number)).astimezone(zone).replace(tzinfo=None) for number in range(1, 181)))
    moment = after.replace(second=0, microsecond=0) + timedelta(minutes=1)
    while moment <= until:
        local = moment.astimezone(zone).replace(tzinfo=None)
        passed: list[datetime] = []
        while seen.replace(second=0, microsecond=0) < local:
            seen = seen.replace(second=0, microsecond=0) + timedelta(minutes=1)
            passed.append(seen)
        if any(matches(cron, one) for one in passed):
            found.append(moment)
        moment += timedelta(minutes=1)
    return found


def matches(cron: Cron, at: datetime) -> bool:
    of_month, of_week = at.day in cron.days, at.isoweekday() % 7 in cron.weekdays
    day = (of_month or of_week) if len(cron.days) < 31 and len(cron.weekdays) < 7 else (of_month and of_week)
    return day and at.month in cron.months and at.hour in cron.hours and at.minute in cron.minutes


CHANGES = [
    ("Europe/Berlin", datetime(2027, 3, 28, 1, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2027, 10, 31, 1, tzinfo=UTC)),
    ("America/New_York", datetime(2027, 3, 14, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2027, 11, 7, 6, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2027, 4, 3, 15, tzinfo=UTC)),
    ("Africa/Cairo", datetime(2027, 10, 28, 21, tzinfo=UTC)),
    ("UTC", datetime(2028, 2, 29, 0, tzinfo=UTC)),
]


@given(
    st.sampled_from(CHANGES),
    st.integers(-600, 120),
    st.sampled_from(["*", "0", "30", "*/7", "15,45", "20-40/5"]),
    st.sampled_from(["*", "1", "2", "3", "0", "23", "1-3", "*/2", "0,2"]),
    st.sampled_from(["* * *", "28 * *", "31 * SUN", "* 3,10 *", "29 2 *", "* * SUN", "1-31 * 6,7"]),
)
def test_due_times_are_those_of_a_clock_that_is_watched_every_minute(
    change: tuple[str, datetime], minutes: int, minute: str, hour: str, rest: str
) -> None:
    zone, at = ZoneInfo(change[0]), change[1]
    after, until = at + timedelta(minutes=minutes), at + timedelta(hours=12)
    cron = parse_cron(f"{minute} {hour} {rest}")
    found: list[datetime] = []
    for moment in cron.iterate(after, zone):
        if moment > until or len(found) > 2_000:
            break
        found.append(moment)
    assert found == walk(cron, after, zone, until)


@pytest.mark.parametrize(
    ("name", "message"), [("Europe/Berln", "nearest: Europe/Berlin"), ("../../etc/passwd", "unknown"), ("", "unknown"), ("\0", "unknown")]
)
def test_an_unknown_time_zone_is_reported_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_zone(name)
