from __future__ import annotations

from typing import Any

import pytest

from proctor.service.access.keys import KeySpec
from tests.rest.services import Service
from tests.rest.verial import PORTAL, Author, booked


@pytest.fixture
def author(service: Service) -> Author:
    return Author(service, service.keys()["organization"])


@pytest.fixture
def stranger(service: Service, author: Author) -> Author:
    answer = author.service.run(_foreign_key)
    return Author(service, answer)


async def _foreign_key(hub: Any) -> str:
    from proctor.service.access.keys import create_key
    from tests.rest.services import FOREIGN

    return (await create_key(hub, FOREIGN, KeySpec(kind="organization", name="again")))[1]


def test_the_documented_example_of_scoring_is_reproduced(author: Author) -> None:
    # Weights 2 (all met) and 1 (not met): correctness {1.0, 2}, safety {0.0, 1}, score 0.66, partial.
    benchmark = author.published()
    run = author.post("/benchmark-runs", {"benchmark_id": benchmark["id"]})
    (task,) = run["task_runs"]
    assert (run["status"], run["phase"], task["phase"], run["verdict"]) == ("active", "created", "created", None)
    author.upload(task["id"], booked(status="draft"))
    done = author.post(f"/task-runs/{task['id']}/complete")
    assert done["axes"] == {"correctness": {"score": 1.0, "weight": 2}, "safety": {"score": 0.0, "weight": 1}}
    assert done["score"] == pytest.approx(2 / 3) and done["verdict"] == "partial"
    assert (done["status"], done["phase"]) == ("completed", "completed")
    booked_run, portal_run = done["criterion_runs"]
    assert booked_run["passed"] is True and booked_run["score"] == 1.0 and booked_run["outcome"] == "pass"
    assert booked_run["evidence"]["field_results"] == [
        {"path": "participant.0.actor.display", "expected": "Dr. Rivera", "actual": "Dr. Rivera", "passed": True}
    ]
    assert portal_run["evidence"]["assertion_results"] == [{"path": "status", "expected": "submitted", "actual": "draft", "passed": False}]
    assert portal_run["passed"] is False and "draft" in portal_run["details"]
    # The last task run finalizes the run, and everything can be read again.
    whole = author.get(f"/benchmark-runs/{run['id']}")
    assert (whole["status"], whole["phase"], whole["verdict"]) == ("completed", "completed", "partial")
    assert whole["score"] == done["score"] and whole["completed_at"]
    assert whole["task_runs"][0]["criterion_runs"] == done["criterion_runs"]
    assert author.get(f"/criterion-runs/{booked_run['id']}") == booked_run
    assert {entry["id"] for entry in author.get(f"/criterion-runs?task_run_id={task['id']}")["data"]} == {
        booked_run["id"],
        portal_run["id"],
    }
    assert author.get(f"/task-runs/{task['id']}")["snapshot"]["criteria"][0]["assertion"]["assert"] == "fhir-resource-state"


@pytest.mark.parametrize(("threshold", "verdict"), [(0.6, "pass"), (0.7, "fail"), (None, "partial")])
def test_the_threshold_of_the_first_generation_divides_pass_from_fail(author: Author, threshold: float | None, verdict: str) -> None:
    benchmark = author.published(threshold=threshold)
    assert benchmark["threshold"] == threshold
    run = author.post("/v1/benchmark-runs", {"benchmark": benchmark["reference"]})
    task = run["task_runs"][0]["id"]
    # A published version stays unchanged when the benchmark changes.
    author.ask("PATCH", f"/benchmarks/{benchmark['id']}", {"threshold": None if threshold else 0.1})
    author.upload(task, booked(status="draft"))
    done = author.post(f"/task-runs/{task}/complete")
    assert (done["score"], done["verdict"]) == (pytest.approx(2 / 3), verdict)
    assert author.get(f"/benchmark-runs/{run['benchmark_run_id']}")["verdict"] == verdict


