"""OTLP in protobuf: the bytes of an `ExportTraceServiceRequest` or `ExportLogsServiceRequest` (`TracesData` and `LogsData` read the same).

Needs the optional part `otlp`. Values are converted one by one: turning messages into dictionaries first costs six times as much.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from proctor.errors import EvidenceError, MissingExtra
from proctor.evidence.otlp.logs import gather_events, make_event_span
from proctor.evidence.otlp.salvage import Envelope, Refuse, salvage
from proctor.evidence.otlp.spans import Span, SpanEvent, SpanGroup
from proctor.evidence.otlp.wire_format import TooMuch, WireLimits, build_shape, check_size
from proctor.model.evidence import Json

# proto3 counts an unset enumeration as 0; 2 is STATUS_CODE_ERROR.
_ERROR = 2
_CLIENT = 3
"""`SPAN_KIND_CLIENT`: the work of the span ran elsewhere."""
_ENTRIES = (2, 5)
"""`SPAN_KIND_SERVER` and `SPAN_KIND_CONSUMER`: a service handles what another one sent."""
_NONE: dict[str, Json] = {}


def read_protobuf_spans(data: bytes) -> list[Span]:
    """Return the spans in one binary request; `EvidenceError` if it is none."""
    found: list[Span] = []
    for group in _parse(data, "trace").resource_spans:
        resource = convert_attributes(group.resource.attributes)
        for scope in group.scope_spans:
            name = scope.scope.name
            found.extend([_convert_span(span, resource, name) for span in scope.spans])
    return found


def read_protobuf_groups(data: bytes, refuse: Refuse, limits: WireLimits | None = None) -> list[SpanGroup]:
    """Return the spans of one binary request by resource; broken spans are refused one by one."""
    try:
        request = _parse(data, "trace", limits)
        groups = [(group.resource, [(scope.scope, scope.spans) for scope in group.scope_spans]) for group in request.resource_spans]
    # Before its base class: a request beyond the limits is refused as a whole and not salvaged.
    except TooMuch:
        raise
    except EvidenceError:
        groups = salvage(data, _build_envelope("span"), refuse)
    return [
        SpanGroup(
            convert_attributes(resource.attributes), [_convert_span(span, _NONE, scope.name) for scope, spans in scopes for span in spans]
        )
        for resource, scopes in groups
    ]


def read_log_groups(data: bytes, refuse: Refuse, limits: WireLimits | None = None) -> list[SpanGroup]:
    """Return the events of one binary request with logs, by resource and span; broken records are refused one by one."""
    try:
        groups = [(group.resource, _list_records(group)) for group in _parse(data, "logs", limits).resource_logs]
    except TooMuch:
        raise
    except EvidenceError:
        found = salvage(data, _build_envelope("log record"), refuse)
        groups = [(resource, [record for _, records in scopes for record in records]) for resource, scopes in found]
    return [SpanGroup(convert_attributes(resource.attributes), gather_events(_read_events(records))) for resource, records in groups]


def read_traces_or_logs(data: bytes) -> list[Span]:
    """Return the spans of one binary request with traces, or the events of one with logs. Raises `EvidenceError` if it is neither.

    Both have the same envelope, which does not name the kind: spans read as log records have no ids, and the reverse.
    """
    try:
        spans = read_protobuf_spans(data)
        if any(span.id for span in spans):
            return spans
    # Not raised yet: the bytes may still be logs.
    except EvidenceError as error:
        spans = error
    try:
        logs = _parse(data, "logs")
        records = [record for group in logs.resource_logs for record in _list_records(group)]
        if any(record.time_unix_nano or record.observed_time_unix_nano or record.trace_id for record in records):
            return gather_events(span for group in logs.resource_logs for span in _read_events(_list_records(group)))
    except EvidenceError:
        pass
    if isinstance(spans, EvidenceError):
        raise spans
    return spans


def _list_records(group: Any) -> list[Any]:
    return [record for scope in group.scope_logs for record in scope.log_records]


def _read_events(records: list[Any]) -> list[Span]:
    return [span for record in records if (span := _read_event(record)) is not None]


def _read_event(record: Any) -> Span | None:
    if not record.trace_id or not record.span_id:
        return None
    attributes = convert_attributes(record.attributes)
    return make_event_span(record.trace_id.hex(), record.span_id.hex(), record.event_name, attributes, convert_value(record.body))


def _build_envelope(noun: Literal["span", "log record"]) -> Envelope:
    from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource
    from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

    return Envelope(resource=Resource, scope=InstrumentationScope, item=SpanMessage if noun == "span" else LogRecord, noun=noun)


def _parse(data: bytes, kind: Literal["trace", "logs"], limits: WireLimits | None = None) -> Any:
    # Delayed: protobuf costs a tenth of a second to load, and the part is optional.
    try:
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    except ImportError:
        raise MissingExtra("OTLP protobuf", "otlp") from None
    request = ExportTraceServiceRequest() if kind == "trace" else ExportLogsServiceRequest()
    if limits is not None:
        # Counted before parsing: the parsed objects take many times the memory of the bytes.
        check_size(data, build_shape(request.DESCRIPTOR), limits)
    try:
        request.ParseFromString(data)
    except (DecodeError, RecursionError):
        raise EvidenceError("binary data that is not OTLP protobuf") from None
    return request


def _convert_span(span: Any, resource: dict[str, Json], scope: str) -> Span:
    status = span.status
    events = span.events
    return Span(
        trace_id=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex() or None,
        name=span.name,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes=convert_attributes(span.attributes),
        failed=status.code == _ERROR,
        message=status.message or None,
        events=tuple([SpanEvent(event.name, convert_attributes(event.attributes)) for event in events]) if events else (),
        resource=resource,
        scope=scope,
        is_remote=span.kind == _CLIENT,
        is_entry=span.kind in _ENTRIES,
        dropped=span.dropped_attributes_count + span.dropped_events_count + sum([event.dropped_attributes_count for event in events]),
    )


def convert_attributes(pairs: Any) -> dict[str, Json]:
    """Return attributes as an object."""
    # A text that is not empty was set, so nothing else was; nearly all attributes are texts, and asking costs more than looking.
    return {pair.key: (value := pair.value).string_value or convert_value(value) for pair in pairs}


def convert_value(value: Any) -> Json:
    """Return one of OTLP's typed values as plain JSON."""
    # The parser itself refuses messages nested more than a hundred deep, so this recursion is bounded.
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [convert_value(entry) for entry in value.array_value.values]
    if kind == "kvlist_value":
        return convert_attributes(value.kvlist_value.values)
    if kind == "bytes_value":
        return value.bytes_value.hex()
    # NaN and the infinities are no JSON, and would make the evidence impossible to write down.
    if kind == "double_value" and not math.isfinite(value.double_value):
        return None
    return getattr(value, kind)
