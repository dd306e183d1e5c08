"""Values in tables of spans: moments in every spelling, structures as OTLP carries them (JSON text, or names with dots)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from proctor.evidence.otlp.spans import NOT_UNDERSTOOD, SpanEvent
from proctor.evidence.values.access import dict_or_empty, list_of, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json
from proctor.model.json_values import write_as_text
from proctor.model.numbers import is_number, to_whole_number

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DEEPEST = 32
"""Levels that are written as names with dots; what lies deeper stays a structure."""
_UNITS = ((10**17, 1), (10**14, 10**3), (10**11, 10**6), (10**8, 10**9))
"""From which number on moments are nanoseconds, microseconds, milliseconds and seconds since 1970; before 1973 nobody traced."""


def read_time_ns(value: Json) -> int:
    """Return nanoseconds since 1970 of ISO 8601 text or a number; 0 where it tells no moment."""
    if isinstance(value, str):
        if value.isascii() and value.isdigit() and len(value) <= 20:
            return read_time_ns(int(value))
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return 0
        # Tables that write no zone mean UTC.
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return max(0, (moment - _EPOCH) // _MICROSECOND * 1000)
    if not is_number(value) or not 0 < value < 2**63:
        return 0
    return next((int(value * factor) for least, factor in _UNITS if value >= least), 0)


def open_object(value: Json, name: str, attributes: dict[str, Json]) -> dict[str, Any]:
    """Return an object, which may stand in a text; what is none, such as JSON that was cut off, is named in `attributes` as a doubt."""
    found = decode_container(value)
    if not isinstance(found, dict) and found not in (None, "", []):
        attributes[NOT_UNDERSTOOD] = name
    return dict_or_empty(found)


def flatten_members(name: str, value: Json, found: dict[str, Json], as_text: tuple[str, ...] = (), depth: int = 0) -> None:
    """Write a nested value as attributes with dots in their names, as OTLP carries them; those that end in `as_text` as JSON text."""
    is_list_of_objects = isinstance(value, list) and bool(value) and all(isinstance(entry, dict) for entry in value)
    if not (isinstance(value, dict) or is_list_of_objects):
        # A column with gaps holds only fractions.
        found[name] = to_whole_number(value)
    elif depth >= _DEEPEST or any(name == end or name.endswith(f".{end}") for end in as_text):
        found[name] = write_as_text(value)
    elif isinstance(value, dict):
        for key, member in value.items():
            if member is not None:
                flatten_members(f"{name}.{key}" if name else key, member, found, as_text, depth + 1)
    else:
        for index, member in enumerate(list_of(value)):
            flatten_members(f"{name}.{index}", member, found, as_text, depth + 1)


def read_events(value: Json) -> tuple[SpanEvent, ...]:
    """Return the events of a span, from a list or its JSON text."""
    events = [dict_or_empty(event) for event in list_of(decode_container(value))]
    return tuple(SpanEvent(text_or_none(event.get("name")) or "", _read_attributes(event.get("attributes"))) for event in events)


def _read_attributes(value: Json) -> dict[str, Json]:
    found: dict[str, Json] = {}
    flatten_members("", dict_or_empty(decode_container(value)), found)
    return found
