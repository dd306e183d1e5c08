"""Exports verdicts to an OpenTelemetry receiver in its own worker; evaluation never waits for it.

Results are queued in the transaction that stores them (`store/traces/traces.py`), so each is sent at least once, also after a crash;
`proctor.result.id` with `proctor.trace.revision` lets a receiver drop duplicates. Requests are OTLP/HTTP: protobuf, gzip. A failed request
is retried after 1 s with backoff up to five minutes, or as the receiver asks, whatever the error: an administrator can fix a wrong key or
address. After a rejection of the data itself (400, 413, 422) each trace is sent alone and the rejected one is dropped; so is what could
not be delivered for three days. Connections go by the guard: a private receiver has to be listed in `allowed_addresses`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import logging
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from proctor.cassettes.redaction import redact_text
from proctor.codecs.http import read_retry_after_s
from proctor.errors import EvidenceError, StoreError
from proctor.evidence.otlp.spans import Span
from proctor.network.addresses import AddressRefused
from proctor.report.data.evaluation_events import About, EvaluationEvent, group_by_request, iterate_events, to_protobuf
from proctor.service.decisions.trace_evidence import expand_pieces, list_spans
from proctor.service.hub import Hub
from proctor.service.waiting import repeat
from proctor.store.sql.compressed_json import unpack
from proctor.store.sql.pages import Row
from proctor.store.traces.traces import (
    delete_exports,
    find_trace_to_export,
    list_pieces,
    list_results_to_export,
    postpone_exports,
    take_exports,
)

if TYPE_CHECKING:
    import httpx2


RESPONSE = "gen_ai.response.id"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The OpenTelemetry ids of a result; empty if unknown."""

    trace_id: str = ""
    span_id: str = ""
    response_id: str | None = None


def find_place(pieces: Sequence[bytes]) -> Place:
    """Return the place of a trace from its stored pieces; empty if unreadable."""
    found: dict[str, Span] = {}
    try:
        for data in expand_pieces(pieces):
            for span in list_spans(data):
                # A log record may arrive after its span, and must not replace it.
                if not _is_bare(span) or span.id not in found:
                    found[span.id] = span
    except (EvidenceError, StoreError, RecursionError):
        # The place is optional. Evaluating the trace reports the error.
        return Place()
    spans = [span for span in found.values() if not _is_bare(span)] or list(found.values())
    if not spans:
        return Place()
    # Only if all have a start: one without would be the earliest, and be taken for the root.
    if all(span.start_ns for span in spans):
        spans.sort(key=lambda span: span.start_ns)
    known = {span.id for span in spans}
    root = next((span for span in spans if span.parent_id is None or span.parent_id not in known), spans[0])
    # The answer of a run is the last response.
    responses = [response for span in spans if isinstance(response := span.attributes.get(RESPONSE), str)]
    return Place(trace_id=root.trace_id, span_id=root.id, response_id=responses[-1] if responses else None)


def _is_bare(span: Span) -> bool:
    """Return whether a span is known only from a log record, without name and parent."""
    return not span.name and not span.start_ns and span.parent_id is None


TRACES_AT_ONCE = 100
BYTES_AT_ONCE = 8_000_000
"""Stored bytes of traces and results that are in memory at once."""
LOOK_S = 1.0
"""Seconds between checks for results."""
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 300.0
TIMEOUT_S = 10.0
KEEP_S = 3 * 86_400.0
"""Seconds until an undelivered result is dropped."""
LARGEST_ANSWER = 100_000
_LEASE_S = 120.0
_REFUSED = (400, 413, 422)
_LOG = logging.getLogger("proctor.serve")


async def export_results(hub: Hub, stop: asyncio.Event) -> None:
    """Send queued results until `stop` is set: a worker of the service."""
    if hub.settings.export_otlp_endpoint is None:
        await stop.wait()
        return
    async with Exporter.open(hub) as exporter:
        await repeat(exporter.send_batch, stop, retry_s=LOOK_S, problem="results cannot be exported now")


