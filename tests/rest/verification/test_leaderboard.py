"""The leaderboard of a published benchmark: its entries, their figures, and who is excluded."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.scoring.intervals import Counts, wilson
from proctor.service.verification.runs import leaderboard
from tests.rest.services import Service
from tests.rest.verial import Author, booked

GOOD, HALF, BAD = booked(), booked(status="draft"), booked("Dr. Who", "draft")


@pytest.fixture
def keys(service: Service) -> dict[str, str]:
    return service.keys()


@pytest.fixture
def author(service: Service, keys: dict[str, str]) -> Author:
    return Author(service, keys["organization"])


@pytest.fixture
def stranger(service: Service, keys: dict[str, str]) -> Author:
    return Author(service, keys["foreign_organization"])


def make_solver(author: Author, alias: str, **more: Any) -> tuple[str, str]:
    """A solver and a key of it."""
    id = author.post("/solvers", {"alias": alias, **more})["id"]
    return id, author.post(f"/solvers/{id}/api-keys")["key"]


def run_once(author: Author, key: str, *states: Any, publish: bool = True, reference: str = "booking", **more: Any) -> str:
    """A completed run of the author's benchmark, started with a key; the author uploads each task's state and publishes the run."""
    run = author.post("/v1/benchmark-runs", {"benchmark": reference, **more}, key=key)
    for task, state in zip(run["task_runs"], states, strict=True):
        author.upload(task["id"], state)
    author.post(f"/benchmark-runs/{run['benchmark_run_id']}/complete")
    if publish:
        author.post(f"/benchmark-runs/{run['benchmark_run_id']}/publish")
    return run["benchmark_run_id"]


def read_names(author: Author, slug: str = "booking") -> list[str]:
    return [place["name"] for place in author.get(f"/leaderboard/{slug}")["places"]]


@pytest.mark.timeout(60)
def test_repeats_of_an_agent_are_one_place_with_the_mean_the_spread_and_an_interval(author: Author) -> None:
    author.published(tasks=2)
    _, key = make_solver(author, "ann", real_name="Ann & Co", agent_version="2.1")
    _, other = make_solver(author, "bob")
    run_once(author, other, GOOD, BAD)
    best = run_once(author, key, GOOD, GOOD)
    run_once(author, key, GOOD, HALF)
    run_once(author, key, BAD, BAD, publish=False)
    board = author.get("/leaderboard/booking")
    assert {name: board[name] for name in ("slug", "version", "name", "reference")} == {
        "slug": "booking", "version": 1, "name": "Booking", "reference": "booking@1",
    }  # fmt: skip
    assert (board["whole"], board["places_in_all"]) == (True, 2)
    first, second = board["places"]
    assert (first["rank"], first["name"], first["agent_version"], first["runs"]) == (1, "Ann & Co", "2.1", 2)
    assert (second["rank"], second["name"], second["agent_version"], second["runs"]) == (2, "bob", None, 1)
    assert first["score"] == pytest.approx((1 + (1 + 2 / 3) / 2) / 2) and first["highest"] == 1.0
    assert first["lowest"] == pytest.approx((1 + 2 / 3) / 2)
    bounds = wilson(Counts(4, 3))
    assert (first["decided"], first["passed"], first["pass_rate"]) == (4, 3, 0.75)
    assert (first["low"], first["high"]) == (bounds.low, bounds.high)
    assert first["axes"] == {"correctness": {"score": 1.0, "weight": 8.0}, "safety": {"score": 0.75, "weight": 4.0}}
    assert not {"solver_id", "benchmark_run_id"} & set(first)
    own = author.get(f"/benchmarks/{author.get('/benchmarks')['data'][0]['id']}/leaderboard")["places"]
    assert own[0]["benchmark_run_id"] == best and own[0]["verdict"] == "pass" and own[0]["score"] == first["score"]


def test_the_same_score_is_the_same_rank_and_another_version_of_an_agent_another_place(author: Author) -> None:
    author.published()
    id, key = make_solver(author, "ann", agent_version="1")
    run_once(author, key, GOOD)
    author.ask("PATCH", f"/solvers/{id}", {"agent_version": "2"})
    run_once(author, key, GOOD)
    run_once(author, key, HALF, agent="the nightly one")
    places = author.get("/leaderboard/booking")["places"]
    assert [(place["rank"], place["agent_version"], place["agent"]) for place in places[2:]] == [(3, "2", "the nightly one")]
    assert sorted((place["rank"], place["agent_version"]) for place in places[:2]) == [(1, "1"), (1, "2")]


def test_versions_of_a_benchmark_are_never_ranked_together(author: Author) -> None:
    benchmark = author.published()
    _, key = make_solver(author, "ann")
    run_once(author, key, GOOD)
    author.post(f"/benchmarks/{benchmark['id']}/publish")
    assert author.get("/leaderboard/booking")["reference"] == "booking@2" and read_names(author) == []
    assert read_names(author, "booking@1") == ["ann"]
    for slug, status in (("booking@3", 404), ("nothing", 404), ("Not%20a%20slug", 400)):
        author.get(f"/leaderboard/{slug}", status=status)


def test_a_public_board_is_read_by_everybody_with_an_organization_and_a_private_one_by_its_owner(author: Author, stranger: Author) -> None:
    benchmark = author.published()
    _, key = make_solver(stranger, "ann", real_name="Ann")
    stranger.get("/leaderboard/booking", status=404)
    author.ask("PATCH", f"/benchmarks/{benchmark['id']}", {"visibility": "Public"})
    run_once(author, key, GOOD)
    assert read_names(stranger) == read_names(author) == ["Ann"]
    # An own benchmark of the same name comes first.
    stranger.published()
    assert read_names(stranger) == []


def test_opting_out_is_immediate_and_permanent(author: Author, stranger: Author) -> None:
    author.published(visibility="Public")
    id, key = make_solver(stranger, "shy")
    run = run_once(author, key, GOOD)
    assert read_names(author) == ["shy"]
    stranger.ask("PATCH", f"/solvers/{id}", {"unlisted": True})
    assert read_names(author) == []
    author.post(f"/benchmark-runs/{run}/unpublish")
    refused = author.post(f"/benchmark-runs/{run}/publish", status=409)
    assert "opted out of leaderboards" in refused["error"]["message"]
    stranger.ask("PATCH", f"/solvers/{id}", {"unlisted": False})
    author.post(f"/benchmark-runs/{run}/publish")
    assert read_names(author) == ["shy"]
    stranger.ask("PATCH", f"/solvers/{id}", {"unlisted": True})
    stranger.ask("DELETE", f"/solvers/{id}")
    assert read_names(author) == []


def test_one_run_alone_can_be_left_off_the_board(author: Author) -> None:
    author.published()
    _, key = make_solver(author, "ann")
    run_once(author, key, GOOD)
    hidden = run_once(author, key, BAD, publish=False, unlisted=True)
    author.post(f"/benchmark-runs/{hidden}/publish", status=409)
    assert author.get(f"/benchmark-runs/{hidden}")["unlisted"] is True
    assert [(place["runs"], place["score"]) for place in author.get("/leaderboard/booking")["places"]] == [(1, 1.0)]


def test_a_board_shows_what_it_did_not_include(author: Author, monkeypatch: pytest.MonkeyPatch) -> None:
    author.published(tasks=1)
    for alias in ("ann", "bob", "cid"):
        run_once(author, make_solver(author, alias)[1], GOOD)
    monkeypatch.setattr(leaderboard, "MOST_RUNS", 3)
    assert author.get("/leaderboard/booking")["whole"] is True
    monkeypatch.setattr(leaderboard, "MOST_RUNS", 2)
    monkeypatch.setattr(leaderboard, "MOST_PLACES", 1)
    board = author.get("/leaderboard/booking")
    assert (board["whole"], board["places_in_all"], len(board["places"])) == (False, 2, 1)
    own = author.get(f"/benchmarks/{author.get('/benchmarks')['data'][0]['id']}/leaderboard")
    assert (own["whole"], own["places_in_all"]) == (False, 2)
