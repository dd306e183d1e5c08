"""Spans in any form: Mibo's canonical JSON, OTLP JSON, OTLP protobuf.

All three become the same `Span`: attributes as a plain object, times in nanoseconds (0: not recorded), the status as failed or not. Fields
that are not OTLP are ignored; a near miss of an OTLP field, or one of the wrong type, is named under `NOT_UNDERSTOOD` as lost data.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.unknowns.endings import read_status
from proctor.evidence.values.access import (
    dict_or_empty,
    find_first,
    list_at,
    list_of,
    read_object,
    split_words,
    text_or_none,
    wrong_kind_error,
)
from proctor.evidence.values.json_bytes import too_deep_error
from proctor.evidence.values.near_miss import is_misspelt
from proctor.model.evidence import Json
from proctor.model.json_values import read_digits
from proctor.model.show import show

NOT_UNDERSTOOD = "proctor.not_understood"
"""The attribute that names a field of a span which cannot be read."""
_ATTRIBUTES = ("gen_ai.", "llm.", "openinference.", "traceloop.", "ai.", "tool.", "n8n.", "input.value", "output.value")
"""Prefixes of attributes that only spans have."""
_VALUE_DEPTH = 64
"""Levels of OTLP's typed values, which are read by recursion."""
_SPAN_KEYS = split_words("""
    traceId spanId parentSpanId traceState flags name kind startTimeUnixNano endTimeUnixNano attributes droppedAttributesCount events
    droppedEventsCount links droppedLinksCount status trace_id span_id parent_span_id trace_state start_time_unix_nano end_time_unix_nano
    dropped_attributes_count dropped_events_count dropped_links_count
    """)
_TIME = (int, str)
_FIELD_TYPES: dict[str, type | tuple[type, ...]] = {
    "attributes": (list, dict),
    "events": list,
    "status": dict,
    "name": str,
    **dict.fromkeys(("parentSpanId", "parent_span_id", "traceId", "trace_id"), (str, int)),
    **dict.fromkeys(("startTimeUnixNano", "endTimeUnixNano", "start_time_unix_nano", "end_time_unix_nano"), _TIME),
}
_DROPPED = ("droppedAttributesCount", "droppedEventsCount", "dropped_attributes_count", "dropped_events_count")
_EVENT_KEYS = split_words("name timeUnixNano time_unix_nano attributes droppedAttributesCount dropped_attributes_count")
_STATUS_KEYS = split_words("code message deprecatedCode")
_SCOPE_KEYS = split_words("spans scope instrumentationLibrary schemaUrl schema_url")
_NAMED_SCOPE_KEYS = split_words("name version attributes")
_WHOLE = re.compile(r"-?[0-9]{1,20}")
_HEXADECIMAL = re.compile("[0-9A-Fa-f]{16}(?:[0-9A-Fa-f]{16})?")
_CLIENT = (3, "3", "SPAN_KIND_CLIENT")
_ENTRIES = (2, "2", "SPAN_KIND_SERVER", 5, "5", "SPAN_KIND_CONSUMER")
"""The kinds of spans in which a service handles a request or a message of another one."""
RequestKeys = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""The names of the lists of resources, scopes and items in a JSON request."""
# `instrumentationLibrarySpans` is the first name of `scopeSpans`; Tempo writes `batches`.
TRACE_KEYS: RequestKeys = (
    ("resourceSpans", "resource_spans", "batches"),
    ("scopeSpans", "scope_spans", "instrumentationLibrarySpans"),
    ("spans",),
)
_VALUE_TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("stringValue", "bytesValue"), str),
    **dict.fromkeys(("arrayValue", "kvlistValue"), dict),
    "boolValue": bool,
    "intValue": int,
    "doubleValue": (float, int),
}
_VALUE_NAMES = {name: kind for kind in _VALUE_TYPES for name in (kind, kind.replace("V", "_v"))}
"""The names of typed values, also as protobuf writes them."""
_UNTYPED = (KeyError, TypeError, ValueError, OverflowError)
"""What the conversion raises for a value that is not typed."""
_AROUND = ("resource", "scope", "instrumentationLibrary", "schemaUrl", "schema_url")
Refuse = Callable[[str, int], None]
"""Takes the reason why a number of spans, or log records, cannot be used."""
ReadItem = Callable[[Json, str], "Span | None"]
"""Reads one span or log record at a path."""


class SpanEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that happened during a span."""

    name: str
    attributes: dict[str, Json]


