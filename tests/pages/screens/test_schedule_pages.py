"""Schedules as pages: made, previewed, changed, paused, run by hand and deleted; and alerts of the new kinds."""

from __future__ import annotations

import re
from typing import Any

import pytest

from proctor.service.runs.schedules import start_due_runs
from proctor.store.sql.tables import schedules
from tests.pages.markup import Markup
from tests.pages.screens.test_settings_pages import send
from tests.pages.world import World

HOME = "/ui/p/proj_home"
NEW = f"{HOME}/schedules/new"
TARGET = '{"type": "http", "url": "https://agent.example/"}'
RUN = {"cases": "case_manners", "repeat": "2", "concurrency": "4", "timeout_s": "60", "tags": "smoke\nnight", "target": TARGET}
FIELDS = {"name": "nightly", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "overlap": "skip", "active": "on", **RUN}


def make(world: World, **more: str) -> str:
    answer = send(world, NEW, {**FIELDS, **more})
    assert answer.status_code == 303, Markup(answer.text).words
    return answer.headers["location"].rpartition("/")[2]


def read(world: World, id: str) -> dict[str, Any]:
    return world.get(f"/api/schedules/{id}", "organization").json()


def test_a_schedule_is_made_changed_paused_run_and_deleted(world: World) -> None:
    id = make(world)
    page = f"{HOME}/schedules/{id}"
    stored = read(world, id)
    assert (stored["name"], stored["timezone"], stored["run"]["repeat"], stored["run"]["tags"]) == (
        "nightly",
        "Europe/Berlin",
        2,
        ["smoke", "night"],
    )
    assert stored["run"]["target"] == {"type": "http", "url": "https://agent.example/"} and stored["run"]["cases"] == ["case_manners"]
    shown = Markup(world.get(page, "organization").text)
    assert shown.problems == [] and "Next times" in shown.words and "No runs yet." in shown.words
    form = f"{page}/change"
    opened = world.get(form, "organization").text
    assert 'value="30 2 * * *"' in opened and "agent.example" in opened
    assert send(world, form, {**FIELDS, "cron": "@daily", "repeat": "3"}).headers["location"] == page
    changed = read(world, id)
    assert (changed["cron"], changed["run"]["repeat"], changed["name"]) == ("@daily", 3, "nightly")
    assert send(world, f"{page}/switch", {}, form=form).status_code == 303
    assert (read(world, id)["active"], read(world, id)["next_at"]) == (False, None)
    assert "paused" in Markup(world.get(f"{HOME}/schedules", "organization").text).words
    run = send(world, f"{page}/run-now", {}, form=form).headers["location"]
    assert run.startswith(f"{HOME}/runs/run_")
    listed = Markup(world.get(f"{HOME}/schedules", "organization").text)
    assert listed.problems == [] and "queued" in listed.words
    assert "nightly" in Markup(world.get(f"{HOME}/runs", "organization").text).words
    assert "Its runs stay." in Markup(world.get(f"{page}/delete", "organization").text).words
    assert send(world, f"{page}/nonsense", {}, form=form).status_code == 404
    assert send(world, f"{page}/delete", {}).headers["location"] == f"{HOME}/schedules"
    assert world.get(page, "organization").status_code == 404


