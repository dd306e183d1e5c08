"""Spans in any form: Mibo's canonical JSON, OTLP JSON, OTLP protobuf.

All three become the same `Span`: attributes as a plain object, times in nanoseconds (0: not recorded), the status as failed or not. Fields
that are not OTLP are ignored; a near miss of an OTLP field, or one of the wrong type, is named under `NOT_UNDERSTOOD` as lost data.
"""

from __future__ import annotations

import functools
import math
import re

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
from proctor.model.numbers import read_digits
from proctor.model.show import show

_ATTRIBUTES = ("gen_ai.", "llm.", "openinference.", "traceloop.", "ai.", "tool.", "n8n.", "input.value", "output.value")
"""Prefixes of attributes that only spans have."""
_VALUE_DEPTH = 64
"""Levels of OTLP's typed values, which are read by recursion."""
NOT_UNDERSTOOD = "proctor.not_understood"
"""The attribute that names a field of a span which cannot be read."""
_SPAN_KEYS = split_words("""
    traceId spanId parentSpanId traceState flags name kind startTimeUnixNano endTimeUnixNano attributes droppedAttributesCount events
    droppedEventsCount links droppedLinksCount status trace_id span_id parent_span_id trace_state start_time_unix_nano end_time_unix_nano
    dropped_attributes_count dropped_events_count dropped_links_count
    """)
