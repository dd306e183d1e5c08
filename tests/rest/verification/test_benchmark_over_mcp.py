"""The whole day over MCP: an author makes everything with tools, an agent works with nothing but the token of its run, the author reads on.

The same day over REST is in `test_sandboxes.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mcp.client import Client

from proctor.mcp_server.http import make_service_server
from proctor.service.access.callers import LOCAL
from proctor.service.hub import Hub
from tests.mcp_server.scenario import call, refusal
from tests.rest.services import Service
from tests.rest.verial import Author
from tests.rest.verification.test_sandboxes import BOOKED, NOTHING_ELSE, PATIENTS, READ_IT, REFERRAL, WRITTEN, Agent

LABELS = {"booked": BOOKED, "written": WRITTEN, "nothing else": NOTHING_ELSE, "read": READ_IT}


def over_mcp(service: Service, doing: Callable[[Client], Awaitable[Any]]) -> Any:
    """Call tools of the service with its organization key."""

    async def use(hub: Hub) -> Any:
        server = make_service_server(hub, lambda context: LOCAL)
        async with Client(server) as client:
            return await doing(client)

    return service.run(use)


async def author_everything(client: Client) -> dict[str, Any]:
    """Make an environment with two systems and patients, a published benchmark with a task, and a solver with a key."""
    environment = await call(client, "environments", action="create", name="clinic")
    for type in ("FHIR", "Files"):
        simulator = await call(client, "simulators", action="create", name=type, type=type)
        await call(client, "environments", action="addSimulator", id=environment["id"], simulatorId=simulator["id"])
    dataset = await call(client, "datasets", action="create", name="patients", type="FHIR", data=PATIENTS)
    await call(client, "environments", action="addDataset", id=environment["id"], datasetId=dataset["id"])
    benchmark = await call(client, "benchmarks", action="create", name="Referrals", environmentId=environment["id"])
    made = {"action": "create", "benchmarkId": benchmark["id"], "name": "book", "taskItem": {"instruction": "Book it."}}
    error = await refusal(client, "tasks", **made, scenario={"steps": [{"simulator": "fhri", "step": "add_resource"}]})
    assert error["code"] == "VALIDATION_ERROR" and "fhir" in str(error)
    task = await call(client, "tasks", **made, scenario={"steps": [REFERRAL]})
    for label, assertion in LABELS.items():
        await call(client, "criteria", action="create", taskId=task["id"], label=label, assertion=assertion)
    published = await call(client, "benchmarks", action="publish", id=benchmark["id"])
    solver = await call(client, "solvers", action="create", alias="agent-of-the-day")
    key = await call(client, "solvers", action="createKey", id=solver["id"])
    return {"benchmark": benchmark["id"], "dataset": dataset["id"], "reference": published["reference"], "key": key}


@pytest.mark.timeout(60)
def test_the_day_of_an_author_with_tools_and_of_an_agent(service: Service) -> None:
    author = Author(service, service.keys()["organization"])
    made = over_mcp(service, author_everything)
    agent = Agent(author, made["reference"], key=made["key"]["key"])
    agent.start()
    agent.work()
    fhir = agent.sandbox("FHIR")["id"]

    async def look(client: Client) -> None:
        """Read events while the agent works."""
        events = await call(client, "sandboxes", action="events", id=fhir)
        assert [(event["type"], event["method"], event["status"]) for event in events["data"]] == [("request", "POST", 201)]
        state = await call(client, "sandboxes", action="state", id=fhir)
        assert len(state["state"]["fhir"]["resources"]) == 3
        diff = await call(client, "sandboxes", action="diff", id=fhir)
        assert len(diff["added"]) == 1 and diff["changed"] == diff["removed"] == []

    over_mcp(service, look)
    held = agent.complete()
    assert held.pop("verdict") == "pass" and list(held.values()) == [True] * len(LABELS)

    async def read_on(client: Client) -> None:
        """Read the results, and find everything torn down but readable."""
        run = await call(client, "benchmark_runs", action="get", id=agent.run["benchmark_run_id"])
        assert (run["status"], run["verdict"], run["score"]) == ("completed", "pass", 1.0)
        checked = (await call(client, "criterion-runs", action="list", taskRunId=agent.task))["data"]
        assert len(checked) == len(LABELS) and all(one["passed"] for one in checked)
        whole = await call(client, "task-runs", action="get", id=agent.task)
        playground = await call(client, "playgrounds", action="get", id=whole["playgroundId"])
        assert playground["status"] == "teardown" and {one["status"] for one in playground["sandboxes"]} == {"teardown"}
        error = await refusal(client, "sandboxes", action="reset", id=fhir)
        assert error["code"] == "CONFLICT"
        assert len((await call(client, "sandboxes", action="events", id=fhir))["data"]) == 1
        assert (await call(client, "datasets", action="get", id=made["dataset"]))["data"] == PATIENTS

    async def show_others(client: Client) -> dict[str, Any]:
        """Publish the run on the leaderboard, and share a link to it."""
        await call(client, "benchmark_runs", action="publish", id=agent.run["benchmark_run_id"])
        board = await call(client, "benchmarks", action="leaderboard", id="referrals")
        (place,) = board["places"]
        assert (board["reference"], place["rank"], place["name"], place["score"]) == (made["reference"], 1, "agent-of-the-day", 1.0)
        link = await call(client, "benchmark_runs", action="share", id=agent.run["benchmark_run_id"], visibility="criteria")
        listed = await call(client, "benchmark_runs", action="listShares", id=agent.run["benchmark_run_id"])
        assert [one["id"] for one in listed["data"]] == [link["id"]]
        return link

    over_mcp(service, read_on)
    agent.ask("GET", agent.at("fhir", "/Patient"), status=409)
    link = over_mcp(service, show_others)
    seen = service.get(link["jsonPath"]).json()
    assert (seen["name"], seen["verdict"]) == ("agent-of-the-day", "pass")
    assert [one["label"] for one in seen["tasks"][0]["criteria"]] == list(LABELS)

    async def revoke(client: Client) -> None:
        await call(client, "benchmark_runs", action="revokeShare", id=agent.run["benchmark_run_id"], shareId=link["id"])

    over_mcp(service, revoke)
    assert service.get(link["jsonPath"]).status_code == 404


@pytest.mark.timeout(60)
def test_an_author_works_in_a_playground_by_hand(service: Service) -> None:
    """A playground is made and torn down over MCP alone; its systems accept the tokens that were shown once."""
    author = Author(service, service.keys()["organization"])

    async def open_one(client: Client) -> dict[str, Any]:
        environment = await call(client, "environments", action="create", name="payer")
        config = {"portal": "radmd", "default_determination": {"status": "approved"}}
        simulator = await call(client, "simulators", action="create", name="portal", type="Payer", config=config)
        await call(client, "environments", action="addSimulator", id=environment["id"], simulatorId=simulator["id"])
        return await call(client, "playgrounds", action="create", environmentId=environment["id"])

    playground = over_mcp(service, open_one)
    (sandbox,) = playground["sandboxes"]
    access = sandbox["credentials"]
    assert author.get(f"{access['api_url']}/prior-auths", key=access["token"]) == {"prior_auths": []}

    async def close(client: Client) -> None:
        await call(client, "playgrounds", action="teardown", id=playground["id"])
        shown = await call(client, "sandboxes", action="get", id=sandbox["id"])
        assert (shown["status"], shown["credentials"]) == ("teardown", None)

    over_mcp(service, close)
    author.get(f"{access['api_url']}/prior-auths", key=access["token"], status=401)
