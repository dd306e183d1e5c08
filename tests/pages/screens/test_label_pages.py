"""One label on the pages: shown with the judged answer, changed, deleted; with the permissions, audit and refusals of REST."""

from __future__ import annotations

import re
from typing import Any

import pytest

from proctor.service.labels.annotations import LONGEST_NOTE
from tests.pages.markup import Markup
from tests.pages.world import World

LABELS = "/ui/p/proj_home/labels"
SEEDED = f"{LABELS}/ann_note"


def send(world: World, path: str, who: str = "organization", *, form: str | None = None, **fields: str) -> Any:
    return world.post(path, who, proof=world.find_proof(form or path, who), **fields)


def label_a_claim(world: World) -> str:
    """Label a judged claim in the queue; return the label's address."""
    fields = {"subject": "result", "id": "res_rude", "claim": "1", "label": "pass", "note": "polite enough"}
    assert send(world, LABELS, **fields).status_code == 303
    found = world.get("/api/annotations?subject=result", "organization").json()["data"]
    assert len(found) == 1
    return f"{LABELS}/{found[0]['id']}"


def read(world: World, address: str = SEEDED) -> dict[str, Any]:
    return world.get(address.replace(LABELS, "/api/annotations"), "organization").json()


def list_audit(world: World) -> list[tuple[str, str]]:
    return [(one["action"], one["actor"]) for one in world.get("/api/audit?resource=annotation", "organization").json()["data"]]


@pytest.mark.parametrize("path", [LABELS, "/ui/p/proj_home/traces/trc_shop"])
def test_enter_in_a_note_decides_nothing(seen: World, path: str) -> None:
    text = seen.get(path, "organization").text
    forms = [form for form in re.findall(r"<form.*?</form>", text, re.DOTALL) if 'name="note"' in form]
    assert len(forms) == 1
    # A browser takes the first button of a form for Enter, and where that is disabled does nothing.
    assert re.findall(r"<button[^>]*>", forms[0])[0] == "<button disabled hidden>"


def test_a_label_is_shown_with_what_was_judged(world: World) -> None:
    address = label_a_claim(world)
    assert f'href="{address}"' in world.get(LABELS, "organization").text
    assert f'href="{address}"' in world.get(f"{LABELS}/all?subject=result&label=pass", "organization").text
    page = Markup(world.get(address, "organization").text)
    assert "Label: passed" in page.words and "trace result, assertion 2" in page.words
    assert "polite enough" in page.words and "The answer says sorry." in page.words and "No. It was refunded." in page.words
    assert "Judge's verdict failed 0.30 (threshold 0.80)" in page.words
    assert page.words.index("polite enough") < page.words.index("Judge's verdict")
    assert 'href="/ui/p/proj_home/traces/trc_rude"' in world.get(address, "organization").text


def test_labels_of_one_question_name_their_authors_and_lead_to_each_other(world: World) -> None:
    address = label_a_claim(world)
    second = world.service.post("/api/keys", json={"kind": "organization", "name": "Maria"}, key=world.keys["organization"]).json()["key"]
    body = {"subject": "result", "subject_id": "res_rude", "claim": 1, "label": "fail", "note": "curt"}
    other = world.service.post("/api/annotations", json=body, key=second).json()["id"]
    page = world.get(address, "organization").text
    words = Markup(page).words
    assert words.partition("Other labels of this question")[2].split()[:3] == ["failed", "curt", "Maria,"]
    assert f'href="{LABELS}/{other}"' in page and "Authoro Created" in words and "key_" not in words, words
    for path in (LABELS, f"{LABELS}/all", f"{LABELS}/{other}"):
        assert "Maria" in Markup(world.get(path, "organization").text).words, path
    assert "Maria" in Markup(world.get("/ui/audit?resource=annotation", "organization").text).words
    words = Markup(world.get(LABELS, "organization").text).words
    assert "1 answer is not counted: as many reviewers passed as failed it." in words


