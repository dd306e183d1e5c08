"""Proposals as pages: the queue, the difference, editing, accepting and rejecting."""

from __future__ import annotations

from typing import Any

from tests.pages.markup import Markup
from tests.pages.screens.test_settings_pages import send
from tests.pages.world import World

HOME = "/ui/p/proj_home"
QUEUE = f"{HOME}/proposals"
DOCUMENT = "proctor: 1\ncases:\n  - id: refund\n    input: Refund 17\n    expect:\n      - tool_called: refund\n"


def propose(world: World, **more: Any) -> str:
    body = {"project_id": "proj_home", "document": DOCUMENT, "because": "<b>seen</b> in a ticket", **more}
    answer = world.service.post("/api/proposals", json=body, key=world.keys["project"])
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def read(world: World, id: str) -> dict[str, Any]:
    return world.get(f"/api/proposals/{id}", "organization").json()


def test_a_proposal_is_read_edited_and_accepted(world: World) -> None:
    id = propose(world)
    page = f"{QUEUE}/{id}"
    queue = Markup(world.get(QUEUE, "organization").text)
    assert queue.problems == [] and "<b>seen</b> in a ticket" in queue.words and "new case" in queue.words
    shown = Markup(world.get(page, "organization").text)
    assert shown.problems == [] and "tool_called: refund" in shown.words and "Accept" in shown.words
    assert "Accept" not in Markup(world.get(page, "project").text).words
    edit = f"{page}/edit"
    form = {"document": DOCUMENT.replace("17", "18"), "name": "refund", "dialect": "native", "agent": "", "expected_version": "1"}
    checked = send(world, edit, {**form, "do": "check"})
    assert checked.status_code == 200 and "No problems found" in checked.text and "Refund 18" in checked.text
    assert send(world, edit, {**form, "document": "cases: ["}).status_code == 400
    assert send(world, edit, form).headers["location"] == page
    stale = send(world, f"{page}/accept", {"version": "1"}, form=page)
    assert stale.status_code == 409 and "edited since" in Markup(stale.text).words
    case = send(world, f"{page}/accept", {"version": "2"}, form=page).headers["location"]
    assert case.startswith(f"{HOME}/cases/case_") and "Refund 18" in world.get(case, "organization").text
    assert "Accepted as" in Markup(world.get(page, "organization").text).words
    assert "No pending proposals." in Markup(world.get(QUEUE, "organization").text).words
    assert "refund" in Markup(world.get(f"{QUEUE}?status=accepted", "organization").text).words


def test_a_change_shows_its_difference_and_a_rejected_one_can_be_forgotten(world: World) -> None:
    case = world.service.post("/api/cases", json={"project_id": "proj_home", "document": DOCUMENT}, key=world.keys["organization"]).json()[
        "id"
    ]
    id = propose(world, case_id=case, document=DOCUMENT.replace("17", "99"))
    page = f"{QUEUE}/{id}"
    shown = Markup(world.get(page, "organization").text)
    assert shown.problems == [] and "Lines removed: 1; added: 1." in shown.words
    assert send(world, f"{page}/reject", {"reason": "too narrow"}, form=page).headers["location"] == QUEUE
    assert read(world, id)["reason"] == "too narrow"
    assert "too narrow" in Markup(world.get(f"{QUEUE}?status=rejected", "organization").text).words
    refused = send(world, f"{page}/accept", {"version": "1"}, form=f"{page}/delete")
    assert refused.status_code == 409 and "was rejected" in Markup(refused.text).words
    assert send(world, f"{page}/nonsense", {}, form=f"{page}/delete").status_code == 404
    assert send(world, f"{page}/delete", {}).headers["location"] == QUEUE
    assert world.get(page, "organization").status_code == 404


def test_cases_are_generated_from_stored_traces(world: World) -> None:
    answer = send(world, QUEUE, {"agent": "", "limit": "10"})
    shown = Markup(answer.text)
    assert answer.status_code == 200 and shown.problems == [] and "new proposal" in shown.words
    refused = send(world, QUEUE, {"agent": "", "limit": "many"})
    assert refused.status_code == 400 and "expected a number" in Markup(refused.text).words
    refused = send(world, QUEUE, {"agent": "", "limit": "5000"})
    assert refused.status_code == 400 and "expected 1 to 1000" in Markup(refused.text).words


def test_hidden_characters_of_a_proposal_are_shown(world: World) -> None:
    hidden = "\u202e"
    id = propose(
        world,
        document=DOCUMENT.replace("id: refund", f"id: refund  # {hidden}dnufer"),
        name=f"{hidden}evil",
        because=f"</dd><script>{hidden}",
    )
    for path in (QUEUE, f"{QUEUE}/{id}"):
        answer = world.get(path, "organization")
        assert Markup(answer.text).problems == [] and "<script>" not in answer.text.partition("<main")[2].partition("</main")[0]
        assert hidden not in answer.text
