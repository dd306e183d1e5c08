"""Traces for tests of the service: a project with an agent, OTLP requests, and the short way from a request to its results."""

from __future__ import annotations

import os
import time
from base64 import b64encode
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.evidence.otlp.groups import receive_json, receive_logs_json, receive_logs_protobuf, receive_protobuf
from proctor.rest.write_queue import TraceWriter
from proctor.service.access import agents, projects
from proctor.service.access.callers import LOCAL, Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.traces import cases
from proctor.service.traces.cases import NewCase
from proctor.service.traces.intake import read_body, read_spans
from proctor.store.sql.tables import results, traces
from proctor.store.traces.traces import ArrivalResult

SUITE = """\
proctor: 1
cases:
  - id: refund
    expect:
      - response_contains: Refund
      - http_status: 200
"""


class Clock:
    """A clock that is moved by hand."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


async def world(hub: Hub, *, suite: str | None = SUITE, **agent: Any) -> tuple[str, str]:
    """A project with one agent and one case; the ids of both."""
    project = await projects.create_project(hub, LOCAL, projects.NewProject(name="shop"))
    made = await agents.create_agent(
        hub, LOCAL, agents.NewAgent(project_id=project["id"], name="shop", **{"service_name": "shop", **agent})
    )
    if suite is not None:
        await cases.create_case(hub, LOCAL, NewCase(project_id=project["id"], document=suite))
    return project["id"], made["id"]


def refusal(use: Any) -> Any:
    """Work on a hub that must end in a refusal, which it returns."""

    async def wrapped(hub: Hub) -> Refusal:
        with pytest.raises(Refusal) as caught:
            await use(hub)
        return caught.value

    return wrapped


def project_key(project: str, *agent_ids: str) -> Caller:
    """The caller with a key of a project, restricted to the named agents."""
    return Caller(organization_id=LOCAL.organization_id, kind="project", key_id="key_1", project_id=project, agent_ids=agent_ids or None)


def span(trace: str, id: str, parent: str | None = None, *, name: str = "step", ended: bool = True, **attributes: Any) -> dict[str, Any]:
    """A span of OTLP in JSON."""
    start = time.time_ns()
    made: dict[str, Any] = {"traceId": trace, "spanId": id, "name": name, "startTimeUnixNano": str(start)}
    if parent is not None:
        made["parentSpanId"] = parent
    if ended:
        made["endTimeUnixNano"] = str(start + 1_000_000)
    made["attributes"] = [{"key": key.replace("__", "."), "value": typed(value)} for key, value in attributes.items()]
    return made


def typed(value: Any) -> dict[str, Any]:
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}


def root(trace: str, text: str = "Refund processed.", status: int = 200, **more: Any) -> dict[str, Any]:
    """An ended root that answers."""
    attributes = {"gen_ai__response__text": text, "http__response__status_code": status, **more}
    return span(trace, "aaaaaaaaaaaaaaaa", name="agent", **attributes)


def request(*spans: dict[str, Any], service: str | None = "shop", **resource: str) -> dict[str, Any]:
    """An OTLP request in JSON."""
    named = {**({"service.name": service} if service else {}), **{key.replace("__", "."): value for key, value in resource.items()}}
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in named.items()]
    return {"resourceSpans": [{"resource": {"attributes": attributes}, "scopeSpans": [{"spans": list(spans)}]}]}


def record(trace: str, id: str, event: str | None, body: Any = None, **attributes: Any) -> dict[str, Any]:
    """A log record of OTLP in JSON. Its event is named among the attributes, as most instrumentations do it."""
    made: dict[str, Any] = {"traceId": trace, "spanId": id, "timeUnixNano": str(time.time_ns()), "severityText": "INFO"}
    made["body"] = {} if body is None else any_typed(body)
    named = {} if event is None else {"event__name": event}
    made["attributes"] = [{"key": key.replace("__", "."), "value": typed(value)} for key, value in {**named, **attributes}.items()]
    return made


def any_typed(value: Any) -> dict[str, Any]:
    """A value as OTLP types it."""
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [{"key": key, "value": any_typed(one)} for key, one in value.items()]}}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_typed(one) for one in value]}}
    return typed(value)


def logs(*records: dict[str, Any], service: str | None = "shop", **resource: str) -> dict[str, Any]:
    """An OTLP request with logs in JSON."""
    spans = request(service=service, **resource)["resourceSpans"][0]
    return {"resourceLogs": [{"resource": spans["resource"], "scopeLogs": [{"scope": {"name": "test"}, "logRecords": list(records)}]}]}


def logs_protobuf(document: dict[str, Any]) -> bytes:
    """The same request with logs in protobuf."""
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    def in_base64(value: Any) -> Any:
        # OTLP writes ids in hexadecimal where JSON of protobuf would have base64.
        if isinstance(value, list):
            return [in_base64(one) for one in value]
        if not isinstance(value, dict):
            return value
        ids = ("traceId", "spanId")
        return {key: b64encode(bytes.fromhex(one)).decode() if key in ids else in_base64(one) for key, one in value.items()}

    return ParseDict(in_base64(document), ExportLogsServiceRequest()).SerializeToString()


def new_trace() -> str:
    return os.urandom(16).hex()


def protobuf(document: dict[str, Any]) -> bytes:
    """The same request in protobuf."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    made = ExportTraceServiceRequest()
    for group in document["resourceSpans"]:
        out = made.resource_spans.add()
        _attributes(out.resource, group["resource"]["attributes"])
        for scope in group["scopeSpans"]:
            inner = out.scope_spans.add()
            for one in scope["spans"]:
                span = inner.spans.add()
                span.trace_id, span.span_id = bytes.fromhex(one["traceId"]), bytes.fromhex(one["spanId"])
                span.parent_span_id = bytes.fromhex(one.get("parentSpanId", ""))
                span.name = one["name"]
                span.start_time_unix_nano = int(one.get("startTimeUnixNano", 0))
                span.end_time_unix_nano = int(one.get("endTimeUnixNano", 0))
                _attributes(span, one["attributes"])
    return made.SerializeToString()


