"""`/v1/traces` and `/v1/logs`: OTLP over HTTP, in protobuf and JSON.

The response has the encoding of the request. Unusable spans and log records (no id, no agent) are counted in `partial_success`, the rest is
stored; a request without any usable one is rejected. Log records without a span are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import Query, Request, Response

from proctor.errors import EvidenceError
from proctor.evidence.otlp.groups import Received, receive_json, receive_logs_json, receive_logs_protobuf, receive_protobuf, receive_text
from proctor.evidence.otlp.wire_format import TooMuch, WireLimits
from proctor.model.evidence import Json
from proctor.rest.errors import PROTOBUF, encode_varint
from proctor.rest.route_parts import TheCaller, TheHub, make_router
from proctor.rest.routes.public_traces import refused_trace
from proctor.rest.trace_bodies import get_deadline, trace_reading
from proctor.rest.write_queue import trace_writer
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.traces.intake import read_spans, require_sender

router = make_router("traces in")
JSON = "application/json"
_LONGEST_MESSAGE = 1_000
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_Flush = Annotated[bool, Query(description="these traces are complete")]


class _Signal(msgspec.Struct, frozen=True, kw_only=True):
    """How one of the two endpoints reads requests, and its names in responses."""

    key: str
    """The key in a JSON request."""
    rejected: str
    """The count of rejected items in a JSON response."""
    counted: str
    """The counter of stored items."""
    read_binary: Callable[[bytes, WireLimits], Received]
    read_document: Callable[[Json], Received]

    def read_protobuf(self, limits: WireLimits, body: bytes) -> Received:
        """Read a protobuf request. Raises `Refusal`."""
        try:
            return self.read_binary(body, limits)
        except TooMuch as error:
            raise Refusal("PAYLOAD_TOO_LARGE", error.message) from None
        except EvidenceError as error:
            raise Refusal("BAD_REQUEST", error.message) from None

    def read_json(self, body: bytes) -> Received:
        """Read a JSON request. Raises `Refusal`."""
        try:
            return receive_text(body, self.read_document)
        except EvidenceError as error:
            raise Refusal("BAD_REQUEST", error.message) from None

    def describe(self, description: str) -> dict[str, Any]:
        """Return the OpenAPI parameters of the endpoint."""
        listed = {"type": "object", "properties": {self.key: {"type": "array", "items": {"type": "object"}}}}
        counts = {"type": "object", "properties": {self.rejected: {"type": "string"}, "errorMessage": {"type": "string"}}}
        answer = {"type": "object", "properties": {"partialSuccess": counts}}
        success = {"description": description, "content": {JSON: {"schema": answer}, PROTOBUF: _BINARY}}
        body = {"required": True, "content": {JSON: {"schema": listed}, PROTOBUF: _BINARY}}
        return {"openapi_extra": {"requestBody": body}, "response_class": Response, "responses": {200: success}}


_TRACES = _Signal(
    key="resourceSpans",
    rejected="rejectedSpans",
    counted="spans_received",
    read_binary=receive_protobuf,
    read_document=receive_json,
)
_LOGS = _Signal(
    key="resourceLogs",
    rejected="rejectedLogRecords",
    counted="log_records_received",
    read_binary=receive_logs_protobuf,
    read_document=receive_logs_json,
)


@router.post("/v1/traces", **_TRACES.describe("The spans are stored, except those in `partialSuccess`."))
async def export_traces(request: Request, hub: TheHub, caller: TheCaller, flush: _Flush = False) -> Response:
    """Receive spans, which are durable when the response is sent."""
    return await _receive_export(_TRACES, request, hub, caller, flush)


@router.post("/v1/logs", **_LOGS.describe("The records of spans are stored, except those in `partialSuccess`."))
async def export_logs(request: Request, hub: TheHub, caller: TheCaller, flush: _Flush = False) -> Response:
    """Receive log records that are events of spans, which are durable when the response is sent.

    Records without a span or an event are ignored.
    """
    return await _receive_export(_LOGS, request, hub, caller, flush)


async def _receive_export(signal: _Signal, request: Request, hub: Hub, caller: Caller, flush: bool) -> Response:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (JSON, PROTOBUF):
        raise Refusal("UNSUPPORTED_MEDIA_TYPE", f"expected {PROTOBUF} or {JSON}, got {kind[:100]!r}")
    # Before decoding: a caller without permission must not cost time.
    require_sender(caller)
    body = await request.body()
    limits = WireLimits(messages=hub.settings.protobuf_messages, fields=hub.settings.protobuf_fields)
    read = partial(signal.read_protobuf, limits) if kind == PROTOBUF else signal.read_json
    until = get_deadline()
    async with trace_reading(request).open_body(len(body), until, dense=kind == PROTOBUF) as run:
        # The decoded document has no name, so that it is freed when this returns.
        intake = await read_spans(hub, caller, await run(read, body), flush=flush, run=run)
    stored = await trace_writer(request).store(intake.arrivals, until=until)
    # Without arrivals nothing was rejected; `refused_trace` would report a deleted agent.
    refusal = refused_trace(stored) if stored else None
    if refusal is not None:
        raise refusal
    if intake.spans:
        hub.counters.add(signal.counted, intake.spans)
    reasons = list(intake.reasons)
    count = intake.refused_spans
    for spans, trace in zip(intake.spans_of, stored, strict=True):
        if trace.refused is not None:
            count += spans
            reasons.append("a trace has become too large" if trace.refused == "too_large" else "an agent has been deleted")
    rejected, message = count, "; ".join(dict.fromkeys(reasons))[:_LONGEST_MESSAGE]
    if kind == PROTOBUF:
        return Response(_encode_partial_success(rejected, message), media_type=PROTOBUF)
    answer: dict[str, Json] = {"partialSuccess": {signal.rejected: str(rejected), "errorMessage": message}} if rejected else {}
    return Response(msgspec.json.encode(answer), media_type=JSON)


def _encode_partial_success(rejected: int, message: str) -> bytes:
    """Return an `ExportTraceServiceResponse`, or the same for logs; empty if everything was stored."""
    if not rejected:
        return b""
    text = message.encode("utf-8", errors="replace")
    inner = b"\x08" + encode_varint(rejected) + b"\x12" + encode_varint(len(text)) + text
    return b"\x0a" + encode_varint(len(inner)) + inner
