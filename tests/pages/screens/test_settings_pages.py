"""Alerts, keys, settings, audit, health and search as pages: actions, and refusals in place."""

from __future__ import annotations

import re
from typing import Any

import pytest

from proctor.service.access.callers import LOCAL
from proctor.service.access.keys import KeySpec, create_key, open_session
from proctor.service.hub import Hub, stamp
from proctor.store.sql.compressed_json import pack
from proctor.store.sql.tables import results
from tests.pages.markup import Markup
from tests.pages.world import World

HOME = "/ui/p/proj_home"


async def add_results(hub: Hub, outcomes: str, *, apart_s: float = 600) -> None:
    """Results of the last hours, oldest first: `p` passed, `f` failed."""
    now = hub.clock()
    async with hub.database.writing() as connection:
        for number, letter in enumerate(outcomes):
            at = stamp(now - (len(outcomes) - number) * apart_s)
            ours = {"organization_id": LOCAL.organization_id, "project_id": "proj_home", "agent_id": "agent_home_1"}
            more = {"trace_id": f"trc_{number}", "case_id": "case_x", "case_version": 1, "case_key": "a", "trace_revision": 1}
            row = {
                "id": f"res_{number}",
                "outcome": {"p": "pass", "f": "fail"}[letter],
                "body": pack({}),
                "created_at": at,
                "updated_at": at,
            }
            await connection.execute(results.insert().values(**ours, **more, **row))


def send(world: World, path: str, fields: dict[str, str], who: str = "organization", *, form: str | None = None) -> Any:
    """Send a form of a page, with its proof."""
    return world.post(path, who, proof=world.find_proof(form or path, who), **fields)


def make_rule(world: World, **more: str) -> str:
    fields = {"name": "too few pass", "below": "0.9", "window_s": "3600", "minimum": "2", "webhook_url": "https://example.com/hook"}
    answer = send(world, f"{HOME}/alerts/new?kind=pass_rate", {**fields, "active": "on", **more})
    assert answer.status_code == 200 and "whsec_" in answer.text, answer.text
    found = re.search(r"/alerts/(alr_\w+)", answer.text)
    assert found is not None
    return found[1]


def test_a_rule_is_made_changed_switched_tested_and_deleted(world: World) -> None:
    id = make_rule(world)
    page = f"{HOME}/alerts/{id}"
    words = Markup(world.get(page, "organization").text).words
    assert "pass rate below 90 % within 1 h" in words or "pass rate below 90 %" in words
    answer = send(world, f"{page}/change", {"name": "fewer", "below": "0.5", "window_s": "3600", "minimum": "2", "active": "on",
                                            "webhook_url": "https://example.com/hook"})  # fmt: skip
    assert (answer.status_code, answer.headers["location"]) == (303, page)
    stored = world.get(f"/api/alerts/{id}", "organization").json()
    assert (stored["name"], stored["settings"]["below"], stored["settings"]["minimum"]) == ("fewer", 0.5, 2)
    watched = make_rule(world, agent_id="agent_home_1")
    for shown in (f"{HOME}/alerts", f"{HOME}/alerts/{watched}"):
        text = world.get(shown, "organization").text
        assert f'· agent <a href="{HOME}/agents/agent_home_1"><bdi>' in text and ">agent_home_1<" not in text
    assert send(world, f"{page}/switch", {}, form=page).status_code == 303
    assert world.get(f"/api/alerts/{id}", "organization").json()["active"] is False
    assert send(world, f"{page}/test", {}, form=page).status_code == 303
    assert "alert.test" in Markup(world.get(page, "organization").text).words
    assert "Delete fewer?" in Markup(world.get(f"{page}/delete", "organization").text).words
    assert send(world, f"{page}/delete", {}).headers["location"] == f"{HOME}/alerts"
    assert world.get(page, "organization").status_code == 404