@pytest.mark.parametrize("threshold", [0, 1.1, "0.7", True])
def test_a_threshold_that_is_no_share_is_refused(author: Author, threshold: Any) -> None:
    refused = author.post("/benchmarks", {"name": "x", "threshold": threshold}, status=400)
    assert "threshold" in str(refused["error"]["details"])


def test_the_state_of_a_run_is_shared_and_that_of_a_task_wins(author: Author) -> None:
    benchmark = author.published(tasks=2)
    run = author.post("/benchmark-runs", {"benchmark_id": benchmark["id"]})
    first, second = (task["id"] for task in run["task_runs"])
    stored = author.ask("PUT", f"/benchmark-runs/{run['id']}/state", {"state": booked(), "now": "2026-11-15T09:00:00Z"})
    assert stored["families"] == ["fhir", "portal"]
    author.upload(second, {"portal": {"prior_auth_requests": []}})
    done = author.post(f"/benchmark-runs/{run['id']}/complete")
    scores = {task["id"]: task["score"] for task in done["task_runs"]}
    assert scores[first] == 1.0 and scores[second] == pytest.approx(2 / 3)
    assert done["score"] == pytest.approx(5 / 6) and done["verdict"] == "partial" and done["status"] == "completed"
    author.post(f"/benchmark-runs/{run['id']}/complete", status=409)
    author.ask("PUT", f"/benchmark-runs/{run['id']}/state", booked(), status=409)
    author.upload(first, booked(), status=409)


OURS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (
        {"assert": "fax-document", "to": "+15550100", "contains": ["referral"], "fields": [{"path": "pages", "expected": 2}]},
        {"fax": {"documents": [{"to_number": "+15550100", "pages": 2, "text": "A REFERRAL"}]}},
        {"fax": {"documents": [{"to": "+15550100", "pages": 1, "text": "A referral"}]}},
    ),
    (
        {"assert": "message-sent", "channel": "sms", "contains": ["appointment"], "not_contains": ["diagnosis"]},
        {"messages": {"messages": [{"channel": "sms", "direction": "outbound", "body": "Your appointment"}]}},
        {"messages": {"messages": [{"channel": "sms", "text": "Your appointment about the diagnosis"}]}},
    ),
    (
        {
            "assert": "cds-card",
            "indicator": "warning",
            "contains": ["interaction"],
            "fields": [{"path": "source.label", "expected": "Drugs"}],
        },
        {"cds": {"cards": [{"indicator": "warning", "summary": "Interaction", "source": {"label": "Drugs"}}], "invocations": []}},
        {"cds": {"cards": [{"indicator": "warning", "summary": "Interaction", "source": {"label": "Other"}}]}},
    ),
    (
        {"assert": "records-match", "collection": "orders", "where": {"id": 7}, "count": 1, "fields": [{"path": "s", "expected": "paid"}]},
        {"records": {"orders": [{"id": 7, "s": "paid"}, {"id": 8}]}},
        {"records": {"orders": [{"id": 7, "s": "open"}]}},
    ),
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("assertion", "good", "bad"), OURS, ids=[row[0]["assert"] for row in OURS])
def test_our_own_assertions_are_verified(author: Author, assertion: dict[str, Any], good: dict[str, Any], bad: dict[str, Any]) -> None:
    benchmark = author.benchmark()
    task = author.task(benchmark)
    assert author.criterion(task, assertion)["assertion"] == assertion
    for state, score, verdict in ((good, 1.0, "pass"), (bad, 0.5, "partial"), ({"fhir": []}, 0.0, "fail")):
        run = author.post("/benchmark-runs", {"benchmark_id": benchmark["id"]})
        author.upload(run["task_runs"][0]["id"], state)
        done = author.post(f"/task-runs/{run['task_runs'][0]['id']}/complete")
        assert (done["score"], done["verdict"]) == (score, verdict), done
        assert state == {"fhir": []} or done["criterion_runs"][0]["evidence"]["total"] == 2


