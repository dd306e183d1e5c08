"""Forms for cases, runs and agents: valid input is saved, other input is returned in the form."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest

from proctor.errors import StoreError
from proctor.pages.pictures import draw_history
from proctor.pages.screens.cases import MOST_LINES, compare_documents
from proctor.service.access.agents import NewAgent, create_agent
from proctor.service.access.callers import LOCAL
from proctor.service.access.keys import list_keys, open_session, revoke_key
from proctor.service.hub import Hub
from proctor.service.traces.cases import get_case, update_case
from tests.pages.markup import Markup
from tests.pages.world import GOOD, World, add_run, decide_all
from tests.pages.world_cases import BROKEN, FIRST, SECOND

HOME = "/ui/p/proj_home"
EDIT = f"{HOME}/cases/case_manners/edit"
TARGET = '{"type": "http", "url": "https://example.com/"}'


def send(world: World, path: str, who: str = "organization", **fields: Any) -> Any:
    return world.post(path, who, proof=world.find_proof(path, who), **fields)


def text_of(page: str, id: str = "text") -> str:
    """The content of a text area, as a browser reads it."""
    found = re.search(rf'<textarea id="{id}"[^>]*>\n?(.*?)</textarea>', page, re.DOTALL)
    assert found is not None, page
    return html.unescape(found[1])


def test_a_new_case_is_stored_and_shown(world: World) -> None:
    answer = send(world, f"{HOME}/cases/new", document=SECOND.replace("\n", "\r\n"), name="", dialect="", sample="0.5", active="yes")
    assert answer.status_code == 303, answer.text
    page = Markup(world.get(answer.headers["location"], "organization").text)
    assert page.problems == [] and "manners" in page.words and "50 %" in page.words
    stored = world.service.run(lambda hub: get_case(hub, LOCAL, answer.headers["location"].rpartition("/")[2]))
    assert stored["document"] == SECOND and stored["sample"] == 0.5 and stored["agent_id"] is None


def test_a_document_with_problems_is_returned_with_them_and_not_stored(world: World) -> None:
    typed = "\n\n" + BROKEN + "# </textarea><script>alert(1)</script>\n"
    answer = send(world, EDIT, document=typed, name="x" * 201, dialect="", sample="2", active="yes", expected_version="2")
    assert answer.status_code == 400
    page = Markup(answer.text)
    assert page.problems == [] and text_of(answer.text) == typed
    assert "response_containz" in page.words and "nearest:" in page.words and 'data-line="9"' in answer.text
    assert world.service.run(lambda hub: get_case(hub, LOCAL, "case_manners"))["version"] == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sample": "2"}, "expected a share from 0 to 1"),
        ({"when_metadata": "{"}, "expected a JSON object"),
        ({"when_input": "("}, "the pattern is invalid"),
        ({"name": "x" * 201}, "expected 1 to 200 characters"),
        ({"agent": "agent_foreign_1"}, "there is no agent"),
        ({"expected_version": "two"}, "expected a number"),
    ],
)
def test_an_invalid_field_is_reported_and_no_input_is_lost(world: World, fields: dict[str, str], message: str) -> None:
    form = {"document": FIRST, "name": "n", "dialect": "", "sample": "1", "expected_version": "2", **fields}
    answer = send(world, EDIT, **form)
    assert answer.status_code in (400, 404) and text_of(answer.text) == FIRST
    page = Markup(answer.text)
    assert page.problems == [] and message in page.words and "Not saved" in page.words
    for value in fields.values():
        assert html.escape(value) in answer.text


def test_checking_saves_nothing_and_lists_every_problem(world: World) -> None:
    answer = send(world, EDIT, do="check", document=BROKEN, expected_version="2")
    assert answer.status_code == 200 and "Fix these problems before saving" in answer.text and text_of(answer.text) == BROKEN
    assert "No problems found" in Markup(send(world, EDIT, do="check", document=FIRST, expected_version="2").text).words


def test_a_returned_text_is_marked_as_not_saved(world: World) -> None:
    for path in (EDIT, f"{HOME}/cases/new"):
        assert "data-dirty" not in world.get(path, "organization").text
        assert 'data-dirty="yes"' in send(world, path, do="check", document=BROKEN, expected_version="2").text


def test_the_editor_queries_the_service_while_typing(world: World) -> None:
    proof = world.find_proof(EDIT, "organization")
    answer = world.post(f"{HOME}/cases/check", "organization", proof=proof, document=BROKEN, dialect="")
    found = answer.json()
    assert answer.status_code == 200 and found["valid"] is False
    assert (found["problems"][0]["line"], found["problems"][0]["column"]) == (7, 9) and "response_contains" in found["problems"][0][
        "nearest"
    ]
    assert world.post(f"{HOME}/cases/check", "organization", proof=proof, document=FIRST, dialect="").json()["valid"] is True
    large = world.post(f"{HOME}/cases/check", "organization", proof=proof, document="x" * 1_000_001, dialect="").json()
    assert large["valid"] is False and "too large" in large["problems"][0]["message"]
    assert world.post(f"{HOME}/cases/check", "organization", document=FIRST).status_code == 403
    assert world.post(f"{HOME}/cases/check", "project", proof=world.find_proof("/ui/", "project"), document=FIRST).status_code == 403


def test_a_case_is_tried_on_stored_traces_and_not_saved(world: World) -> None:
    answer = send(world, EDIT, do="try", document=FIRST, agent="agent_home_1", count="5", expected_version="2", name="n", sample="1")
    page = Markup(answer.text)
    assert answer.status_code == 200 and page.problems == [] and text_of(answer.text) == FIRST
    assert "Tried on 5 traces" in page.words and "4 failed" in page.words and "1 passed" in page.words
    assert world.service.run(lambda hub: get_case(hub, LOCAL, "case_manners"))["version"] == 2
    idle = world.service.run(lambda hub: create_agent(hub, LOCAL, NewAgent(project_id="proj_home", name="idle", kind="otlp")))["id"]
    none = send(world, f"{HOME}/cases/new", do="try", document=FIRST, agent=idle)
    assert "No traces yet" in none.text


def test_a_concurrent_change_is_not_overwritten(world: World) -> None:
    proof = world.find_proof(EDIT, "organization")
    world.service.run(lambda hub: update_case(hub, LOCAL, "case_manners", {"document": FIRST}))
    mine = SECOND + "# mine\n"
    form = {"document": mine, "name": "n", "dialect": "", "sample": "1", "active": "yes"}
    late = world.post(EDIT, "organization", proof=proof, expected_version="2", **form)
    assert late.status_code == 409 and text_of(late.text) == mine
    assert "Version 3 was saved while you were editing" in Markup(late.text).words and 'name="expected_version" value="3"' in late.text
    assert world.service.run(lambda hub: get_case(hub, LOCAL, "case_manners"))["document"] == FIRST
    saved = world.post(EDIT, "organization", proof=proof, expected_version="3", **form)
    assert saved.status_code == 303
    assert world.service.run(lambda hub: get_case(hub, LOCAL, "case_manners"))["version"] == 4


def test_a_session_that_ended_gives_the_text_back_and_it_can_be_sent_again(world: World) -> None:
    proof = world.find_proof(EDIT, "organization")
    typed = FIRST + "# typed for an hour </textarea>\n"
    form = {"document": typed, "name": "n", "dialect": "", "sample": "1", "active": "yes", "expected_version": "2"}

    async def revoke(hub: Hub) -> None:
        for key in (await list_keys(hub, LOCAL, kind="organization"))["data"]:
            if key["revoked_at"] is None:
                await revoke_key(hub, LOCAL, key["id"])

    world.service.run(revoke)
    ended = world.post(EDIT, "organization", proof=proof, **form)
    assert ended.status_code == 401 and Markup(ended.text).problems == []
    assert text_of(ended.text, "e-1") == typed and proof not in ended.text and "submit it again" in ended.text
    # Logged in again, the proof of the page that came back is one of the old session: the editor has the text, and a proof that is good.
    from proctor.service.access.keys import KeySpec, create_key

    key = world.service.run(lambda hub: create_key(hub, LOCAL, KeySpec(kind="organization", name="again")))[1]
    world.sessions["again"] = world.service.run(lambda hub: open_session(hub, key))[1]
    again = world.post(EDIT, "again", proof=proof, **form)
    assert again.status_code == 403 and text_of(again.text, "e-1") == typed and "submit it again" in again.text
    assert send(world, EDIT, "again", **form).status_code == 303


def test_a_database_that_goes_away_gives_the_text_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    proof = world.find_proof(EDIT, "organization")

    def away(self: object) -> Any:
        raise StoreError("the database cannot be reached")

    form = {"document": FIRST + "# typed\n", "name": "n", "expected_version": "2", "sample": "1"}
    with monkeypatch.context() as patched:
        patched.setattr(type(world.service.hub.database), "reading", away)
        answer = world.post(EDIT, "organization", proof=proof, **form)
    assert answer.status_code == 503 and text_of(answer.text, "e-1") == FIRST + "# typed\n"
    with monkeypatch.context() as patched:
        patched.setattr(type(world.service.hub.database), "writing", away)
        answer = world.post(EDIT, "organization", proof=proof, **form)
    assert answer.status_code == 503 and text_of(answer.text) == FIRST + "# typed\n"


def test_a_stranger_who_never_had_a_session_gets_nothing_back(world: World) -> None:
    answer = world.post(EDIT, None, document=FIRST)
    assert answer.status_code == 401 and "response_contains" not in answer.text


def test_a_case_is_paused_resumed_and_deleted_by_forms(world: World) -> None:
    page = f"{HOME}/cases/case_manners"
    proof = world.find_proof(page, "organization")
    assert world.post(f"{page}/active", "organization", proof=proof, active="").status_code == 303
    assert "Resume" in world.get(page, "organization").text
    assert world.post(f"{page}/active", "project", proof=world.find_proof("/ui/", "project"), active="yes").status_code == 403
    unsure = world.post(f"{page}/delete", "organization", proof=proof)
    assert unsure.status_code == 303 and world.get(page, "organization").status_code == 200
    assert world.post(f"{page}/delete", "organization", sure="yes").status_code == 403
    gone = world.post(f"{page}/delete", "organization", proof=proof, sure="yes")
    assert gone.headers["location"] == f"{HOME}/cases" and world.get(page, "organization").status_code == 404


def test_a_history_marks_flaky_runs_and_describes_the_chart(world: World) -> None:
    mixed = [*decide_all({**GOOD, "greeting": {"text": "go away"}})[2:], *decide_all(GOOD, repeat=2)[5:]]
    world.service.run(lambda hub: add_run(hub, "run_mixed", mixed, at="2026-11-16T11:00:00.000Z"))
    page = world.get(f"{HOME}/cases/case_manners", "organization").text
    assert "flaky" in Markup(page).words and 'class="flaky"' in page
    assert 'aria-label="Pass rates in 3 runs; in the newest 50 %, 95 % interval' in page
    assert "flaky in 1 run" in Markup(world.get(f"{HOME}/cases", "organization").text).words


def test_a_run_is_looked_at_first_and_then_started(world: World) -> None:
    path = f"{HOME}/runs/new"
    form = {"what": "cases", "case": "case_manners", "target": "other:", "own_target": TARGET, "repeat": "2", "concurrency": "4"}
    form |= {"timeout_s": "30", "name": "nightly", "tags": "a, b", "note": "", "selection": ""}
    dry = send(world, path, do="plan", **form)
    page = Markup(dry.text)
    assert dry.status_code == 200 and page.problems == [] and "Ready to start" in page.words and "<dd>4</dd>" in dry.text
    assert text_of(dry.text, "own_target") == TARGET
    started = send(world, path, do="start", **form)
    assert started.status_code == 303, started.text
    run = world.get(f"/api/runs/{started.headers['location'].rpartition('/')[2]}", "organization").json()
    assert (run["name"], run["tags"], run["repeat"], run["attempts"]) == ("nightly", ["a", "b"], 2, 4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"own_target": "nonsense"}, "expected a JSON object"),
        ({"own_target": '{"type": "htp"}'}, "htp"),
        ({"repeat": "many"}, "expected a number"),
        ({"repeat": "0"}, "expected 1 to"),
        ({"what": "suite", "suite": BROKEN}, "response_containz"),
        ({"what": "suite", "suite": ""}, ""),
        ({"case": "case_none"}, "case_none"),
        ({"selection": "nothing-like-this"}, "no case is selected"),
    ],
)
@pytest.mark.parametrize("do", ["plan", "start"])
def test_a_run_that_cannot_start_shows_why_and_keeps_the_input(world: World, do: str, fields: dict[str, str], message: str) -> None:
    form = {"what": "cases", "case": "case_manners", "target": "other:", "own_target": TARGET, "repeat": "2", "concurrency": "4"}
    form |= {"timeout_s": "30", "name": "my run", "suite": "", "selection": "", **fields}
    answer = send(world, f"{HOME}/runs/new", do=do, **form)
    page = Markup(answer.text)
    assert answer.status_code != 303 and page.problems == [] and message in page.words and 'value="my run"' in answer.text
    assert text_of(answer.text, "suite") == form["suite"] and text_of(answer.text, "own_target") == form["own_target"]
    assert len(world.get("/api/runs", "organization").json()["data"]) == 2


def test_agents_are_added_changed_and_removed_by_forms(world: World) -> None:
    path = f"{HOME}/agents/new"
    refused = send(world, path, name=" ", kind="http", settings="{")
    assert refused.status_code == 400 and "invalid JSON" in refused.text and text_of(refused.text, "f-settings") == "{"
    form = {"name": "Concierge", "kind": "otlp", "service_name": "concierge", "settings": json.dumps({"response_path": "data.text"})}
    made = send(world, path, **form)
    assert made.status_code == 303, made.text
    address = made.headers["location"]
    page = Markup(world.get(address, "organization").text)
    assert page.problems == [] and "Concierge" in page.words and "data.text" in page.words
    taken = send(world, path, **form)
    assert taken.status_code == 409 and "already has this service_name" in Markup(taken.text).words
    changed = send(world, f"{address}/edit", **{**form, "name": "Porter", "paused": "on"})
    assert changed.headers["location"] == address
    words = Markup(world.get(address, "organization").text).words
    assert "Porter" in words and "paused" in words
    assert (
        world.post(f"{address}/delete", "organization", proof=world.find_proof(address, "organization"))
        .headers["location"]
        .endswith("#delete")
    )
    assert world.post(f"{address}/delete", "organization", proof=world.find_proof(address, "organization"), sure="yes").status_code == 303
    assert world.get(address, "organization").status_code == 404


def test_a_difference_of_documents_shows_what_went_and_came() -> None:
    found = compare_documents(FIRST, SECOND)
    assert found is not None and (found.gone, found.new) == (0, 4)
    assert [line.kind for line in found.lines] == ["same"] * 3 + ["new"] * 4
    assert compare_documents("x\n" * (MOST_LINES + 1), "x") is None
    same = compare_documents(FIRST, FIRST)
    assert same is not None and same.lines == []


def test_a_picture_of_a_history_draws_no_rate_where_nothing_was_decided() -> None:
    nothing = {"pass_rate": None, "low": None, "high": None}
    drawn = draw_history([{"pass_rate": 1.0, "low": 0.3, "high": 1.0, "flaky": False}, nothing], '"><script>')
    assert drawn.count("<circle") == 1 and drawn.count('class="none"') == 1 and "<script>" not in drawn and draw_history([], "x") == ""


def test_a_case_is_tried_on_stored_traces_from_its_page(world: World) -> None:
    page = f"{HOME}/cases/case_manners"
    assert "Try on stored traces" in world.get(page, "organization").text
    proof = world.find_proof(page, "organization")
    answer = world.post(f"{page}/backtest", "organization", proof=proof, limit="50")
    assert answer.status_code == 303, answer.text
    shown = Markup(world.get(answer.headers["location"], "organization").text)
    assert shown.problems == [] and "stored traces" in shown.words and "Backtest" in shown.words
    refused = world.post(f"{page}/backtest", "organization", proof=world.find_proof(page, "organization"), limit="many")
    assert refused.status_code == 400
