"""Spans in any form (Mibo's JSON, OTLP JSON, OTLP logs), and spans of a trace that came in several requests.

A near miss of an OTLP field, or one of the wrong type, is named under `NOT_UNDERSTOOD` as lost data.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.unknowns.statuses import read_status
from proctor.evidence.values.access import (
    dict_or_empty,
    find_first,
    is_misspelt,
    list_at,
    list_of,
    read_object,
    split_words,
    text_or_none,
    wrong_kind_error,
)
from proctor.evidence.values.json_bytes import too_deep_error
from proctor.model.account import Account, Part
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import read_digits
from proctor.model.lazy_pattern import lazy_pattern
from proctor.model.show import shorten, show

NOT_UNDERSTOOD = "proctor.not_understood"
_ATTRIBUTES = ("gen_ai.", "llm.", "openinference.", "traceloop.", "ai.", "tool.", "n8n.", "input.value", "output.value")
_VALUE_DEPTH = 64
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
_WHOLE = lazy_pattern(r"-?[0-9]{1,20}")
_HEXADECIMAL = lazy_pattern("[0-9A-Fa-f]{16}(?:[0-9A-Fa-f]{16})?")
_CLIENT = (3, "3", "SPAN_KIND_CLIENT")
_ENTRIES = (2, "2", "SPAN_KIND_SERVER", 5, "5", "SPAN_KIND_CONSUMER")
"""The kinds of spans in which a service handles a request or a message."""
RequestKeys = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
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
_UNTYPED = (KeyError, TypeError, ValueError, OverflowError)
_AROUND = ("resource", "scope", "instrumentationLibrary", "schemaUrl", "schema_url")
Refuse = Callable[[str, int], None]
"""Receives the reason why a number of spans or log records cannot be used."""
ReadItem = Callable[[Json, str], "Span | None"]


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


class Span(TreeSpan, frozen=True, kw_only=True, omit_defaults=True, gc=True):
    """One step of a trace."""

    events: tuple[SpanEvent, ...] = ()
    resource: dict[str, Json] = {}
    scope: str = ""
    """The instrumentation that wrote the span."""
    case: str | None = None
    """The case named by the request that contains this span."""
    is_remote: bool = False
    """Whether the span is the client's side of remote work."""
    is_entry: bool = False
    """Whether a service handles a request or a queue message in this span."""
    dropped: int = 0


class SpanGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """Spans of one resource, which is stored once for all of them."""

    resource: dict[str, Json]
    spans: list[Span]


def fold_id(text: str) -> str:
    """Return the id of a trace or a span in one spelling: OTLP allows either case, and two exporters may spell a trace differently."""
    # An id that is not hexadecimal may be base 64, where case matters.
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
    """Return the first field that nearly is a known one, or that has attributes or a failure under another name."""
    for key, value in () if known.issuperset(entry) else entry.items():
        reports_failure = isinstance(value, dict) and read_status(value.get("code")) == "failed"
        if key not in known and (reports_failure or _is_near(key, known) or _holds_attributes(value)):
            return key
    return None


_is_near = functools.lru_cache(maxsize=1024)(is_misspelt)


def _holds_attributes(value: Json) -> bool:
    """Return whether a value contains attributes of spans, as an OTLP list or as an object, or is a span, which OTLP never nests."""
    entry = value[0] if isinstance(value, list) and value else value
    if not isinstance(entry, dict):
        return False
    is_span = "name" in entry and ("spanId" in entry or "span_id" in entry)
    return is_span or {"key", "value"} <= entry.keys() or "attributes" in entry or any(key.startswith(_ATTRIBUTES) for key in entry)


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
        return {str(entry["key"]): _convert_value(entry.get("value"), depth + 1) for entry in (inner and inner["values"]) or ()}
    if kind == "intValue" and isinstance(inner, str):
        return int(inner)
    if kind == "doubleValue" and isinstance(inner, str):
        # NaN and the infinities are written as text, because they are not JSON.
        return number if math.isfinite(number := float(inner)) else None
    if not isinstance(inner, _VALUE_TYPES[kind]):
        raise TypeError
    return inner


def is_event_only(span: Span) -> bool:
    """Return whether a span has only events of log records."""
    return not span.name and not span.start_ns and not span.attributes and bool(span.events)