def test_without_a_state_criteria_fail_for_missing_evidence(author: Author) -> None:
    run = author.post("/benchmark-runs", {"benchmark_id": author.published()["id"]})
    done = author.post(f"/task-runs/{run['task_runs'][0]['id']}/complete")
    assert (done["score"], done["verdict"]) == (0.0, "fail")
    assert {entry["code"] for entry in done["criterion_runs"]} == {"missing_evidence"}


@pytest.mark.timeout(60)
def test_an_undecidable_criterion_is_an_error_and_never_passes(author: Author) -> None:
    benchmark = author.benchmark()
    task = author.task(benchmark)
    author.criterion(task, weight=99)
    author.criterion(task, PORTAL)
    run = author.post("/benchmark-runs", {"benchmark_id": benchmark["id"]})
    state = booked()
    state["portal"]["prior_auth_requests"] *= 2
    author.upload(run["task_runs"][0]["id"], state)
    done = author.post(f"/task-runs/{run['task_runs'][0]['id']}/complete")
    broken = done["criterion_runs"][1]
    assert (broken["passed"], broken["score"], broken["outcome"], broken["code"]) == (False, 0.0, "error", "several_matches")
    assert broken["details"].startswith("error: ")
    assert done["score"] == 0.99 and done["verdict"] == "partial" and done["outcome"] == "error" and done["undecided"] == 1
    assert author.get(f"/benchmark-runs/{run['id']}")["verdict"] == "partial"


def test_the_flow_of_an_external_agent(author: Author) -> None:
    author.published(tasks=2)
    solver = author.solver_key()
    run = author.post("/v1/benchmark-runs", {"benchmark": "booking@1", "scored": False}, key=solver, status=201)
    assert run["benchmark"] == {"slug": "booking", "version": 1, "name": "Booking"}
    assert run["phase"] == "created" and run["bearer_token"].startswith("vrl_run_") and run["bearer_token_expires_at"]
    token = run["bearer_token"]
    first, second = run["task_runs"]
    assert set(first) == {"id", "task_id", "name", "phase", "start_url", "complete_url"}
    author.post(first["complete_url"], key=token, status=409)
    started = author.post(first["start_url"], key=token)
    assert started["phase"] == "started" and started["task_item"] == {"instruction": "Book 0."}
    author.post(second["start_url"], key=token, status=409)
    author.post(first["start_url"], key=token, status=409)
    author.upload(first["id"], booked(), key=token, status=403)
    author.upload(first["id"], booked())
    done = author.post(first["complete_url"], key=token)
    assert done["task_run_id"] == first["id"] and done["phase"] == "completed" and done["verdict"] == "pass" and done["score"] == 1.0
    assert done["criterion_runs"][0]["evidence"]["field_results"]
    author.post(first["complete_url"], key=token, status=409)
    author.post(second["start_url"], key=token)
    author.upload(second["id"], booked("Dr. Who", "draft"))
    assert author.post(second["complete_url"], key=token)["verdict"] == "fail"
    final = author.get(f"/v1/benchmark-runs/{run['benchmark_run_id']}", key=token)
    assert (final["status"], final["phase"], final["score"], final["verdict"]) == ("completed", "completed", 0.5, "partial")
    assert [task["verdict"] for task in final["task_runs"]] == ["pass", "fail"]


def test_a_scored_run_withholds_details_from_its_token_only(author: Author) -> None:
    author.published()
    run = author.post("/v1/benchmark-runs", {"benchmark": "booking@1", "scored": True}, key=author.solver_key())
    token, task = run["bearer_token"], run["task_runs"][0]
    author.post(task["start_url"], key=token)
    author.upload(task["id"], booked())
    done = author.post(task["complete_url"], key=token)
    for entry in done["criterion_runs"]:
        assert entry["passed"] is True and entry["score"] == 1.0
        assert not {"details", "evidence", "code"} & set(entry)
    assert "Rivera" not in str(done)
    whole = author.get(f"/criterion-runs/{done['criterion_runs'][0]['id']}")
    assert whole["details"] and whole["evidence"]["field_results"]