def _attributes(holder: Any, pairs: list[dict[str, Any]]) -> None:
    for pair in pairs:
        made = holder.attributes.add()
        made.key = pair["key"]
        if "intValue" in pair["value"]:
            made.value.int_value = int(pair["value"]["intValue"])
        else:
            made.value.string_value = pair["value"]["stringValue"]


async def send(hub: Hub, document: dict[str, Any], *, caller: Caller = LOCAL, binary: bool = False, **more: Any) -> list[ArrivalResult]:
    """Store an OTLP request."""
    received = receive_protobuf(protobuf(document)) if binary else receive_json(document)
    return await TraceWriter(hub).store((await read_spans(hub, caller, received, **more)).arrivals)


async def send_logs(
    hub: Hub, document: dict[str, Any], *, caller: Caller = LOCAL, binary: bool = False, **more: Any
) -> list[ArrivalResult]:
    """Store an OTLP request with logs."""
    received = receive_logs_protobuf(logs_protobuf(document)) if binary else receive_logs_json(document)
    return await TraceWriter(hub).store((await read_spans(hub, caller, received, **more)).arrivals)


async def post(hub: Hub, body: dict[str, Any], *, caller: Caller = LOCAL, request_id: str | None = None) -> ArrivalResult:
    """Store a Mibo body."""
    return (await TraceWriter(hub).store((await read_body(hub, caller, body, request_id=request_id)).arrivals))[0]


async def trace_rows(hub: Hub) -> list[dict[str, Any]]:
    async with hub.database.reading() as connection:
        return [dict(row) for row in (await connection.execute(sa.select(traces).order_by(traces.c.created_at, traces.c.id))).mappings()]


async def result_rows(hub: Hub) -> list[dict[str, Any]]:
    async with hub.database.reading() as connection:
        query = sa.select(results).order_by(results.c.case_version, results.c.created_at, results.c.id)
        return [dict(row) for row in (await connection.execute(query)).mappings()]
