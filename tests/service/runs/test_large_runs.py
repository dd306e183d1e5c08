"""Pages and lists of runs with many attempts, or with large ones: they read no more than they show."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from proctor.errors import StoreError
from proctor.model.case import Suite
from proctor.model.evidence import Evidence, Usage
from proctor.model.run import RunEntry
from proctor.model.verdict import Verdict
from proctor.service.access.callers import LOCAL
from proctor.service.hub import Hub, stamp
from proctor.service.refusals import Refusal
from proctor.service.runs.comparisons import compare_runs, read_several
from proctor.service.runs.figures import group_run_failures, measure_latency
from proctor.service.runs.results import AttemptFilter, ReadResult, list_run_results, show_run_result, suite_of_run
from proctor.store.runs.entry_digests import make_digest
from proctor.store.runs.entry_previews import make_search_text
from proctor.store.sql.compressed_json import pack, to_json
from proctor.store.sql.tables import run_entries, runs
from tests.databases import TestDatabase

CASES = 10
NOW = 1_900_000_000.0


def make_entry(number: int, *, failing: int) -> RunEntry:
    """Return an attempt; every case whose number is below `failing` fails."""
    bad = number % CASES < failing
    outcome: Any = "fail" if bad else "pass"
    verdicts = (Verdict("pass", 1.0, "found"), Verdict(outcome, float(not bad), f"'hello' is not in 'bye {number}'" if bad else "found"))
    seen = Evidence(text=f"answer {number}", duration_ms=100.0 + number % 7, usage=Usage(total_tokens=10 + number % 3))
    return RunEntry(case=f"case-{number % CASES}", attempt=number // CASES, outcome=outcome, verdicts=verdicts, evidence=seen)


async def add_run(hub: Hub, id: str, attempts: int, *, failing: int, digests: bool = True, status: str = "completed") -> None:
    """Keep a run as its worker leaves it; without `digests` as an earlier version left it."""
    cases = "".join(
        f"  - {{id: case-{number}, input: hi, expect: [{{response_contains: a}}, {{response_contains: hello}}]}}\n"
        for number in range(CASES)
    )
    failed = sum(number % CASES < failing for number in range(attempts))
    row = {
        "id": id, "organization_id": LOCAL.organization_id, "project_id": "proj_1", "suite_name": "s", "dialect": "native", "note": "",
        "document": f"proctor: 1\nname: s\ncases:\n{cases}", "settings": {"attempts": attempts, "repeat": max(1, attempts // CASES)},
        "status": status, "counts": {"pass": attempts - failed, "fail": failed}, "created_at": stamp(NOW), "updated_at": stamp(NOW),
    }  # fmt: skip
    entries = [make_entry(number, failing=failing) for number in range(attempts)]
    rows = [
        {
            "id": f"att_{id}_{number:06}", "run_id": id, "case_id": entry.case, "attempt": entry.attempt, "outcome": entry.outcome,
            "digest": make_digest(to_json(entry)) if digests else None, "search_text": make_search_text(entry) if digests else None,
            "body": pack(entry), "created_at": stamp(NOW + number),
        }
        for number, entry in enumerate(entries)
    ]  # fmt: skip
    async with hub.database.writing() as connection:
        await connection.execute(runs.insert().values(row))
        for first in range(0, len(rows), 1_000):
            await connection.execute(run_entries.insert(), rows[first : first + 1_000])


async def spoil_bodies(hub: Hub) -> None:
    async with hub.database.writing() as connection:
        await connection.execute(sa.update(run_entries).values(body=b"spoiled"))


async def read_all(hub: Hub, base: str, candidate: str) -> Any:
    """Return everything that pages show of two runs without opening an attempt."""
    page = await list_run_results(hub, LOCAL, candidate, limit=50)
    other = await list_run_results(hub, LOCAL, candidate, AttemptFilter(case="case-0"), limit=100)
    compared = await compare_runs(hub, LOCAL, candidate, base)
    failures = await group_run_failures(hub, LOCAL, candidate)
    return page["data"], other["data"], compared, failures, await measure_latency(hub, LOCAL, candidate)


def test_pages_of_a_run_read_no_body(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        await add_run(hub, "run_a", 40, failing=0)
        await add_run(hub, "run_b", 40, failing=3)
        await spoil_bodies(hub)
        page, _, compared, failures, latency = await read_all(hub, "run_a", "run_b")
        assert len(page) == 40 and page[0]["case"] == "case-9"
        assert compared["comparison"]["newly_failing"] == ["case-0", "case-1", "case-2"]
        assert compared["reasons"]["case-0"].startswith("response_contains · hello: 'hello' is not in 'bye ")
        assert [(group.count, group.cases) for group in failures.groups] == [(12, 3)]
        assert latency.looked_at == 40 and compared["tokens"]["base_median"] is not None

    database.run_hub(use)


def test_attempts_without_a_digest_are_shown_like_those_with_one(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        for name, digests in (("new", True), ("old", False)):
            await add_run(hub, f"run_{name}_a", 250, failing=1, digests=digests)
            await add_run(hub, f"run_{name}_b", 250, failing=3, digests=digests)
        texts = [str(await read_all(hub, f"run_{name}_a", f"run_{name}_b")).replace(f"run_{name}", "run") for name in ("new", "old")]
        assert texts[0] == texts[1]

    database.run_hub(use)


def test_a_comparison_reads_attempts_by_stretches_whichever_of_them_have_a_digest(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(hub: Hub) -> None:
        await add_run(hub, "run_a", 250, failing=1)
        await add_run(hub, "run_b", 250, failing=3)
        async with hub.database.writing() as connection:
            # All at the same moment: then their ids alone say which comes first.
            await connection.execute(sa.update(run_entries).values(created_at=stamp(NOW)))
        whole = await compare_runs(hub, LOCAL, "run_b", "run_a")
        monkeypatch.setattr("proctor.store.runs.entry_digests._MANY", 60)
        monkeypatch.setattr("proctor.store.runs.entry_digests._FEW", 25)
        for without in ("none", "att_run_b_00004%", "att_run_a_0002%", "%7", "%"):
            async with hub.database.writing() as connection:
                await connection.execute(sa.update(run_entries).where(run_entries.c.id.like(without)).values(digest=None))
                await connection.execute(sa.update(runs).values(updated_at=f"changed {without}"))
            assert await compare_runs(hub, LOCAL, "run_b", "run_a") == whole, without

    database.run_hub(use)


@pytest.mark.parametrize("digest", [b"{", b'{"case":"a","outcome":"pass"},{"case":"a","outcome":"pass"}', b"1"])
def test_a_damaged_digest_is_reported(database: TestDatabase, digest: bytes) -> None:
    async def use(hub: Hub) -> None:
        await add_run(hub, "run_a", 40, failing=0)
        await add_run(hub, "run_b", 40, failing=3)
        async with hub.database.writing() as connection:
            await connection.execute(sa.update(run_entries).where(run_entries.c.id == "att_run_a_000007").values(digest=digest))
        with pytest.raises(StoreError, match="stored result"):
            await compare_runs(hub, LOCAL, "run_b", "run_a")

    database.run_hub(use)


def test_the_runs_of_a_suite_share_it_unless_they_choose_other_cases() -> None:
    document = "proctor: 1\nname: s\ncases: [{id: shared-1, input: hi}, {id: shared-2, input: hi}]\n"

    def read(**settings: Any) -> Suite:
        return suite_of_run({"document": document, "dialect": "native", "suite_name": "s", "settings": settings})

    assert read(repeat=1, attempts=2) is read(repeat=9, attempts=18, concurrency=2)
    assert [case.id for case in read(selection="shared-2").cases] == ["shared-2"]


def test_figures_of_a_finished_run_are_not_computed_again(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        await add_run(hub, "run_a", 40, failing=0)
        await add_run(hub, "run_b", 40, failing=3)
        before = await read_all(hub, "run_a", "run_b")
        async with hub.database.writing() as connection:
            await connection.execute(sa.delete(run_entries).where(run_entries.c.run_id == "run_a"))
        assert (await read_all(hub, "run_a", "run_b"))[2:] == before[2:]
        async with hub.database.writing() as connection:
            await connection.execute(sa.update(runs).where(runs.c.id == "run_b").values(name="v2", updated_at=stamp(NOW + 60)))
        found = await read_several(hub, LOCAL, ["run_a", "run_b"])
        assert found.comparisons[0].found.candidate.name == "v2", "it was named later"
        assert found.comparisons[0].found.comparison.cases == 0

    database.run_hub(use)


def test_a_run_that_goes_on_is_looked_at_each_time(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        await add_run(hub, "run_a", 40, failing=0)
        await add_run(hub, "run_b", 40, failing=3, status="running")
        await read_all(hub, "run_a", "run_b")
        async with hub.database.writing() as connection:
            await connection.execute(sa.delete(run_entries).where(run_entries.c.run_id == "run_b", run_entries.c.case_id == "case-0"))
        _, _, compared, failures, latency = await read_all(hub, "run_a", "run_b")
        assert compared["comparison"]["only_in_base"] == ["case-0"]
        assert failures.looked_at == 8 and latency.looked_at == 36

    database.run_hub(use)


def test_the_excerpt_of_a_large_attempt_is_made_once(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        await add_run(hub, "run_a", 2, failing=0)
        large = msgspec.structs.replace(make_entry(0, failing=0), evidence=Evidence(text="".join(f"{n * n:x} " for n in range(60_000))))
        async with hub.database.writing() as connection:
            await connection.execute(sa.update(run_entries).where(run_entries.c.id == "att_run_a_000000").values(body=pack(large)))
        made: list[str] = []

        async def show(id: str, view: str) -> Any:
            def write(read: ReadResult) -> dict[str, Any]:
                made.append(f"{id[-1]} {view}")
                return {"case": read.entry.case, "length": len((read.entry.evidence or Evidence()).text or "")}

            return await show_run_result(hub, LOCAL, "run_a", id, view=view, write=write)

        first = [await show("att_run_a_000000", view) for view in ("en", "en", "de", "en")]
        assert first == [{"case": "case-0", "length": first[0]["length"]}] * 4 and first[0]["length"] > 400_000
        for _ in range(2):
            assert (await show("att_run_a_000001", "en"))["case"] == "case-1"
        assert made == ["0 en", "0 de", "1 en", "1 en"], "small ones are not remembered"
        with pytest.raises(Refusal):
            await show("att_none", "en")
        async with hub.database.writing() as connection:
            await connection.execute(sa.delete(run_entries).where(run_entries.c.run_id == "run_a"))
        with pytest.raises(Refusal):
            await show("att_run_a_000000", "en")

    database.run_hub(use)


async def measure(act: Callable[[], Awaitable[object]]) -> float:
    """Return the least CPU time of three."""
    times: list[float] = []
    for _ in range(3):
        begun = time.process_time()
        await act()
        times.append(time.process_time() - begun)
    return min(times)


@pytest.mark.in_turn
@pytest.mark.timeout(120)
def test_twice_the_attempts_take_at_most_twice_the_work(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        took: list[float] = []
        for size in (4_000, 8_000):
            # Still running: nothing is remembered.
            await add_run(hub, f"run_{size}_a", size, failing=0, status="running")
            await add_run(hub, f"run_{size}_b", size, failing=3, status="running")
            took.append(await measure(lambda size=size: compare_runs(hub, LOCAL, f"run_{size}_b", f"run_{size}_a")))
        assert took[1] <= 2.3 * took[0] + 0.05, took

    database.run_hub(use)


@pytest.mark.timeout(120)
def test_the_first_page_costs_the_same_however_long_the_run_is(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        took: list[float] = []
        for size in (2_000, 10_000):
            await add_run(hub, f"run_{size}", size, failing=3, status="running")

            async def look(size: int = size) -> None:
                await list_run_results(hub, LOCAL, f"run_{size}", limit=50)
                await group_run_failures(hub, LOCAL, f"run_{size}")

            took.append(await measure(look))
        # 600 and 1,000 failures are grouped.
        assert took[1] <= 2.3 * took[0] + 0.05, took

    database.run_hub(use)


async def find_all(hub: Hub, id: str, text: str, *, limit: int = 100, **more: Any) -> tuple[list[str], int]:
    """Return the attempts in which a text occurs, oldest first, and how many pages they came in; going back gives the same."""
    found: list[str] = []
    pages, cursor = 0, None
    while pages == 0 or cursor is not None:
        page = await list_run_results(hub, LOCAL, id, AttemptFilter(text=text, **more), limit=limit, cursor=cursor)
        assert page["_meta"]["total"] is None and page["_meta"]["position"] is None
        found += [row["id"] for row in page["data"]]
        cursor, pages = page["_meta"]["next"], pages + 1
    return [id.rpartition("_")[2].lstrip("0") for id in reversed(found)], pages


@pytest.mark.parametrize("digests", [True, False], ids=["stored now", "stored by an earlier version"])
def test_attempts_are_found_by_a_text_in_what_was_answered_and_in_reasons(database: TestDatabase, digests: bool) -> None:
    async def use(hub: Hub) -> None:
        await add_run(hub, "run_a", 250, failing=3, digests=digests)
        assert (await find_all(hub, "run_a", "ANSWER 24"))[0] == ["24", *(str(number) for number in range(240, 250))]
        assert len((await find_all(hub, "run_a", "not in 'BYE"))[0]) == sum(number % CASES < 3 for number in range(250))
        assert (await find_all(hub, "run_a", "bye 2", case="case-1"))[0] == ["21", *(str(201 + 10 * n) for n in range(5))]
        assert (await find_all(hub, "run_a", "bye 2", outcome="pass", limit=7))[0] == []
        for nothing in ("%", "answer_2", "no such text", "\ud800", "a\0b"):
            assert (await find_all(hub, "run_a", nothing))[0] == [], nothing

    database.run_hub(use)


def test_a_page_of_a_search_looks_at_a_bounded_stretch_and_leads_on(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.store.sql.pages.STRETCH", 100)

    async def use(hub: Hub) -> None:
        await add_run(hub, "run_a", 950, failing=0)
        assert await find_all(hub, "run_a", "answer 77") == (["77", *(str(number) for number in range(770, 780))], 10)
        page = await list_run_results(hub, LOCAL, "run_a", AttemptFilter(text="answer 77"))
        assert page["data"] == [] and page["_meta"]["next"], "nothing among the newest, and the way on"

    database.run_hub(use)


@pytest.mark.parametrize(("wanted", "more"), [("x" * 201, {}), ("x", {"position": 3})])
def test_a_search_that_cannot_be_made_is_refused(database: TestDatabase, wanted: str, more: dict[str, int]) -> None:
    async def use(hub: Hub) -> None:
        await add_run(hub, "run_a", 10, failing=0)
        with pytest.raises(Refusal):
            await list_run_results(hub, LOCAL, "run_a", AttemptFilter(text=wanted), **more)

    database.run_hub(use)