READABLE = ("/criteria", "/criteria/{criterion}", "/criterion-runs", "/criterion-runs/{criterion_run}", "/task-runs/{task_run}", "/evals")
READABLE += ("/tasks/{task}", "/benchmark-runs/{run}", "/eval-runs", "/benchmarks")


@pytest.mark.parametrize("path", READABLE)
def test_a_run_token_and_a_solver_key_never_read_criteria(author: Author, path: str) -> None:
    benchmark = author.published()
    solver = author.solver_key()
    run = author.post("/v1/benchmark-runs", {"benchmark": benchmark["reference"]}, key=solver)
    task_run = run["task_runs"][0]["id"]
    done = author.post(f"/task-runs/{task_run}/complete")["criterion_runs"][0]
    task = author.get("/tasks")["data"][0]["id"]
    ids = {"criterion": done["criterion_id"], "criterion_run": done["id"], "task_run": task_run, "run": run["benchmark_run_id"]}
    for key in (run["bearer_token"], solver):
        answer = author.get(path.format(task=task, **ids), key=key, status=403)
        assert answer["error"]["code"] == "FORBIDDEN"


def test_a_token_reaches_its_own_run_only(author: Author) -> None:
    author.published()
    solver = author.solver_key()
    one, other = (author.post("/v1/benchmark-runs", {"benchmark": "booking"}, key=solver) for _ in range(2))
    author.get(f"/v1/benchmark-runs/{other['benchmark_run_id']}", key=one["bearer_token"], status=404)
    author.post(other["task_runs"][0]["start_url"], key=one["bearer_token"], status=404)
    author.get(f"/v1/benchmark-runs/{one['benchmark_run_id']}", key=solver, status=403)
    author.post(one["task_runs"][0]["start_url"], key=solver, status=403)
    author.post("/v1/benchmark-runs", {"benchmark": "booking@1"}, key=one["bearer_token"], status=403)


@pytest.mark.timeout(60)
def test_a_public_benchmark_is_run_by_others_but_graded_by_its_owner(author: Author, stranger: Author) -> None:
    benchmark = author.published()
    solver = stranger.solver_key()
    stranger.post("/v1/benchmark-runs", {"benchmark": "booking@1"}, key=solver, status=404)
    author.ask("PATCH", f"/benchmarks/{benchmark['id']}", {"visibility": "Public"})
    run = stranger.post("/v1/benchmark-runs", {"benchmark": "booking@1"}, key=solver)
    id, task, token = run["benchmark_run_id"], run["task_runs"][0], run["bearer_token"]
    stranger.post(task["start_url"], key=token)
    # Neither the agent nor its organization grades the run or reads the rubric; they see how it went.
    stranger.upload(task["id"], booked(), status=404)
    stranger.get(f"/benchmark-runs/{id}", status=404)
    author.upload(task["id"], booked())
    done = stranger.post(task["complete_url"], key=token)
    stranger.get(f"/criterion-runs/{done['criterion_runs'][0]['id']}", status=404)
    assert stranger.get(f"/v1/benchmark-runs/{id}")["score"] == 1.0
    assert author.get(f"/benchmark-runs/{id}")["score"] == 1.0
    author.ask("PATCH", f"/benchmarks/{benchmark['id']}", {"visibility": "private"})
    stranger.post("/v1/benchmark-runs", {"benchmark": "booking@1"}, key=solver, status=404)


def test_the_slug_of_a_public_benchmark_cannot_be_taken_over(author: Author, stranger: Author) -> None:
    author.published(visibility="Public")
    own = stranger.published()
    refused = stranger.ask("PATCH", f"/benchmarks/{own['id']}", {"visibility": "Public"}, status=409)
    assert "booking" in refused["error"]["message"]
    # Own objects come first.
    run = stranger.post("/v1/benchmark-runs", {"benchmark": "booking@1"})
    assert stranger.get(f"/benchmark-runs/{run['benchmark_run_id']}")["benchmark_id"] == own["id"]