class TreeSpan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The fields that a tree of spans needs: a hundred thousand of them are read without the rest."""

    trace_id: str = ""
    id: str
    parent_id: str | None = None
    name: str = ""
    start_ns: int = 0
    end_ns: int = 0
    attributes: dict[str, Json] = {}
    failed: bool = False
    message: str | None = None
    """The message of the status."""


class Span(TreeSpan, frozen=True, kw_only=True, omit_defaults=True, gc=True):
    """One step of a trace."""

    events: tuple[SpanEvent, ...] = ()
    resource: dict[str, Json] = {}
    scope: str = ""
    """The instrumentation that wrote it."""
    case: str | None = None
    """The case that the request with this span names."""
    is_remote: bool = False
    """Whether it is the client's side of work that ran elsewhere."""
    is_entry: bool = False
    """Whether a service handles a request, or a message of a queue, in it."""
    dropped: int = 0
    """How many attributes and events an SDK dropped."""


class SpanGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """Spans of one resource, which is stored once for all of them."""

    resource: dict[str, Json]
    spans: list[Span]


def fold_id(text: str) -> str:
    """Return the id of a trace or a span in one spelling: OTLP takes its digits in either case, and a trace may come from two exporters."""
    # What is not hexadecimal may be base 64, where case matters.
    return text if text.islower() or _HEXADECIMAL.fullmatch(text) is None else text.lower()


def read_span(value: Json, path: str, resource: dict[str, Json] | None = None, case: str | None = None, scope: str = "") -> Span:
    """Read a span from JSON, canonical (`span_id`, attributes as an object) or OTLP (`spanId`, attributes as a list)."""
    entry = read_object(value, path)
    span_id = _read_id(entry, "span_id", "spanId")
    if not span_id:
        raise wrong_kind_error(f"{path}.span_id", "text", find_first(entry, "span_id", "spanId"))
    status = dict_or_empty(entry.get("status"))
    events = [dict_or_empty(event) for event in list_of(entry.get("events"))]
    attributes = read_attributes(entry.get("attributes"))
    lost = _find_lost_field(entry, status)
    if lost is not None:
        attributes = {**attributes, NOT_UNDERSTOOD: lost}
    return Span(
        trace_id=_read_id(entry, "trace_id", "traceId"),
        id=span_id,
        parent_id=_read_id(entry, "parent_span_id", "parentSpanId") or None,
        name=text_or_none(entry.get("name")) or "",
        start_ns=read_nanoseconds(find_first(entry, "start_time_unix_nano", "startTimeUnixNano")),
        end_ns=read_nanoseconds(find_first(entry, "end_time_unix_nano", "endTimeUnixNano")),
        attributes=attributes,
        failed=read_status(status.get("code")) == "failed",
        message=text_or_none(status.get("message")),
        events=tuple(SpanEvent(text_or_none(event.get("name")) or "", read_attributes(event.get("attributes"))) for event in events),
        resource=resource or {},
        scope=scope,
        case=case,
        is_remote=entry.get("kind") in _CLIENT,
        is_entry=entry.get("kind") in _ENTRIES,
        dropped=_count_dropped(entry) + sum(map(_count_dropped, events)),
    )


def _read_id(entry: dict[str, Json], *names: str) -> str:
    """Return an id as text; some exporters write numbers, with 0 for none."""
    value = find_first(entry, *names)
    return fold_id(value) if isinstance(value, str) else str(value or "") if type(value) is int else ""


def _count_dropped(entry: dict[str, Json]) -> int:
    """Count the attributes and events that were dropped; links are not read."""
    counts = (entry.get(key) for key in _DROPPED if key in entry)
    # Without their signs, so that no count cancels another.
    return sum(abs(count) if isinstance(count, int) else 0 if count in (None, "", "0") else 1 for count in counts)


