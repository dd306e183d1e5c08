"""Written timestamps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from proctor.model.stamps import stamp_moment


def test_a_moment_of_utc_ends_in_z_and_another_in_its_offset() -> None:
    assert stamp_moment(datetime(2026, 11, 15, 9, tzinfo=UTC)) == "2026-11-15T09:00:00.000Z"
    assert stamp_moment(datetime(2026, 11, 15, 9, tzinfo=timezone(timedelta(hours=2)))) == "2026-11-15T09:00:00.000+02:00"
