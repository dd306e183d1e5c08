"""Scenarios on the service: impossible ones are refused, and failed steps are reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.model.evidence import State
from proctor.simulators.kinds.files import SIMULATOR as FILES
from proctor.simulators.kinds.messages import SIMULATOR as MESSAGES
from tests.rest.services import Clock, Service
from tests.rest.verial import Author
from tests.rest.verification.test_sandboxes import Agent

ABSENCE: dict[str, Any] = {
    "unchanged": {"assert": "unchanged"},
    "not requested": {"assert": "request-not-made", "method": "DELETE"},
    "no row": {"assert": "records-match", "collection": "orders", "where": {"id": 99}, "absent": True},
}
PRESENCE = {"assert": "records-match", "collection": "orders", "where": {"id": 1}}
SEED = {"orders": [{"id": 1, "status": "open"}]}
ARRIVES = {"step": "add_row", "given": {"collection": "orders", "row": {"id": 7}}}
DROPPED = {"step": "drop_file_inbox", "given": {"path": "a.txt", "content": "a"}}


@pytest.fixture
def author(service: Service) -> Author:
    return Author(service, service.keys()["organization"])


def make_environment(author: Author, **configs: Any) -> str:
    """An environment with a simulator per type."""
    made: str = author.post("/environments", {"name": "shop"})["id"]
    for type, config in configs.items():
        simulator = author.post("/simulators", {"name": type, "type": type, "config": config})
        author.post(f"/environments/{made}/simulators/{simulator['id']}")
    return made


def start(author: Author, environment: str, *steps: Any) -> tuple[Agent, dict[str, str]]:
    """An agent whose task has begun, and the labels of its criteria by their ids."""
    benchmark = author.benchmark("Orders", environment_id=environment)
    task = author.task(benchmark, scenario={"steps": list(steps)})
    criteria = {"there": PRESENCE, **ABSENCE}
    labels = {author.criterion(task, assertion, label=label)["id"]: label for label, assertion in criteria.items()}
    agent = Agent(author, author.post(f"/benchmarks/{benchmark['id']}/publish")["reference"])
    agent.start()
    return agent, labels


def complete(author: Author, agent: Agent, labels: dict[str, str]) -> dict[str, Any]:
    """Complete the task, and return the result of each criterion by its label."""
    author.post(f"/task-runs/{agent.task}/complete")
    found = author.get(f"/criterion-runs?task_run_id={agent.task}")["data"]
    return {labels[one["criterion_id"]]: one for one in found}


def expect_not_known(found: dict[str, Any], message: str) -> None:
    """Present records were seen; the absence of others is unknown."""
    assert found.pop("there")["passed"]
    assert len(found) == len(ABSENCE)
    for one in found.values():
        assert not one["passed"] and message in str(one), one


def test_a_step_of_a_collection_that_the_system_will_hold_is_performed(author: Author) -> None:
    agent, labels = start(author, make_environment(author, Records={"seed": SEED}), ARRIVES)
    assert [row["id"] for row in agent.ask("GET", agent.at("records", "/orders"))["rows"]] == [1, 7]
    assert all(one["passed"] for one in complete(author, agent, labels).values())


def test_claims_of_absence_are_not_known_where_a_step_never_came_due(author: Author) -> None:
    agent, labels = start(author, make_environment(author, Records={"seed": SEED}), {**ARRIVES, "after_s": 60})
    expect_not_known(complete(author, agent, labels), "its time had not come")


def test_a_step_after_the_end_of_its_sandbox_never_comes(author: Author, clock: Clock) -> None:
    """The agent could no longer see it, even if the task is completed much later."""
    agent, labels = start(author, make_environment(author, Records={"seed": SEED}), {**ARRIVES, "after_s": 25 * 3600})
    clock.at += 26 * 3600
    expect_not_known(complete(author, agent, labels), "its time had not come")


def test_claims_of_absence_are_not_known_where_a_step_failed(author: Author, clock: Clock) -> None:
    agent, labels = start(author, make_environment(author, Records={"seed": SEED}), {**ARRIVES, "after_s": 60})
    agent.ask("POST", agent.at("records", "/orders"), {"id": 7})
    clock.at += 61
    agent.ask("DELETE", agent.at("records", "/orders/7"))
    agent.ask("POST", agent.at("records", "/orders"), {"id": 8})
    agent.ask("DELETE", agent.at("records", "/orders/8"))
    found = complete(author, agent, labels)
    assert not found.pop("not requested")["passed"], "the request was made, so the claim fails"
    assert found.pop("there")["passed"]
    for one in found.values():
        assert not one["passed"] and "add_row of records could not be performed" in str(one) and "7" in str(one)


def test_a_step_broken_by_a_bug_is_reported_and_the_systems_stay_reachable(
    author: Author, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = make_environment(author, Records={"seed": SEED}, Files=None)
    agent, labels = start(author, environment, {**DROPPED, "after_s": 60})

    def break_down(*_: Any) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(type(FILES), "perform", break_down)
    clock.at += 61
    assert agent.ask("GET", agent.at("files_inbox"))["files"] == []
    expect_not_known(complete(author, agent, labels), "a bug in the simulated system: ZeroDivisionError")


@pytest.fixture
def narrow(database_url: str, tmp_path: Path) -> Iterator[Author]:
    with Service(database_url, tmp_path, sandbox_rows=2) as running:
        yield Author(running, running.keys()["organization"])


def test_a_step_over_the_limit_is_reported(narrow: Author) -> None:
    service = narrow.service
    clock = Clock(service.hub.clock())
    service.app.state.hub = msgspec.structs.replace(service.hub, clock=clock)
    agent, labels = start(narrow, make_environment(narrow, Records={"seed": SEED}), {**ARRIVES, "after_s": 60})
    clock.at += 61
    expect_not_known(complete(narrow, agent, labels), "holds 2 rows")
    sandbox = agent.sandbox("Records")["id"]
    assert narrow.get(f"/sandboxes/{sandbox}/diff")["added"] == []


def test_two_systems_of_one_family_keep_the_state_of_both(author: Author, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = make_environment(author, Records={"seed": SEED}, Messages=None)
    # A kind whose state consists of records, as a custom kind may have.
    monkeypatch.setattr(type(MESSAGES), "read_state", lambda self, desk: State(records={"tickets": [{"id": 5}]}))
    benchmark = author.benchmark("Both", environment_id=environment)
    task = author.task(benchmark)
    for collection, id in (("orders", 1), ("tickets", 5)):
        author.criterion(task, {"assert": "records-match", "collection": collection, "where": {"id": id}}, label=collection)
    agent = Agent(author, author.post(f"/benchmarks/{benchmark['id']}/publish")["reference"])
    agent.start()
    held = agent.complete()
    assert held.pop("verdict") == "pass" and list(held.values()) == [True, True]


# --- refused when written ---------------------------------------------------------------------------------------------


def test_a_step_for_a_system_that_the_environment_lacks_is_refused_when_written(author: Author) -> None:
    benchmark = author.benchmark("Orders", environment_id=make_environment(author, Records=None))
    scenario = {"steps": [ARRIVES, DROPPED]}
    error = author.post("/tasks", {"benchmark_id": benchmark["id"], "name": "x", "scenario": scenario}, status=400)["error"]
    assert "kind files" in error["details"]["scenario.steps.1"][0] and "records" in error["details"]["scenario.steps.1"][0]
    task = author.task(benchmark)
    error = author.ask("PATCH", f"/tasks/{task['id']}", {"scenario": {"drop_file_inbox": DROPPED["given"]}}, status=400)["error"]
    assert "kind files" in error["details"]["scenario.drop_file_inbox"][0]


def test_a_step_for_a_system_that_the_environment_lacks_by_then_is_refused_at_publication(author: Author) -> None:
    environment = make_environment(author)
    benchmark = author.benchmark("Orders", environment_id=environment)
    task = author.task(benchmark, "drop", scenario={"steps": [DROPPED]})
    error = author.post(f"/benchmarks/{benchmark['id']}/publish", status=409)["error"]["message"]
    assert repr(task["id"]) in error and "kind files" in error and f"/environments/{environment}/simulators" in error
    simulator = author.post("/simulators", {"name": "drop", "type": "Files"})
    author.post(f"/environments/{environment}/simulators/{simulator['id']}")
    assert author.post(f"/benchmarks/{benchmark['id']}/publish")["version"] == 1


HELD = [
    ("message_arrives", "Message", {"patient_id": "ann", "text": "Help"}),
    ("add_row", "Records", {"collection": "orders", "row": {}}),
]


@pytest.mark.parametrize(("step", "simulator", "given"), HELD)
def test_a_step_that_names_what_a_system_may_hold_is_written(author: Author, step: str, simulator: str, given: Any) -> None:
    scenario = {"steps": [{"simulator": simulator, "step": step, "given": given}]}
    task = author.task(author.benchmark("Held"), scenario=scenario)
    assert author.get(f"/tasks/{task['id']}")["scenario"] == scenario
    wrong = {"steps": [{"simulator": simulator, "step": step, "given": {"colection": "orders"}}]}
    author.ask("PATCH", f"/tasks/{task['id']}", {"scenario": wrong}, status=400)
