"""Every screen for every visitor: one row per address."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from proctor.pages.routes import NOUN_SCREENS, SCREENS, SERVICE_SCREENS
from tests.pages.markup import Markup
from tests.pages.world import World, add_run, decide_all

TABLE: dict[str, Any] = yaml.load((Path(__file__).parent / "cases" / "screens.yaml").read_bytes(), Loader=yaml.CSafeLoader)
ROWS: list[dict[str, Any]] = TABLE["rows"]
RUN = "/ui/p/proj_home/runs/run_after"
PAGES = [
    row["path"] for row in ROWS if row["screen"].startswith("GET ") and row.get("organization", 200) == 200 and row.get("markup", True)
]


@pytest.mark.in_turn
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_the_screen_answers_every_visitor_as_in_the_table(seen: World, row: dict[str, Any]) -> None:
    method = row["screen"].partition(" ")[0]
    wrong: list[str] = []
    for who, status in {**TABLE["visitors"], **{name: row[name] for name in TABLE["visitors"] if name in row}}.items():
        answer = seen.ask(method, row["path"], None if who == "stranger" else who)
        if answer.status_code != status:
            wrong.append(f"{who}: expected {status}, got {answer.status_code}")
        if who.startswith("foreign") and "shop" in answer.text:
            wrong.append(f"{who}: is shown what belongs to home")
    assert not wrong, "\n".join(wrong)
    words = Markup(seen.get(row["path"], "organization").text).words if "texts" in row else ""
    for sentence in row.get("texts", ()):
        assert sentence in words, words


def test_every_screen_is_in_the_table() -> None:
    assert {row["screen"] for row in ROWS} == {f"{method} {path}" for method, path, _ in (*SCREENS, *SERVICE_SCREENS, *NOUN_SCREENS)}


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_whole_small_and_made_of_our_own_markup(seen: World, path: str) -> None:
    answer = seen.get(path, "organization", headers={"accept-encoding": "gzip"})
    page = Markup(answer.text)
    assert page.problems == []
    assert page.elements <= 2_000
    assert int(answer.headers["content-length"]) <= 30_000
    assert answer.headers["content-encoding"] == "gzip"
    headings = [int(level) for level in re.findall(r"<h([1-6])", answer.text)]
    assert headings[0] == 1 and headings.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(headings)), headings


@pytest.mark.parametrize("path", PAGES)
def test_a_browser_may_run_only_our_modules(seen: World, path: str) -> None:
    headers = seen.get(path, "organization").headers
    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'" and policy["script-src"] == "'self'" and policy["style-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'" and policy["trusted-types"] == "proctor"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'" and policy["form-action"] == "'self'"
    assert headers["cache-control"] == "no-store" and headers["x-content-type-options"] == "nosniff"


def test_a_run_shows_what_went_wrong_first_and_groups_it_by_reason(seen: World) -> None:
    text = seen.get(RUN, "organization").text
    words = Markup(text).words
    assert "8 failed" in words and "4 passed" in words and "2 reasons" in words
    assert words.index("Failures") < words.index("Attempts Case id")
    assert words.index("4 attempts in 1 case") < words.index("About this run")
    # Twelve attempts: linked once among the reasons where they failed, and once in the list.
    assert text.count("data-row") == 12 + 2


def test_the_address_filters_attempts(seen: World) -> None:
    narrowed = seen.get(f"{RUN}?outcome=pass&case=greeting", "organization").text
    rows = narrowed[narrowed.index('id="all"') :]
    assert rows.count('scope="row"') == 4 and "opening-hours" not in rows
    assert '<option value="pass" selected>' in rows and 'value="greeting"' in rows
    assert "No matching attempts." in seen.get(f"{RUN}?case=nobody", "organization").text


def test_a_result_has_each_assertion_next_to_its_step(seen: World) -> None:
    text = seen.get(f"{RUN}/r/att_after_0", "organization").text
    words = Markup(text).words
    assert "expected" in words and "71" in words and "order 71 was paid once" in words
    targets = set(re.findall(r'class="pointer" href="#(s\d+)"', text))
    assert targets and targets <= set(re.findall(r'id="(s\d+)"', text))
    assert {"a1", "a2", "a3"} <= set(Markup(text).ids)
    assert 'aria-current="page"' in text and 'rel="next"' in text
    assert words.count("urgent") == 1 and "urgent: true" not in words


def test_the_whole_result_can_be_had_as_json(seen: World) -> None:
    answer = seen.get(f"{RUN}/r/att_after_0/json", "organization")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == seen.get("/api/runs/run_after/results/att_after_0", "organization").json()


def test_a_comparison_shows_whether_it_is_more_than_chance(seen: World) -> None:
    address = "/ui/p/proj_home/compare?runs=run_after&runs=run_before"
    words = Markup(seen.get(address, "organization").text).words
    # The older run is the base, whichever was ticked first.
    assert "regressed new prompt compared with shop" in words and "Newly failing 2" in words
    assert "The pass rate fell by 66.7 points" in words and "more than chance" in words
    assert "4/4 → 0/4" in words and "refund-twice" in words
    turned = Markup(seen.get("/ui/p/proj_home/compare?runs=run_after,run_before&as_given=1", "organization").text).words
    assert "improved shop" in turned and "Newly passing 2" in turned


def test_a_run_that_goes_on_shows_how_far_it_is_and_can_be_ended(world: World) -> None:
    entries = decide_all({**GOOD_TEXTS})[:2]
    more = {"status": "running", "outcome": None, "completed_at": None, "attempts": 4}
    world.service.run(lambda hub: add_run(hub, "run_live", entries, **more))
    path = "/ui/p/proj_home/runs/run_live"
    text = world.get(path, "organization").text
    assert "2 of 4 attempts finished" in text and "Cancel run" in text
    assert 'data-events="/api/runs/run_live/events?after=2"' in text
    assert "Cancel run" not in world.get(path, "project").text
    assert world.post(f"{path}/cancel", "organization", proof="00" * 32).status_code == 403
    assert world.post(f"{path}/cancel", "project", proof=world.find_proof("/ui/", "project")).status_code == 403
    answer = world.post(f"{path}/cancel", "organization", proof=world.find_proof(path, "organization"))
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    # No worker drives it (its lease has expired), so it ends at once.
    after = world.get(path, "organization").text
    assert "Cancelling" in after or "cancelled" in after
    assert "data-live" in after or "data-events" not in after


GOOD_TEXTS = {
    "refund-twice": {"text": "no", "tool_calls": []},
    "opening-hours": {"text": "nine", "tool_calls": []},
    "greeting": {"text": "hello", "tool_calls": []},
}


def test_missing_things_have_a_page(seen: World) -> None:
    answer = seen.get("/ui/p/proj_home/runs/run_gone", "organization")
    assert answer.status_code == 404
    assert "Page not found" in answer.text and "run_gone" in answer.text and answer.headers["x-request-id"] in answer.text
    assert Markup(answer.text).problems == []
    assert seen.get("/ui/nowhere", "organization").status_code == 404
    assert seen.ask("DELETE", "/ui/", "organization").status_code == 405
    assert seen.get("/ui/p/proj_home/compare?runs=a,b,c", "organization").status_code == 404
    assert seen.get("/ui/p/proj_home/compare?runs=a,b,c,d,e,f,g", "organization").status_code == 400


def test_the_front_door_leads_to_the_pages(seen: World) -> None:
    for path in ("/", "/ui"):
        answer = seen.get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/")


def test_every_attempt_that_did_not_pass_shows_why_in_its_row(seen: World) -> None:
    rows = re.findall(r"<tr id=\"att_.*?</tr>", seen.get("/ui/p/proj_home/runs/run_after", "organization").text, re.S)
    failed = [row for row in rows if "outcome fail" in row]
    assert failed and all("expected" in row for row in failed)
    assert all("expected" not in row for row in rows if row not in failed)
