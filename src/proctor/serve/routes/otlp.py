"""`/v1/traces`: OTLP over HTTP, in protobuf and in JSON, as every OpenTelemetry exporter sends it.

The answer is in the encoding of the request. Spans that cannot be used (no id, no agent) are counted in `partial_success`; the rest is kept
all the same. Only a request in which nothing can be used is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from fastapi import Query, Request, Response

from proctor.errors import EvidenceError
from proctor.evidence.otlp_groups import Received, receive_json, receive_protobuf
from proctor.model.evidence import Json
from proctor.serve.errors import PROTOBUF
from proctor.serve.reading import patience, trace_reading
from proctor.serve.routes.public_traces import read_json, refused_trace
from proctor.serve.wiring import TheCaller, TheHub, routed
from proctor.serve.writer import trace_writer
from proctor.service.callers import Caller
from proctor.service.hub import Hub
from proctor.service.ingest import Intake, Run, read_spans
from proctor.service.refusals import Refusal
from proctor.store.traces import KeptTrace

router = routed("traces in")
JSON = "application/json"
_LONGEST_MESSAGE = 1_000
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {"schema": {"type": "object", "properties": {"resourceSpans": {"type": "array", "items": {"type": "object"}}}}},
            PROTOBUF: _BINARY,
        },
    }
}
_ANSWER = {
    "type": "object",
    "properties": {
        "partialSuccess": {
            "type": "object",
            "properties": {"rejectedSpans": {"type": "string"}, "errorMessage": {"type": "string"}},
        }
    },
}


@router.post(
    "/v1/traces",
    openapi_extra=_BODY,
    response_class=Response,
    responses={
        200: {
            "description": "The spans are durable, but for those in `partialSuccess`.",
            "content": {JSON: {"schema": _ANSWER}, PROTOBUF: _BINARY},
        }
    },
)
async def export_traces(
    request: Request,
    hub: TheHub,
    caller: TheCaller,
    flush: Annotated[bool, Query(description="nothing more will come for these traces")] = False,
) -> Response:
    """Take spans in. They are durable when the answer is sent."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (JSON, PROTOBUF):
        raise Refusal("UNSUPPORTED_MEDIA_TYPE", f"expected {PROTOBUF} or {JSON}, got {kind[:100]!r}")
    body = await request.body()
    read: Callable[[bytes], Received] = _read_protobuf if kind == PROTOBUF else _read_json
    until = patience()
    async with trace_reading(request).body(len(body), until) as run:
        intake = await _intake(hub, caller, read, body, flush, run)
    kept = await trace_writer(request).keep(intake.arrivals, until=until)
    refusal = refused_trace(kept) if kept else None
    if refusal is not None:
        raise refusal
    if intake.spans:
        hub.counters.add("spans_received", intake.spans)
    rejected, message = _rejected(intake, kept)
    if kind == PROTOBUF:
        return Response(_partial_success(rejected, message), media_type=PROTOBUF)
    answer: dict[str, Json] = {"partialSuccess": {"rejectedSpans": str(rejected), "errorMessage": message}} if rejected else {}
    return Response(msgspec.json.encode(answer), media_type=JSON)


async def _intake(hub: Hub, caller: Caller, read: Callable[[bytes], Received], body: bytes, flush: bool, run: Run) -> Intake:
    # Nothing of what was decoded is held any more when this returns.
    return await read_spans(hub, caller, await run(read, body), flush=flush, run=run)


def _read_protobuf(body: bytes) -> Received:
    try:
        return receive_protobuf(body)
    except EvidenceError as error:
        raise Refusal("BAD_REQUEST", error.message) from None


def _read_json(body: bytes) -> Received:
    try:
        return receive_json(read_json(body))
    except EvidenceError as error:
        raise Refusal("BAD_REQUEST", error.message) from None


def _rejected(intake: Intake, kept: list[KeptTrace]) -> tuple[int, str]:
    """How many spans were not kept, and why."""
    reasons = list(intake.reasons)
    count = intake.refused_spans
    for spans, one in zip(intake.spans_of, kept, strict=True):
        if one.refused is not None:
            count += spans
            reasons.append("a trace has become too large" if one.refused == "too_large" else "an agent has been deleted")
    return count, "; ".join(dict.fromkeys(reasons))[:_LONGEST_MESSAGE]


def _partial_success(rejected: int, message: str) -> bytes:
    """`ExportTraceServiceResponse`: nothing when all was kept."""
    if not rejected:
        return b""
    text = message.encode("utf-8", errors="replace")
    inner = b"\x08" + _varint(rejected) + b"\x12" + _varint(len(text)) + text
    return b"\x0a" + _varint(len(inner)) + inner


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
