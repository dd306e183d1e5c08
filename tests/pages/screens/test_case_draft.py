"""From a stored trace, or an attempt of a run, to a case that can be tried and saved."""

from __future__ import annotations

import pytest

from proctor.formats.suites import read_suite
from proctor.patterns.engine import compile_pattern
from proctor.service.runs.case_draft import match_input
from tests.pages.world import World

QUESTION = "I was charged twice for order 17"


def test_a_draft_has_the_input_the_calls_and_the_answer_of_a_trace(world: World) -> None:
    found = world.get("/api/cases/draft?trace_id=trc_shop", "organization").json()
    (case,) = read_suite(found["document"], name="draft").cases
    assert case.input == QUESTION and found["agent_id"] == "agent_home_1" and found["project_id"] == "proj_home"
    assert [assertion.check for assertion in case.assertions][:2] == ["tool_called", "tool_called"]
    assert "it answered: Sorry about that" in found["document"]
    assert compile_pattern(found["when"]["input"]).search(QUESTION)
    trial = {"project_id": "proj_home", "document": found["document"], "when": found["when"], "trace_id": "trc_shop", "limit": 1}
    (tried,) = world.service.post("/api/cases/try", key=world.keys["organization"], json=trial).json()["traces"]
    assert tried["id"] == "trc_shop" and [one["outcome"] for one in tried["results"]] == ["pass"]


def test_a_draft_of_an_attempt_has_its_input(world: World) -> None:
    found = world.get("/api/cases/draft?attempt_id=att_after_0", "organization").json()
    (case,) = read_suite(found["document"], name="draft").cases
    assert case.input == QUESTION and found["agent_id"] is None


@pytest.mark.parametrize(
    ("query", "who", "status"),
    [
        ("", "organization", 400),
        ("trace_id=trc_shop&attempt_id=att_after_0", "organization", 400),
        ("trace_id=trc_gone", "organization", 404),
        ("attempt_id=att_gone", "organization", 404),
        ("trace_id=trc_shop", "foreign_organization", 404),
        ("attempt_id=att_after_0", "foreign_organization", 404),
        ("trace_id=trc_shop", "project", 403),
    ],
)
def test_a_draft_needs_one_thing_that_the_key_may_see(world: World, query: str, who: str, status: int) -> None:
    assert world.get(f"/api/cases/draft?{query}", who).status_code == status


@pytest.mark.parametrize("text", ["a.b (c)? [x] {1} $5 ^ | \\ /", "two\nlines", "x" * 300])
def test_the_filter_matches_the_input_it_was_made_of(text: str) -> None:
    when = match_input(text)
    assert when is not None and compile_pattern(when["input"]).search(text)


def test_the_editor_opens_with_the_draft(world: World) -> None:
    page = world.get("/ui/p/proj_home/cases/new?trace=trc_shop", "organization").text
    assert "tool_called: {name: lookup_order" in page and 'name="trace" value="trc_shop"' in page
    assert world.get("/ui/p/proj_home/cases/new?trace=trc_gone", "organization").status_code == 404
    assert "i-was-charged-twice" in world.get("/ui/p/proj_home/cases/new?attempt=att_after_0", "organization").text
