"""A list of finished attempts from a position on, runs that are searched for, and how long attempts took."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.model.evidence import Evidence
from proctor.model.run import RunEntry
from tests.pages.world import World, add_run

OUTCOMES = ["fail" if number % 10 == 3 else "pass" for number in range(230)]
ENTRIES = [
    RunEntry(case=f"c{number % 46}", attempt=number // 46, outcome=outcome, evidence=Evidence(text="x", duration_ms=float(number)))
    for number, outcome in enumerate(OUTCOMES)
]
NEWEST_FIRST = [(entry.case, entry.attempt) for entry in reversed(ENTRIES)]


@pytest.fixture(scope="module")
def long(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home = tmp_path_factory.mktemp("positions")
    (home / "proctor.db").write_bytes(sqlite_template.read_bytes())
    with World(f"sqlite:///{home / 'proctor.db'}", home) as world:
        more = {"at": "2026-11-16T12:00:00.000Z", "name": "big", "tags": ",nightly,", "note": "of the Night"}
        world.service.run(lambda hub: add_run(hub, "run_long", ENTRIES, repeat=5, **more))
        yield world


def ask(world: World, path: str) -> Any:
    return world.service.get(path, key=world.keys["organization"])


@pytest.mark.parametrize("position", [0, 1, 19, 114, 115, 116, 200, 225, 229, 230, 231, 10**9])
def test_a_page_begins_at_its_position(long: World, position: int) -> None:
    page = ask(long, f"/api/runs/run_long/results?position={position}").json()
    assert [(row["case"], row["attempt"]) for row in page["data"]] == NEWEST_FIRST[position : position + 20]
    assert page["_meta"]["total"] == 230 and page["_meta"]["position"] == min(position, 230)
    assert (page["_meta"]["prev"] is not None) == (0 < position < 230) and (page["_meta"]["next"] is not None) == (position < 210)


def test_a_position_counts_the_filtered_results_and_continues_by_cursor(long: World) -> None:
    failed = [entry for entry in reversed(ENTRIES) if entry.outcome == "fail"]
    page = ask(long, "/api/runs/run_long/results?outcome=fail&position=4&limit=5").json()
    assert [row["case"] for row in page["data"]] == [entry.case for entry in failed[4:9]] and page["_meta"]["total"] == 23
    after = ask(long, f"/api/runs/run_long/results?outcome=fail&limit=5&cursor={page['_meta']['next']}").json()
    assert [row["case"] for row in after["data"]] == [entry.case for entry in failed[9:14]] and after["_meta"]["position"] is None
    one = ask(long, "/api/runs/run_long/results?case=c3&position=3").json()
    assert [row["attempt"] for row in one["data"]] == [1, 0] and one["_meta"]["total"] == 5
    both = ask(long, "/api/runs/run_long/results?case=c3&outcome=fail&position=1").json()
    assert both["_meta"]["total"] == sum(entry.case == "c3" and entry.outcome == "fail" for entry in ENTRIES)
    assert len(both["data"]) == max(0, both["_meta"]["total"] - 1)


@pytest.mark.parametrize("query", ["position=-1", "position=x", "position=99999999999", "position=3&cursor=abc"])
def test_a_position_that_is_none_is_refused(long: World, query: str) -> None:
    assert ask(long, f"/api/runs/run_long/results?{query}").status_code == 400


def test_the_page_of_a_run_jumps_to_a_row_and_to_the_end(long: World) -> None:
    run = "/ui/p/proj_home/runs/run_long"
    for address, first, last in (
        (run, 1, 50),
        (f"{run}?row=120", 101, 150),
        (f"{run}?position=200", 201, 230),
        (f"{run}?row=9,999", 201, 230),
    ):
        text = long.get(address, "organization").text
        assert f"{first}–{last} of 230" in text and f'aria-rowindex="{first + 1}"' in text, address
    assert 'href="?position=200#all" data-jump="229"' in long.get(run, "organization").text
    rows = long.get(f"{run}/rows?position=225&limit=50", "organization").text
    assert rows.count("<tr ") == 5 and "<html" not in rows


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("query=NIGHT", ["run_long"]), ("query=big", ["run_long"]), ("query=prompt", ["run_after"]), ("query=%25", []),
        ("query=nowhere", []),
        ("query=shop&tag=nightly", ["run_long"]), ("query=shop&status=failed", []), ("name=big&query=night", ["run_long"]),
    ],
)  # fmt: skip
def test_runs_are_searched_by_name_suite_and_note(long: World, query: str, found: list[str]) -> None:
    page = ask(long, f"/api/runs?project_id=proj_home&{query}").json()
    assert [run["id"] for run in page["data"]] == found


def test_attempts_are_found_by_a_text_over_rest_and_on_the_page(long: World) -> None:
    found = ask(long, "/api/runs/run_after/results?q=DO+NOT+know&limit=100").json()
    assert {row["case"] for row in found["data"]} == {"opening-hours"} and found["_meta"]["total"] is None
    run = "/ui/p/proj_home/runs/run_after"
    page = long.get(f"{run}?q=do+not+KNOW", "organization").text
    assert page.count("<tr id=") == len(found["data"]) and 'name="q" value="do not KNOW"' in page
    assert "No matching attempts." in long.get(f"{run}?q=nowhere+at+all", "organization").text
    for query in ("q=x&position=1", f"q={'x' * 201}"):
        assert ask(long, f"/api/runs/run_after/results?{query}").status_code == 400, query


def test_a_page_on_which_nothing_was_found_leads_to_older_attempts(long: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.store.sql.pages.STRETCH", 3)
    page = long.get("/ui/p/proj_home/runs/run_after?q=I+do+not+know&outcome=fail", "organization").text
    assert ("Older ones were not looked at yet." in page) == ("<tr id=" not in page)
    assert re.search(r'rel="next" href="\?cursor=\w+[^"]*&amp;q=I%20do%20not%20know"', page), page


def test_a_query_that_is_too_long_is_refused(long: World) -> None:
    assert ask(long, f"/api/runs?query={'x' * 201}").status_code == 400


def test_durations_of_attempts_are_shown_with_their_distribution(long: World) -> None:
    found = ask(long, "/api/runs/run_long/latency").json()
    assert (found["least_ms"], found["median_ms"], found["p95_ms"], found["most_ms"]) == (0.0, 114.0, 218.0, 229.0)
    assert found["looked_at"] == found["total"] == 230 == sum(part["count"] for part in found["bins"]) and not found["is_sample"]
    assert ask(long, "/api/runs/run_before/latency").json()["median_ms"] == 800.0


def test_a_long_run_is_sampled_over_its_whole_length(long: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.service.runs.figures.MOST_READ", 48)
    # As for an unfinished run: of a finished one, an earlier test may have filled the cache.
    monkeypatch.setattr("proctor.service.runs.figures.find_finished_key", lambda *rows: None)
    found = ask(long, "/api/runs/run_long/latency").json()
    assert found["is_sample"] and found["looked_at"] == 48 and found["total"] == 230
    assert found["least_ms"] == 0.0 and found["most_ms"] > 205 and 90 < found["median_ms"] < 140