def test_a_label_is_changed_with_its_author_and_an_entry_in_the_audit_log(world: World) -> None:
    form = world.get(f"{SEEDED}/change", "organization").text
    assert '<option value="fail" selected>' in form and "too curt</textarea>" in form
    assert '<a href="/ui/p/proj_home/labels/ann_note">' in world.get("/ui/p/proj_home/traces/trc_shop", "organization").text
    answer = send(world, f"{SEEDED}/change", label="pass", note="on second thought:\r\nfine\r\n")
    assert (answer.status_code, answer.headers["location"]) == (303, SEEDED)
    stored = read(world)
    assert (stored["label"], stored["note"]) == ("pass", "on second thought:\nfine") and stored["author"] != "key_seed"
    assert list_audit(world) == [("update", stored["author"])]
    assert send(world, f"{SEEDED}/change", label="", note="only this").status_code == 303
    assert (read(world)["label"], read(world)["note"]) == (None, "only this")


def test_an_unchanged_form_does_not_change_the_author(world: World) -> None:
    assert send(world, f"{SEEDED}/change", label="fail", note="too curt").status_code == 303
    assert read(world)["author"] == "key_seed" and list_audit(world) == []


@pytest.mark.parametrize(
    ("label", "note", "message"),
    [
        ("", " ", "expected a label, a note, or both"),
        ("maybe", "x", "expected one of pass, fail, skip"),
        ("pass", "x" * (LONGEST_NOTE + 1), f"expected at most {LONGEST_NOTE} characters"),
    ],
    ids=["nothing", "no label", "too long"],
)
def test_a_refused_label_is_returned_with_its_problem(seen: World, label: str, note: str, message: str) -> None:
    answer = send(seen, f"{SEEDED}/change", label=label, note=note)
    page = Markup(answer.text)
    assert answer.status_code == 400 and page.problems == [] and message in page.words
    assert 'aria-invalid="true"' in answer.text and f">\n{note}</textarea>" in answer.text
    assert read(seen)["note"] == "too curt"


def test_a_slower_editor_is_warned_and_may_resubmit(world: World) -> None:
    seen_at = read(world)["updated_at"]
    assert send(world, f"{SEEDED}/change", label="skip", note="theirs").status_code == 303
    answer = send(world, f"{SEEDED}/change", label="pass", note="mine", seen=seen_at)
    assert answer.status_code == 409 and "this was changed at" in answer.text and "mine</textarea>" in answer.text
    assert read(world)["note"] == "theirs"
    now = re.search(r'name="seen" value="([^"]+)"', answer.text)
    assert now is not None
    assert send(world, f"{SEEDED}/change", label="pass", note="mine", seen=now[1]).status_code == 303
    assert read(world)["note"] == "mine"


def test_a_label_that_is_taken_back_is_gone_and_its_answer_waits_again(world: World) -> None:
    address = label_a_claim(world)
    assert "3 to label" in Markup(world.get(LABELS, "organization").text).words
    assert world.post(f"{address}/delete", "organization", proof="00" * 32).status_code == 403
    answer = send(world, f"{address}/delete")
    assert (answer.status_code, answer.headers["location"]) == (303, f"{LABELS}/all")
    assert world.get(address, "organization").status_code == 404
    assert "4 to label" in Markup(world.get(LABELS, "organization").text).words
    assert [action for action, _ in list_audit(world)] == ["delete", "create"]
    # A form opened before the change gets a warning.
    late = world.post(f"{address}/change", "organization", proof=world.find_proof("/ui/", "organization"), label="fail", note="late")
    assert late.status_code == 404 and "late" in late.text and "was deleted" in Markup(late.text).words


def test_readers_see_labels_and_no_form(seen: World) -> None:
    text = seen.get(SEEDED, "project").text
    assert "too curt" in text and f"{SEEDED}/change" not in text and f"{SEEDED}/delete" not in text
    proof = seen.find_proof("/ui/", "project")
    for action in ("change", "delete"):
        assert seen.post(f"{SEEDED}/{action}", "project", proof=proof, label="pass", note="x").status_code == 403
    assert read(seen)["note"] == "too curt"
