"""A shared link to a run: it shows only that run to anyone, and is unknown once revoked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.service.hub import Hub
from proctor.store.sql.tables import METADATA
from tests.pages.markup import Markup
from tests.rest.services import Service
from tests.rest.verial import Author, booked
from tests.rest.verification.test_sandboxes import Agent, appointment, benchmark, environment

UNKNOWN = "vrl_shr_" + "x" * 43
HOSTILE = "<script>alert(1)</script>\u202e"


@pytest.fixture
def author(service: Service) -> Author:
    return Author(service, service.keys()["organization"])


def complete_run(author: Author, *, scored: bool = False) -> dict[str, Any]:
    """A completed run of which one criterion failed, by a solver with a hostile name."""
    benchmark = author.published(name=f"Booking {HOSTILE}", slug="booking")
    solver = author.post("/solvers", {"alias": "ann", "real_name": f"Ann {HOSTILE}"})["id"]
    key = author.post(f"/solvers/{solver}/api-keys")["key"]
    run = author.post("/v1/benchmark-runs", {"benchmark": "booking", "scored": scored}, key=key)
    author.upload(run["task_runs"][0]["id"], booked(f"Dr. {HOSTILE}"))
    author.post(f"/benchmark-runs/{run['benchmark_run_id']}/complete")
    return {"id": run["benchmark_run_id"], "solver": solver, "benchmark": benchmark["id"], "task_run": run["task_runs"][0]["id"]}


def share(author: Author, run: dict[str, Any], **body: Any) -> dict[str, Any]:
    return author.post(f"/benchmark-runs/{run['id']}/shares", body)


def test_a_link_shows_what_its_visibility_allows_and_no_id_of_anything(author: Author) -> None:
    run = complete_run(author)
    for visibility in ("scores", "criteria", "evidence"):
        link = share(author, run, visibility=visibility)
        answer = author.service.get(link["json_path"])
        found = answer.json()
        assert answer.status_code == 200 and found["visibility"] == visibility
        assert found["name"] == f"Ann {HOSTILE}" and found["verdict"] == "partial" and found["score"] == pytest.approx(1 / 3)
        assert found["axes"]["safety"] == {"score": 1.0, "weight": 1.0}
        task = found["tasks"][0]
        assert task["name"] == "book 0" and ("criteria" in task) == (visibility != "scores")
        assert ("Rivera" in answer.text) == (visibility != "scores"), answer.text
        for one in task.get("criteria", ()):
            assert one["label"] == "booked" and one["details"] and ("evidence" in one) == (visibility == "evidence")
        assert not any(id in answer.text for id in (*run.values(), link["id"], "org_", "crit_", "crun_", "task_1")), answer.text
    assert share(author, run)["visibility"] == "scores"


def test_hostile_text_stays_text_on_the_page(author: Author) -> None:
    link = share(author, complete_run(author), visibility="evidence")
    answer = author.service.get(link["page_path"])
    page = Markup(answer.text)
    assert answer.status_code == 200 and page.problems == [] and "Shared link." in page.words
    assert "Ann <script>alert(1)</script>" in page.words and "\u202e" not in answer.text and "Rivera" in page.words
    assert "<script>alert" not in answer.text
    assert answer.headers["referrer-policy"] == "no-referrer" and answer.headers["x-robots-tag"] == "noindex, nofollow"
    assert answer.headers["cache-control"] == "no-store" and "default-src 'none'" in answer.headers["content-security-policy"]
    assert 'name="proof"' not in answer.text and "/ui/login" not in answer.text


def test_unknown_revoked_and_deleted_are_answered_alike(author: Author) -> None:
    run = complete_run(author)
    link = share(author, run)
    author.ask("DELETE", f"/benchmark-runs/{run['id']}/shares/{link['id']}")
    answers = [
        author.service.get(path) for path in (f"/shared/{UNKNOWN}", link["json_path"], f"/shared/{link['token'][:-1]}", "/shared/%00")
    ]
    assert {answer.status_code for answer in answers} == {404} and len({answer.text for answer in answers}) == 1
    assert link["token"] not in answers[1].text
    pages = [author.service.get(path) for path in (f"/ui/shared/{UNKNOWN}", link["page_path"])]
    assert [answer.status_code for answer in pages] == [404, 404] and link["token"] not in pages[1].text
    assert author.get(f"/benchmark-runs/{run['id']}/shares")["data"] == []
    author.ask("DELETE", f"/benchmark-runs/{run['id']}/shares/{link['id']}", status=404)


def test_a_link_is_revoked_under_its_own_run_only(author: Author) -> None:
    run = complete_run(author)
    link = share(author, run)
    other = author.post("/benchmark-runs", {"benchmark_id": run["benchmark"]})["id"]
    author.ask("DELETE", f"/benchmark-runs/{other}/shares/{link['id']}", status=404)
    assert author.service.get(link["json_path"]).status_code == 200


def test_the_token_is_stored_as_a_hash_and_shown_once(author: Author) -> None:
    link = share(author, complete_run(author))
    listed = author.get(f"/benchmark-runs/{link['benchmark_run_id']}/shares")["data"]
    assert [(one["id"], one["suffix"], one["visibility"]) for one in listed] == [(link["id"], link["token"][-4:], "scores")]
    assert "token" not in listed[0]

    async def read_everything(hub: Hub) -> str:
        async with hub.database.reading() as connection:
            return str([list(await connection.execute(sa.select(table))) for table in METADATA.sorted_tables])

    assert link["token"] not in author.service.run(read_everything)


def test_a_link_is_no_key_and_a_key_is_no_link(author: Author) -> None:
    link = share(author, complete_run(author))
    author.get("/benchmarks", key=link["token"], status=401)
    assert author.key is not None
    assert author.service.get(f"/shared/{author.key}").status_code == 404
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert author.service.ask(method, link["json_path"]).status_code == 405
    assert author.service.ask("GET", link["json_path"], content=b"x").status_code == 413


def test_a_run_that_withholds_details_from_its_agent_shares_scores_only(author: Author) -> None:
    run = complete_run(author, scored=True)
    for visibility in ("criteria", "evidence"):
        refused = author.post(f"/benchmark-runs/{run['id']}/shares", {"visibility": visibility}, status=409)
        assert "withholds" in refused["error"]["message"]
    assert "Rivera" not in author.service.get(share(author, run)["json_path"]).text
    author.post(f"/benchmark-runs/{run['id']}/shares", {"visibility": "everything"}, status=400)


def test_a_solver_that_opted_out_is_not_named(author: Author) -> None:
    run = complete_run(author)
    link = share(author, run)
    author.ask("PATCH", f"/solvers/{run['solver']}", {"unlisted": True})
    answer = author.service.get(link["json_path"])
    assert answer.json()["name"] is None and "Ann" not in answer.text and answer.json()["score"] is not None


def test_links_are_bounded_per_run_and_requests_per_address(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from proctor.service.verification.runs import shares as run_shares

    monkeypatch.setattr(run_shares, "MOST_LINKS", 2)
    with Service(database_url, tmp_path, requests_per_minute=60) as service:
        author = Author(service, service.keys()["organization"])
        run = complete_run(author)
        links = [share(author, run) for _ in range(2)]
        author.post(f"/benchmark-runs/{run['id']}/shares", {}, status=409)
        answers = [service.get(f"/shared/{UNKNOWN}").status_code for _ in range(200)]
        assert set(answers) == {404, 429} and answers[0] == 404
        refused = service.get(links[0]["json_path"])
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
        assert service.get(links[0]["page_path"]).status_code == 429
        # Guessing does not delay callers with a key.
        author.get("/benchmarks")


def test_a_link_to_work_in_simulated_systems_reveals_no_token_or_id(author: Author) -> None:
    """Even if the agent wrote its token into the systems, and addresses with ids into the verified values."""
    agent = Agent(author, benchmark(author, environment(author)))
    agent.start()
    agent.work("bob")
    agent.ask("GET", agent.at("fhir", f"/Patient?access_token={agent.token}"), status=400)
    leaked = {**appointment("ann"), "description": f"token {agent.token}", "comment": agent.token}
    agent.ask("POST", agent.at("fhir", "/Appointment"), leaked)
    agent.complete()
    run = {"id": agent.run["benchmark_run_id"]}
    ids = [run["id"], *(sandbox["id"] for sandbox in agent.run["sandboxes"]), agent.token]
    for visibility in ("scores", "criteria", "evidence"):
        link = share(author, run, visibility=visibility)
        for path in (link["json_path"], link["page_path"]):
            answer = author.service.get(path)
            assert answer.status_code == 200 and not [id for id in ids if id in answer.text], (visibility, answer.text)
    events = author.service.get(f"/sandboxes/{agent.sandbox('FHIR')['id']}/events", key=author.key).text
    assert agent.token not in events and "access_token=(token)" in events
