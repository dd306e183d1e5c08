"""OTLP logs in protobuf: the bytes of an `ExportLogsServiceRequest` or of `LogsData`, which read the same.

Needs the optional part `otlp`. See `otlp_logs` for what becomes of a record.
"""

from __future__ import annotations

from typing import Any

from proctor.errors import EvidenceError, MissingExtra
from proctor.evidence.otlp.logs import gather_events, make_event_span
from proctor.evidence.otlp.protobuf import convert_attributes, convert_value, read_protobuf_spans
from proctor.evidence.otlp.salvage import Envelope, Refuse, salvage
from proctor.evidence.otlp.spans import Span, SpanGroup
from proctor.evidence.otlp.wire_format import TooMuch, WireLimits, build_shape, check_size


def read_log_groups(data: bytes, refuse: Refuse, limits: WireLimits | None = None) -> list[SpanGroup]:
    """Return the events of one binary request with logs, by resource and span; records that are broken are refused one by one."""
    try:
        groups = [(group.resource, _list_records(group)) for group in _parse(data, limits).resource_logs]
    # Before its base class: a request beyond the limits is refused as a whole and must not be salvaged piece by piece.
    except TooMuch:
        raise
    except EvidenceError:
        found = salvage(data, _build_envelope(), refuse)
        groups = [(resource, [record for _, records in scopes for record in records]) for resource, scopes in found]
    return [SpanGroup(convert_attributes(resource.attributes), gather_events(_read_events(records))) for resource, records in groups]


def _build_envelope() -> Envelope:
    from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

    return Envelope(resource=Resource, scope=InstrumentationScope, item=LogRecord, noun="log record")


def _list_records(group: Any) -> list[Any]:
    return [record for scope in group.scope_logs for record in scope.log_records]


def read_traces_or_logs(data: bytes) -> list[Span]:
    """Return the spans of one binary request with traces, or what one with logs tells of spans; `EvidenceError` if it is neither.

    Both have the same envelope, and nothing in it says which of them it is: spans read as log records have no ids, and the reverse.
    """
    try:
        spans = read_protobuf_spans(data)
        if any(span.id for span in spans):
            return spans
    # Kept, not raised: the bytes may still be logs, and if they are not, this error is the one to show.
    except EvidenceError as error:
        spans = error
    try:
        logs = _parse(data)
        if any(_is_record(record) for group in logs.resource_logs for scope in group.scope_logs for record in scope.log_records):
            return gather_events(span for group in logs.resource_logs for span in _read_events(_list_records(group)))
    except EvidenceError:
        pass  # No logs: what was found out first counts.
    if isinstance(spans, EvidenceError):
        raise spans
    return spans


def _read_events(records: list[Any]) -> list[Span]:
    return [span for record in records if (span := _read_event(record)) is not None]


def _read_event(record: Any) -> Span | None:
    if not record.trace_id or not record.span_id:
        return None
    attributes = convert_attributes(record.attributes)
    return make_event_span(record.trace_id.hex(), record.span_id.hex(), record.event_name, attributes, convert_value(record.body))


def _is_record(record: Any) -> bool:
    return bool(record.time_unix_nano or record.observed_time_unix_nano or record.trace_id)


def _parse(data: bytes, limits: WireLimits | None = None) -> Any:
    # Delayed: protobuf costs a tenth of a second to load, and the part is optional.
    try:
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    except ImportError:
        raise MissingExtra("OTLP protobuf", "otlp") from None
    if limits is not None:
        check_size(data, build_shape(ExportLogsServiceRequest.DESCRIPTOR), limits)
    request = ExportLogsServiceRequest()
    try:
        request.ParseFromString(data)
    except (DecodeError, RecursionError):
        raise EvidenceError("binary data that is not OTLP protobuf") from None
    return request
