"""`/public/traces`: traces from Mibo's clients.

POST /public/traces            a body of any generation, or OTLP in JSON; 201 for a new trace, 200 for a replaced or extended one
GET  /public/traces            the traces of an agent (`platformId`), or all that the key has access to
GET  /public/traces/{id}       one trace with its received body
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from proctor.errors import EvidenceError
from proctor.evidence.otlp.groups import Received, receive_json
from proctor.evidence.values.json_bytes import decode
from proctor.model.evidence import Json
from proctor.rest.errors import PROTOBUF
from proctor.rest.route_parts import PageMeta, TheCaller, TheHub, ThePaging, make_router
from proctor.rest.trace_bodies import get_deadline, trace_reading
from proctor.rest.write_queue import trace_writer
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.traces import search
from proctor.service.traces.intake import Intake, Run, read_body, read_spans, require_sender
from proctor.store.traces.traces import ArrivalResult

router = make_router("traces in")


class SentTrace(BaseModel):
    """A stored trace."""

    id: str
    platformId: str
    externalId: str
    status: str
    createdAt: str
    updatedAt: str


class TraceTaken(BaseModel):
    """The response to a stored trace."""

    success: Literal[True]
    message: str
    data: SentTrace
    traces: list[SentTrace] | None = Field(None, description="all traces, if the request had several")
    rejectedSpans: int | None = Field(None, description="rejected OTLP spans")
    timestamp: str


class TraceShown(SentTrace):
    """A trace with its received body."""

    metadata: dict[str, Any] | None
    outcome: str | None
    received: Any = Field(description="the received body, redacted; a list if the trace arrived in pieces")


class OneTrace(BaseModel):
    """One trace."""

    success: Literal[True]
    data: TraceShown
    timestamp: str


class ManyTraces(BaseModel):
    """A page of traces, newest first."""

    success: Literal[True]
    data: list[SentTrace]
    meta: PageMeta = Field(alias="_meta")
    timestamp: str


_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "description": "`spans` (current), `data` (second generation), or OTLP with `resourceSpans`",
                    "properties": {
                        "spans": {"type": "array", "items": {"type": "object"}},
                        "data": {},
                        "resourceSpans": {"type": "array", "items": {"type": "object"}},
                        "metadata": {"type": "object"},
                        "externalMetadata": {"type": "object"},
                        "platformId": {"type": "string"},
                        "externalId": {"type": "string", "maxLength": 255},
                    },
                }
            }
        },
    },
    "parameters": [
        {
            "name": "x-request-id",
            "in": "header",
            "required": False,
            "description": "the external id of the trace: the same id replaces the trace",
            "schema": {"type": "string", "maxLength": 255},
        }
    ],
}


@router.post(
    "/public/traces",
    openapi_extra=_BODY,
    status_code=201,
    response_class=Response,
    responses={
        201: {"model": TraceTaken, "description": "The trace is new."},
        200: {"model": TraceTaken, "description": "A trace with this id existed and was replaced or extended."},
    },
)
async def post_trace(
    request: Request,
    hub: TheHub,
    caller: TheCaller,
    flush: Annotated[bool, Query(description="OTLP: these traces are complete")] = False,
) -> Response:
    """Receive a trace, which is durable when the response is sent."""
    if request.headers.get("content-type", "").lower().startswith(PROTOBUF):
        raise Refusal("UNSUPPORTED_MEDIA_TYPE", "protobuf is not supported here", hint="send it to /v1/traces, or use http/json")
    require_sender(caller)
    body = await request.body()
    until = get_deadline()
    async with trace_reading(request).open_body(len(body), until) as run:
        intake = await _read_intake(hub, caller, body, request.headers.get("x-request-id") or None, flush, run)
    stored = await trace_writer(request).store(intake.arrivals, until=until)
    if intake.spans:
        hub.counters.add("spans_received", intake.spans)
    return _make_answer(intake, stored, hub.now())


async def _read_intake(hub: Hub, caller: Caller, body: bytes, request_id: str | None, flush: bool, run: Run) -> Intake:
    # The decoded document, which is large, is freed when this returns.
    document: Json = await run(read_json, body)
    if not isinstance(document, dict) or ("resourceSpans" not in document and "resource_spans" not in document):
        return await read_body(hub, caller, document, request_id=request_id, run=run)
    try:
        received: Received = await run(receive_json, document)
    except EvidenceError as error:
        raise Refusal("VALIDATION_ERROR", "the trace is invalid", fields={"resourceSpans": [error.message]}) from None
    intake = await read_spans(hub, caller, received, request_id=request_id, flush=flush, run=run)
    if not intake.arrivals:
        raise Refusal("VALIDATION_ERROR", "the trace is invalid", fields={"resourceSpans": ["it has no spans"]})
    return intake


def read_json(body: bytes) -> Json:
    """Return the JSON of a request. Raises `Refusal`."""
    try:
        return decode(body)
    except EvidenceError as error:
        raise Refusal("VALIDATION_ERROR", "the body cannot be read", fields={"": [error.message]}) from None


def refused_trace(stored: list[ArrivalResult]) -> Refusal | None:
    """Return why no trace was stored; None if one was."""
    if any(trace.refused is None for trace in stored):
        return None
    if any(trace.refused == "too_large" for trace in stored):
        return Refusal("PAYLOAD_TOO_LARGE", "the trace is too large; no more data is added to it")
    return Refusal("NOT_FOUND", "the agent of this trace has been deleted")


def _make_answer(intake: Intake, stored: list[ArrivalResult], now: str) -> Response:
    refusal = refused_trace(stored)
    if refusal is not None:
        raise refusal
    shown = [
        _show_sent(trace.id, arrival.agent_id, arrival.external_id, trace.status, trace.created_at, trace.updated_at)
        for arrival, trace in zip(intake.arrivals, stored, strict=True)
        if trace.refused is None
    ]
    created = any(trace.created for trace in stored)
    body: dict[str, Json] = {"success": True, "message": "Trace created" if created else "Trace updated", "data": shown[0]}
    if len(shown) > 1:
        body["traces"] = shown
    if intake.refused_spans:
        body["rejectedSpans"] = intake.refused_spans
    body["timestamp"] = now
    return Response(msgspec.json.encode(body), 201 if created else 200, media_type="application/json")


def _show_sent(id: str, agent_id: str, external_id: str, status: str, created_at: str, updated_at: str) -> dict[str, Json]:
    return {
        "id": id,
        "platformId": agent_id,
        "externalId": external_id,
        "status": status,
        "createdAt": created_at,
        "updatedAt": updated_at,
    }


def _show_row(row: Mapping[str, Json]) -> dict[str, Json]:
    return _show_sent(row["id"], row["agent_id"], row["external_id"], row["status"], row["created_at"], row["updated_at"])


@router.get("/public/traces", response_model=ManyTraces)
async def list_traces(
    hub: TheHub,
    caller: TheCaller,
    paging: ThePaging,
    platform_id: Annotated[str | None, Query(alias="platformId", description="the agent")] = None,
) -> object:
    """List the traces of an agent, newest first."""
    trace_search = search.TraceSearch(agent_id=platform_id)
    page = await search.list_traces(hub, caller, trace_search, limit=paging.limit, cursor=paging.cursor)
    return {"success": True, "data": [_show_row(row) for row in page["data"]], "_meta": page["_meta"], "timestamp": hub.now()}


@router.get("/public/traces/{trace_id}", response_model=OneTrace)
async def get_trace(hub: TheHub, caller: TheCaller, trace_id: str) -> object:
    """Read one trace with its received body."""
    row = await search.get_trace(hub, caller, trace_id)
    more = {name: row[name] for name in ("metadata", "outcome", "received")}
    return {"success": True, "data": {**_show_row(row), **more}, "timestamp": hub.now()}
