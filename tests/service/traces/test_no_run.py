"""Traces that are no run of an agent: stored, not judged, not counted, and marked as such."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.judge.scripted import ScriptedJudge
from proctor.service.access.callers import LOCAL
from proctor.service.hub import Hub
from proctor.service.notify.alerts import NewAlert, check_rules, create_alert, get_alert, list_deliveries
from proctor.service.traces import cases
from proctor.service.traces.cases import NewCase
from proctor.service.traces.evaluator import evaluate_all
from proctor.service.traces.reevaluation import Reevaluation, request_reevaluation
from proctor.service.traces.search import get_trace, list_traces
from proctor.store.sql.compressed_json import pack
from proctor.store.sql.tables import case_versions, results
from proctor.store.sql.tables import cases as case_table
from tests.databases import TestDatabase
from tests.service.trace_world import Clock, new_trace, request, result_rows, root, send, span, trace_rows, world

SUITE = """\
proctor: 1
cases:
  - {id: says, expect: [response_contains: Refund]}
  - {id: silent, expect: [no_tools_called]}
  - {id: many, expect: [tool_called: a, tool_called: b, tool_called: c, tool_called: d]}
  - {id: judged, expect: [judged: the answer is polite]}
"""
NO_RUNS: dict[str, list[dict[str, Any]]] = {
    "an agent that was made": [{"name": "create_agent shop", "gen_ai__operation__name": "create_agent", "gen_ai__agent__name": "shop"}],
    "a handshake with an MCP server": [{"name": "initialize", "mcp__method__name": "initialize"}],
    "a web request": [{"name": "GET /health", "http__request__method": "GET", "http__response__status_code": 500}],
    "a query": [{"name": "GET /", "http__route": "/"}, {"name": "SELECT", "db__system": "postgresql"}],
}


def trace_of(spans: list[dict[str, Any]], trace: str) -> dict[str, Any]:
    first = span(trace, "aaaaaaaaaaaaaaaa", **spans[0])
    return request(first, *(span(trace, f"{number:016x}", "aaaaaaaaaaaaaaaa", **more) for number, more in enumerate(spans[1:], 1)))


@pytest.mark.parametrize("spans", NO_RUNS.values(), ids=list(NO_RUNS))
async def test_a_trace_that_is_no_run_has_no_verdicts_and_a_reason(spans: list[dict[str, Any]], hub: Hub) -> None:
    project, _ = await world(hub, suite=SUITE)
    await _break_a_case(hub, project)
    await send(hub, trace_of(spans, new_trace()), flush=True)
    assert await evaluate_all(hub, judge=ScriptedJudge([])) == 1
    assert await result_rows(hub) == []
    (row,) = (await list_traces(hub, LOCAL))["data"]
    assert (row["status"], row["outcome"], row["error"]) == ("evaluated", None, None)
    whole = await get_trace(hub, LOCAL, row["id"])
    assert row["no_run"] and row["no_run"] == whole["evidence"]["no_run"] == whole["no_run"]
    assert row["not_judged"] == whole["not_judged"] == row["no_run"]


async def test_a_trace_without_a_matching_case_has_a_reason(hub: Hub) -> None:
    project, agent = await world(hub, suite=None)
    await send(hub, request(root(new_trace(), gen_ai__operation__name="invoke_agent")), flush=True)
    (row,) = (await list_traces(hub, LOCAL))["data"]
    assert (row["status"], row["not_judged"]) == ("complete", None), "it has not been looked at yet"
    await evaluate_all(hub)
    (row,) = (await list_traces(hub, LOCAL))["data"]
    assert (row["status"], row["outcome"], row["no_run"]) == ("evaluated", None, None)
    assert row["not_judged"] == "no active case is for this trace"
    await cases.create_case(hub, LOCAL, NewCase(project_id=project, document=SUITE.split("  - {id: silent")[0]))
    await request_reevaluation(hub, LOCAL, Reevaluation(agent_id=agent))
    await evaluate_all(hub)
    (row,) = (await list_traces(hub, LOCAL))["data"]
    assert (row["status"], row["outcome"], row["not_judged"]) == ("evaluated", "pass", None)


async def _break_a_case(hub: Hub, project: str) -> None:
    """A case that cannot be read any more is an error on every run, and on nothing else."""
    made = await cases.create_case(hub, LOCAL, NewCase(project_id=project, document=SUITE))
    async with hub.database.writing() as connection:
        for table, id in ((case_table, "id"), (case_versions, "case_id")):
            await connection.execute(table.update().where(table.c[id] == made["id"]).values(document="proctor: 1\ncases: 7"))


@pytest.mark.parametrize("kind", ["pass_rate", "failing_case", "missing_evidence"])
async def test_alerts_do_not_count_what_is_no_run(kind: Any, hub: Hub) -> None:
    project, _ = await world(hub)
    settings: dict[str, Any] = {} if kind == "failing_case" else {"minimum": 3}
    rule = await create_alert(
        hub, LOCAL, NewAlert(project_id=project, name="r", kind=kind, webhook_url="https://example.com/x", settings=settings)
    )
    for spans in NO_RUNS.values():
        await send(hub, trace_of(spans, new_trace()), flush=True)
    for _ in range(3):
        await send(hub, request(root(new_trace(), gen_ai__operation__name="invoke_agent")), flush=True)
    assert await evaluate_all(hub) == 7
    assert [row["outcome"] for row in await result_rows(hub)] == ["pass"] * 3
    await check_rules(hub)
    assert (await get_alert(hub, LOCAL, rule["id"]))["state"] == "quiet"
    assert (await list_deliveries(hub, LOCAL, rule["id"]))["data"] == []


def test_a_trace_that_becomes_a_run_later_is_judged_then(database: TestDatabase) -> None:
    clock, trace = Clock(), new_trace()

    async def use(hub: Hub) -> None:
        await world(hub)
        await send(hub, trace_of(NO_RUNS["a web request"], trace), flush=True)
        assert await evaluate_all(hub) == 1
        await send(hub, request(span(trace, "bbbbbbbbbbbbbbbb", "aaaaaaaaaaaaaaaa", gen_ai__tool__name="refund")), flush=True)
        assert await evaluate_all(hub) == 1
        (row,) = await trace_rows(hub)
        assert row["no_run"] is None and row["outcome"] in ("fail", "error") and len(await result_rows(hub)) == 1

    database.run_hub(use, clock=clock)


async def test_results_from_before_it_was_known_to_be_no_run_go_when_it_is_evaluated_again(hub: Hub) -> None:
    await world(hub)
    await send(hub, trace_of(NO_RUNS["a web request"], new_trace()), flush=True)
    (row,) = await trace_rows(hub)
    old = {"id": "res_old", "trace_id": row["id"], "case_id": "case_old", "case_version": 1, "case_key": "k", "trace_revision": 1}
    place = {name: row[name] for name in ("organization_id", "project_id", "agent_id", "created_at", "updated_at")}
    async with hub.database.writing() as connection:
        await connection.execute(results.insert().values(**old, **place, outcome="fail", body=pack({})))
    await request_reevaluation(hub, LOCAL, Reevaluation())
    assert await evaluate_all(hub) == 1
    assert await result_rows(hub) == []
