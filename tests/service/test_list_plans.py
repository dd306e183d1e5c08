"""Every list uses an index for every combination of filters: no query reads or sorts a whole table, on either database."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.service.access import agents, audit, keys, projects
from proctor.service.access.callers import LOCAL, Caller
from proctor.service.hub import Hub
from proctor.service.labels.annotations import list_annotations
from proctor.service.notify import alerts
from proctor.service.overview import read_overview
from proctor.service.refusals import Refusal
from proctor.service.runs import requests as runs
from proctor.service.runs import results as run_results
from proctor.service.runs.figures import measure_latency
from proctor.service.runs.proposals import list_proposals
from proctor.service.runs.results import AttemptFilter
from proctor.service.runs.schedules import list_schedules
from proctor.service.traces import cases, search
from proctor.service.traces.search import ResultSearch, TraceSearch
from proctor.service.verification.runs import benchmark_runs, task_runs
from proctor.store.sql import pages
from proctor.store.sql.tables import alert_rules
from proctor.store.sql.tables import projects as project_table
from proctor.store.sql.tables import runs as run_table

pytestmark = pytest.mark.timeout(120)
CURSOR = pages._write_cursor("older", {"created_at": "2031-01-01T00:00:00.000Z", "id": "x"}, "created_at", "id")
NEWER = pages._write_cursor("newer", {"created_at": "2021-01-01T00:00:00.000Z", "id": "x"}, "created_at", "id")
PROJECT_KEY = Caller(organization_id=LOCAL.organization_id, kind="project", key_id="k", project_id="p", agent_ids=("a", "b"))
Listing = Callable[..., Awaitable[Any]]


async def list_results(hub: Hub, caller: Caller, *, cursor: str | None, **given: Any) -> None:
    await search.list_results(hub, caller, ResultSearch(**given), cursor=cursor)


async def list_traces(hub: Hub, caller: Caller, *, cursor: str | None, **given: Any) -> None:
    await search.list_traces(hub, caller, TraceSearch(**given), cursor=cursor)


async def list_runs(hub: Hub, caller: Caller, *, cursor: str | None, **given: Any) -> None:
    await runs.list_runs(hub, caller, runs.RunSearch(**given), cursor=cursor)


async def at_position(hub: Hub, caller: Caller, *, cursor: str | None, **given: Any) -> None:
    position = given.pop("position", None)
    await run_results.list_run_results(hub, caller, "run", AttemptFilter(**given), position=position)


async def list_attempts(hub: Hub, caller: Caller, *, cursor: str | None, **given: Any) -> None:
    await run_results.list_run_results(hub, caller, "run", AttemptFilter(**given), cursor=cursor)


async def look_over(hub: Hub, caller: Caller, *, cursor: str | None, **given: Any) -> None:
    await read_overview(hub, caller, "p", **given)


def fixed(listing: Listing, id: str) -> Listing:
    return lambda hub, caller, **given: listing(hub, caller, id, **given)


async def measure_again(hub: Hub, caller: Caller, cursor: str | None) -> object:
    """Without the cache, which otherwise answers for finished runs."""
    return await measure_latency(hub, caller, "run")


MOMENT = "2031-01-01"
LISTS: dict[str, tuple[Listing, dict[str, tuple[Any, ...]]]] = {
    "results": (list_results, {
        "project_id": ("p",), "agent_id": ("a",), "case_id": ("c",), "trace_id": ("t",), "outcome": ("pass", "fail"), "code": ("x",),
        "since": (MOMENT,),
    }),
    "traces": (list_traces, {
        "project_id": ("p",), "agent_id": ("a",), "outcome": ("pass", "error"), "status": ("evaluated", "failed"), "external_id": ("e",),
        "query": ("refund",), "metadata": (("a=b",),), "until": (MOMENT,), "case_id": ("c",),
    }),
    "annotations": (list_annotations, {
        "project_id": ("p",), "subject": ("trace",), "subject_id": ("t",), "label": ("fail",),
    }),
    "runs": (list_runs, {
        "project_id": ("p",), "status": ("failed",), "name": ("v2",), "tag": ("nightly",), "query": ("refund",), "schedule_id": ("s",),
    }),
    "schedules": (list_schedules, {"project_id": ("p",)}),
    "proposals": (list_proposals, {"project_id": ("p",), "status": ("pending", "rejected")}),
    "run results": (list_attempts, {"outcome": ("pass",), "case": ("c",), "text": ("refund",)}),
    "run results at a position": (at_position, {"outcome": ("pass",), "case": ("c",), "position": (1, 7)}),
    "overview": (look_over, {"since": ("2001-01-01", MOMENT)}),
    "latency": (measure_again, {}),
    "cases": (cases.list_cases, {"project_id": ("p",), "agent_id": ("a",), "active": (True, False)}),
    "agents": (agents.list_agents, {"project_id": ("p",)}),
    "projects": (projects.list_projects, {}),
    "keys": (keys.list_keys, {"kind": ("project",), "project_id": ("p",), "solver_id": ("s",)}),
    "audit": (audit.list_notes, {"resource": ("project",), "resource_id": ("p",)}),
    "alerts": (alerts.list_alerts, {"project_id": ("p",), "agent_id": ("a",)}),
    "deliveries": (fixed(alerts.list_deliveries, "rule"), {}),
    "benchmark runs": (benchmark_runs.list_benchmark_runs, {"benchmark_id": ("b",)}),
    "task runs": (task_runs.list_task_runs, {}),
    "criterion runs": (task_runs.list_criterion_runs, {}),
}  # fmt: skip


def combinations(options: dict[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """Every combination of filters: with all their values where there are few of them, else with one after the other."""
    turns = itertools.count()
    for names in itertools.chain.from_iterable(itertools.combinations(options, count) for count in range(len(options) + 1)):
        chosen = list(itertools.product(*(options[name] for name in names)))
        for values in chosen if len(names) <= 2 else (chosen[next(turns) % len(chosen)],):
            yield dict(zip(names, values, strict=True))


@contextmanager
def noted(hub: Hub) -> Iterator[list[tuple[str, Any]]]:
    """Collect the page queries that run inside the block."""
    found: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if "LIMIT" in statement and "ORDER BY" in statement:
            found.append((statement, parameters))

    engine = hub.database.engine.sync_engine
    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)


async def plan_of(connection: AsyncConnection, dialect: str, statement: str, parameters: Any) -> list[str]:
    word = "EXPLAIN QUERY PLAN " if dialect == "sqlite" else "EXPLAIN "
    rows = (await connection.exec_driver_sql(word + statement, parameters)).all()
    return [str(row[-1]) for row in rows]


def complaint(dialect: str, plan: list[str], few: bool) -> str | None:
    """Return the problem of a plan; `few` rows may be sorted, such as those of one trace."""
    for line in plan:
        if dialect == "sqlite":
            # A subquery with a limit is scanned, never a table.
            if (line.startswith("SCAN") and not line.startswith("SCAN anon_")) or (
                line.startswith("USE TEMP B-TREE") and not few and "SCAN anon_1" not in plan
            ):
                return line
        elif "Seq Scan" in line or ("Sort" in line and not few):
            return line
    return None


async def seed(hub: Hub) -> None:
    """Insert the parents of nested lists."""
    await projects.create_project(hub, LOCAL, projects.NewProject(name="shop"))
    at = {"created_at": hub.now(), "updated_at": hub.now(), "organization_id": LOCAL.organization_id, "project_id": "p"}
    async with hub.database.writing() as connection:
        owned = {name: value for name, value in at.items() if name != "project_id"}
        await connection.execute(project_table.insert().values(id="p", name="p", paused=False, **owned))
        run = {"id": "run", "suite_name": "s", "dialect": "native", "document": "", "status": "completed", "note": "", **at}
        await connection.execute(run_table.insert().values(run))
        rule = {"id": "rule", "name": "r", "kind": "pass_rate", "settings": {}, "webhook_url": "", **at}
        await connection.execute(alert_rules.insert().values(rule))


@pytest.mark.in_turn
@pytest.mark.parametrize("name", list(LISTS))
@pytest.mark.timeout(60)
async def test_every_combination_of_filters_goes_along_an_index(name: str, hub: Hub) -> None:
    listing, options = LISTS[name]
    # All of them where few filters are set, else one after the other.
    variants = ((LOCAL, None), (LOCAL, CURSOR), (LOCAL, NEWER), (PROJECT_KEY, None), (PROJECT_KEY, CURSOR))
    await seed(hub)
    dialect = hub.database.dialect
    bad: list[str] = []
    count = 0
    turns = itertools.cycle(variants)
    async with hub.database.reading() as connection:
        if dialect == "postgresql":
            # With few rows it would not use an index; the remaining plans have none.
            for setting in ("enable_seqscan", "enable_sort", "enable_bitmapscan"):
                await connection.exec_driver_sql(f"SET {setting} = off")
        for given in combinations(options):
            for caller, cursor in variants if len(given) <= 2 else (next(turns),):
                with noted(hub) as made:
                    try:
                        await listing(hub, caller, cursor=cursor, **given)
                    except Refusal:
                        continue
                assert made, given
                few = "trace_id" in given or "external_id" in given or (name == "projects" and caller is PROJECT_KEY)
                for statement, parameters in made:
                    count += 1
                    found = complaint(dialect, await plan_of(connection, dialect, statement, parameters), few)
                    if found is not None:
                        bad.append(f"{given} {caller.kind}: {found}\n{statement}\n")
    assert count
    assert not bad, f"{len(bad)} of {count}:\n" + "\n".join(bad[:3])


async def test_a_page_of_a_rare_combination_may_be_short_and_leads_on_until_everything_was_seen(
    monkeypatch: pytest.MonkeyPatch, hub: Hub
) -> None:
    monkeypatch.setattr(pages, "STRETCH", 7)
    made: list[str] = []
    for number in range(30):
        made.append(str((await projects.create_project(hub, LOCAL, projects.NewProject(name=f"p{number}")))["id"]))
    notes = await audit.list_notes(hub, LOCAL, resource="project", limit=100)
    wanted = {note["resource_id"] for note in notes["data"]}
    assert wanted == set(made)
    seen: list[str] = []
    cursor, requests = None, 0
    while True:
        # Two filters: one uses the index, the other is checked per row.
        page = await audit.list_notes(hub, LOCAL, resource="project", resource_id=made[3], cursor=cursor)
        seen += [note["resource_id"] for note in page["data"]]
        cursor, requests = page["_meta"]["next"], requests + 1
        if cursor is None:
            break
    assert seen == [made[3]]
    keys_of_project = Caller(organization_id=LOCAL.organization_id, kind="project", key_id="k", project_id=made[5])
    assert [one["id"] for one in (await projects.list_projects(hub, keys_of_project))["data"]] == [made[5]]


async def test_the_way_back_over_short_pages_finds_the_same(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    monkeypatch.setattr(pages, "STRETCH", 5)
    project = str((await projects.create_project(hub, LOCAL, projects.NewProject(name="p")))["id"])
    made = [
        str((await agents.create_agent(hub, LOCAL, agents.NewAgent(project_id=project, name=f"a{number}")))["id"]) for number in range(23)
    ]
    some = Caller(organization_id=LOCAL.organization_id, kind="project", key_id="k", project_id=project, agent_ids=(made[1], made[20]))
    there: list[list[str]] = []
    cursor: str | None = None
    while True:
        page = await agents.list_agents(hub, some, cursor=cursor)
        there.append([row["id"] for row in page["data"]])
        last, cursor = cursor, page["_meta"]["next"]
        if cursor is None:
            break
    assert [id for ids in there for id in ids] == [made[20], made[1]] and len(there) > 2
    assert last is not None
    back: list[str] = []
    cursor = page["_meta"]["prev"]
    while cursor is not None:
        page = await agents.list_agents(hub, some, cursor=cursor)
        back = [*(row["id"] for row in page["data"]), *back]
        cursor = page["_meta"]["prev"]
    assert back[0] == made[20]