def read_trace_groups(document: Json, refuse: Refuse | None = None, path: str = "$") -> list[SpanGroup]:
    """Return the spans of one OTLP JSON request by resource; without `refuse`, each span has its resource."""
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
    """Read the items of one OTLP JSON request by resource; `refuse` receives unreadable items, else the first error is raised."""
    entry = dict_or_empty(document)
    key = next((key for key in keys[0] if isinstance(entry.get(key), list)), None)
    if key is None:
        raise EvidenceError(f"{path}: expected OTLP with {keys[0][0]}, a list")

    def attempt(read: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return read(*arguments)
        except EvidenceError as error:
            if refuse is None:
                raise
            refuse(error.message, 1)

    groups: list[SpanGroup] = []
    for index, group in enumerate(entry[key]):
        if not group:
            continue  # an empty loop over millions of them is cheap
        at = f"{path}.{key}[{index}]"
        resource, spans = read_attributes(dict_or_empty(dict_or_empty(group).get("resource")).get("attributes")), []
        groups.append(SpanGroup(resource, spans))
        for number, scope in enumerate(attempt(_list_entries, group, keys[1], at) or ()):
            inner = f"{at}.{keys[1][0]}[{number}]"
            items = attempt(_list_entries, scope, keys[2], inner) or ()
            read = read_scope(dict_or_empty(scope), resource)
            found = (attempt(read, item, f"{inner}.{keys[2][0]}[{place}]") for place, item in enumerate(items))
            spans.extend(span for span in found if span is not None)
    return groups


def _list_entries(value: Json, keys: tuple[str, ...], path: str) -> list[Any]:
    """Return the entries of an object under one of these keys. Raises `EvidenceError` if the value has another type."""
    holder = read_object(value, path)
    entries = find_first(holder, *keys)
    other = next((key for key in holder if key not in keys and key not in _AROUND), None) if entries is None else None
    if other is not None:
        raise EvidenceError(f"{path}: expected {keys[0]}, found {show(other)}")
    return [] if entries is None else list_at(entries, f"{path}.{keys[0]}")


LOG_KEYS: RequestKeys = (("resourceLogs", "resource_logs"), ("scopeLogs", "scope_logs"), ("logRecords", "log_records"))
_VERDICT = "gen_ai.evaluation.result"
_TEXTS = ("traceId", "trace_id", "spanId", "span_id", "eventName", "event_name")
_RECORD_KEYS = frozenset((*_TEXTS, "body", "attributes"))


def is_log_request(document: Json) -> bool:
    """Return whether this is an OTLP request with logs."""
    return isinstance(document, dict) and any(isinstance(document.get(key), list) for key in LOG_KEYS[0])


def read_log_groups(document: Json, refuse: Refuse | None = None, path: str = "$") -> list[SpanGroup]:
    """Return the events of one OTLP JSON request with logs, by resource and span."""
    groups = read_groups(document, LOG_KEYS, lambda scope, resource: _read_record, refuse, path)
    return [SpanGroup(group.resource, gather_events(group.spans)) for group in groups]


def _read_record(value: Json, path: str) -> Span | None:
    """Return a log record as an event of its span, or None if it has no span."""
    record = read_object(value, path)
    # A misspelt id or body would silently drop the record.
    lost = find_near_field(record, _RECORD_KEYS)
    if lost is not None:
        raise EvidenceError(f"{path}: {show(lost)} is not recognised")
    for key in (*_TEXTS, "attributes"):
        if not isinstance(record.get(key), (str, type(None)) if key in _TEXTS else (list, dict, type(None))):
            raise wrong_kind_error(f"{path}.{key}", "text" if key in _TEXTS else "a list", record[key])
    trace_id, span_id = find_first(record, "traceId", "trace_id") or "", find_first(record, "spanId", "span_id") or ""
    name, body = find_first(record, "eventName", "event_name"), convert_any_value(record.get("body"))
    return make_event_span(fold_id(trace_id), fold_id(span_id), name, read_attributes(record.get("attributes")), body)


def make_event_span(trace_id: str, span_id: str, name: str | None, attributes: dict[str, Json], body: Json) -> Span | None:
    """Return a span with only one event of the span with these ids, or None if it is not an event of an agent."""
    name = name or text_or_none(attributes.get("event.name"))
    if not name or name == _VERDICT or not trace_id.strip("0") or not span_id.strip("0"):
        return None
    # Newer instrumentations write the message into attributes, older ones into the body; readers of events find both in one object.
    content = attributes if body in (None, {}) else {**attributes, "body": body}
    return Span(trace_id=trace_id, id=span_id, events=(SpanEvent(name, content),))


def gather_events(spans: Iterable[Span]) -> list[Span]:
    """Return each span once, with all its events in order."""
    found: dict[tuple[str, str], list[Span]] = {}
    for span in spans:
        found.setdefault((span.trace_id, span.id), []).append(span)
    return [
        same[0] if len(same) == 1 else msgspec.structs.replace(same[0], events=tuple([event for span in same for event in span.events]))
        for same in found.values()
    ]


_TRACE = lazy_pattern(rb'"(?:context\.)?trace_?id"\s*:\s*"([^"\\]{1,256})"', re.IGNORECASE)
_SPAN = lazy_pattern(rb'"(?:context\.)?span_?id"\s*:', re.IGNORECASE)
_PARTS: tuple[Part, ...] = ("tool_calls", "tool_results", "answer", "input", "turns", "usage", "nodes")
"""The parts that a lost span may carry; the arguments of a call come with the call."""
_MAX_REASON = 300

AnySpan = TypeVar("AnySpan", bound=TreeSpan)


def merge_spans(batches: Iterable[Iterable[Span]]) -> dict[str, list[Span]]:
    """Merge the spans of several requests by trace, in order of first arrival."""
    return merge_by_trace(batches, _merge_two)


def merge_by_trace(batches: Iterable[Iterable[AnySpan]], merge: Callable[[AnySpan, AnySpan], AnySpan]) -> dict[str, list[AnySpan]]:
    """Merge the spans of several requests by trace, two records of one span by `merge`."""
    traces: dict[str, dict[str, AnySpan]] = {}
    for batch in batches:
        for span in batch:
            known = traces.setdefault(span.trace_id, {})
            earlier = known.get(span.id)
            known[span.id] = span if earlier is None else merge(earlier, span)
    return {trace_id: list(spans.values()) for trace_id, spans in traces.items()}


def merge_tree_span(before: AnySpan, after: AnySpan) -> AnySpan:
    """Return a span that came twice, with its tree fields merged."""
    return msgspec.structs.replace(
        after,
        parent_id=after.parent_id or before.parent_id,
        name=after.name or before.name,
        start_ns=after.start_ns or before.start_ns,
        end_ns=after.end_ns or before.end_ns,
        # The later one is the newer state of the span; a failure that was recorded once stays one.
        attributes={**before.attributes, **after.attributes},
        failed=before.failed or after.failed,
        message=after.message or before.message,
    )


def _merge_two(before: Span, after: Span) -> Span:
    return msgspec.structs.replace(
        merge_tree_span(before, after),
        events=(*before.events, *(event for event in after.events if event not in before.events)),
        resource={**before.resource, **after.resource},
        scope=after.scope or before.scope,
        case=after.case or before.case,
        is_remote=after.is_remote or before.is_remote,
        is_entry=after.is_entry or before.is_entry,
        # Both count the losses of the same span, so the counts are not added.
        dropped=max(before.dropped, after.dropped),
    )


def find_lost_traces(record: bytes, *, readable: bool = False) -> frozenset[str] | None:
    """Return the traces named in an unreadable record, or None if it may belong to any; a `readable` record is JSON without spans."""
    found = [fold_id(match[1].decode("utf-8", "replace")) for match in _TRACE.finditer(record)]
    is_cut = not record.rstrip().endswith((b"}", b"]"))
    if not readable and (not found or is_cut or len(_SPAN.findall(record)) > len(found)):
        return None
    return frozenset(found)


def mark_lost_spans(evidence: Evidence, why: str) -> Evidence:
    """Return the evidence of a trace that may lack spans, with every part of spans unknown."""
    account = evidence.account or Account()
    # The reader's own reasons are more exact.
    unknown = {**dict.fromkeys(_PARTS, shorten(why, _MAX_REASON)), **account.unknown}
    account = msgspec.structs.replace(account, unknown=unknown, seen_tools=())
    turns = evidence.turns and tuple(msgspec.structs.replace(turn, duration_ms=None) for turn in evidence.turns)
    # A span that began earlier or ended later would make it longer.
    return msgspec.structs.replace(evidence, account=account, duration_ms=None, turns=turns)