def _find_lost_field(entry: dict[str, Json], status: dict[str, Json]) -> str | None:
    """Return the first field of a span that cannot be read: one of the wrong type, or a near miss of an OTLP field."""
    lost = find_near_field(entry, _SPAN_KEYS)
    if lost is not None:
        return lost
    for key, kind in _FIELD_TYPES.items():
        value = entry.get(key)
        if value is not None and (not isinstance(value, kind) or (kind is _TIME and not _WHOLE.fullmatch(str(value)))):
            return key
    code = status.get("code")
    outcomes = [value for key, value in status.items() if key != "message"] if code is None else []
    is_unread = code is not None and read_status(code) is None
    if is_unread or find_near_field(status, _STATUS_KEYS) is not None or any(read_status(value) == "failed" for value in outcomes):
        return "status.code"
    for event in list_of(entry.get("events")):
        if not isinstance(event, dict):
            return "events"
        lost = find_near_field(event, _EVENT_KEYS)
        if lost is not None or not isinstance(event.get("name", ""), str) or not isinstance(event.get("attributes", {}), (list, dict)):
            return f"events.{lost or 'attributes'}"
    return None


def find_near_field(entry: dict[str, Json], known: frozenset[str]) -> str | None:
    """Return the first field that is nearly a known one, or that has attributes or a failure under another name."""
    if known.issuperset(entry):
        return None
    others = ((key, value) for key, value in entry.items() if key not in known)
    return next((key for key, value in others if _is_near(key, known) or _holds_attributes(value) or _reports_failure(value)), None)


_is_near = functools.lru_cache(maxsize=1024)(is_misspelt)


def _holds_attributes(value: Json) -> bool:
    """Return whether a value has attributes of spans inside, as OTLP lists them or as an object."""
    entry = value[0] if isinstance(value, list) and value else value
    if not isinstance(entry, dict):
        return False
    return {"key", "value"} <= entry.keys() or "attributes" in entry or any(key.startswith(_ATTRIBUTES) for key in entry)


def _reports_failure(value: Json) -> bool:
    return isinstance(value, dict) and read_status(value.get("code")) == "failed"


def read_attributes(value: Json) -> dict[str, Json]:
    """Return attributes as an object, from an object or from OTLP's list of keys and typed values."""
    if isinstance(value, dict):
        for key, member in value.items():
            if isinstance(member, (list, dict)) and _holds_attributes(member):
                return {**value, NOT_UNDERSTOOD: key}  # Attributes as OTLP lists them, in place of one attribute.
        return value
    found: dict[str, Json] = {}
    for entry in list_of(value):
        if not isinstance(entry, dict) or not isinstance(entry.get("key"), str):
            found[NOT_UNDERSTOOD] = "an attribute without a key"
            continue
        key, typed = entry["key"], entry.get("value")
        text = typed.get("stringValue") if isinstance(typed, dict) and len(typed) == 1 else None
        if isinstance(text, str):  # nearly all of them
            found[key] = text
            continue
        try:
            found[key] = _convert_value(entry["value"], 0)
        except _UNTYPED:
            found |= {key: typed, NOT_UNDERSTOOD: key}
    return found


def read_nanoseconds(value: Json) -> int:
    """Return nanoseconds since 1970, from a number or its text; 0 if it is neither."""
    # OTLP writes 64-bit numbers as text.
    if isinstance(value, str):
        value = read_digits(value, 20) or 0
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**64 else 0


def convert_any_value(value: Json) -> Json:
    """Convert one of OTLP's typed values into plain JSON."""
    try:
        return _convert_value(value, 0)
    except _UNTYPED:
        return {NOT_UNDERSTOOD: value}