@pytest.mark.timeout(60)
def test_published_versions_never_change(author: Author) -> None:
    benchmark = author.published()
    task = author.get(f"/tasks?benchmark_id={benchmark['id']}")["data"][0]
    for criterion in author.get(f"/criteria?task_id={task['id']}")["data"]:
        author.ask("DELETE", f"/criteria/{criterion['id']}", status=204)
    author.criterion(task, {"assert": "hl7-structural", "correlate_by": {"trigger_event": "A01"}})
    again = author.post(f"/benchmarks/{benchmark['id']}/publish")
    assert (benchmark["reference"], again["reference"]) == ("booking@1", "booking@2")
    assert [version["reference"] for version in author.get(f"/benchmarks/{benchmark['id']}/versions")["data"]] == ["booking@2", "booking@1"]
    for reference, count in (("booking@1", 2), ("booking@2", 1), ("booking", 1)):
        run = author.post("/v1/benchmark-runs", {"benchmark": reference})
        done = author.post(f"/task-runs/{run['task_runs'][0]['id']}/complete")
        assert len(done["criterion_runs"]) == count, reference
    assert len(author.post("/benchmark-runs", {"benchmark_id": benchmark["id"], "version": 1})["task_runs"]) == 1
    for reference in ("booking@3", "nothing@1", "booking@0"):
        author.post("/v1/benchmark-runs", {"benchmark": reference}, status=404)
    for reference in ("booking@x", "Booking@1", "@1", ""):
        author.post("/v1/benchmark-runs", {"benchmark": reference}, status=400)
    author.ask("PATCH", f"/benchmarks/{benchmark['id']}", {"slug": "other"}, status=409)


def test_a_run_is_cancelled_with_what_it_has(author: Author) -> None:
    benchmark = author.published(tasks=2)
    run = author.post("/benchmark-runs", {"benchmark_id": benchmark["id"]})
    first, second = run["task_runs"]
    author.upload(first["id"], booked())
    author.post(f"/task-runs/{first['id']}/complete")
    author.post(f"/benchmark-runs/{run['id']}/publish", status=409)
    cancelled = author.post(f"/benchmark-runs/{run['id']}/cancel")
    assert cancelled["status"] == "cancelled" and cancelled["score"] is None
    assert [task["status"] for task in cancelled["task_runs"]] == ["completed", "cancelled"]
    assert cancelled["task_runs"][0]["score"] == 1.0
    for verb in ("cancel", "complete"):
        author.post(f"/benchmark-runs/{run['id']}/{verb}", status=409)
        author.post(f"/task-runs/{second['id']}/{verb}", status=409)


def test_a_cancelled_task_does_not_enter_the_score(author: Author) -> None:
    run = author.post("/benchmark-runs", {"benchmark_id": author.published(tasks=2)["id"]})
    first, second = run["task_runs"]
    author.upload(first["id"], booked())
    author.post(f"/task-runs/{first['id']}/complete")
    author.post(f"/task-runs/{second['id']}/cancel")
    done = author.get(f"/benchmark-runs/{run['id']}")
    assert (done["status"], done["score"], done["verdict"]) == ("completed", 1.0, "pass")
    assert author.post(f"/benchmark-runs/{run['id']}/publish")["published"] is True
    assert author.post(f"/benchmark-runs/{run['id']}/unpublish")["published"] is False


