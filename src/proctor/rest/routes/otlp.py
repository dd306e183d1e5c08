"""`/v1/traces` and `/v1/logs`: OTLP over HTTP, in protobuf and in JSON, as every OpenTelemetry exporter sends it.

The answer is in the encoding of the request. Spans and log records that cannot be used (no id, no agent) are counted in `partial_success`;
the rest is kept all the same. Only a request in which nothing can be used is refused. Log records that name no span are passed over: an
agent's process has others to tell than what its model said.
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
from proctor.service.traces.intake import Intake, Run, read_spans, require_sender
from proctor.store.traces.traces import KeptTrace

router = make_router("traces in")
JSON = "application/json"
_LONGEST_MESSAGE = 1_000
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_Flush = Annotated[bool, Query(description="nothing more will come for these traces")]


class _Signal(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent to one of the addresses: how it is read, and what it is called in the answer."""

    key: str
    """Where it stands in a request in JSON."""
    rejected: str
    """Where the answer in JSON counts what was not kept."""
    counted: str
    """The counter of what was kept."""
    read_binary: Callable[[bytes, WireLimits], Received]
    read_document: Callable[[Json], Received]

    def read_protobuf(self, limits: WireLimits, body: bytes) -> Received:
        """Read a request in protobuf; refused when it is none, or too much of it."""
        try:
            return self.read_binary(body, limits)
        except TooMuch as error:
            raise Refusal("PAYLOAD_TOO_LARGE", error.message) from None
        except EvidenceError as error:
            raise Refusal("BAD_REQUEST", error.message) from None

    def read_json(self, body: bytes) -> Received:
        """Read a request in JSON; refused when it is none."""
        try:
            return receive_text(body, self.read_document)
        except EvidenceError as error:
            raise Refusal("BAD_REQUEST", error.message) from None

    def describe(self, kept: str) -> dict[str, Any]:
        """Return what FastAPI is told about the address."""
        listed = {"type": "object", "properties": {self.key: {"type": "array", "items": {"type": "object"}}}}
        counts = {"type": "object", "properties": {self.rejected: {"type": "string"}, "errorMessage": {"type": "string"}}}
        answer = {"type": "object", "properties": {"partialSuccess": counts}}
        success = {"description": kept, "content": {JSON: {"schema": answer}, PROTOBUF: _BINARY}}
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


@router.post("/v1/traces", **_TRACES.describe("The spans are durable, but for those in `partialSuccess`."))
async def export_traces(request: Request, hub: TheHub, caller: TheCaller, flush: _Flush = False) -> Response:
    """Take spans in. They are durable when the answer is sent."""
    return await _receive_export(_TRACES, request, hub, caller, flush)


@router.post("/v1/logs", **_LOGS.describe("The records that tell of spans are durable, but for those in `partialSuccess`."))
async def export_logs(request: Request, hub: TheHub, caller: TheCaller, flush: _Flush = False) -> Response:
    """Take log records in that are events of spans. They are durable when the answer is sent, and part of their traces.

    Records that name no span, or no event, are passed over.
    """
    return await _receive_export(_LOGS, request, hub, caller, flush)


async def _receive_export(signal: _Signal, request: Request, hub: Hub, caller: Caller, flush: bool) -> Response:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (JSON, PROTOBUF):
        raise Refusal("UNSUPPORTED_MEDIA_TYPE", f"expected {PROTOBUF} or {JSON}, got {kind[:100]!r}")
    # Before anything is decoded: whoever may not send does not get to spend anybody's time on a body.
    require_sender(caller)
    body = await request.body()
    limits = WireLimits(messages=hub.settings.protobuf_messages, fields=hub.settings.protobuf_fields)
    read = partial(signal.read_protobuf, limits) if kind == PROTOBUF else signal.read_json
    until = get_deadline()
    async with trace_reading(request).open_body(len(body), until, dense=kind == PROTOBUF) as run:
        intake = await _read_intake(hub, caller, read, body, flush, run)
    kept = await trace_writer(request).keep(intake.arrivals, until=until)
    # Where nothing arrived nothing was refused: of an empty list `refused_trace` would say that the agent was deleted.
    refusal = refused_trace(kept) if kept else None
    if refusal is not None:
        raise refusal
    if intake.spans:
        hub.counters.add(signal.counted, intake.spans)
    rejected, message = _count_rejected(intake, kept)
    if kind == PROTOBUF:
        return Response(_encode_partial_success(rejected, message), media_type=PROTOBUF)
    answer: dict[str, Json] = {"partialSuccess": {signal.rejected: str(rejected), "errorMessage": message}} if rejected else {}
    return Response(msgspec.json.encode(answer), media_type=JSON)


async def _read_intake(hub: Hub, caller: Caller, read: Callable[[bytes], Received], body: bytes, flush: bool, run: Run) -> Intake:
    # Nothing of what was decoded is held any more when this returns.
    return await read_spans(hub, caller, await run(read, body), flush=flush, run=run)


def _count_rejected(intake: Intake, kept: list[KeptTrace]) -> tuple[int, str]:
    """Return how many spans or log records were not kept, and why."""
    reasons = list(intake.reasons)
    count = intake.refused_spans
    for spans, one in zip(intake.spans_of, kept, strict=True):
        if one.refused is not None:
            count += spans
            reasons.append("a trace has become too large" if one.refused == "too_large" else "an agent has been deleted")
    return count, "; ".join(dict.fromkeys(reasons))[:_LONGEST_MESSAGE]


def _encode_partial_success(rejected: int, message: str) -> bytes:
    """`ExportTraceServiceResponse`, or the same for logs, which is written alike: nothing when all was kept."""
    if not rejected:
        return b""
    text = message.encode("utf-8", errors="replace")
    inner = b"\x08" + encode_varint(rejected) + b"\x12" + encode_varint(len(text)) + text
    return b"\x0a" + encode_varint(len(inner)) + inner
