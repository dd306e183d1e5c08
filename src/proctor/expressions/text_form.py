"""The text form of values, used by comparisons and `CONCAT`, and templates with names in braces.

Text stays unchanged; a day is `2026-11-16`, a time `2026-11-16T10:00:00` (the clock face of its zone, whole seconds); `true`, `false`;
numbers as JSON; null is empty; lists and objects are compact JSON.

A template such as `Order {id}` is split once and joined for every set of values. `{{` and `}}` are literal braces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime

import msgspec

from proctor.errors import CheckFault, SpecError
from proctor.expressions.moments import find_zone, move_to_zone, read_moment, to_instant
from proctor.model.evidence import Evidence, Json
from proctor.model.show import kind_of


def write_text_form(value: object) -> str:
    """Return the value as text. A structure that is nested too deeply is a fault."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    # Before `date`, of which `datetime` is a subclass.
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="seconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float):
        return repr(value)
    # Well below the 4,300 digits beyond which Python refuses to print an integer; a larger one becomes a fault below.
    if isinstance(value, int) and value.bit_length() < 10_000:
        return str(value)
    import json  # only lists and objects need it; the faster encoder we use elsewhere rejects large integers

    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=write_text_form)
    except RecursionError:
        raise CheckFault("value_too_deep", f"the {kind_of(value)} is nested too deeply to be read as text") from None
    except ValueError:
        raise CheckFault("value_too_large", f"the {kind_of(value)} holds a number too large to be read as text") from None


Part = str | tuple[str]
"""A literal text, or the name of a placeholder."""


def compile_braces(name: str) -> re.Pattern[str]:
    """Return a pattern that finds double braces, placeholders whose names match `name`, and lone braces."""
    return re.compile(r"\{\{|\}\}|\{(" + name + r")\}|[{}]")


def split_braces(text: str, braces: re.Pattern[str], *, example: str, field: str | None = None) -> list[Part]:
    """Return the literal texts and names in order; a lone brace raises `SpecError`, which shows the example."""
    parts: list[Part] = []
    at = 0
    for found in braces.finditer(text):
        if found.start() > at:
            parts.append(text[at : found.start()])
        at = found.end()
        if found[0] in ("{", "}"):
            raise SpecError(
                f"a lone {found[0]!r} is not a placeholder",
                field=field,
                offset=found.start(),
                hint=f"a placeholder is {example}; a literal brace is doubled: {{{{ and }}}}",
            )
        parts.append((found[1].strip(),) if found[1] else found[0][0])
    if at < len(text):
        parts.append(text[at:])
    return parts


def find_whole_name(parts: Sequence[Part]) -> str | None:
    """Return the name if the whole text is one placeholder, whose value then keeps its type."""
    return parts[0][0] if len(parts) == 1 and isinstance(parts[0], tuple) else None


def find_whole_text(parts: Sequence[Part]) -> str | None:
    """Return the text if there are no placeholders, so that it is the same for all values."""
    return None if any(isinstance(part, tuple) for part in parts) else "".join(part for part in parts if isinstance(part, str))


def join_parts(parts: Sequence[Part], values: Mapping[str, Json]) -> str:
    """Return the text with every value written as text."""
    return "".join([part if isinstance(part, str) else write_text_form(values[part[0]]) for part in parts])


# The inputs of an expression besides its own text: variables, a clock and a time zone.
# The zone is the variable `timezone` if it is text, else the zone of the evidence, else UTC. An unreadable clock counts as absent; only
# an expression that needs it then has no value.


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Variables, clock and zone of one piece of evidence."""

    context: dict[str, Json] = {}
    now: datetime | None = None
    """Aware; `None` when the evidence has no clock."""
    zone: str = "UTC"

    @staticmethod
    def read_from(evidence: Evidence) -> Scope:
        """Return the scope that evidence carries."""
        context = evidence.context or {}
        named = context.get("timezone")
        zone = named if isinstance(named, str) and named else evidence.timezone or "UTC"
        return Scope(context=context, now=_read_clock(evidence.now, zone), zone=zone)


NO_SCOPE = Scope()
"""For expected values that need no scope."""


def _read_clock(text: str | None, zone: str) -> datetime | None:
    moment = read_moment(text) if text else None
    if moment is None:
        return None
    try:
        return to_instant(move_to_zone(moment, find_zone(zone)), find_zone(zone))
    except (CheckFault, OverflowError):
        return None
