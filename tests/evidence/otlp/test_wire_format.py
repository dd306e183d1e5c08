"""Binary OTLP is measured before decoding, and recovered span by span if it cannot be decoded as a whole."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from proctor.errors import EvidenceError
from proctor.evidence.otlp.groups import receive_logs_protobuf, receive_protobuf
from proctor.evidence.otlp.wire_format import TooMuch, WireLimits, build_shape, check_size, select_fields

TRACES = build_shape(ExportTraceServiceRequest.DESCRIPTOR)
LIMITS = WireLimits(messages=400_000, fields=2_000_000)


def number(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(place: int, content: bytes) -> bytes:
    return number(place << 3 | 2) + number(len(content)) + content


def request_with(value: bytes) -> bytes:
    """One span with one attribute of this value."""
    span = field(1, b"1" * 16) + field(2, b"2" * 8) + field(9, field(1, b"a") + field(2, value))
    return field(1, field(2, field(2, span)))


def made(*spans: dict[str, str]) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for attributes in spans:
        span = scope.spans.add()
        span.trace_id, span.span_id, span.name = os.urandom(16), os.urandom(8), "agent"
        for key, value in attributes.items():
            attribute = span.attributes.add()
            attribute.key, attribute.value.string_value = key, value
    return request


def count_messages(request: ExportTraceServiceRequest) -> int:
    spans = [span for group in request.resource_spans for scope in group.scope_spans for span in scope.spans]
    return 2 + len(spans) + sum(2 * len(span.attributes) for span in spans)


@given(st.lists(st.dictionaries(st.text(max_size=200), st.text(max_size=200), max_size=5), min_size=1, max_size=8))
def test_messages_are_counted_exactly(spans: list[dict[str, str]]) -> None:
    request = made(*spans)
    data, count = request.SerializeToString(), count_messages(request)
    padded = data + b"\x10\x01" * count  # else it is so short that it is not counted
    check_size(padded, TRACES, WireLimits(messages=count, fields=10_000))
    with pytest.raises(TooMuch, match=f"more than {count - 1} messages"):
        check_size(padded, TRACES, WireLimits(messages=count - 1, fields=10_000))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (field(5, b"\x0a\x00" * 4_000_000), "400000 messages of protobuf in one request (--protobuf-messages)"),
        (field(6, b"\x0a\x00" * 4_000_000), "400000 messages"),
        (field(5, b"\x0a\x02\x10\x01" * 2_000_000), "400000 messages"),
        (b"\x10\x01" * 4_000_000, "2000000 fields of protobuf in one request (--protobuf-fields)"),
    ],
    ids=["empty values", "empty pairs", "small values", "one value many times"],
)
def test_a_request_that_would_become_a_hundred_times_as_large_is_refused_before(value: bytes, message: str) -> None:
    started = time.process_time()
    with pytest.raises(TooMuch) as caught:
        receive_protobuf(request_with(value), LIMITS)
    assert message in caught.value.message
    assert time.process_time() - started < 8


@given(st.binary(max_size=300))
def test_anything_is_walked_or_refused(data: bytes) -> None:
    try:
        check_size(data, TRACES, WireLimits(messages=0, fields=len(data)))
        assert sum(len(content) for number in range(16) for content in select_fields(data, number)) <= len(data)
    except EvidenceError:
        pass


def test_a_text_that_is_not_utf8_costs_its_span_only() -> None:
    data = made({"text": "good"}, {"text": "broken"}, {"text": "good"}).SerializeToString().replace(b"broken", b"br\xffken")
    received = receive_protobuf(data, LIMITS)
    assert [span.attributes for span in received.groups[0].spans] == [{"text": "good"}] * 2
    assert received.refused == 1 and received.reasons == ["a span has a text that is not UTF-8"]


def test_a_broken_resource_costs_what_is_in_it() -> None:
    one, other = made({"text": "good"}), made({"text": "lost"}, {"text": "lost"})
    attribute = other.resource_spans[0].resource.attributes.add()
    attribute.key, attribute.value.string_value = "service.name", "broken"
    data = (one.SerializeToString() + other.SerializeToString()).replace(b"broken", b"br\xffken")
    received = receive_protobuf(data, LIMITS)
    assert [len(group.spans) for group in received.groups] == [1] and received.refused == 2
    assert received.reasons == ["the resource of a span has a text that is not UTF-8"]


def test_a_broken_log_record_costs_itself_only() -> None:
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add().scope_logs.add()
    for text in ("good", "broken"):
        record = scope.log_records.add()
        record.trace_id, record.span_id, record.event_name = os.urandom(16), os.urandom(8), "gen_ai.choice"
        record.body.string_value = text
    received = receive_logs_protobuf(request.SerializeToString().replace(b"broken", b"br\xffken"), LIMITS)
    assert len(received.groups[0].spans) == 1
    assert received.refused == 1 and received.reasons == ["a log record has a text that is not UTF-8"]


def test_very_many_broken_spans_cost_little() -> None:
    span = field(1, b"1" * 16) + field(2, b"2" * 8) + field(5, b"\xff")
    started = time.process_time()
    received = receive_protobuf(field(1, field(2, field(2, span) * 100_000)), LIMITS)
    assert received.refused == 100_000 and time.process_time() - started < 12
