"""Targets of links, commands and queries on pages, and values in readable form."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from proctor.pages.screens.run import _find_pace
from proctor.pages.words import show_value
from proctor.service.access.callers import LOCAL
from proctor.service.access.keys import KeySpec, create_key
from proctor.service.access.projects import NewProject, create_project
from proctor.service.notify.alerts import NewAlert, create_alert
from proctor.service.traces.cases import update_case
from proctor.service.verification.authoring.benchmarks import create_benchmark
from proctor.store.sql.tables import alert_rules, audit
from tests.pages.markup import Markup
from tests.pages.screens.test_settings_pages import HOME, add_results, make_rule, send
from tests.pages.world import World, add_run

DISGUISED = "safe\u202egnp.exe\u200b"


def find_links(text: str) -> list[str]:
    return re.findall(r'<a [^>]*href="([^"]*)"', text)


@pytest.mark.parametrize("proxy", [False, True])
def test_an_empty_page_proposes_a_command_that_reaches_this_service(world: World, proxy: bool) -> None:
    empty = world.service.run(lambda hub: create_project(hub, LOCAL, NewProject(name="empty", description=None, settings={})))["id"]
    sent = {"x-forwarded-proto": "https"} if proxy else {}
    if proxy:
        sent["cookie"] = f"__Host-proctor_session={world.sessions['organization']}"
    host = world.service.client.base_url.netloc.decode()
    for path in (f"/ui/p/{empty}",):
        text = world.get(path, None if proxy else "organization", headers=sent).text
        command = re.findall(r'<pre class="command"[^>]*><code>(.*?)</code>', text, re.DOTALL)
        assert command and all(f"{'https' if proxy else 'http'}://{host}/" in each for each in command if "curl" in each), command
        # A user who logged in with a key needs one for the command too.
        assert all("x-api-key" in each for each in command if "curl" in each)


def test_a_failed_post_leads_back_to_a_page_that_can_be_opened(world: World) -> None:
    path = f"{HOME}/runs/run_gone/cancel"
    proof = world.find_proof("/ui/", "organization")
    origin = str(world.service.client.base_url).rstrip("/")
    for referer, way in (
        (f"{origin}{HOME}/runs/run_gone?outcome=fail", f"{HOME}/runs/run_gone?outcome=fail"),
        (None, None),
        ("https://elsewhere.example/ui/p/proj_home", None),
        (f"{origin}/api/runs", None),
        ("http://[", None),
    ):
        answer = world.ask("POST", path, "organization", data={"proof": proof}, headers={"referer": referer} if referer else {})
        main = answer.text[answer.text.index("<main") :]
        assert answer.status_code == 404 and Markup(answer.text).problems == []
        assert find_links(main) == ([way] if way else []) + [HOME, "/ui/"]
        assert ("Back" in main) == bool(way) and "Try again" not in main
    # A page that does not exist is not there the next time either; the navigation leads elsewhere.
    again = world.get(f"{HOME}/runs/run_gone", "organization").text
    assert "Try again" not in again and 'href="/ui/keys"' in again.partition("</header>")[0]


def test_a_returned_form_has_its_own_field_names_and_no_internals(world: World) -> None:
    typed = {"name": "few", "webhook_url": "https://example.com/h", "seen": "2026", "only": "preview", "secret": "x" * 20}
    answer = world.post(f"{HOME}/alerts/new?kind=pass_rate", "organization", proof="00", **typed)
    labels = re.findall(r"<label[^>]*><bdi>([^<]*)</bdi>", answer.text)
    assert answer.status_code == 403 and labels == ["Name", "Webhook", "Secret"]
    assert 'type="hidden" name="only" value="preview"' in answer.text


def test_keys_of_a_kind_are_still_those_of_the_project(world: World) -> None:
    world.service.run(lambda hub: create_key(hub, LOCAL, KeySpec(kind="project", name="ours", project_id="proj_home")))
    text = world.get("/ui/keys?project_id=proj_home", "organization").text
    filters = re.findall(r'href="(\?[^"]*)"', text[text.index('class="filters"') : text.index("<table")])
    assert filters[0] == "?project_id=proj_home" and "?kind=solver&amp;project_id=proj_home" in filters
    assert re.findall(r'href="(\?[^"]*)"', world.get("/ui/keys", "organization").text)[:2] == ["?", "?kind=organization"]


def test_the_kind_of_a_key_is_chosen_in_the_words_of_the_list(world: World) -> None:
    text = world.get("/ui/keys/new", "organization").text
    assert '<option value="run">run token</option>' in text and '<option value="project" selected>project</option>' in text


def test_an_alert_and_a_new_reason_lead_to_their_pages(world: World) -> None:
    world.service.run(lambda hub: add_results(hub, "pff", apart_s=60))
    spec = NewAlert(project_id="proj_home", name="fires", kind="failing_case", settings={}, webhook_url="https://example.com/h")
    made = world.service.run(lambda hub: create_alert(hub, LOCAL, spec))

    async def fire(hub: Any) -> None:
        async with hub.database.writing() as connection:
            await connection.execute(alert_rules.update().values(state="firing", active=True))

    world.service.run(fire)
    text = world.get(HOME, "organization").text
    links = find_links(text[text.index("<main") :])
    assert f"{HOME}/alerts/{made['id']}" in links
    assert any(re.fullmatch(rf"{HOME}/traces/trc_\d", link) for link in links), links
    assert not [link for link in links if link.startswith("/api/")]


def test_every_version_of_a_case_can_be_reached(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.pages.screens.cases._VERSIONS", 2)
    for number in (3, 4, 5):
        document = f"proctor: 1\ncases:\n  - id: greets\n    input: hello {number}\n    expect:\n      - response_contains: hello\n"
        world.service.run(lambda hub, text=document: update_case(hub, LOCAL, "case_manners", {"document": text}))
    seen: list[str] = []
    path = f"{HOME}/cases/case_manners"
    while path:
        text = world.get(path, "organization").text
        text = text[text.index('<h2 id="versions"') :]
        seen += re.findall(r"<li>Version (\d+) ", text[: text.index("</ul>")])
        following = re.search(r'href="(\?versions=[^"#]*)', text)
        path = f"{HOME}/cases/case_manners{following[1]}" if following else ""
    assert seen == ["5", "4", "3", "2", "1"]


def test_any_two_runs_can_be_chosen_to_be_compared(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    redirect = world.get(f"{HOME}/compare?runs=run_after", "organization")
    assert (redirect.status_code, redirect.headers["location"]) == (303, f"{HOME}/runs?runs=run_after")
    monkeypatch.setattr("proctor.pages.screens.run._LISTED", 1)
    first = world.get(f"{HOME}/runs?runs=run_after", "organization").text
    assert 'value="run_after"' in first and "checked" in first
    older = re.search(r'rel="next" href="([^"]*)"', first)
    assert older is not None
    text = world.get(f"{HOME}/runs{older[1].replace('&amp;', '&')}", "organization").text
    assert '<input type="hidden" name="runs" value="run_after">' in text and "1 already selected" in text
    assert 'type="checkbox" name="runs" value="run_before"' in text and 'data-choose="5"' in text
    assert Markup(text).problems == []


def test_an_attempt_that_is_not_among_the_newest_is_listed_with_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.pages.screens.result._MOST_ATTEMPTS", 2)
    text = world.get(f"{HOME}/runs/run_after/r/att_after_0", "organization").text
    nav = text[text.index('<nav class="attempts"') :]
    nav = nav[: nav.index("</nav>")]
    assert nav.count('aria-current="page"') == 1 and nav.count("<li>") == 4 and 'rel="next"' in nav
    assert f'<a href="{HOME}/runs/run_after?case=refund-twice#all">and 1 more</a>' in nav


def test_attempts_side_by_side_say_why_each_assertion_failed(seen: World) -> None:
    text = seen.get(f"{HOME}/runs/run_after/r/att_after_0?with=att_after_1", "organization").text
    table = Markup(text[text.index("<table") : text.index("</table>") + 8]).words
    assert table.count("found I am sorry, I cannot do that.") == 2 or table.count('found "I am sorry, I cannot do that."') == 2, table


def test_the_question_before_something_is_deleted_names_it_as_people_do(world: World) -> None:
    made = world.service.run(lambda hub: create_benchmark(hub, LOCAL, {"name": "Calls of the clinic"}))
    words = Markup(world.get(f"/ui/benchmarks/{made['id']}/delete", "organization").text).words
    assert "Delete Calls of the clinic?" in words
    assert world.get("/ui/benchmarks/bench_gone/delete", "organization").status_code == 404


@pytest.mark.parametrize(("path", "fields"), [(f"{HOME}/traces", 2), (f"{HOME}/traces/reevaluate", 2), ("/ui/keys/new", 1)])
def test_every_input_for_a_time_takes_the_readers_zone(seen: World, path: str, fields: int) -> None:
    text = seen.get(path, "organization").text
    assert len(re.findall(r"<input[^>]* data-zoned", text)) == fields
    assert "Without a time zone: your own" in text


def test_a_run_that_ended_without_a_result_does_not_promise_one(world: World) -> None:
    world.service.run(lambda hub: add_run(hub, "run_broken", [], status="failed", outcome=None, attempts=3))
    words = Markup(world.get(f"{HOME}/runs/run_broken", "organization").text).words
    assert "No attempts finished." in words and "yet" not in words and "Compare with previous run" not in words


def test_the_retention_of_a_project_is_shown(world: World) -> None:
    assert "Nothing is deleted by age or size." in world.get(f"{HOME}/settings", "organization").text
    fields = {"trace_days": "2", "run_days": "", "previewed": "2,"}
    assert send(world, f"{HOME}/retention", fields).status_code == 303
    words = Markup(world.get(f"{HOME}/settings", "organization").text).words
    assert "This project keeps traces" in words and "Nothing is deleted" not in words


@pytest.mark.parametrize(
    ("path", "where"),
    [
        (f"{HOME}/compare/answers?runs=run_before,run_after&case=opening-hours", "Runs"),
        ("/ui/solvers", "Benchmarks"),
        ("/ui/solvers/slv_home", "Benchmarks"),
        ("/ui/keys", "API keys"),
        (HOME, "Overview"),
        (f"{HOME}/retention", "Settings"),
    ],
)
def test_the_navigation_shows_the_current_page(seen: World, path: str, where: str) -> None:
    header = seen.get(path, "organization").text.partition("</header>")[0]
    assert re.findall(r'aria-current="(?:page|true)">([^<]+)', header) == [where]


def test_a_search_result_links_to_itself_and_not_to_its_list(seen: World) -> None:
    text = seen.get("/ui/search?q=agent_home_1", "organization").text
    assert f'<a href="{HOME}/agents/agent_home_1">' in text


def test_the_limit_of_a_rule_is_written_as_it_was_typed(world: World) -> None:
    world.service.run(lambda hub: add_results(hub, "fffpp", apart_s=60))
    fields = {"name": "n", "times": "3", "window_s": "3600", "webhook_url": "https://example.com/h", "only": "preview"}
    words = Markup(send(world, f"{HOME}/alerts/new?kind=failing_case", fields).text).words
    assert "threshold (3)" in words
    assert "Time window" in words and "1 hour" in words
    rule = make_rule(world)
    assert "threshold (90 %)" in Markup(world.get(f"{HOME}/alerts/{rule}", "organization").text).words


def test_the_audit_log_shows_values_as_json_and_never_as_python(world: World) -> None:
    details = {"one": None, "two": True, "three": {"a": [1, "x"]}, "four": ["b", 2], "five": "plain"}
    ours = {"organization_id": LOCAL.organization_id, "at": "2026-11-16T09:00:00.000Z", "actor": "key_1", "resource": "benchmark_run"}

    async def add(hub: Any) -> None:
        async with hub.database.writing() as connection:
            row = {"id": "aud_x", **ours, "action": "upload_state", "resource_id": "br_home", "details": details}
            await connection.execute(audit.insert().values(row))

    world.service.run(add)
    words = Markup(world.get("/ui/audit?resource=benchmark_run", "organization").text).words
    assert "upload state benchmark run" in words
    assert 'one: null two: true three: {"a":[1,"x"]} four: b, 2 five: plain' in words
    assert show_value("as it is") == "as it is"


def test_large_values_have_their_misleading_characters_written_out(world: World) -> None:
    made = world.service.run(lambda hub: create_benchmark(hub, LOCAL, {"name": "b"}))
    task = {"benchmark_id": made["id"], "name": "t", "task_item": {"instruction": DISGUISED}}
    answer = world.ask("POST", "/tasks", json=task, headers={"x-api-key": world.keys["organization"]})
    settings = {"targets": {"shop": {"type": "http", "url": f"https://example.com/{DISGUISED}"}}}
    other = world.service.run(lambda hub: create_project(hub, LOCAL, NewProject(name="other", description=None, settings=settings)))
    for path in (f"/ui/tasks/{answer.json()['id']}", f"/ui/p/{other['id']}/settings"):
        text = world.get(path, "organization").text
        assert "gnp.exe" in text and "\u202e" not in text and "\u200b" not in text, path


@pytest.mark.parametrize(("finished", "seconds", "rate"), [(30, 60, "30"), (9, 120, "4.5"), (1, 600, "0.10"), (2_000, 60, "2,000")])
def test_the_pace_of_a_slow_run_is_not_none(finished: int, seconds: int, rate: str) -> None:
    begun = datetime(2026, 11, 16, tzinfo=UTC)
    run = {"started_at": begun.isoformat(), "finished": finished, "attempts": finished * 2}
    pace = _find_pace(run, begun + timedelta(seconds=seconds))
    assert pace is not None and pace["rate"] == rate
