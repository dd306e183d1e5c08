"""A service with a project of 100,000 results, written directly into its database: two very long runs, earlier runs, traces."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from proctor.formats.suites import read_suite
from proctor.model.evidence import Evidence
from proctor.model.run import RunEntry
from proctor.model.verdict import Verdict
from proctor.service.access.callers import LOCAL
from proctor.service.hub import stamp
from proctor.service.runs.figures import RunFacts, find_failures, find_latency, store_figures, tally_run
from proctor.service.runs.results import suite_of_run
from proctor.service.runs.worker import make_range_finder
from proctor.store.runs.entry_digests import make_digest
from proctor.store.runs.entry_previews import LONG_TEXT, make_shown
from proctor.store.sql import tables
from proctor.store.sql.compressed_json import compress_bytes, pack, to_json
from proctor.store.sql.database import Database, open_database

ATTEMPTS = int(os.environ.get("PROCTOR_BENCH_ATTEMPTS", "100000"))
WITH_FIGURES = os.environ.get("PROCTOR_BENCH_FIGURES", "1") != "0"
CASES = 1_000
PROJECT, RUN, RUN_BEFORE = "proj_bench", "run_large", "run_large_before"
RUN_WIDE = "run_wide"
RUN_SMALL, RUN_SMALL_BEFORE = "run_small_1", "run_small_2"
WIDE, WIDEST = 4, 10_000_000
"""Attempts with a long answer, and about how many characters it has."""
_AT_ONCE = 2_000
_SMALL = 2_000
"""Attempts of the runs before them."""


def write_suite() -> str:
    """Return the suite of the runs."""
    cases = "".join(f"  - {{id: case-{number}, input: hello, expect: [{{response_contains: hello}}]}}\n" for number in range(CASES))
    return f"proctor: 1\nname: shop\ncases:\n{cases}"


def make_entry(number: int, *, failing: int) -> RunEntry:
    """Return one attempt; those of every case whose number is `failing` modulo 20 fail."""
    case = number % CASES
    bad = case % 20 == failing
    reason = f"'hello' is not in 'I do not know, {number}.'" if bad else "found"
    text = f"I do not know, {number}." if bad else f"hello, this is the answer number {number}"
    took = 200.0 + (number * 7919 % 1000) ** 1.4 / 10
    return RunEntry(
        case=f"case-{case}",
        attempt=number // CASES,
        outcome="fail" if bad else "pass",
        score=0.0 if bad else 1.0,
        verdicts=(Verdict(outcome="fail" if bad else "pass", score=0.0 if bad else 1.0, reason=reason),),
        evidence=Evidence(input="hello", text=text, duration_ms=took),
        started_at="2031-01-01T00:00:00.000Z",
        duration_ms=took,
    )


def make_wide_entry(number: int) -> RunEntry:
    """Return one attempt with a long answer."""
    entry = make_entry(number, failing=3)
    assert entry.evidence is not None
    words = " ".join(f"word {at * 7919 % 100_003}" for at in range(WIDEST // 11))
    return msgspec.structs.replace(entry, evidence=msgspec.structs.replace(entry.evidence, text=words))


def _make_run(id: str, attempts: int, at: float, document: str, *, failing: int) -> dict[str, Any]:
    failed = sum(1 for number in range(attempts) if number % CASES % 20 == failing)
    settings = {"attempts": attempts, "repeat": max(1, attempts // CASES)}
    return {
        "id": id, "organization_id": LOCAL.organization_id, "project_id": PROJECT, "suite_name": "shop", "dialect": "native",
        "document": document, "target": "shop-agent", "settings": settings, "status": "completed", "outcome": "fail" if failed else "pass",
        "counts": {"pass": attempts - failed, "fail": failed}, "note": "a new prompt", "name": "v2", "tags": ",nightly,",
        "created_at": stamp(at), "updated_at": stamp(at), "started_at": stamp(at), "completed_at": stamp(at + 600),
    }  # fmt: skip


def _make_entries(attempts: int, *, failing: int) -> Iterator[RunEntry]:
    return (make_entry(number, failing=failing) for number in range(attempts))


def _list_entries(run_id: str, entries: Iterable[RunEntry], at: float) -> Iterator[dict[str, Any]]:
    find_ranges = make_range_finder(read_suite(write_suite(), name="shop").cases)
    for number, entry in enumerate(entries):
        data = to_json(entry)
        yield {
            "id": f"att_{run_id[4:]}_{number:07}", "run_id": run_id, "case_id": entry.case, "attempt": entry.attempt,
            "outcome": entry.outcome, "digest": make_digest(data), "body": compress_bytes(data), "created_at": stamp(at + number / 200),
            "shown": make_shown(entry, find_ranges) if len(data) > LONG_TEXT else None,
        }  # fmt: skip


def _list_results(count: int, now: float) -> Iterator[dict[str, Any]]:
    passed = pack({"outcome": "pass", "assertions": []})
    for number in range(count):
        bad = number % 20 == 3
        reason = f"order {number} was {'lost' if number > count * 0.6 else 'late'}"
        body = pack({"outcome": "fail", "assertions": [{"check": "contains", "outcome": "fail", "reason": reason}]}) if bad else passed
        at = stamp(now - 2 * 86_400 * (1 - number / count))
        yield {
            "id": f"res_{number}", "organization_id": LOCAL.organization_id, "project_id": PROJECT, "agent_id": "agent_1",
            "trace_id": f"trc_{number}", "case_id": "case_1", "case_version": 1, "case_key": "k", "trace_revision": 1,
            "outcome": "fail" if bad else "pass", "body": body, "created_at": at, "updated_at": at,
        }  # fmt: skip


async def _keep_figures(database: Database, run: dict[str, Any]) -> None:
    """Store the figures of a finished run, as its worker does."""
    async with database.reading() as connection:
        tally = await tally_run(connection, run["id"])
        failures = await find_failures(connection, run)
        latency = await find_latency(connection, run["id"], sum(run["counts"].values()))
    facts = RunFacts(failures=failures, latency=latency, totals=tally.add_up(suite_of_run(run)))
    async with database.writing() as connection:
        await store_figures(connection, run["id"], tally, facts)


async def fill(home: Path, attempts: int = ATTEMPTS, *, with_figures: bool = WITH_FIGURES) -> None:
    """Create and fill the database of a service in a folder; without figures, runs are as earlier versions stored them."""
    now = time.time()
    document = write_suite()
    database = await open_database(f"sqlite:///{home / 'proctor.db'}")
    try:
        async with database.writing() as connection:
            own = {"organization_id": LOCAL.organization_id, "created_at": stamp(now), "updated_at": stamp(now)}
            await connection.execute(tables.projects.insert().values(id=PROJECT, name="Corner shop", paused=False, settings={}, **own))
            made = [
                _make_run(f"run_small_{day}", _SMALL, now - day * 86_400, document, failing=1 if day % 2 else 5) for day in range(12, 0, -1)
            ]
            large = ((RUN_WIDE, WIDE, now - 90_000, 3), (RUN_BEFORE, attempts, now - 7_200, 5), (RUN, attempts, now - 3_600, 3))
            made += [_make_run(id, count, at, document, failing=failing) for id, count, at, failing in large]
            await connection.execute(tables.runs.insert(), made)
        rows = (
            (tables.run_entries, _list_entries(RUN_SMALL_BEFORE, _make_entries(_SMALL, failing=5), now - 2 * 86_400)),
            (tables.run_entries, _list_entries(RUN_SMALL, _make_entries(_SMALL, failing=1), now - 86_400)),
            (tables.run_entries, _list_entries(RUN_WIDE, map(make_wide_entry, range(WIDE)), now - 90_000)),
            (tables.run_entries, _list_entries(RUN_BEFORE, _make_entries(attempts, failing=5), now - 7_200)),
            (tables.run_entries, _list_entries(RUN, _make_entries(attempts, failing=3), now - 3_600)),
            (tables.results, _list_results(attempts, now)),
        )
        for table, listed in rows:
            waiting: list[dict[str, Any]] = []
            async with database.writing() as connection:
                for row in listed:
                    waiting.append(row)
                    if len(waiting) == _AT_ONCE:
                        await connection.execute(table.insert(), waiting)
                        waiting = []
                if waiting:
                    await connection.execute(table.insert(), waiting)
        for run in made:
            if with_figures and run["id"] in (RUN_SMALL, RUN_SMALL_BEFORE, RUN_WIDE, RUN_BEFORE, RUN):
                await _keep_figures(database, run)
    finally:
        await database.close()