class _Trace(msgspec.Struct, kw_only=True):
    """A leased trace and its events."""

    row: Row
    results: int = 0
    events: list[EvaluationEvent] = []


class _Later(Exception):
    """Raised if the receiver accepts nothing at the moment."""

    def __init__(self, why: str, retry_after_s: float | None = None) -> None:
        super().__init__(why)
        self.retry_after_s = retry_after_s


class _Refused(Exception):
    """Raised if the receiver rejects this batch."""


class Exporter:
    """Sends to one receiver, with backoff."""

    def __init__(self, hub: Hub, client: httpx2.AsyncClient) -> None:
        self._hub = hub
        self._client = client
        self._wait_s = FIRST_WAIT_S

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, hub: Hub) -> AsyncGenerator[Exporter]:
        """Yield an exporter whose connections are closed at the end."""
        # Loading an HTTP client takes time, and most services export nothing.
        from proctor.network.guard import Guard, guarded_client

        async with guarded_client(Guard(hub.settings.allowed_addresses), timeout_s=TIMEOUT_S) as client:
            yield cls(hub, client)

    async def send_batch(self) -> float:
        """Send one batch and return the seconds until the next."""
        hub = self._hub
        now = hub.clock()
        async with hub.database.writing() as connection:
            leased = await take_exports(connection, now=now, until=now + _LEASE_S, limit=TRACES_AT_ONCE)
        if not leased:
            return LOOK_S
        batch, later = await self._read_batch(leased)
        wait_s = 0.0
        finished: list[_Trace] = []
        try:
            finished = await self._send(batch)
            # The receiver is back, and the queue is sent at full speed.
            self._wait_s = FIRST_WAIT_S
        except _Later as error:
            # A receiver may request a longer wait, up to our own maximum.
            wait_s = max(self._wait_s, min(error.retry_after_s or 0.0, LONGEST_WAIT_S))
            self._wait_s = min(self._wait_s * 2, LONGEST_WAIT_S)
            # Dropped only after a failure: old results that can be sent are sent.
            finished = [trace for trace in batch if now - trace.row["queued_at"] > KEEP_S]
            later += [trace.row for trace in batch if now - trace.row["queued_at"] <= KEEP_S]
            batch = []
            _LOG.warning("the receiver does not accept results", extra={"error": redact_text(str(error)), "again_in_s": wait_s})
        async with hub.database.writing() as connection:
            await delete_exports(connection, [trace.row for trace in (*batch, *finished)])
            await postpone_exports(connection, later, hub.clock() + wait_s)
        dropped = sum(trace.results for trace in finished)
        hub.counters.add("results_not_exported", dropped)
        # After a failure the batch is empty.
        hub.counters.add("results_exported", sum(trace.results for trace in batch) - (dropped if batch else 0))
        return wait_s

    async def _read_batch(self, leased: Sequence[Row]) -> tuple[list[_Trace], list[Row]]:
        """Return the events of these traces within the size limit, and the remaining rows."""
        traces: list[_Trace] = []
        size = 0
        async with self._hub.database.reading() as connection:
            for number, row in enumerate(leased):
                if size > BYTES_AT_ONCE:
                    return traces, list(leased[number:])
                trace = await find_trace_to_export(connection, row)
                results = await list_results_to_export(connection, row) if trace is not None else []
                pieces = (await list_pieces(connection, [trace]))[row["trace_id"]] if trace is not None and results else []
                size += sum(map(len, pieces)) + sum(len(result["body"]) for result in results)
                events = await asyncio.to_thread(_make_events, trace, pieces, results) if trace is not None and results else []
                # Also if nothing is left to send, as for a deleted trace, so that its queue entry is deleted as well.
                traces.append(_Trace(row=row, results=len(results), events=events))
        return traces, []

    async def _send(self, batch: Sequence[_Trace]) -> list[_Trace]:
        """Send a batch and return the rejected traces. Raises `_Later`."""
        try:
            for events in group_by_request(event for trace in batch for event in trace.events):
                await self._post(await asyncio.to_thread(gzip.compress, await asyncio.to_thread(to_protobuf, events), 1))
            return []
        except _Refused as error:
            if len(batch) > 1:
                # One by one only after a rejection of all, which costs one more request per trace.
                return [rejected for trace in batch for rejected in await self._send([trace])]
            _LOG.error("results were rejected", extra={"trace": batch[0].row["trace_id"], "error": redact_text(str(error))})
            return list(batch)

    async def _post(self, body: bytes) -> None:
        import httpx2  # as above

        endpoint = self._hub.settings.export_otlp_endpoint
        assert endpoint is not None
        # The settings may add headers and replace the user agent, but not the content type.
        headers = {
            "user-agent": "proctor",
            **dict(self._hub.settings.export_otlp_headers),
            "content-type": "application/x-protobuf",
            "content-encoding": "gzip",
        }
        try:
            async with asyncio.timeout(TIMEOUT_S), self._client.stream("POST", endpoint, content=body, headers=headers) as answer:
                body_of_answer = await _read_bounded(answer)
        except TimeoutError:
            raise _Later(f"no answer within {TIMEOUT_S:g} s") from None
        except AddressRefused as error:
            # Retried: an administrator may allow the address.
            raise _Later(f"refused: {error}") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            raise _Later(f"{type(error).__name__}: {error}") from None
        if answer.status_code in _REFUSED:
            raise _Refused(f"answered {answer.status_code}")
        if not 200 <= answer.status_code < 300:
            raise _Later(f"answered {answer.status_code}", read_retry_after_s(answer.headers))
        _note_rejected(body_of_answer)


