"""Lists over many rows: the same pages of the same lists over 10^4 rows and over many more, side by side.

`PROCTOR_BENCH_ROWS` is their number (100,000 by default), `PROCTOR_BENCH_DATABASE_URL` names an empty PostgreSQL database to measure
next to SQLite. Every list is read with several combinations of filters, common and rare; the slowest counts. A list that goes
along an index alone takes the same time over any number of rows; one with other conditions reads a bounded part.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks.report import Figure
from proctor.service.access import audit
from proctor.service.access.callers import LOCAL, Caller
from proctor.service.hub import Hub, stamp
from proctor.service.runs import requests as runs
from proctor.service.settings import ServiceSettings
from proctor.service.traces import search
from proctor.service.traces.search import ResultSearch, TraceSearch
from proctor.store.sql import tables
from proctor.store.sql.database import Database, open_database

FEW = 10_000
MANY = int(os.environ.get("PROCTOR_BENCH_ROWS", "100000"))
URL = os.environ.get("PROCTOR_BENCH_DATABASE_URL")
ROUNDS = 5
AT_ONCE = 2_000
AGENTS, PROJECTS, CASES = 20, 5, 50
OTHER = "org_other"
Ask = Callable[[Hub], Awaitable[dict[str, Any]]]


def _results(wanted: dict[str, Any], caller: Caller = LOCAL, **more: Any) -> Ask:
    return lambda hub: search.list_results(hub, caller, ResultSearch(**wanted, **more))


def _traces(wanted: dict[str, Any], caller: Caller = LOCAL, **more: Any) -> Ask:
    return lambda hub: search.list_traces(hub, caller, TraceSearch(**wanted, **more))


_SOME = Caller(organization_id=LOCAL.organization_id, kind="project", key_id="k", project_id="proj_1", agent_ids=("agent_1", "agent_6"))
ALONG: dict[str, Ask] = {
    "results": _results({}),
    "results of a project": _results({"project_id": "proj_1"}),
    "results of an agent": _results({"agent_id": "agent_1"}),
    "results of a case": _results({}, case_id="case_7"),
    "results of a trace": _results({}, trace_id="trc_17"),
    "results: pass": _results({"outcome": "pass"}),
    "results: error": _results({"outcome": "error"}),
    "results: skip, of which there are five": _results({"outcome": "skip"}),
    "results of a project: skip": _results({"project_id": "proj_1", "outcome": "skip"}),
    "results of an agent: fail": _results({"agent_id": "agent_1", "outcome": "fail"}),
    "results of a case: error": _results({"outcome": "error"}, case_id="case_7"),
    "results of a code, of which there are five": _results({}, code="regex_timeout"),
    "results of an agent and a code": _results({"agent_id": "agent_1"}, code="judge_unavailable"),
    "results since": _results({"since": stamp(1_800_000_000 + 5_000)}),
    "results until": _results({"until": stamp(1_800_000_000 + 50)}),
    "traces": _traces({}),
    "traces of an agent": _traces({"agent_id": "agent_1"}),
    "traces: skip": _traces({"outcome": "skip"}),
    "traces of a project: error": _traces({"project_id": "proj_1", "outcome": "error"}),
    "traces: failed": _traces({}, status="failed"),
    "traces by external id": _traces({}, external_id="external 77"),
    "runs": lambda hub: runs.list_runs(hub, LOCAL),
    "runs: failed": lambda hub: runs.list_runs(hub, LOCAL, runs.RunSearch(status="failed")),
    "audit": lambda hub: audit.list_notes(hub, LOCAL),
    "audit of a thing": lambda hub: audit.list_notes(hub, LOCAL, resource_id="thing_7"),
    "audit of a kind, of which there are five": lambda hub: audit.list_notes(hub, LOCAL, resource="secret"),
}
"""Lists that an index answers alone."""
FILTERED: dict[str, Ask] = {
    "results of an agent and a case that never met": _results({"agent_id": "agent_1"}, case_id="case_8"),
    "results: an outcome and a code that never met": _results({"outcome": "pass"}, code="judge_unavailable"),
    "results of an agent in another project": _results({"agent_id": "agent_1", "project_id": "proj_2"}),
    "results of some agents: skip": _results({"outcome": "skip"}, _SOME),
    "results of another organization's trace": _results({}, trace_id="trc_10"),
    "traces with a text that is nowhere": _traces({}, query="nowhere"),
    "traces of an agent with a text that is nowhere": _traces({"agent_id": "agent_1"}, query="nowhere"),
    "traces with metadata that none has": _traces({}, metadata=("plan=none",)),
    "traces: pass and failed": _traces({"outcome": "pass"}, status="failed"),
}
"""Lists with conditions that no index covers."""


def _outcome(number: int) -> tuple[str, str | None]:
    if number < 5:
        return "skip", "regex_timeout"
    if number % 100 == 1:
        return "error", "judge_unavailable"
    return ("fail", None) if number % 10 == 3 else ("pass", None)


def _rows(count: int) -> Iterator[tuple[sa.Table, dict[str, Any]]]:
    """The rows of every table, from the oldest to the newest; every tenth is another organization's."""
    for number in range(count):
        at = stamp(1_800_000_000 + number / 100)
        agent = number % AGENTS
        outcome, code = _outcome(number)
        owner = OTHER if number % 10 == 0 else LOCAL.organization_id
        own = {"organization_id": owner, "project_id": f"proj_{agent % PROJECTS}", "created_at": at, "updated_at": at}
        place = {**own, "agent_id": f"agent_{agent}"}
        status = "failed" if number % 5_000 == 7 else "evaluated"
        yield tables.traces, {
            "id": f"trc_{number}", "external_id": f"external {number}", "format": "mibo", "status": status, "metadata": {"plan": "basic"},
            "input_text": "where is my order", "outcome": outcome, **place,
        }  # fmt: skip
        yield tables.results, {
            "id": f"res_{number}", "trace_id": f"trc_{number}", "case_id": f"case_{(agent * 7 + number // AGENTS % 3) % CASES}",
            "case_version": 1, "case_key": "k", "trace_revision": 1, "outcome": outcome, "code": code, "body": b"{}", **place,
        }  # fmt: skip
        yield tables.runs, {
            "id": f"run_{number}", "suite_name": "s", "dialect": "native", "document": "", "note": "",
            "status": "failed" if number < 5 else "completed", **own,
        }  # fmt: skip
        yield tables.audit, {
            "id": f"aud_{number}", "organization_id": owner, "at": at, "actor": "k", "action": "create",
            "resource": "secret" if number < 5 else "case", "resource_id": f"thing_{number % 1_000}",
        }  # fmt: skip


