"""Log records as part of traces: waited for, joined, and evaluated again when they come late."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.service.access.callers import LOCAL
from proctor.service.hub import Hub
from proctor.service.notify.export import find_place
from proctor.service.traces.evaluator import evaluate_all
from proctor.service.traces.search import get_trace
from proctor.store.traces.traces import list_pieces
from tests.databases import TestDatabase
from tests.service.trace_world import Clock, logs, new_trace, record, request, result_rows, root, send, send_logs, span, trace_rows, world

MODEL = "bbbbbbbbbbbbbbbb"
SUITE = """\
proctor: 1
cases:
  - id: no refund
    expect:
      - tool_not_called: refund
"""


def agent(trace: str) -> dict[str, Any]:
    """A trace with a model call, but without its answer."""
    top = span(trace, "aaaaaaaaaaaaaaaa", name="invoke_agent shop", gen_ai__operation__name="invoke_agent")
    model = span(trace, MODEL, "aaaaaaaaaaaaaaaa", name="chat m", gen_ai__operation__name="chat", gen_ai__request__model="m")
    return request(top, model)


def choice(trace: str, *calls: str) -> dict[str, Any]:
    """The answer of that model, in a log record."""
    requested = [{"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": "{}"}} for name in calls]
    message = {"role": "assistant", **({"tool_calls": requested} if requested else {"content": "Hello."})}
    body = {"index": 0, "finish_reason": "tool_calls" if calls else "stop", "message": message}
    return logs(record(trace, MODEL, "gen_ai.choice", body, gen_ai__system="openai"))


@pytest.mark.parametrize("binary", [False, True], ids=["json", "protobuf"])
@pytest.mark.parametrize(("calls", "outcome"), [(("refund",), "fail"), ((), "pass")], ids=["a tool", "no tool"])
def test_a_late_log_record_has_its_trace_evaluated_again(
    database: TestDatabase, binary: bool, calls: tuple[str, ...], outcome: str
) -> None:
    clock, trace = Clock(), new_trace()

    async def use(hub: Hub) -> None:
        await world(hub, suite=SUITE)
        await send(hub, agent(trace))
        clock.now += 10
        assert await evaluate_all(hub) == 1
        (result,) = await result_rows(hub)
        assert (result["outcome"], result["code"]) == ("error", "missing_evidence"), "the requested calls are unknown"
        (stored,) = await send_logs(hub, choice(trace, *calls), binary=binary)
        assert (stored.created, stored.revision, stored.status) == (False, 2, "complete")
        (row,) = await trace_rows(hub)
        assert row["due_at"] == clock.now + 5
        clock.now += 10
        assert await evaluate_all(hub) == 1
        (result,) = await result_rows(hub)
        assert (result["outcome"], result["trace_revision"]) == (outcome, 2)

    database.run_hub(use, clock=clock, quiet_period_s=5)


def test_log_records_alone_are_waited_with_and_never_make_a_run(database: TestDatabase) -> None:
    clock, trace = Clock(), new_trace()

    async def use(hub: Hub) -> None:
        await world(hub, suite=SUITE)
        (stored,) = await send_logs(hub, choice(trace))
        (row,) = await trace_rows(hub)
        assert stored.status == "open" and row["due_at"] == clock.now + 300
        clock.now += 400
        assert await evaluate_all(hub) == 1
        assert await result_rows(hub) == []
        shown = await get_trace(hub, LOCAL, row["id"])
        assert shown["no_run"] == "only log records came for the trace, and none of its spans" and shown["outcome"] is None
        await send(hub, agent(trace))
        clock.now += 10
        assert await evaluate_all(hub) == 1
        (result,) = await result_rows(hub)
        assert result["outcome"] == "pass"
        assert (await get_trace(hub, LOCAL, row["id"]))["no_run"] is None

    database.run_hub(use, clock=clock, quiet_period_s=5)


def test_a_tool_known_only_from_the_log_record_of_a_lost_span_is_not_denied(database: TestDatabase) -> None:
    clock, trace = Clock(), new_trace()

    async def use(hub: Hub) -> None:
        await world(hub, suite=SUITE)
        await send(hub, agent(trace))
        await send_logs(hub, choice(trace))
        lost = choice(trace, "refund")
        lost["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]["spanId"] = "c" * 16
        await send_logs(hub, lost)
        clock.now += 10
        assert await evaluate_all(hub) == 1
        (result,) = await result_rows(hub)
        assert (result["outcome"], result["code"]) == ("error", "missing_evidence")

    database.run_hub(use, clock=clock, quiet_period_s=5)


async def test_a_log_record_does_not_move_the_root_of_results(hub: Hub) -> None:
    trace = new_trace()
    await world(hub)
    await send_logs(hub, logs(record(trace, "c" * 16, "gen_ai.choice", "x")))
    await send(hub, request(span(trace, MODEL, "aaaaaaaaaaaaaaaa"), root(trace)))
    await send_logs(hub, choice(trace))
    rows = await trace_rows(hub)
    async with hub.database.reading() as connection:
        pieces = await list_pieces(connection, rows)
    assert find_place(pieces[rows[0]["id"]]).span_id == "aaaaaaaaaaaaaaaa"