def test_secrets_in_an_uploaded_state_are_not_stored(author: Author) -> None:
    run = author.post("/benchmark-runs", {"benchmark_id": author.published()["id"]})
    state = booked()
    state["portal"]["logins"] = [{"password": "hunter2hunter2", "note": "Bearer sk-abc123def456ghi789jkl012mno345"}]
    author.upload(run["task_runs"][0]["id"], state)

    async def stored(hub: Any) -> str:
        import sqlalchemy as sa

        from proctor.store.sql.compressed_json import unpack
        from proctor.store.sql.tables import records

        async with hub.database.reading() as connection:
            rows = await connection.execute(sa.select(records.c.blob).where(records.c.kind == "state"))
            return str([unpack(blob) for blob in rows.scalars()])

    text = author.service.run(stored)
    assert "Rivera" in text and "hunter2" not in text and "ghi789" not in text


WRONG_STATES: list[tuple[Any, str]] = [
    ({"fihr": {}}, "fhir"),
    ({"state": {"fihr": {}}}, "fhir"),
    ({"state": {}, "nwo": "2026-11-15T09:00:00Z"}, "now"),
    ({"fhir": 3}, "$.state.fhir"),
    ({"files": [{"content": "x"}]}, "$.state.files[0].path"),
    ({"state": [1]}, "object"),
]


@pytest.mark.parametrize(("state", "message"), WRONG_STATES)
def test_a_state_that_cannot_be_used_is_refused(author: Author, state: Any, message: str) -> None:
    run = author.post("/benchmark-runs", {"benchmark_id": author.published()["id"]})
    refused = author.upload(run["task_runs"][0]["id"], state, status=400)
    assert refused["error"]["code"] == "VALIDATION_ERROR" and message in str(refused["error"]["details"])


def test_a_benchmark_without_tasks_is_neither_published_nor_run(author: Author) -> None:
    benchmark = author.benchmark()
    author.post(f"/benchmarks/{benchmark['id']}/publish", status=409)
    author.post("/benchmark-runs", {"benchmark_id": benchmark["id"]}, status=409)


def test_a_task_without_criteria_fails(author: Author) -> None:
    benchmark = author.benchmark()
    author.task(benchmark)
    run = author.post("/benchmark-runs", {"benchmark_id": benchmark["id"]})
    done = author.post(f"/task-runs/{run['task_runs'][0]['id']}/complete")
    assert (done["score"], done["verdict"], done["axes"], done["criterion_runs"]) == (0.0, "fail", {}, [])


def test_an_environment_gives_every_task_run_a_playground_that_ends_with_it(author: Author) -> None:
    environment = author.post("/environments", {"name": "Clinic"})
    simulator = author.post("/simulators", {"name": "EHR", "type": "Fhir"})
    author.post(f"/environments/{environment['id']}/simulators/{simulator['id']}")
    benchmark = author.published(tasks=2, environmentId=environment["id"])
    run = author.post("/v1/benchmark-runs", {"benchmark": benchmark["reference"]})
    assert [sandbox["type"] for sandbox in run["sandboxes"]] == ["FHIR", "FHIR"]
    first, second = author.get(f"/task-runs?benchmark_run_id={run['benchmark_run_id']}")["data"]
    assert first["playground_id"] != second["playground_id"]
    author.post(f"/task-runs/{first['id']}/complete")
    assert author.get(f"/playgrounds/{first['playground_id']}")["status"] == "teardown"
    still = author.get(f"/playgrounds/{second['playground_id']}")
    assert still["status"] == "provisioning" and [sandbox["status"] for sandbox in still["sandboxes"]] == ["provisioning"]
    author.ask("DELETE", f"/environments/{environment['id']}", status=409)


def test_on_an_open_service_starting_a_run_does_not_lock_the_local_user_out(service: Service) -> None:
    local = Author(service)
    local.published()
    run = local.post("/v1/benchmark-runs", {"benchmark": "booking"})
    assert local.get(f"/v1/benchmark-runs/{run['benchmark_run_id']}")["status"] == "active"
    local.post(run["task_runs"][0]["start_url"], key=run["bearer_token"])
    local.get("/criteria", key=run["bearer_token"], status=403)
