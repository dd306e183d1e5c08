"""The format of moments: ISO 8601 in UTC, with milliseconds."""

from __future__ import annotations

from datetime import datetime


def stamp_moment(moment: datetime) -> str:
    """Return a moment of UTC as `2026-11-15T09:00:00.000Z`; of another zone with its offset."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