def test_a_rule_is_previewed_before_it_is_stored(world: World) -> None:
    world.service.run(lambda hub: add_results(hub, "pppppp" + "ffff" + "pppppppppppp"))
    fields = {"name": "few", "below": "0.6", "window_s": "3600", "minimum": "2", "webhook_url": "", "only": "preview"}
    answer = send(world, f"{HOME}/alerts/new?kind=pass_rate", fields)
    words = Markup(answer.text).words
    assert answer.status_code == 200 and "It would have fired 2 times over 26 results." in words
    # The axis begins at the first value, and the last one lasts until now.
    drawn = answer.text.partition('class="fired"')[2].partition("</svg>")[0]
    places = [float(x) for x in re.findall(r'(?:cx="|points="|[\d.] )([\d.]+)(?:,|")', drawn)]
    assert (min(places), max(places)) == (0, 600)
    assert 'class="fired"' in answer.text and 'role="img" aria-label="It would have fired 2 times' in answer.text
    assert 'value="0.6"' in answer.text  # the form still has the input
    assert world.get("/api/alerts", "organization").json()["data"] == []


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("pass_rate", {"below": "lots"}, "expected a number"),
        ("pass_rate", {"below": "7"}, "expected a number from 0 to 1"),
        ("failing_case", {"times": "0"}, "expected a number from 1"),
        ("failing_case", {"case_id": "case_nobody"}, "there is no case"),
        ("pass_rate", {"webhook_url": "http://127.0.0.1/"}, "the webhook is invalid"),
        ("pass_rate", {"name": ""}, "required"),
        ("missing_evidence", {"secret": "short"}, "expected 16 to 500 characters"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_rule_that_is_refused_comes_back_with_everything_in_it(seen: World, kind: str, fields: dict[str, str], message: str) -> None:
    typed = {"name": "my <b>rule</b>", "webhook_url": "https://example.com/hook", "window_s": "1234"} | fields
    answer = send(seen, f"{HOME}/alerts/new?kind={kind}", typed)
    page = Markup(answer.text)
    assert answer.status_code in (400, 404) and page.problems == []
    assert message in page.words and "Your input is below." in page.words
    for name, value in typed.items():
        assert name == "secret" or f'value="{value.replace("<", "&lt;").replace(">", "&gt;")}"' in answer.text, name


def test_a_form_overtaken_by_another_changes_nothing(world: World) -> None:
    id = make_rule(world)
    page = f"{HOME}/alerts/{id}/change"
    opened = world.get(page, "organization").text
    seen_at = re.search(r'name="seen" value="([^"]+)"', opened)
    assert seen_at is not None
    fields = {
        "name": "theirs",
        "below": "0.9",
        "window_s": "3600",
        "minimum": "2",
        "webhook_url": "https://example.com/hook",
        "active": "on",
    }
    assert send(world, page, fields).status_code == 303
    answer = send(world, page, {**fields, "name": "mine", "seen": seen_at[1]})
    assert answer.status_code == 409 and 'value="mine"' in answer.text
    assert "this was changed at" in Markup(answer.text).words
    assert world.get(f"/api/alerts/{id}", "organization").json()["name"] == "theirs"
    # As the page explains: submitting again after the warning overwrites the change.
    now = re.search(r'name="seen" value="([^"]+)"', answer.text)
    assert now is not None and now[1] != seen_at[1]
    assert send(world, page, {**fields, "name": "mine", "seen": now[1]}).status_code == 303
    assert world.get(f"/api/alerts/{id}", "organization").json()["name"] == "mine"


def test_how_long_things_stay_is_set_once_it_was_seen_what_would_go(world: World) -> None:
    page = f"{HOME}/retention"
    for path in (f"{HOME}/settings", page):
        assert 'name="trace_days"' in world.get(path, "organization").text, path
    shown = send(world, page, {"trace_days": "1", "run_days": ""}, form=f"{HOME}/settings")
    words = Markup(shown.text).words
    assert shown.status_code == 200 and "traces older than 1 day" in words and "no runs: only" in words
    assert world.get("/api/projects/proj_home/retention", "organization").json()["trace_days"] is None
    previewed = re.search(r'name="previewed" value="([^"]*)"', shown.text)
    assert previewed is not None and previewed[1] == "1," and 'value="1"' in shown.text
    other = send(world, page, {"trace_days": "2", "run_days": "", "previewed": "1,"})
    assert other.status_code == 200 and "older than 2 days" in Markup(other.text).words, "input after the preview is not stored"
    sent = send(world, page, {"trace_days": "2", "run_days": "", "previewed": "2,"})
    assert (sent.status_code, sent.headers["location"]) == (303, f"{HOME}/settings#retention")
    assert world.get("/api/projects/proj_home/retention", "organization").json()["trace_days"] == 2
    assert "This project keeps traces for 2 days." in Markup(world.get(f"{HOME}/settings", "organization").text).words
    assert "set retention project" in Markup(world.get("/ui/audit", "organization").text).words


@pytest.mark.parametrize(
    ("typed", "message"), [("0", "expected 1 to 3650"), ("a week", "expected a number"), ("1.5", "expected a whole number")]
)
def test_invalid_days_are_returned_as_typed(seen: World, typed: str, message: str) -> None:
    answer = send(seen, f"{HOME}/retention", {"trace_days": typed, "run_days": "77", "previewed": f"{typed},77"})
    assert answer.status_code == 400 and message in Markup(answer.text).words
    assert f'value="{typed}"' in answer.text and 'value="77"' in answer.text


def test_a_key_is_made_shown_once_and_revoked(world: World) -> None:
    answer = send(world, "/ui/keys/new", {"kind": "project", "name": "ci", "project_id": "proj_home", "agent_ids": "agent_home_1\r\n"})
    found = re.search(r"proctor_proj_[\w-]{43}", answer.text)
    assert answer.status_code == 200 and found is not None and "Shown once" in answer.text
    listed = world.get("/ui/keys", "organization").text
    assert found[0] not in listed and f"proctor_proj_...{found[0][-4:]}" in listed
    assert re.search(r'href="/ui/p/proj_home"><bdi>(?!proj_)', listed) and ">agent_home_1<" not in listed
    id = next(row["id"] for row in world.get("/api/keys", "organization").json()["data"] if row["name"] == "ci")
    assert "Revoke ci" in Markup(world.get(f"/ui/keys/{id}/revoke", "organization").text).words
    assert send(world, f"/ui/keys/{id}/revoke", {}).status_code == 303
    assert "revoked" in Markup(world.get("/ui/keys?kind=project", "organization").text).words
    assert world.service.ask("GET", "/api/projects", key=found[0]).status_code == 401


def test_a_key_that_cannot_be_made_shows_why_in_the_form(seen: World) -> None:
    for fields, message in (
        ({"kind": "project", "name": "x", "project_id": "proj_nobody"}, "there is no project"),
        ({"kind": "organization", "name": ""}, "required"),
        ({"kind": "project", "name": "x"}, "project"),
        ({"kind": "organization", "name": "x", "expires_at": "tomorrow"}, "Expires at"),
    ):
        answer = send(seen, "/ui/keys/new", fields)
        assert answer.status_code in (400, 404), fields
        assert message in Markup(answer.text).words, (fields, Markup(answer.text).words)


def test_a_project_is_made_changed_paused_and_deleted(world: World) -> None:
    answer = send(world, "/ui/projects/new", {"name": "second", "description": "", "settings": '{"targets": {}}'})
    assert answer.status_code == 303
    page = answer.headers["location"]
    refused = send(world, f"{page}/settings/change", {"name": "second", "description": "d", "settings": '{"targets": {\n  oops}'})
    assert refused.status_code == 400 and "line 2, column" in Markup(refused.text).words and "oops}" in refused.text
    assert send(world, f"{page}/settings/change", {"name": "renamed", "description": "d", "settings": ""}).status_code == 303
    stored = world.get(page.replace("/ui/p/", "/api/projects/"), "organization").json()
    assert (stored["name"], stored["description"], stored["settings"]) == ("renamed", "d", {})
    assert send(world, f"{page}/pause", {}, form=f"{page}/settings").status_code == 303
    assert "paused" in Markup(world.get(f"{page}/settings", "organization").text).words
    assert send(world, f"{page}/delete", {}).headers["location"] == "/ui/"
    assert world.get(page, "organization").status_code == 404


def test_users_who_may_make_projects_get_the_link(seen: World) -> None:
    link = 'href="/ui/projects/new"'
    assert link in seen.get("/ui/", "organization").text
    assert link not in seen.get("/ui/", "project").text


def test_secrets_are_listed_by_name_and_never_shown(world: World) -> None:
    assert send(world, f"{HOME}/secrets", {"name": "SHOP_TOKEN", "value": "very-secret"}).status_code == 303
    page = world.get(f"{HOME}/settings", "organization").text
    assert "SHOP_TOKEN" in page and "very-secret" not in page
    refused = send(world, f"{HOME}/secrets", {"name": "no spaces please", "value": "v"})
    assert refused.status_code == 400 and 'value="no spaces please"' in refused.text
    address = f"{HOME}/secrets/delete?name=SHOP_TOKEN"
    assert send(world, f"{HOME}/secrets/delete", {"name": "SHOP_TOKEN"}, form=address).status_code == 303
    assert "SHOP_TOKEN" not in world.get(f"{HOME}/settings", "organization").text


def test_the_audit_log_is_narrowed_and_leads_to_what_was_written(world: World) -> None:
    make_rule(world)
    words = Markup(world.get("/ui/audit", "organization").text).words
    assert "create alert" in words and "create key" in words
    narrowed = Markup(world.get("/ui/audit?resource=alert", "organization").text).words
    assert "create alert" in narrowed and "create key" not in narrowed
    assert "No matching entries." in Markup(world.get("/ui/audit?resource=alert&resource_id=x", "organization").text).words


def test_health_is_public_and_figures_are_for_the_operator(seen: World) -> None:
    words = Markup(seen.get("/ui/health", "organization").text).words
    assert ("proctor" in words and "SQLite" in words) or "your key cannot read them" in words
    assert "Queued traces" not in Markup(seen.get("/ui/health", "project").text).words


@pytest.mark.parametrize(
    ("who", "text", "found"),
    [
        ("organization", "HOM", "home"),
        ("organization", "run_after", "shop"),
        ("organization", "shop", "run_before"),
        ("project", "shop", "run_after"),
        ("foreign_organization", "run_after", None),
        ("foreign_organization", "shop", None),
        ("agent", "run_before", None),
        ("organization", "100%", None),
        ("organization", "_", None),
    ],
    ids=lambda value: str(value),
)
def test_search_finds_ids_and_parts_of_names_of_ones_own(seen: World, who: str, text: str, found: str | None) -> None:
    answer = seen.get("/ui/search", who, params={"q": text})
    words = Markup(answer.text).words
    assert answer.status_code == 200
    if found is None:
        assert "run_after" not in words.replace(text, "") and ("No matches." in words or text == "_")
    else:
        assert found in words


def test_a_form_that_comes_too_late_gives_back_what_was_typed(world: World) -> None:
    """The key of the session is revoked in the middle; afterwards its owner logs in with another one and sends the form again."""
    (row, plain) = world.service.run(lambda hub: create_key(hub, LOCAL, KeySpec(kind="organization", name="other")))
    world.sessions["other"] = world.service.run(lambda hub: open_session(hub, plain))[1]
    proof = world.find_proof(f"{HOME}/secrets", "other")
    assert (
        world.ask("DELETE", f"/api/keys/{row['id']}", headers={"authorization": f"Bearer {world.keys['organization']}"}).status_code == 200
    )
    answer = world.post(f"{HOME}/settings/change", "other", proof=proof, name="kept <i>name</i>", description="two\nlines", settings="{}")
    page = Markup(answer.text)
    assert answer.status_code == 401 and page.problems == []
    assert "Your input" in page.words and "kept <i>name</i>" in page.words and "two lines" in page.words
    assert f'action="{HOME}/settings/change"' in answer.text and "proof" in answer.text
    # After another login the proof is of the earlier session; the page explains it and returns the form with a valid proof.
    again = world.post(f"{HOME}/settings/change", "organization", proof=proof, name="kept", description="two\nlines", settings="{}")
    fresh = re.search(r'name="proof" value="([0-9a-f]+)"[^>]*>\s*<p><label', again.text) or re.findall(
        r'name="proof" value="([0-9a-f]+)"', again.text
    )
    assert again.status_code == 403 and "two\nlines" in again.text and "Form of another session" in again.text
    good = fresh[-1] if isinstance(fresh, list) else fresh[1]
    assert world.post(f"{HOME}/settings/change", "organization", proof=good, name="kept", description="d", settings="{}").status_code == 303


def test_a_stranger_without_a_session_gets_nothing_back(seen: World) -> None:
    answer = seen.post(f"{HOME}/settings/change", None, name="mine", proof="00")
    assert answer.status_code == 401 and "mine" not in answer.text


def test_input_is_returned_when_the_database_is_down(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from proctor.errors import StoreError
    from proctor.rest import security

    proof = world.find_proof(f"{HOME}/secrets", "organization")

    async def away(*_: object) -> None:
        raise StoreError("the database did not answer")

    monkeypatch.setattr(security, "find_session_caller", away)
    answer = world.post("/ui/projects/new", "organization", proof=proof, name="a long story", description="", settings="")
    page = Markup(answer.text)
    assert answer.status_code == 503 and page.problems == []
    assert "Database unavailable" in page.words and "a long story" in page.words and "Submit again" in page.words
    monkeypatch.undo()
    monkeypatch.setattr("proctor.service.access.transactions.Transaction.insert_row", away)
    answer = world.post("/ui/projects/new", "organization", proof=proof, name="a long story", description="", settings="")
    assert answer.status_code == 503 and "a long story" in answer.text


def test_a_run_deleted_while_open_is_reported(world: World) -> None:
    from proctor.service.access.projects import delete_project

    assert world.get(f"{HOME}/runs/run_after", "organization").status_code == 200
    world.service.run(lambda hub: delete_project(hub, LOCAL, "proj_home"))
    for path in (f"{HOME}/runs/run_after", f"{HOME}/alerts", f"{HOME}/settings"):
        answer = world.get(path, "organization")
        assert answer.status_code == 404 and "was deleted" in Markup(answer.text).words
