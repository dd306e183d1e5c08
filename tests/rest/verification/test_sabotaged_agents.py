"""Two clinical tasks, done right and sabotaged in one thing each: every criterion decides right, and the reason names the sabotage.

The tasks are documents of Verial: they are decided locally on simulated systems in memory, and, marked `live`, by the service.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from proctor.checks.registry import default_registry
from proctor.codecs.http import decode_query
from proctor.decide.prepare import PreparedCase
from proctor.formats.suites import read_suite
from proctor.model.case import System
from proctor.model.evidence import Evidence
from proctor.simulators.exchange import Request
from proctor.simulators.rows import MemoryStore
from proctor.simulators.sandbox import Sandbox, provision_rows
from proctor.simulators.seeds import join_config, read_kind
from tests.rest.services import Service
from tests.rest.verial import Author
from tests.rest.verification.test_sandboxes import Agent
from tests.simulators.workplace import BASE, make_surroundings
from tests.tables import load_document

TASKS = {name: load_document(f"rest/cases/{name}.yaml") for name in ("prior_authorization", "referral")}
HONEST: dict[str, Any] = {"id": "done right"}
ROWS = [pytest.param(task, row, id=f"{name}: {row['id']}") for name, task in TASKS.items() for row in (HONEST, *task["sabotages"])]
Ask = Callable[[str, str, str, Any], Any]
"""Asks a system, by its kind, for something; returns what it answers."""
Found = dict[str, tuple[str, str]]
"""Outcome and reason by the label of the criterion."""


def sabotage(task: dict[str, Any], row: dict[str, Any]) -> list[tuple[str, list[Any]]]:
    """The steps of an agent that does one thing wrong."""
    steps: list[tuple[str, list[Any]]] = []
    for name, step in task["work"].items():
        if name in row.get("drop", ()):
            continue
        text = json.dumps(step, separators=(",", ":"), ensure_ascii=False)
        old, new = row.get("replace", {}).get(name, ("", ""))
        assert old in text, f"{old!r} is not in the step {name!r}"
        changed = json.loads(text.replace(old, new)) if old else step
        steps += [(name, changed)] * (2 if name in row.get("repeat", ()) else 1)
    # A name after the body lets later steps use the answer.
    return steps + [(step[4] if len(step) > 4 else "", step[:4]) for step in row.get("add", ())]


def work(steps: list[tuple[str, list[Any]]], ask: Ask) -> None:
    answers: dict[str, Any] = {}
    for name, (kind, method, path, *body) in steps:
        for known, answer in answers.items():
            if isinstance(answer, dict) and "id" in answer:
                path = path.replace(f"{{{known}.id}}", str(answer["id"]))
        answers[name] = ask(kind, method, path, body[0] if body else None)


def compare(found: Found, row: dict[str, Any]) -> None:
    expected = {**dict.fromkeys(row.get("fails", {}), "fail"), **dict.fromkeys(row.get("errors", {}), "error")}
    assert {label: outcome for label, (outcome, _) in found.items() if outcome != "pass"} == expected, (row["id"], found)
    for label, part in {**row.get("fails", {}), **row.get("errors", {})}.items():
        assert part in found[label][1], row["id"]


def write_document(task: dict[str, Any]) -> dict[str, Any]:
    criteria = [{"label": label, "assertion": assertion, "required": True} for label, assertion in task["criteria"].items()]
    return {"task": {"name": "t", "instruction": "Do it."}, "criteria": criteria}


@pytest.mark.parametrize(("task", "row"), ROWS)
def test_a_sabotage_is_found_and_named_locally(task: dict[str, Any], row: dict[str, Any]) -> None:
    around = make_surroundings()
    kinds = {read_kind(type): config for type, config in task["systems"].items()}
    systems = tuple(System(name=kind, kind=kind, datasets=tuple(join_config(kind, config, []))) for kind, config in kinds.items())
    sandbox = Sandbox("s", systems, MemoryStore(), around)
    asyncio.run(sandbox.provision(provision_rows(systems, around)))

    def ask(kind: str, method: str, target: str, body: Any) -> Any:
        path, _, query = target.partition("?")
        data = b"" if body is None else msgspec.json.encode(body)
        headers = {"content-type": "application/json"}
        request = Request(method=method, path=path, query=decode_query(query), headers=headers, body=data, base=BASE)
        answer = asyncio.run(sandbox.handle(kind, request))
        return json.loads(answer.body) if answer.body else None

    work(sabotage(task, row), ask)
    case = read_suite(json.dumps(write_document(task)), dialect="verial").cases[0]
    result = PreparedCase(case, default_registry()).decide(Evidence(text="Done.", state=asyncio.run(sandbox.read_state())))
    compare({one.assertion.label: (one.outcome, one.reason) for one in result.assertions}, row)
    assert result.outcome == ("error" if row.get("errors") else "fail" if row.get("fails") else "pass")


@pytest.mark.in_turn
@pytest.mark.live
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", TASKS)
def test_sabotages_are_found_and_named_by_the_service(service: Service, name: str) -> None:
    task = TASKS[name]
    author = Author(service, service.keys()["organization"])
    environment = author.post("/environments", {"name": "clinic"})
    for type, config in task["systems"].items():
        simulator = author.post("/simulators", {"name": type, "type": type, "config": config})
        author.post(f"/environments/{environment['id']}/simulators/{simulator['id']}")
    benchmark = author.benchmark("Clinic", environment_id=environment["id"])
    made = author.task(benchmark, "work")
    labels = {author.criterion(made, assertion, label=label, required=True)["id"]: label for label, assertion in task["criteria"].items()}
    reference = author.post(f"/benchmarks/{benchmark['id']}/publish")["reference"]
    solver = author.solver_key("agent")
    for row in (HONEST, *task["sabotages"]):
        agent = Agent(author, reference, key=solver)
        agent.start()

        def ask(kind: str, method: str, path: str, body: Any, agent: Agent = agent) -> Any:
            answer = service.ask(method, agent.at(kind, path), key=agent.token, **({} if body is None else {"json": body}))
            return answer.json() if answer.content else None

        work(sabotage(task, row), ask)
        done = agent.ask("POST", f"/v1/task-runs/{agent.task}/complete")
        found = {labels[one["criterion_id"]]: (one["outcome"], one["details"]) for one in done["criterion_runs"]}
        compare(found, row)
        assert (done["verdict"] == "pass", done["undecided"]) == (row is HONEST, len(row.get("errors", {}))), row["id"]
