"""Received traces are routed, stripped of secrets, merged or replaced, and durable."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.evidence.otlp.groups import receive_json, receive_protobuf
from proctor.rest import write_queue
from proctor.rest.write_queue import TraceWriter
from proctor.service.access import agents
from proctor.service.access.callers import LOCAL
from proctor.service.decisions.trace_evidence import read_agent_evidence
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.traces.intake import read_body, read_spans
from proctor.service.traces.search import TraceSearch, list_traces
from proctor.store.sql.compressed_json import expand_bytes
from proctor.store.sql.tables import trace_parts, traces
from proctor.store.traces.traces import list_pieces
from tests.databases import TestDatabase
from tests.service.trace_world import Clock, new_trace, post, refusal, request, root, send, span, trace_rows, world

SPANS = {"spans": [{"span_id": "a", "name": "flow", "attributes": {"gen_ai.response.text": "hi"}}]}


async def evidence(hub: Hub, row: dict[str, Any]) -> Any:
    async with hub.database.reading() as connection:
        pieces = await list_pieces(connection, [row])
    return read_agent_evidence(pieces[row["id"]], None)


@pytest.mark.parametrize("binary", [False, True])
async def test_spans_of_several_traces_and_requests_are_merged_by_trace_and_span(binary: bool, hub: Hub) -> None:
    one, two = new_trace(), new_trace()
    await world(hub)
    tool = span(one, "bbbbbbbbbbbbbbbb", "aaaaaaaaaaaaaaaa", gen_ai__tool__name="lookup", gen_ai__tool__call__arguments='{"id": 17}')
    # The same span id in two traces is two spans.
    first = await send(hub, request(tool, span(two, "bbbbbbbbbbbbbbbb", name="other")), binary=binary)
    assert [stored.created for stored in first] == [True, True]
    second = await send(hub, request(root(one)), binary=binary)
    assert [(stored.created, stored.revision) for stored in second] == [(False, 2)]
    third = await send(hub, request(root(one, text="Refund sent.")), binary=binary)
    assert [(stored.created, stored.revision) for stored in third] == [(False, 3)]
    rows = {row["external_id"]: row for row in await trace_rows(hub)}
    assert set(rows) == {one, two}
    merged = await evidence(hub, rows[one])
    assert merged.text == "Refund sent."
    assert [(call.name, call.arguments) for call in merged.tool_calls] == [("lookup", {"id": 17})]
    assert merged.metadata["service.name"] == "shop"
    other = await evidence(hub, rows[two])
    assert other.tool_calls is None and other.no_run, "no span there is from an agent"


async def test_traces_of_one_customer_that_called_a_tool_are_found_by_attributes_of_their_spans(hub: Hub) -> None:
    await world(hub)
    for customer in ("17", "18", "17"):
        trace = new_trace()
        tool = span(trace, "bbbbbbbbbbbbbbbb", "aaaaaaaaaaaaaaaa", gen_ai__tool__name="refund", user__id=customer)
        await send(hub, request(root(trace), tool))
    await send(hub, request(root(new_trace())))
    found = await list_traces(hub, LOCAL, TraceSearch(metadata=["user.id=17"]))
    assert len(found["data"]) == 2 and all(one["metadata"]["service.name"] == "shop" for one in found["data"])


def test_a_trace_is_due_when_its_root_has_ended_and_nothing_came_for_a_while(database: TestDatabase) -> None:
    clock, trace = Clock(), new_trace()

    async def use(hub: Hub) -> None:
        await world(hub)
        await send(hub, request(span(trace, "bbbbbbbbbbbbbbbb", "aaaaaaaaaaaaaaaa")))
        (row,) = await trace_rows(hub)
        assert row["status"] == "open" and row["due_at"] == clock.now + 300
        await send(hub, request(root(trace)))
        (row,) = await trace_rows(hub)
        assert row["status"] == "complete" and row["due_at"] == clock.now + 5
        clock.now += 3
        await send(hub, request(span(trace, "cccccccccccccccc", "aaaaaaaaaaaaaaaa")))
        (row,) = await trace_rows(hub)
        assert row["status"] == "complete" and row["due_at"] == clock.now + 5, "a late span starts the quiet period again"
        await send(hub, request(span(trace, "dddddddddddddddd", "aaaaaaaaaaaaaaaa")), flush=True)
        (row,) = await trace_rows(hub)
        assert row["due_at"] == clock.now, "a flush ends it at once"

    database.run_hub(use, clock=clock, quiet_period_s=5)


def test_an_agent_may_have_a_quiet_period_of_its_own(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        await world(hub, settings={"quiet_period_s": 60})
        await send(hub, request(root(new_trace())))
        assert (await trace_rows(hub))[0]["due_at"] == clock.now + 60

    database.run_hub(use, clock=clock)


async def test_a_root_that_has_not_ended_does_not_complete_a_trace(hub: Hub) -> None:
    await world(hub)
    (stored,) = await send(hub, request(span(new_trace(), "aaaaaaaaaaaaaaaa", ended=False)))
    assert stored.status == "open"


async def test_a_body_with_the_same_request_id_replaces_the_trace(hub: Hub) -> None:
    _, agent = await world(hub)
    first = await post(hub, {**SPANS, "platformId": agent}, request_id="r1")
    second = await post(hub, {"data": {"text": "new"}, "platformId": agent}, request_id="r1")
    other = await post(hub, {**SPANS, "platformId": agent})
    assert first.created and not second.created and other.created
    assert (second.id, second.revision, second.created_at) == (first.id, 2, first.created_at)
    rows = {row["id"]: row for row in await trace_rows(hub)}
    assert len(rows) == 2
    assert (await evidence(hub, rows[first.id])).text == "new"


async def test_otlp_with_a_request_id_is_one_trace_in_one_piece(hub: Hub) -> None:
    trace = new_trace()
    await world(hub)
    await send(hub, request(root(trace), span(trace, "bbbbbbbbbbbbbbbb", "aaaaaaaaaaaaaaaa")), request_id="r1")
    (again,) = await send(hub, request(root(trace, text="second")), request_id="r1")
    (row,) = await trace_rows(hub)
    assert not again.created and row["external_id"] == "r1"
    found = await evidence(hub, row)
    assert found.text == "second" and len(found.nodes) == 1


SECRETS = [
    {"gen_ai__response__text": "the key is sk-abcdefghijklmnopqrstuvwxyz123456"},
    {"http__request__header__authorization": "Bearer verysecretvalue1234567890"},
    {"databasePassword": "hunter2hunter2"},
    {"gen_ai__tool__call__arguments": '{"password": "hunter2hunter2", "id": 1}'},
]


@pytest.mark.parametrize("attributes", SECRETS)
@pytest.mark.parametrize("binary", [False, True])
async def test_secrets_are_removed_before_anything_is_stored(attributes: dict[str, str], binary: bool, hub: Hub) -> None:
    trace = new_trace()
    await world(hub)
    plain = span(trace, "bbbbbbbbbbbbbbbb", gen_ai__usage__input_tokens=120)
    await send(hub, request(span(trace, "aaaaaaaaaaaaaaaa", **attributes), plain), binary=binary)
    (row,) = await trace_rows(hub)
    stored = expand_bytes(row["body"]).decode()
    assert "hunter2" not in stored and "verysecret" not in stored and "sk-abc" not in stored
    assert "gen_ai.usage.input_tokens" in stored and "120" in stored


async def test_secrets_are_taken_out_of_bodies_in_one_piece_too(hub: Hub) -> None:
    _, agent = await world(hub)
    body = {"data": {"text": "hi", "apiKey": "abc123456"}, "metadata": {"cookie": "session=1", "promptTokens": 5}, "platformId": agent}
    await post(hub, body)
    (row,) = await trace_rows(hub)
    stored = expand_bytes(row["body"]).decode()
    assert "abc123456" not in stored and "session=1" not in stored
    assert row["metadata"]["promptTokens"] == 5 and row["metadata"]["cookie"] != "session=1"


def test_unusable_spans_are_counted_and_the_others_stored(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        await world(hub)
        good = request(root(new_trace()))
        bad = request(span("0" * 32, "aaaaaaaaaaaaaaaa"), {"name": "no id"}, {"traceId": new_trace(), "spanId": "", "name": "x"})
        unknown = request(root(new_trace()), service="nobody")
        document = {"resourceSpans": [*good["resourceSpans"], *bad["resourceSpans"], *unknown["resourceSpans"]]}
        intake = await read_spans(hub, LOCAL, receive_json(document))
        assert len(intake.arrivals) == 1 and intake.refused_spans == 4
        assert any("service.name is 'nobody'" in reason for reason in intake.reasons)

    database.run_hub(use, unknown_agents="refuse")


BAD = [
    ([], ""),
    ({}, "spans"),
    ({"spans": {}}, "spans"),
    ({"spans": []}, "spans"),
    ({"spans": [1]}, "spans[0]"),
    ({"spans": [{"name": "x"}]}, "spans[0].span_id"),
    ({"spans": [{"span_id": "a"}]}, "spans[0].name"),
    ({"spans": [{"span_id": "a", "name": "x"}, {"span_id": "a", "name": "y"}]}, "spans[1].span_id"),
    ({"spans": [{"span_id": "a", "name": "x", "attributes": 3}]}, "spans[0].attributes"),
    ({"spans": [{"span_id": "a", "name": "x", "parent_span_id": 3}]}, "spans[0].parent_span_id"),
    ({**SPANS, "metadata": []}, "metadata"),
    ({**SPANS, "platformId": 3}, "platformId"),
    ({**SPANS, "externalId": 3}, "externalId"),
    ({**SPANS, "externalId": "x" * 256}, "externalId"),
    ({"data": None}, "spans"),
]


@pytest.mark.parametrize(("body", "path"), BAD, ids=[str(index) for index in range(len(BAD))])
def test_a_body_that_cannot_be_used_is_refused_with_its_place(tmp_path: Any, body: Any, path: str) -> None:
    async def use(hub: Hub) -> None:
        await read_body(hub, LOCAL, body)

    error = TestDatabase(f"sqlite:///{tmp_path}/p.db", tmp_path).run_hub(refusal(use))
    assert error.code == "VALIDATION_ERROR" and list(error.fields) == [path]


async def test_a_trace_of_an_agent_deleted_in_transit_is_not_stored(hub: Hub) -> None:
    _, agent = await world(hub)
    intake = await read_body(hub, LOCAL, {**SPANS, "platformId": agent})
    await agents.delete_agent(hub, LOCAL, agent)
    (stored,) = await TraceWriter(hub).store(intake.arrivals)
    assert stored.refused == "agent_gone" and await trace_rows(hub) == []


def test_many_requests_share_a_commit_and_each_gets_its_own_answer(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    commits: list[int] = []
    keep = write_queue.keep_arrivals

    async def counted(connection: Any, arrivals: Any, now: str) -> Any:
        commits.append(len(arrivals))
        return await keep(connection, arrivals, now)

    monkeypatch.setattr(write_queue, "keep_arrivals", counted)

    async def use(hub: Hub) -> None:
        _, agent = await world(hub)
        writer = TraceWriter(hub)

        async def one(number: int) -> Any:
            intake = await read_body(hub, LOCAL, {**SPANS, "platformId": agent}, request_id=f"r{number // 2}")
            return (await writer.store(intake.arrivals))[0]

        answers = await asyncio.gather(*(one(number) for number in range(40)))
        assert sum(stored.created for stored in answers) == 20 and len({stored.id for stored in answers}) == 20
        assert sorted(stored.revision for stored in answers) == [1] * 20 + [2] * 20
        assert len(await trace_rows(hub)) == 20

    database.run_hub(use)
    assert sum(commits) == 40 and len(commits) <= 6


def test_a_full_queue_and_a_slow_database_answer_with_retry_after(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        _, agent = await world(hub)
        writer = TraceWriter(hub, patience_s=0.2)

        async def one(number: int) -> Any:
            intake = await read_body(hub, LOCAL, {**SPANS, "platformId": agent}, request_id=f"r{number}")
            try:
                return (await writer.store(intake.arrivals))[0]
            except Refusal as refused:
                return refused

        # Another writer holds the lock.
        async with hub.database.writing() as connection:
            await connection.execute(sa.delete(trace_parts))
            if database.is_postgres:
                await connection.exec_driver_sql("LOCK TABLE traces IN ACCESS EXCLUSIVE MODE")
            answers = await asyncio.gather(*(one(number) for number in range(30)))
        assert all(isinstance(answer, Refusal) and answer.code == "UNAVAILABLE" and answer.retry_after_s for answer in answers)
        await writer.close()
        assert (await one(99)).created
        # A begun write may be stored, but nothing twice.
        names = [row["external_id"] for row in await trace_rows(hub)]
        assert len(names) == len(set(names)) <= 31

    database.run_hub(use, queue_size=20)


async def test_any_due_trace_of_a_request_wakes_the_evaluator(hub: Hub) -> None:
    await world(hub)
    due = hub.due_signal
    trace = new_trace()
    received = receive_json(request(span(trace, "bbbbbbbbbbbbbbbb", "aaaaaaaaaaaaaaaa", ended=False), root(new_trace())))
    arrivals = (await read_spans(hub, LOCAL, received)).arrivals
    for place in range(2):
        for number, arrival in enumerate(arrivals):
            arrival.due_at = hub.clock() + (0 if number == place else 60)
        due.clear()
        await TraceWriter(hub).store(arrivals)
        assert due.is_set()


async def test_one_bad_arrival_does_not_take_the_others_of_its_commit_down(hub: Hub) -> None:
    _, agent = await world(hub)
    writer = TraceWriter(hub)

    async def one(number: int) -> Any:
        intake = await read_body(hub, LOCAL, {**SPANS, "platformId": agent}, request_id=f"r{number}")
        if number == 3:
            intake.arrivals[0].due_at = object()  # type: ignore[assignment]  # what no driver knows
        return intake

    intakes = [await one(number) for number in range(6)]

    async def keep(intake: Any) -> Any:
        try:
            return (await writer.store(intake.arrivals))[0]
        except Exception as error:
            return error

    answers = await asyncio.gather(*(keep(intake) for intake in intakes))
    assert [isinstance(answer, Exception) for answer in answers] == [False, False, False, True, False, False]
    assert len(await trace_rows(hub)) == 5


async def test_a_trace_that_becomes_too_large_takes_no_more(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    monkeypatch.setattr("proctor.store.traces.traces.LARGEST_TRACE", 500)
    trace = new_trace()
    await world(hub)
    answers = [
        (await send(hub, request(span(trace, f"{number:016x}", gen_ai__response__text=str(number) * 50))))[0] for number in range(1, 9)
    ]
    assert answers[0].refused is None and answers[-1].refused == "too_large"
    (row,) = await trace_rows(hub)
    assert row["size"] <= 500


@pytest.mark.on_request
@pytest.mark.timeout(60)
def test_a_hundred_thousand_spans_in_one_trace(tmp_path: Any) -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    made = ExportTraceServiceRequest()
    group = made.resource_spans.add()
    name = group.resource.attributes.add()
    name.key, name.value.string_value = "service.name", "shop"
    scope = group.scope_spans.add()
    for number in range(100_000):
        one = scope.spans.add()
        one.trace_id, one.span_id = b"\1" * 16, (number + 1).to_bytes(8, "big")
        one.end_time_unix_nano = 1
        if number:
            one.parent_span_id = number.to_bytes(8, "big")

    async def use(hub: Hub) -> None:
        await world(hub)
        intake = await read_spans(hub, LOCAL, receive_protobuf(made.SerializeToString()))
        (stored,) = await TraceWriter(hub).store(intake.arrivals)
        assert stored.created and intake.spans == 100_000
        (row,) = await trace_rows(hub)
        assert len((await evidence(hub, row)).nodes) == 100_000

    TestDatabase(f"sqlite:///{tmp_path}/p.db", tmp_path).run_hub(use)


async def test_text_that_no_database_can_hold_is_stored_nonetheless(hub: Hub) -> None:
    _, agent = await world(hub)
    stored = await post(hub, {"data": {"text": "a\0b"}, "metadata": {"x": "a\0b"}, "platformId": agent}, request_id="r\0")
    assert stored.created
    async with hub.database.reading() as connection:
        assert (await connection.execute(sa.select(sa.func.count()).select_from(traces))).scalar_one() == 1


async def test_metadata_that_no_database_can_hold_does_not_spoil_the_search_for_others(hub: Hub) -> None:
    _, agent = await world(hub)
    (good,) = [await post(hub, {"data": {"text": "a"}, "metadata": {"env": "live"}, "platformId": agent})]
    for metadata in ({"env": "live\0"}, {"a\0": "x"}, {"env": "\ud800"}, {"deep": {"a": ["\0", "\udfff"]}}):
        await post(hub, {"data": {"text": "a"}, "metadata": metadata, "platformId": agent})
    found = await list_traces(hub, LOCAL, TraceSearch(metadata=["env=live"]))
    assert [row["id"] for row in found["data"]] == [good.id]


async def test_secrets_are_taken_out_of_the_names_of_events_too(hub: Hub) -> None:
    trace = new_trace()
    await world(hub)
    marked = {**span(trace, "aaaaaaaaaaaaaaaa"), "events": [{"name": "used sk-abcdefghijklmnopqrstuvwxyz123456", "attributes": []}]}
    await send(hub, request(marked))
    (row,) = await trace_rows(hub)
    stored = expand_bytes(row["body"]).decode()
    assert "used " in stored and "sk-abc" not in stored
