"""Criteria, tasks, benchmarks and runs as a coding agent authors them, in both eras of the protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client

from tests.mcp_server.clients import ERAS, use
from tests.mcp_server.scenario import APPOINTMENT, PRIOR_AUTH, a_task, author_and_verify, call, refusal, state


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.timeout(60)
def test_both_examples_are_authored_and_verified(tmp_path: Path, mode: str) -> None:
    use(tmp_path / "home", author_and_verify, mode=mode)


@pytest.mark.timeout(60)
def test_both_examples_are_verified_on_every_database(database_url: str, tmp_path: Path) -> None:
    use(tmp_path, author_and_verify, url=database_url)


@pytest.mark.timeout(60)
def test_an_eval_is_a_criterion_whose_assertion_is_text(tmp_path: Path) -> None:
    async def doing(client: Client) -> None:
        benchmark_id, task_id = await a_task(client)
        typed = await call(client, "evals", action="create", taskId=task_id, label="Booked", **{"assert": json.dumps(APPOINTMENT)})
        assert json.loads(typed["assert"]) == APPOINTMENT and typed["weight"] == 1
        criterion = await call(client, "criteria", action="get", id=typed["id"])
        assert criterion["assertion"] == APPOINTMENT
        english = await call(
            client, "evals", action="create", taskId=task_id, label="Polite", **{"assert": "The agent was polite"}, weight=3
        )
        assert english["assert"] == "The agent was polite"
        error = await refusal(client, "evals", action="update", id=typed["id"], **{"assert": '{"assert": "voice-transcrip"}'})
        assert error["path"].startswith("assert") and "voice-transcript" in error["nearest"]
        await call(client, "evals", action="delete", id=english["id"])
        listed = await call(client, "evals", action="list", taskId=task_id)
        assert [entry["id"] for entry in listed["data"]] == [typed["id"]]

        run = await call(client, "benchmark_runs", action="start", benchmarkId=benchmark_id)
        task_run = run["taskRuns"][0]["id"]
        await call(client, "benchmark_runs", action="putState", id=run["id"], state=state("Dr. Rivera", "x"))
        done = await call(client, "benchmark_runs", action="complete", id=run["id"])
        assert (done["status"], done["verdict"]) == ("completed", "pass")
        (eval_run,) = (await call(client, "eval-runs", action="list", taskRunId=task_run))["data"]
        assert (eval_run["passed"], eval_run["score"], eval_run["evalId"]) == (True, 1.0, typed["id"])
        assert "evidence" not in eval_run
        assert (await call(client, "eval-runs", action="get", id=eval_run["id"])) == eval_run

    use(tmp_path / "home", doing)


@pytest.mark.parametrize("tool", ["criteria", "evals"])
def test_a_list_of_criteria_needs_its_task(tmp_path: Path, tool: str) -> None:
    async def doing(client: Client) -> None:
        assert (await refusal(client, tool, action="list"))["path"] == "taskId"

    use(tmp_path / "home", doing)


def test_null_clears_the_fields_of_a_task(tmp_path: Path) -> None:
    async def doing(client: Client) -> None:
        _, task_id = await a_task(client)
        await call(client, "tasks", action="update", id=task_id, timeout=30, tags=["a"], scenario={"steps": []})
        changed = await call(client, "tasks", action="update", id=task_id, timeout=None, taskItem=None, scenario=None)
        assert (changed["timeout"], changed["taskItem"], changed["scenario"], changed["tags"]) == (None, None, None, ["a"])

    use(tmp_path / "home", doing)


def test_fields_of_authors_keep_their_names(tmp_path: Path) -> None:
    async def doing(client: Client) -> None:
        dataset = await call(client, "datasets", action="create", name="d", format="fhir", data={"resource_type": "Bundle", "some_key": 1})
        assert dataset["data"] == {"resource_type": "Bundle", "some_key": 1} and dataset["format"] == "fhir"
        entity = await call(
            client, "datasets", action="createEntity", id=dataset["id"], name="John", data={"patient_ref": "Patient/john-smith"}
        )
        benchmark_id, task_id = await a_task(client)
        await call(client, "tasks", action="addEntity", id=task_id, entityId=entity["id"])
        about = {**APPOINTMENT, "search": {"patient": "{entity.patient_ref}"}}
        made = await call(
            client, "criteria", action="create", taskId=task_id, label="x", assertion=about, inputEntityId=entity["id"], axis="by_hand"
        )
        assert made["inputEntityId"] == entity["id"] and made["assertion"] == about
        run = await call(client, "benchmark_runs", action="start", benchmarkId=benchmark_id)
        task_run = run["taskRuns"][0]["id"]
        await call(client, "task-runs", action="putState", id=task_run, state=state("Dr. Rivera", "x"))
        done = await call(client, "task-runs", action="complete", id=task_run)
        assert done["verdict"] == "pass" and list(done["axes"]) == ["by_hand"]
        shown = await call(client, "task-runs", action="get", id=task_run)
        assert shown["snapshot"]["entities"][0]["patient_ref"] == "Patient/john-smith"
        assert shown["snapshot"]["criteria"][0]["inputEntityId"] == entity["id"]
        unbound = await refusal(client, "tasks", action="removeEntity", id=task_id, entityId=entity["id"])
        assert unbound["code"] == "CONFLICT"

    use(tmp_path / "home", doing)


@pytest.mark.timeout(60)
def test_a_criterion_takes_all_that_rest_takes(tmp_path: Path) -> None:
    more: dict[str, Any] = {"required": True, "advisory": False, "whenMissing": "skip"}

    async def doing(client: Client) -> None:
        _, task_id = await a_task(client)
        made = await call(client, "criteria", action="create", taskId=task_id, name="Booked", assertion=APPOINTMENT, **more)
        assert made["label"] == "Booked" and {name: made[name] for name in more} == more
        changed = await call(
            client, "criteria", action="update", id=made["id"], name="Seen", advisory=True, required=False, when_missing="fail"
        )
        assert (changed["label"], changed["advisory"], changed["required"], changed["whenMissing"]) == ("Seen", True, False, "fail")
        error = await refusal(client, "criteria", action="create", taskId=task_id, assertion=APPOINTMENT)
        assert (error["path"], error["details"]["label"]) == ("label", ["required"])
        error = await refusal(client, "criteria", action="create", taskId=task_id, name="a", label="b", assertion=APPOINTMENT)
        assert error["path"] == "label" and "also as 'name'" in str(error["details"])
        error = await refusal(client, "criteria", action="create", taskId=task_id, name="a", assertion=APPOINTMENT, whenMissing="pass")
        assert error["path"] == "whenMissing"

    use(tmp_path / "home", doing)


@pytest.mark.timeout(60)
def test_an_assertion_is_answered_as_it_was_written(tmp_path: Path) -> None:
    written = {"assert": "portal-state-match", "correlateBy": {"resource": "rows", "key": "requestId"}, "assertions": []}

    async def doing(client: Client) -> None:
        _, task_id = await a_task(client)
        for assertion in (written, PRIOR_AUTH):
            made = await call(client, "criteria", action="create", taskId=task_id, label="x", assertion=assertion)
            assert made["assertion"] == assertion == (await call(client, "criteria", action="get", id=made["id"]))["assertion"]

    use(tmp_path / "home", doing)


@pytest.mark.timeout(60)
def test_the_first_generation_is_read(tmp_path: Path) -> None:
    async def doing(client: Client) -> None:
        benchmark = await call(client, "benchmarks", action="create", name="Old", threshold=0.7)
        assert benchmark["threshold"] == 0.7
        task = await call(client, "tasks", action="create", benchmarkId=benchmark["id"], name="t", instruction="Book it.")
        assert task["taskItem"] == {"instruction": "Book it."}
        for weight, assertion in ((3, APPOINTMENT), (1, PRIOR_AUTH)):
            await call(client, "criteria", action="create", taskId=task["id"], label="x", assertion=assertion, weight=weight)
        run = await call(client, "benchmark_runs", action="start", benchmarkId=benchmark["id"])
        await call(client, "benchmark_runs", action="putState", id=run["id"], state=state("Dr. Rivera", "draft"))
        done = await call(client, "benchmark_runs", action="complete", id=run["id"])
        assert (done["score"], done["verdict"]) == (0.75, "pass")

    use(tmp_path / "home", doing)


@pytest.mark.timeout(60)
def test_a_state_is_verified_as_uploaded_and_shown_without_secrets(tmp_path: Path) -> None:
    async def doing(client: Client) -> None:
        benchmark_id, task_id = await a_task(client)
        claim = {"path": "prior_authorization", "expected": {"$regex": "^PA-[0-9]+"}}
        portal = {"assert": "portal-state-match", "correlate_by": {"resource": "rows"}, "assertions": [claim]}
        await call(client, "criteria", action="create", taskId=task_id, label="x", assertion=portal)
        await call(client, "evals", action="create", taskId=task_id, label="y", **{"assert": json.dumps({**portal, "assertions": []})})
        run = await call(client, "benchmark_runs", action="start", benchmarkId=benchmark_id)
        task_run = run["taskRuns"][0]["id"]
        await call(client, "task-runs", action="putState", id=task_run, state={"portal": {"rows": [{"prior_authorization": "PA-4711-x"}]}})
        done = await call(client, "task-runs", action="complete", id=task_run)
        assert done["verdict"] == "pass"
        assert done["criterionRuns"][0]["evidence"]["assertion_results"][0]["actual"] == "[redacted]"
        shown = await call(client, "task-runs", action="get", id=task_run)
        page = (await client.read_resource(f"proctor://task-runs/{task_run}")).contents[0]
        assert "4711" not in str((done, shown, page))

    use(tmp_path / "home", doing)


@pytest.mark.timeout(60)
def test_our_own_assertions_are_authored_and_verified(tmp_path: Path) -> None:
    fax = {"assert": "fax-document", "to": "+1", "notContains": ["diagnosis"]}
    after = {"fax": {"documents": [{"to": "+1", "text": "a referral"}]}, "records": {"orders": [{"id": 1}]}}

    async def doing(client: Client) -> None:
        benchmark_id, task_id = await a_task(client)
        for assertion in (fax, {"assert": "records-match", "collection": "orders"}):
            made = await call(client, "criteria", action="create", taskId=task_id, label="x", assertion=assertion)
            assert made["assertion"] == assertion
        error = await refusal(client, "criteria", action="create", taskId=task_id, label="x", assertion={"assert": "fax-documents"})
        assert error["nearest"] == ["fax-document"] and "message-sent" in error["nextStep"]
        run = await call(client, "benchmark_runs", action="start", benchmarkId=benchmark_id)
        await call(client, "benchmark_runs", action="putState", id=run["id"], state=after)
        assert (await call(client, "benchmark_runs", action="complete", id=run["id"]))["verdict"] == "pass"

    use(tmp_path / "home", doing)


def test_environments_take_simulators(tmp_path: Path) -> None:
    async def doing(client: Client) -> None:
        simulator = await call(client, "simulators", action="create", type="FHIR", name="EHR")
        assert {name: simulator[name] for name in ("type", "name", "config")} == {"type": "FHIR", "name": "EHR", "config": None}
        environment = await call(client, "environments", action="create", name="Clinic")
        assert environment["simulators"] == []
        linked = await call(client, "environments", action="addSimulator", id=environment["id"], simulatorId=simulator["id"])
        assert linked["simulators"] == [{"id": simulator["id"], "type": "FHIR", "name": "EHR"}]
        benchmark = await call(client, "benchmarks", action="create", name="b", environmentId=environment["id"], timeout=60)
        assert benchmark["environmentId"] == environment["id"]
        error = await refusal(client, "simulators", action="create", type="FIHR", name="x")
        assert (error["path"], error["nearest"]) == ("type", ["FHIR"])

    use(tmp_path / "home", doing)


@pytest.mark.timeout(60)
def test_a_published_version_is_run_as_it_was(tmp_path: Path) -> None:
    async def doing(client: Client) -> None:
        benchmark_id, task_id = await a_task(client)
        await call(client, "criteria", action="create", taskId=task_id, label="x", assertion=APPOINTMENT)
        published = await call(client, "benchmarks", action="publish", id=benchmark_id)
        assert (published["published"], published["reference"]) == (True, "scheduling@1")
        await call(client, "criteria", action="create", taskId=task_id, label="later", assertion=PRIOR_AUTH)
        run = await call(client, "benchmark_runs", action="start", benchmarkId=benchmark_id, version=1)
        task_run = run["taskRuns"][0]["id"]
        await call(client, "task-runs", action="putState", id=task_run, state=state("Dr. Rivera", "x"))
        done = await call(client, "task-runs", action="complete", id=task_run)
        assert len(done["criterionRuns"]) == 1 and done["verdict"] == "pass"
        versions = await call(client, "benchmarks", action="listVersions", id=benchmark_id)
        assert [version["reference"] for version in versions["data"]] == ["scheduling@1"]

    use(tmp_path / "home", doing)


def test_lists_come_in_pages(tmp_path: Path) -> None:
    async def doing(client: Client) -> None:
        for number in range(3):
            await call(client, "simulators", action="create", type="hl7", name=str(number))
        first = await call(client, "simulators", action="list", limit=2)
        assert [entry["name"] for entry in first["data"]] == ["2", "1"] and first["_meta"]["limit"] == 2
        second = await call(client, "simulators", action="list", limit=2, cursor=first["_meta"]["next"])
        assert [entry["name"] for entry in second["data"]] == ["0"] and second["_meta"]["next"] is None
        error = await refusal(client, "simulators", action="list", cursor="nonsense")
        assert error["code"] == "BAD_REQUEST"

    use(tmp_path / "home", doing)
