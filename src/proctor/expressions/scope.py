"""What an expression may look at besides its own text: variables, a clock and a time zone.

The zone is the variable `timezone` where it is text, else the zone of the evidence, else UTC. A clock that cannot be read counts
as no clock; only an expression that asks for it then has no value.
"""

from datetime import datetime

import msgspec

from proctor.errors import CheckFault
from proctor.expressions.moments import find_zone, move_to_zone, read_moment, to_instant
from proctor.model.evidence import Evidence, Json


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Variables, clock and zone of one piece of evidence."""

    context: dict[str, Json] = {}
    now: datetime | None = None
    """Aware; `None` when the evidence has no clock."""
    zone: str = "UTC"

    @staticmethod
    def read_from(evidence: Evidence) -> "Scope":
        """Return the scope that evidence carries."""
        context = evidence.context or {}
        named = context.get("timezone")
        zone = named if isinstance(named, str) and named else evidence.timezone or "UTC"
        return Scope(context=context, now=_read_clock(evidence.now, zone), zone=zone)


NO_SCOPE = Scope()
"""For expected values that look at nothing but themselves."""


def _read_clock(text: str | None, zone: str) -> datetime | None:
    moment = read_moment(text) if text else None
    if moment is None:
        return None
    try:
        return to_instant(move_to_zone(moment, find_zone(zone)), find_zone(zone))
    except (CheckFault, OverflowError):
        return None