async def _fill(database: Database, count: int) -> None:
    waiting: dict[str, list[dict[str, Any]]] = {}
    async with database.writing() as connection:
        for table, row in _rows(count):
            rows = waiting.setdefault(table.name, [])
            rows.append(row)
            if len(rows) == AT_ONCE:
                await connection.execute(table.insert(), rows)
                rows.clear()
        for name, rows in waiting.items():
            if rows:
                await connection.execute(tables.METADATA.tables[name].insert(), rows)
    if database.dialect == "postgresql":
        async with database.engine.connect() as connection:
            await (await connection.execution_options(isolation_level="AUTOCOMMIT")).exec_driver_sql("VACUUM ANALYZE")


async def _seconds(hub: Hub, ask: Ask) -> float:
    """The least time of a first page: the least disturbed one is the closest to the truth."""
    found = await ask(hub)
    assert "data" in found
    taken: list[float] = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        await ask(hub)
        taken.append(time.perf_counter() - started)
    return min(taken)


async def _measured(url: str, home: Path, count: int) -> dict[str, float]:
    database = await open_database(url)
    try:
        await _fill(database, count)
        hub = Hub(database=database, settings=ServiceSettings(home=home))
        return {name: await _seconds(hub, ask) for name, ask in (ALONG | FILTERED).items()}
    finally:
        await database.close()


async def _emptied(url: str) -> None:
    database = await open_database(url)
    async with database.writing() as connection:
        for name in ("traces", "results", "runs", "audit"):
            await connection.exec_driver_sql(f"TRUNCATE {name}")
    await database.close()


def _pair(kind: str) -> tuple[dict[str, float], dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        found: list[dict[str, float]] = []
        for count in (FEW, MANY):
            url = f"sqlite:///{folder}/{count}.db" if kind == "SQLite" else str(URL)
            if kind != "SQLite":
                asyncio.run(_emptied(url))
            found.append(asyncio.run(_measured(url, Path(folder), count)))
        return found[0], found[1]


def _slowest(times: dict[str, float], names: Iterable[str]) -> tuple[str, float]:
    name = max(names, key=times.__getitem__)
    return name, times[name]


def figures() -> Iterator[Figure]:
    """The slowest list of each kind, over few rows and many."""
    for kind in ("SQLite", *(("PostgreSQL",) if URL else ())):
        few, many = _pair(kind)
        if os.environ.get("PROCTOR_BENCH_EACH"):
            for name in few:
                yield Figure(f"{kind}: {name}, ms", many[name] * 1000, note=f"{few[name] * 1000:.2f} ms over {FEW} rows")
        _, least = _slowest(few, ALONG)
        name, most = _slowest(many, ALONG)
        note = f"{most * 1000:.1f} ms against {least * 1000:.1f} ms; {name}"
        yield Figure(f"{kind}: slowest list by an index, {MANY} rows against {FEW}", most / least, at_most=4.0, note=note)
        name, most = _slowest(many, FILTERED)
        note = f"{few[name] * 1000:.1f} ms over {FEW} rows; {name}"
        yield Figure(f"{kind}: slowest list with extra conditions, {MANY} rows, seconds", most, at_most=0.5, note=note)