def _convert_value(value: Any, depth: int) -> Json:
    """Convert a typed value; raises one of `_UNTYPED` for any other."""
    if depth > _VALUE_DEPTH:
        raise too_deep_error()
    if value is None or value == {}:
        return None
    (kind,) = [key for key in value if key in _VALUE_NAMES] if isinstance(value, dict) else list[str]()
    inner = value[kind]
    kind = _VALUE_NAMES[kind]
    if kind == "arrayValue":
        return [_convert_value(entry, depth + 1) for entry in (inner and inner["values"]) or ()]
    if kind == "kvlistValue":
        return {entry["key"]: _convert_value(entry.get("value"), depth + 1) for entry in (inner and inner["values"]) or ()}
    if kind == "intValue" and isinstance(inner, str):
        return int(inner)
    if kind == "doubleValue" and isinstance(inner, str):
        # NaN and the infinities are written as text, and are no JSON.
        return number if math.isfinite(number := float(inner)) else None
    if not isinstance(inner, _VALUE_TYPES[kind]):
        raise TypeError
    return inner


def is_event_only(span: Span) -> bool:
    """Return whether a span has nothing but events of log records."""
    return not span.name and not span.start_ns and not span.attributes and bool(span.events)


def read_trace_groups(document: Json, refuse: Refuse | None = None, path: str = "$") -> list[SpanGroup]:
    """Return the spans of one OTLP JSON request by resource, which each span holds unless there is a `refuse`."""
    case = text_or_none(dict_or_empty(document).get("case")) if refuse is None else None

    def read_scope(scope: dict[str, Json], resource: dict[str, Json]) -> ReadItem:
        named = find_first(scope, "scope", "instrumentationLibrary")
        name = dict_or_empty(named).get("name", "")
        is_lost = not isinstance(named, (dict, type(None))) or not isinstance(name, str)
        # The name of a scope decides what is missing from its spans.
        lost = "scope" if is_lost else find_near_field(scope, _SCOPE_KEYS) or find_near_field(dict_or_empty(named), _NAMED_SCOPE_KEYS)

        def read(value: Json, at: str) -> Span:
            span = read_span(value, at, resource if refuse is None else None, case, text_or_none(name) or "")
            if not span.trace_id:
                raise EvidenceError(f"{at}.traceId: expected text; a span without a trace id belongs to no trace")
            return span if lost is None else msgspec.structs.replace(span, attributes={**span.attributes, NOT_UNDERSTOOD: lost})

        return read

    return read_groups(document, TRACE_KEYS, read_scope, refuse, path)


def read_groups(
    document: Json, keys: RequestKeys, read_scope: Callable[[dict[str, Json], dict[str, Json]], ReadItem], refuse: Refuse | None, path: str
) -> list[SpanGroup]:
    """Read the items of one OTLP JSON request by resource; `refuse` takes what cannot be read, or the first error is raised."""
    entry = dict_or_empty(document)
    key = next((key for key in keys[0] if isinstance(entry.get(key), list)), None)
    if key is None:
        raise EvidenceError(f"{path}: expected OTLP with {keys[0][0]}, a list")
    groups: list[SpanGroup] = []
    for index, group in enumerate(entry[key]):
        if not group:
            continue  # millions of them cost nothing
        at = f"{path}.{key}[{index}]"
        resource, spans = read_attributes(dict_or_empty(dict_or_empty(group).get("resource")).get("attributes")), []
        groups.append(SpanGroup(resource, spans))
        try:
            for number, scope in enumerate(_list_entries(group, keys[1], at)):
                inner = f"{at}.{keys[1][0]}[{number}]"
                items = _list_entries(scope, keys[2], inner)
                read = read_scope(scope, resource)
                for place, item in enumerate(items):
                    try:
                        span = read(item, f"{inner}.{keys[2][0]}[{place}]")
                    except EvidenceError as error:
                        if refuse is None:
                            raise
                        refuse(error.message, 1)
                    else:
                        spans.extend([] if span is None else [span])
        except EvidenceError as error:
            if refuse is None:
                raise
            refuse(error.message, 1)
    return groups


def _list_entries(value: Json, keys: tuple[str, ...], path: str) -> list[Any]:
    """Return the entries of an object under one of these keys. Raises `EvidenceError` if there is something else in their place."""
    holder = read_object(value, path)
    entries = find_first(holder, *keys)
    other = next((key for key in holder if key not in keys and key not in _AROUND), None) if entries is None else None
    if other is not None:
        raise EvidenceError(f"{path}: expected {keys[0]}, found {show(other)}")
    return [] if entries is None else list_at(entries, f"{path}.{keys[0]}")
