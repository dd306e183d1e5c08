"""`/api/comparisons` over HTTP: several runs with the figures of two, and their answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pages.world import BAD, GOOD, World, add_run, decide_all


@pytest.fixture(scope="module")
def three(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home = tmp_path_factory.mktemp("three")
    (home / "proctor.db").write_bytes(sqlite_template.read_bytes())
    with World(f"sqlite:///{home / 'proctor.db'}", home) as world:
        half = {**GOOD, "opening-hours": BAD["opening-hours"]}
        more = {"repeat": 4, "at": "2026-11-16T12:00:00.000Z", "name": "v3"}
        world.service.run(lambda hub: add_run(hub, "run_third", decide_all(half, repeat=4), **more))
        yield world


def ask(world: World, path: str) -> Any:
    return world.service.get(path, key=world.keys["organization"])


def test_each_run_has_the_figures_it_has_alone(three: World) -> None:
    found = ask(three, "/api/comparisons?runs=run_before,run_after,v3").json()
    alone = [ask(three, f"/api/runs/{id}/compare?base=run_before").json() for id in ("run_after", "run_third")]
    assert [each["found"] for each in found["comparisons"]] == alone
    assert [each["more_than_chance"] for each in found["comparisons"]] == [True, True]
    p_values = [each["comparison"]["p_value"] for each in alone]
    assert found["comparisons"][0]["adjusted_p"] == pytest.approx(2 * min(p_values))
    assert found["comparisons"][1]["adjusted_p"] == pytest.approx(max(2 * min(p_values), max(p_values)))


def test_cases_that_changed_stand_with_their_counts_in_every_run_and_the_reasons(three: World) -> None:
    cases = ask(three, "/api/comparisons?runs=run_before,run_after,run_third").json()["cases"]
    assert [(case["case"], case["group"]) for case in cases] == [("refund-twice", "newly failing"), ("opening-hours", "newly failing")]
    assert [case["candidates"] for case in cases] == [
        [{"runs": 4, "passes": 0}, {"runs": 4, "passes": 4}],
        [{"runs": 4, "passes": 0}, {"runs": 4, "passes": 0}],
    ]
    assert cases[0]["base"] == {"runs": 4, "passes": 4}
    assert "lookup_order" in cases[0]["reasons"][0] and cases[0]["reasons"][1] == "" and all(cases[1]["reasons"])


@pytest.mark.parametrize(
    ("runs", "status"),
    [
        ("run_before", 400), ("run_before,run_before", 400), ("", 400), ("run_before,run_none", 404), (",".join(["run_after"] * 7), 400),
        ("run_before,previous", 404), ("run_after,previous", 200), ("run_third,@none", 404),
    ],
)  # fmt: skip
def test_runs_that_cannot_be_compared_are_refused(three: World, runs: str, status: int) -> None:
    assert ask(three, f"/api/comparisons?runs={runs}").status_code == status
    assert ask(three, f"/api/comparisons/answers?runs={runs}&case=greeting").status_code == status


def test_an_alpha_that_is_none_is_refused(three: World) -> None:
    assert ask(three, "/api/comparisons?runs=run_before,run_after&alpha=1").status_code == 400


def test_answers_are_compared_word_by_word_with_the_base(three: World) -> None:
    found = ask(three, "/api/comparisons/answers?runs=run_before,run_after,run_third&case=refund-twice").json()["answers"]
    assert [(answer["run_id"], answer["outcome"], answer["is_same"]) for answer in found] == [
        ("run_before", "pass", False), ("run_after", "fail", False), ("run_third", "pass", True),
    ]  # fmt: skip
    assert found[0]["difference"] == found[2]["difference"] == []
    pieces = found[1]["difference"]
    assert {piece["kind"] for piece in pieces} == {"same", "removed", "added"}
    assert "".join(piece["text"] for piece in pieces if piece["kind"] != "removed") == BAD["refund-twice"]["text"] == found[1]["text"]
    assert len(found[1]["attempts"]) == 4 and found[1]["reason"]
    second = ask(three, "/api/comparisons/answers?runs=run_before,run_after&case=refund-twice&attempt=2").json()["answers"]
    assert [answer["attempt"] for answer in second] == [2, 2]
    none = ask(three, "/api/comparisons/answers?runs=run_before,run_after&case=nobody").json()["answers"]
    assert [answer["result_id"] for answer in none] == [None, None]


def test_three_runs_stand_on_one_page(three: World) -> None:
    text = three.get("/ui/p/proj_home/compare?runs=run_third,run_before,run_after", "organization").text
    assert "3 runs of" in text and "after correcting for 2 comparisons" in text and text.count('class="dumbbell') == 4
    assert "passed 4/4 before, 0/4 after" in text