async def _read_bounded(answer: httpx2.Response) -> bytes:
    """Return the response body, or nothing if it is too large."""
    body = b""
    async for part in answer.aiter_raw():
        body += part
        if len(body) > LARGEST_ANSWER:
            return b""
    return body


def _note_rejected(body: bytes) -> None:
    from google.protobuf.message import DecodeError  # slow to load, and there by now
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

    try:
        partial = ExportLogsServiceResponse.FromString(body).partial_success
    except DecodeError:
        return  # accepted, with another kind of answer
    if partial.rejected_log_records:
        why = redact_text(partial.error_message[:500])
        _LOG.warning("the receiver rejected some results", extra={"events": partial.rejected_log_records, "error": why})


def _make_events(trace: Row, pieces: Sequence[bytes], results: Sequence[Row]) -> list[EvaluationEvent]:
    place = find_place(pieces)
    # An OTLP trace is stored under its own id; spans in one piece may have one.
    trace_id = trace["external_id"] if trace["format"] == "otlp" else place.trace_id
    events: list[EvaluationEvent] = []
    for row in results:
        subject = About(
            time_ns=int(datetime.fromisoformat(row["updated_at"]).timestamp() * 1_000) * 1_000_000,
            case=row["case_key"] or row["case_id"],
            trace_id=trace_id,
            span_id=place.span_id,
            response_id=place.response_id,
            attributes={
                "proctor.result.id": row["id"],
                "proctor.organization.id": row["organization_id"],
                "proctor.project.id": row["project_id"],
                "proctor.agent.id": row["agent_id"],
                "proctor.trace.id": row["trace_id"],
                "proctor.trace.revision": row["trace_revision"],
                "proctor.document.id": row["case_id"],
                "proctor.document.version": row["case_version"],
            },
        )
        try:
            document = unpack(row["body"])
        except StoreError:
            document = None
        known = {name: row[name] for name in ("outcome", "score", "verdict", "code")}
        # A damaged body must not block the others.
        events += iterate_events({**document, **known} if isinstance(document, dict) else known, subject)
    return events