_READ_KINDS: tuple[tuple[str, type | tuple[type, ...]], ...] = (
    ("attributes", (list, dict)),
    *(("events", list), ("status", dict)),
    *((key, str) for key in ("name", "parentSpanId", "parent_span_id", "traceId", "trace_id")),
)
_TIMES = ("startTimeUnixNano", "endTimeUnixNano", "start_time_unix_nano", "end_time_unix_nano")
_EVENT_KEYS = frozenset(("name", "timeUnixNano", "time_unix_nano", "attributes", "droppedAttributesCount", "dropped_attributes_count"))
_STATUS_KEYS = frozenset(("code", "message", "deprecatedCode"))
_SCOPE_KEYS = frozenset(("spans", "scope", "instrumentationLibrary", "schemaUrl", "schema_url"))
_VALUE_KINDS: dict[str, tuple[type, ...]] = {
    "stringValue": (str,),
    "arrayValue": (dict,),
    "kvlistValue": (dict,),
    "intValue": (int,),
    "boolValue": (bool,),
    "doubleValue": (float, int),
    "bytesValue": (str,),
}
_WHOLE = re.compile(r"-?[0-9]{1,20}")
_DECIMAL = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,3})?|NaN|-?Infinity")
_HEXADECIMAL = re.compile("[0-9A-Fa-f]{16}(?:[0-9A-Fa-f]{16})?")
_CLIENT = (3, "3", "SPAN_KIND_CLIENT")
"""`SPAN_KIND_CLIENT` as each exporter writes it."""
_ENTRIES = (2, "2", "SPAN_KIND_SERVER", 5, "5", "SPAN_KIND_CONSUMER")
"""The kinds of spans in which a service handles a request or a message of another one."""


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
    span_id = find_first(entry, "span_id", "spanId")
    if not isinstance(span_id, str) or span_id == "":
        raise wrong_kind_error(f"{path}.span_id", "text", span_id)
    status = dict_or_empty(entry.get("status"))
    events = [dict_or_empty(event) for event in list_of(entry.get("events"))]
    attributes = read_attributes(entry.get("attributes"))
    lost = _find_lost_field(entry, status)
    if lost is not None:
        attributes = {**attributes, NOT_UNDERSTOOD: lost}
    return Span(
        trace_id=fold_id(text_or_none(find_first(entry, "trace_id", "traceId")) or ""),
        id=fold_id(span_id),
        parent_id=fold_id(text_or_none(find_first(entry, "parent_span_id", "parentSpanId")) or "") or None,
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


def _count_dropped(entry: dict[str, Json]) -> int:
    """Count the attributes and events that were dropped; links are not read."""
    counts = (entry.get(key) for key in _DROPPED if key in entry)
    return sum(count if isinstance(count, int) else 0 if count in (None, "", "0") else 1 for count in counts)


_DROPPED = ("droppedAttributesCount", "droppedEventsCount", "dropped_attributes_count", "dropped_events_count")


def _find_lost_field(entry: dict[str, Json], status: dict[str, Json]) -> str | None:
    """Return the first field of a span that cannot be read: one of the wrong type, or a near miss of an OTLP field."""
    lost = find_near_field(entry, _SPAN_KEYS)
    if lost is not None:
        return lost
    for key, kind in _READ_KINDS:
        if entry.get(key) is not None and not isinstance(entry[key], kind):
            return key
    for key in _TIMES:
        if not isinstance(entry.get(key, 0), int) and not (isinstance(entry[key], str) and _WHOLE.fullmatch(entry[key])):
            return key
    code = status.get("code")
    if code is None and any(read_status(value) == "failed" for key, value in status.items() if key != "message"):
        return "status.code"
    if find_near_field(status, _STATUS_KEYS) is not None or (code is not None and read_status(code) is None):
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
    for key, value in entry.items():
        if key not in known and (_is_near(key, known) or _holds_attributes(value) or _reports_failure(value)):
            return key
    return None


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
        if isinstance(entry, dict) and isinstance(entry.get("key"), str):
            typed = entry.get("value")
            text = typed.get("stringValue") if isinstance(typed, dict) and len(typed) == 1 else None
            if isinstance(text, str):  # nearly all of them
                found[entry["key"]] = text
                continue
            odd: list[str] = []
            found[entry["key"]] = _convert_any_value(typed, 0, odd)
            if odd or "value" not in entry:
                found[NOT_UNDERSTOOD] = entry["key"]
        else:
            found[NOT_UNDERSTOOD] = "an attribute without a key"
    return found


def read_nanoseconds(value: Json) -> int:
    """Return nanoseconds since 1970, from a number or its text; 0 if it is neither."""
    # OTLP writes 64-bit numbers as text.
    if isinstance(value, str):
        value = read_digits(value, 20) or 0
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**64 else 0


def convert_any_value(value: Json) -> Json:
    """Convert one of OTLP's typed values into plain JSON."""
    odd: list[str] = []
    found = _convert_any_value(value, 0, odd)
    return {NOT_UNDERSTOOD: found} if odd else found


def _convert_any_value(value: Json, depth: int, odd: list[str]) -> Json:
    """Convert a typed value into plain JSON; list what is none, at any depth, in `odd`."""
    if depth > _VALUE_DEPTH:
        raise too_deep_error()
    if value is None or value == {}:
        return None
    kinds = [key for key in value if key in _VALUE_KINDS] if isinstance(value, dict) else []
    if not isinstance(value, dict) or len(kinds) != 1:
        odd.append("value")
        return value
    kind, inner = kinds[0], value[kinds[0]]
    if kind == "stringValue" and isinstance(inner, str):
        return inner
    if kind == "arrayValue" or kind == "kvlistValue":
        return _convert_listed_value(kind, inner, depth, odd)
    if kind == "intValue" and isinstance(inner, str) and _WHOLE.fullmatch(inner):
        return int(inner)
    if kind == "doubleValue" and isinstance(inner, str) and _DECIMAL.fullmatch(inner):
        number = float(inner)
        return number if math.isfinite(number) else None  # NaN and the infinities are written as text, and are no JSON.
    # `bool` is a kind of `int` in Python, and `{"intValue": true}` is a mistake.
    if not isinstance(inner, _VALUE_KINDS[kind]) or (isinstance(inner, bool) and kind != "boolValue"):
        odd.append(kind)
    return inner


def _convert_listed_value(kind: str, inner: Json, depth: int, odd: list[str]) -> Json:
    entries = inner.get("values") if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or (inner and "values" not in inner) or not isinstance(entries, (list, type(None))):
        odd.append(kind)
        return inner
    if kind == "arrayValue":
        return [_convert_any_value(entry, depth + 1, odd) for entry in entries or ()]
    found: dict[str, Json] = {}
    for entry in entries or ():
        if not isinstance(entry, dict) or not isinstance(entry.get("key"), str) or ("value" not in entry and len(entry) > 1):
            odd.append(kind)
            continue
        found[entry["key"]] = _convert_any_value(entry.get("value"), depth + 1, odd)
    return found


def is_event_only(span: Span) -> bool:
    """Return whether a span has nothing but events of log records."""
    return not span.name and not span.start_ns and not span.attributes and bool(span.events)


def read_request_spans(document: Json, path: str = "$") -> list[Span]:
    """Return the spans of one OTLP JSON request."""
    entry = read_object(document, path)
    case = text_or_none(entry.get("case"))
    found: list[Span] = []
    key = next((key for key in ("resourceSpans", "resource_spans", "batches") if key in entry), None)
    if key is None:
        raise EvidenceError(f"{path}: expected OTLP with resourceSpans")
    for index, group in enumerate(_list_groups(entry[key], f"{path}.{key}")):
        resource = read_attributes(dict_or_empty(group.get("resource")).get("attributes"))
        for number, scope in enumerate(list_scopes(group, f"{path}.{key}[{index}]")):
            at = f"{path}.{key}[{index}].scopeSpans[{number}].spans"
            name, lost = find_scope_name(scope), _find_lost_scope_field(scope)
            for place, entry_of_span in enumerate(list_scope_spans(scope, at)):
                span = read_span(entry_of_span, f"{at}[{place}]", resource, case, name)
                if lost is not None:
                    span = msgspec.structs.replace(span, attributes={**span.attributes, NOT_UNDERSTOOD: lost})
                if not span.trace_id:
                    raise EvidenceError(f"{at}[{place}].traceId: expected text; a span without it belongs to no trace")
                found.append(span)
    return found


def _list_groups(value: Json, path: str) -> list[dict[str, Json]]:
    return [read_object(group, f"{path}[{index}]") for index, group in enumerate(list_at(value, path))]


def list_scopes(group: dict[str, Json], path: str) -> list[dict[str, Json]]:
    """Return the scopes of one resource. Raises `EvidenceError` if there is something else in their place."""
    scopes = find_first(group, "scopeSpans", "scope_spans", "instrumentationLibrarySpans")
    if scopes is None:
        odd = [key for key in group if key not in ("resource", "schemaUrl", "schema_url", *_SCOPES)]
        if odd:
            raise EvidenceError(f"{path}: expected scopeSpans, found {show(odd[0])}")
    return _list_groups([] if scopes is None else scopes, f"{path}.scopeSpans")


# `instrumentationLibrarySpans` is what OTLP called `scopeSpans` at first; old exporters still write it.
_SCOPES = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")


def list_scope_spans(scope: dict[str, Json], path: str) -> list[Json]:
    """Return the spans of one scope. Raises `EvidenceError` if there is something else in their place."""
    spans = scope.get("spans")
    if spans is None:
        odd = [key for key in scope if key not in ("spans", "scope", "instrumentationLibrary", "schemaUrl", "schema_url")]
        if odd:
            raise EvidenceError(f"{path}: expected spans, found {show(odd[0])}")
    return [] if spans is None else list_at(spans, path)


def _find_lost_scope_field(scope: dict[str, Json]) -> str | None:
    """Return the field of a scope that cannot be read: its name decides what is missing from its spans."""
    named = find_first(scope, "scope", "instrumentationLibrary")
    own = dict_or_empty(named)
    if not isinstance(named, (dict, type(None))) or not isinstance(own.get("name", ""), str):
        return "scope"
    return find_near_field(scope, _SCOPE_KEYS) or find_near_field(own, frozenset(("name", "version", "attributes")))


def find_scope_name(scope: dict[str, Json]) -> str:
    """Return the name of the instrumentation that wrote the spans of a scope."""
    return text_or_none(dict_or_empty(find_first(scope, "scope", "instrumentationLibrary")).get("name")) or ""
