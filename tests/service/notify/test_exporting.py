"""Verdicts as OpenTelemetry events: a real receiver gets every result at least once, whatever happens on the way."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse

from proctor.errors import InputError
from proctor.rest.settings import read_settings
from proctor.service.access.callers import LOCAL
from proctor.service.hub import Hub
from proctor.service.notify import export
from proctor.service.notify.export import KEEP_S, LOOK_S, Exporter, export_results
from proctor.service.traces.evaluator import evaluate_all, evaluate_traces
from proctor.service.traces.reevaluation import Reevaluation, request_reevaluation
from proctor.store.sql.tables import exports, traces
from tests.databases import TestDatabase
from tests.service.trace_world import Clock, new_trace, post, request, root, send, span, world

# Real connections on loopback, many of them: a busy machine takes its time.
pytestmark = pytest.mark.timeout(30)

LISTED = ("127.0.0.1",)


class Receiver:
    """An OTLP receiver that answers with these statuses, the last one again and again."""

    def __init__(self, *statuses: int, headers: str = "", partial: int = 0, refuse: str | None = None) -> None:
        self._statuses = statuses or (200,)
        self._headers = headers
        self._partial = partial
        self._refuse = refuse
        self.requests: list[tuple[dict[str, str], ExportLogsServiceRequest]] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                first, *head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
                headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head)}
                body = gzip.decompress(await reader.readexactly(int(headers["content-length"])))
                got = ExportLogsServiceRequest.FromString(body)
                self.requests.append(({**headers, ":path": first.split()[1]}, got))
                status = self._statuses[min(len(self.requests), len(self._statuses)) - 1]
                if self._refuse is not None and any(attributes(record)["proctor.trace.id"] == self._refuse for record in records(got)):
                    status = 400
                answer = ExportLogsServiceResponse()
                answer.partial_success.rejected_log_records = self._partial
                data = answer.SerializeToString()
                writer.write(f"HTTP/1.1 {status} X\r\n{self._headers}content-length: {len(data)}\r\n\r\n".encode() + data)
                await writer.drain()

    def events(self) -> list[Any]:
        return [record for _, got in self.requests for record in records(got)]


def records(got: ExportLogsServiceRequest) -> list[Any]:
    return [record for group in got.resource_logs for scope in group.scope_logs for record in scope.log_records]


def attributes(record: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in record.attributes}


@contextlib.asynccontextmanager
async def listening(receiver: Receiver) -> AsyncIterator[str]:
    server = await asyncio.start_server(receiver.handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/logs"


async def waiting(hub: Hub) -> list[Any]:
    async with hub.database.reading() as connection:
        return list((await connection.execute(sa.select(exports).order_by(exports.c.trace_id))).all())


def pointed_at(hub: Hub, url: str, **more: Any) -> Hub:
    """The same service with a receiver."""
    import msgspec

    return msgspec.structs.replace(hub, settings=msgspec.structs.replace(hub.settings, export_otlp_endpoint=url, **more))


def test_every_verdict_arrives_with_its_span_and_is_not_sent_again(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        receiver = Receiver()
        async with listening(receiver) as url:
            hub = pointed_at(hub, url, export_otlp_headers=(("x-key", "k1"),))
            _, agent = await world(hub)
            trace = new_trace()
            child = span(trace, "bbbbbbbbbbbbbbbb", "aaaaaaaaaaaaaaaa", gen_ai__response__id="chatcmpl-7")
            await send(hub, request(child, root(trace, "Refund on its way", 500)))
            await evaluate_all(hub)
            async with Exporter.open(hub) as exporter:
                assert await exporter.send_batch() == 0.0
                assert await exporter.send_batch() == LOOK_S
            ((headers, _),) = receiver.requests
            assert (headers[":path"], headers["content-type"], headers["x-key"]) == ("/v1/logs", "application/x-protobuf", "k1")
            case, contains, status = receiver.events()
            for event in (case, contains, status):
                assert event.event_name == "gen_ai.evaluation.result"
                assert (event.trace_id.hex(), event.span_id.hex()) == (trace, "aaaaaaaaaaaaaaaa")
                assert attributes(event)["gen_ai.response.id"] == "chatcmpl-7"
                assert attributes(event)["proctor.agent.id"] == agent and attributes(event)["proctor.document.version"] == 1
            assert [attributes(event)["gen_ai.evaluation.score.label"] for event in (case, contains, status)] == ["fail", "pass", "fail"]
            assert "500" in attributes(status)["gen_ai.evaluation.explanation"]
            assert not await waiting(hub) and hub.counters.read()["results_exported"] == 1

    database.run_hub(use, quiet_period_s=0.0, allowed_addresses=LISTED)


def test_nothing_is_queued_where_nothing_is_exported(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        await world(hub)
        await send(hub, request(root(new_trace())))
        await evaluate_all(hub)
        assert not await waiting(hub)

    database.run_hub(use, quiet_period_s=0.0)


def test_a_body_in_one_piece_has_the_ids_its_spans_say_or_none(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        receiver = Receiver()
        async with listening(receiver) as url:
            hub = pointed_at(hub, url)
            _, agent = await world(hub)
            trace = new_trace()
            named = {"trace_id": trace, "span_id": "cccccccccccccccc", "name": "agent", "attributes": {"gen_ai.response.id": "r1"}}
            await post(hub, {"spans": [named], "platformId": agent})
            await post(hub, {"data": {"text": "Refund"}, "metadata": {"http_status": 200}, "platformId": agent})
            await evaluate_all(hub)
            async with Exporter.open(hub) as exporter:
                await exporter.send_batch()
            links = {
                (event.trace_id.hex(), event.span_id.hex(), attributes(event).get("gen_ai.response.id")) for event in receiver.events()
            }
            assert links == {(trace, "cccccccccccccccc", "r1"), ("", "", None)}

    database.run_hub(use, allowed_addresses=LISTED)


def test_rejected_exports_are_retried_with_growing_delays(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        receiver = Receiver(503, 401, 500, 200)
        async with listening(receiver) as url:
            hub = pointed_at(hub, url)
            _, agent = await world(hub)
            await post(hub, {"data": {"text": "Refund"}, "metadata": {"http_status": 200}, "platformId": agent})
            await evaluate_all(hub)
            async with Exporter.open(hub) as exporter:
                waits: list[float] = []
                for _ in range(3):
                    waits.append(await exporter.send_batch())
                    clock.now += waits[-1] - 0.1
                    assert await exporter.send_batch() == LOOK_S, "not before its time"
                    clock.now += 0.2
                assert waits == [1.0, 2.0, 4.0] and hub.counters.read()["results_exported"] == 0
                assert await exporter.send_batch() == 0.0
            assert len(receiver.requests) == 4 and not await waiting(hub)
            assert len({attributes(event)["proctor.result.id"] for event in receiver.events()}) == 1

    database.run_hub(use, clock=clock, allowed_addresses=LISTED)


def test_a_receiver_may_ask_to_be_left_alone(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        receiver = Receiver(429, 200, headers="retry-after: 90\r\n")
        async with listening(receiver) as url:
            hub = pointed_at(hub, url)
            _, agent = await world(hub)
            await post(hub, {"data": {"text": "Refund"}, "platformId": agent})
            await evaluate_all(hub)
            async with Exporter.open(hub) as exporter:
                assert await exporter.send_batch() == 90.0

    database.run_hub(use, clock=clock, allowed_addresses=LISTED)


def test_one_that_is_refused_does_not_keep_the_others_back(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        _, agent = await world(hub)
        receiver = Receiver()
        async with listening(receiver) as url:
            hub = pointed_at(hub, url)
            stored = [await post(hub, {"data": {"text": "Refund"}, "platformId": agent}) for _ in range(3)]
            receiver._refuse = stored[1].id
            await evaluate_all(hub)
            async with Exporter.open(hub) as exporter:
                assert await exporter.send_batch() == 0.0
            assert not await waiting(hub)
            counted = hub.counters.read()
            assert (counted["results_exported"], counted["results_not_exported"]) == (2, 1)
            alone = {attributes(event)["proctor.trace.id"] for _, got in receiver.requests[1:] for event in records(got)}
            assert alone == {one.id for one in stored}

    database.run_hub(use, allowed_addresses=LISTED)


def test_an_export_refused_for_three_days_is_abandoned(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        hub = pointed_at(hub, "http://127.0.0.1:9/v1/logs")
        _, agent = await world(hub)
        await post(hub, {"data": {"text": "Refund"}, "platformId": agent})
        await evaluate_all(hub)
        async with Exporter.open(hub) as exporter:
            await exporter.send_batch()
            assert len(await waiting(hub)) == 1
            clock.now += KEEP_S + 1
            await exporter.send_batch()
            assert not await waiting(hub) and hub.counters.read()["results_not_exported"] == 1

    database.run_hub(use, clock=clock, allowed_addresses=LISTED)


def test_a_worker_that_died_while_sending_is_followed_by_another(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        receiver = Receiver()
        async with listening(receiver) as url:
            hub = pointed_at(hub, url)
            _, agent = await world(hub)
            await post(hub, {"data": {"text": "Refund"}, "platformId": agent})
            await evaluate_all(hub)
            from proctor.store.traces.traces import take_exports

            async with hub.database.writing() as connection:
                assert await take_exports(connection, now=clock.now, until=clock.now + 120, limit=10)
            async with Exporter.open(hub) as exporter:
                assert await exporter.send_batch() == LOOK_S and not receiver.requests
                clock.now += 121
                assert await exporter.send_batch() == 0.0 and receiver.requests

    database.run_hub(use, clock=clock, allowed_addresses=LISTED)


def test_a_trace_reevaluated_during_its_export_is_exported_again(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        receiver = Receiver()
        async with listening(receiver) as url:
            hub = pointed_at(hub, url)
            _, agent = await world(hub)
            await post(hub, {"data": {"text": "Refund"}, "platformId": agent})
            await evaluate_all(hub)
            async with Exporter.open(hub) as exporter:
                send_it = exporter._send

                async def slowly(batch: Any) -> Any:
                    gone = await send_it(batch)
                    await request_reevaluation(hub, LOCAL, Reevaluation(agent_id=agent))
                    await evaluate_all(hub)
                    return gone

                exporter._send = slowly  # type: ignore[method-assign]
                await exporter.send_batch()
                assert len(await waiting(hub)) == 1
                exporter._send = send_it  # type: ignore[method-assign]
                await exporter.send_batch()
                assert not await waiting(hub) and len(receiver.requests) == 2
            assert len({attributes(event)["proctor.result.id"] for event in receiver.events()}) == 1, "it is the same result"

    database.run_hub(use, allowed_addresses=LISTED)


def test_a_deleted_trace_exports_nothing(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        receiver = Receiver()
        async with listening(receiver) as url:
            hub = pointed_at(hub, url)
            _, agent = await world(hub)
            await post(hub, {"data": {"text": "Refund"}, "platformId": agent})
            await evaluate_all(hub)
            async with hub.database.writing() as connection:
                await connection.execute(sa.delete(traces))
            async with Exporter.open(hub) as exporter:
                assert await exporter.send_batch() == 0.0
            assert not receiver.requests and not await waiting(hub)

    database.run_hub(use, allowed_addresses=LISTED)


def test_a_rejected_part_is_reported_and_not_sent_again(database: TestDatabase, caplog: pytest.LogCaptureFixture) -> None:
    async def use(hub: Hub) -> None:
        receiver = Receiver(partial=2)
        async with listening(receiver) as url:
            hub = pointed_at(hub, url)
            _, agent = await world(hub)
            await post(hub, {"data": {"text": "Refund"}, "platformId": agent})
            await evaluate_all(hub)
            async with Exporter.open(hub) as exporter:
                await exporter.send_batch()
            assert len(receiver.requests) == 1 and not await waiting(hub)

    with caplog.at_level(logging.WARNING, "proctor.serve"):
        database.run_hub(use, allowed_addresses=LISTED)
    assert "rejected some results" in caplog.text


async def test_a_private_receiver_that_is_not_listed_gets_nothing(hub: Hub) -> None:
    receiver = Receiver()
    async with listening(receiver) as url:
        hub = pointed_at(hub, url)
        _, agent = await world(hub)
        await post(hub, {"data": {"text": "Refund"}, "platformId": agent})
        await evaluate_all(hub)
        async with Exporter.open(hub) as exporter:
            assert await exporter.send_batch() == 1.0
        assert not receiver.requests and len(await waiting(hub)) == 1


def test_a_receiver_that_hangs_does_not_hold_up_evaluation(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "TIMEOUT_S", 0.3)

    async def use(hub: Hub) -> None:
        connected = asyncio.Event()

        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connected.set()
            with contextlib.closing(writer):
                await reader.read()

        async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
            hub = pointed_at(hub, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/logs")
            _, agent = await world(hub)
            await post(hub, {"data": {"text": "Refund"}, "platformId": agent})
            stop = asyncio.Event()
            workers = [asyncio.create_task(worker(hub, stop)) for worker in (evaluate_traces, export_results)]
            await asyncio.wait_for(connected.wait(), 10)
            await post(hub, {"data": {"text": "Refund"}, "platformId": agent})
            async with asyncio.timeout(10):
                while hub.counters.read()["traces_evaluated"] < 2:
                    await asyncio.sleep(0.02)
            stop.set()
            await asyncio.wait_for(asyncio.gather(*workers), 10)
            assert len(await waiting(hub)) == 2, "nothing is lost"

    database.run_hub(use, allowed_addresses=LISTED)


def test_the_endpoint_and_its_headers_are_read_at_the_door(tmp_path: Path) -> None:
    def read(endpoint: str | None = None, headers: str | None = None, **flags: Any) -> Any:
        environment = {"PROCTOR_EXPORT_OTLP_ENDPOINT": endpoint, "PROCTOR_EXPORT_OTLP_HEADERS": headers}
        given = {name: value for name, value in environment.items() if value is not None}
        return read_settings(flags, given, lambda home: tmp_path).service

    for given, expected in (
        ("https://otlp.example.com", "https://otlp.example.com/v1/logs"),
        ("https://otlp.example.com/otlp/", "https://otlp.example.com/otlp/v1/logs"),
        ("https://otlp.example.com:4318/v1/logs", "https://otlp.example.com:4318/v1/logs"),
    ):
        assert read(given).export_otlp_endpoint == expected
    assert read(headers="Authorization=Bearer%20a%3Db, x-team = 7").export_otlp_headers == (
        ("authorization", "Bearer a=b"),
        ("x-team", "7"),
    )
    for wrong in ("otlp.example.com", "https://u:p@otlp.example.com", "ftp://a", "https://a/?key=1", "https:///path"):
        with pytest.raises(InputError, match="expected an address") as refused:
            read(wrong)
        assert wrong not in str(refused.value)
    for wrong in ("novalue", "na me=1", "a=b%0d%0ac: d", "=x"):
        with pytest.raises(InputError, match="expected NAME=VALUE") as refused:
            read(headers=wrong)
        assert wrong not in str(refused.value)
    with pytest.raises(InputError, match="--allowed-address"):
        read("http://127.0.0.1:4318")
    assert read("http://127.0.0.1:4318", allowed_addresses=["127.0.0.1"]).export_otlp_endpoint