def test_the_next_five_times_are_seen_before_a_schedule_is_saved(world: World) -> None:
    answer = send(world, NEW, {**FIELDS, "only": "preview", "cases": "typed"})
    shown = Markup(answer.text)
    assert answer.status_code == 200 and shown.problems == [] and len(re.findall(r"T02:30\+0[12]:00|T03:00\+02:00", answer.text)) == 5
    assert "typed" in answer.text and world.get("/api/schedules", "organization").json()["data"] == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "required"),
        ({"cron": "61 * * * *"}, "minute: expected 0 to 59"),
        ({"cron": "61 * * * *", "only": "preview"}, "minute: expected 0 to 59"),
        ({"cron": "", "only": "preview"}, "expected 1 to 200 characters"),
        ({"timezone": "Berlin"}, "nearest: Europe/Berlin"),
        ({"cases": "case_gone"}, "case_gone"),
        ({"cases": ""}, "expected either"),
        ({"cases": "", "suite": "proctor: 1\ncases: ["}, "suite"),
        ({"target": "{"}, "invalid JSON"),
        ({"target": "gone"}, "no target: send one"),
        ({"repeat": "many"}, "expected a number"),
        ({"selection": "nothing-like-it"}, "no case is selected"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_schedule_that_is_refused_comes_back_with_everything_in_it(world: World, fields: dict[str, str], message: str) -> None:
    answer = send(world, NEW, {**FIELDS, "note": "my <b>note</b>", **fields})
    shown = Markup(answer.text)
    assert answer.status_code in (400, 404) and shown.problems == []
    assert message in shown.words, shown.words[400:1400]
    assert "Your input is below." in shown.words and "my &lt;b&gt;note" in answer.text


def test_a_failed_start_is_shown_on_the_schedule(world: World) -> None:
    id = make(world, cases="", suite="proctor: 1\ncases: [{id: a, input: hi, expect: [{response_contains: x}]}]")
    page = f"{HOME}/schedules/{id}"
    assert "response_contains" in world.get(f"{page}/change", "organization").text

    async def break_it(hub: Any) -> None:
        async with hub.database.writing() as connection:
            values = {"run": {"target": "gone"}, "next_at": "2026-01-01T00:00:00.000Z", "cron": "@yearly"}
            await connection.execute(schedules.update().values(**values))
        await start_due_runs(hub)

    world.service.run(break_it)
    shown = Markup(world.get(page, "organization").text)
    assert "gone" in shown.words and "1 time without a run" in shown.words and "failed to finish" in shown.words
    assert "1 time without a run" in Markup(world.get(f"{HOME}/schedules", "organization").text).words
    seen = Markup(world.get(page, "project").text)
    assert "Run now" not in seen.words and "failed to finish" in seen.words


def test_a_concurrent_change_is_not_overwritten(world: World) -> None:
    id = make(world)
    page = f"{HOME}/schedules/{id}/change"
    seen = re.search(r'name="seen" value="([^"]+)"', world.get(page, "organization").text)
    assert seen is not None
    assert send(world, page, {**FIELDS, "name": "theirs"}).status_code == 303
    answer = send(world, page, {**FIELDS, "name": "mine", "seen": seen[1]})
    assert answer.status_code == 409 and read(world, id)["name"] == "theirs"


def test_a_rule_over_scheduled_runs_and_one_that_writes_to_slack(world: World) -> None:
    id = make(world)
    where = f"{HOME}/alerts/new?kind=scheduled_run"
    opened = world.get(where, "organization").text
    assert id in opened and 'name="agent_id"' not in opened and 'name="channel"' in opened
    fields = {"name": "broken nights", "schedule_id": id, "times": "1", "window_s": "86400", "active": "on"}
    answer = send(world, where, {**fields, "channel": "slack", "webhook_url": "https://hooks.slack.com/services/T/B/x"})
    assert answer.status_code == 303, "there is no secret to show"
    page = answer.headers["location"]
    shown = Markup(world.get(page, "organization").text)
    assert "Slack webhook" in shown.words and "1 or more scheduled runs failed" in shown.words
    assert f"/schedules/{id}" in world.get(page, "organization").text and id not in shown.words
    change = world.get(f"{page}/change", "organization").text
    assert 'name="secret"' not in change and 'name="channel"' not in change and 'name="webhook_url"' in change
    answer = send(world, where, {**fields, "channel": "email", "email": "team@example.com"})
    assert answer.status_code == 409 and "sends no e-mail" in Markup(answer.text).words


def test_several_cases_are_ticked_and_stay_ticked(world: World) -> None:
    document = {"project_id": "proj_home", "document": "proctor: 1\ncases: [{id: hi, input: hi, expect: [response_contains: hi]}]"}
    other = world.service.post("/api/cases", json=document, key=world.keys["organization"]).json()["id"]
    ticked: Any = {"cases": ["case_manners", other]}
    id = make(world, **ticked)
    assert read(world, id)["run"]["cases"] == ["case_manners", other]
    refused = send(world, NEW, {**FIELDS, **ticked, "cron": ""})
    for text in (world.get(f"{HOME}/schedules/{id}/change", "organization").text, refused.text):
        assert set(re.findall(r'name="cases" value="(\w+)" checked', text)) == {"case_manners", other}
