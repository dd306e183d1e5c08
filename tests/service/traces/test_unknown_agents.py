"""Unknown service names: whose traces create an agent, in which project, and how many."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proctor.evidence.otlp.groups import receive_json
from proctor.service.access import agents, projects
from proctor.service.access.audit import list_notes
from proctor.service.access.callers import LOCAL, Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.traces import intake
from proctor.service.traces.evaluator import evaluate_all
from proctor.service.traces.intake import read_spans
from tests.databases import TestDatabase
from tests.service.trace_world import (
    logs,
    new_trace,
    post,
    project_key,
    record,
    request,
    result_rows,
    root,
    send,
    send_logs,
    trace_rows,
    world,
)

ORGANIZATION = Caller(organization_id=LOCAL.organization_id, key_id="key_1")


async def made_agents(hub: Hub) -> list[dict[str, Any]]:
    return list(reversed((await agents.list_agents(hub, LOCAL, limit=100))["data"]))


async def refused(hub: Hub, caller: Caller, service: str | None = "new") -> Refusal:
    with pytest.raises(Refusal) as caught:
        await send(hub, request(root(new_trace()), service=service), caller=caller)
    return caught.value


@pytest.mark.parametrize("binary", [False, True], ids=["json", "protobuf"])
async def test_locally_an_unknown_service_makes_its_agent_and_a_project_where_there_is_none(binary: bool, hub: Hub) -> None:
    for _ in range(2):
        await send(hub, request(root(new_trace()), service="billing"), binary=binary)
    (agent,) = await made_agents(hub)
    (project,) = (await projects.list_projects(hub, LOCAL))["data"]
    assert project["name"] == "default" and agent["project_id"] == project["id"]
    assert (agent["name"], agent["service_name"], agent["kind"]) == ("billing", "billing", "otlp")
    assert agent["settings"] == {"made_by": "trace"}
    assert {row["agent_id"] for row in await trace_rows(hub)} == {agent["id"]} and len(await trace_rows(hub)) == 2
    notes = [(note["action"], note["resource"], note["actor"]) for note in (await list_notes(hub, LOCAL))["data"]]
    assert sorted(notes) == [("create", "agent", "local"), ("create", "project", "local")]


@pytest.mark.parametrize("binary", [False, True], ids=["json", "protobuf"])
async def test_log_records_that_come_first_make_the_agent_too(binary: bool, hub: Hub) -> None:
    trace = new_trace()
    await send_logs(hub, logs(record(trace, "b" * 16, "gen_ai.choice", "x"), service="billing"), binary=binary)
    await send(hub, request(root(trace), service="billing"), binary=binary)
    assert len(await made_agents(hub)) == 1 and len(await trace_rows(hub)) == 1


async def test_cases_of_the_project_count_for_an_agent_that_was_made(hub: Hub) -> None:
    project, _ = await world(hub)
    await send(hub, request(root(new_trace(), gen_ai__operation__name="invoke_agent"), service="new"), flush=True)
    assert [agent["project_id"] for agent in await made_agents(hub)] == [project, project], "the only project there is"
    assert await evaluate_all(hub) == 1
    assert [row["outcome"] for row in await result_rows(hub)] == ["pass"]


async def test_the_project_named_default_is_used(hub: Hub) -> None:
    for name in ("one", "two"):
        await projects.create_project(hub, LOCAL, projects.NewProject(name=name))
    for service in ("a", "b"):
        await send(hub, request(root(new_trace()), service=service))
    names = {project["id"]: project["name"] for project in (await projects.list_projects(hub, LOCAL))["data"]}
    assert sorted(names.values()) == ["default", "one", "two"]
    assert [names[agent["project_id"]] for agent in await made_agents(hub)] == ["default", "default"]


async def test_with_keys_unknown_services_are_refused_unless_the_administrator_allows_them(hub: Hub) -> None:
    project, _ = await world(hub)
    for caller in (ORGANIZATION, project_key(project)):
        error = await refused(hub, caller)
        assert error.status == 400 and error.hint is not None and "--unknown-agents create" in error.hint


def test_a_project_key_makes_agents_in_its_project_and_a_restricted_one_none(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        project, agent = await world(hub)
        await projects.create_project(hub, LOCAL, projects.NewProject(name="other"))
        two = (await agents.create_agent(hub, LOCAL, agents.NewAgent(project_id=project, name="two")))["id"]
        await send(hub, request(root(new_trace()), service="new"), caller=project_key(project))
        new = (await made_agents(hub))[-1]
        assert (new["name"], new["project_id"]) == ("new", project)
        assert (await refused(hub, project_key(project, agent, two), "newer")).status == 400
        assert len(await made_agents(hub)) == 3
        note = (await list_notes(hub, LOCAL, resource="agent"))["data"][0]
        assert (note["actor"], note["resource_id"]) == ("key_1", new["id"])

    database.run_hub(use, unknown_agents="create")


def test_a_name_that_only_an_agent_of_another_project_has_makes_one_in_the_project_of_the_key(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        await world(hub)
        web = (await projects.create_project(hub, LOCAL, projects.NewProject(name="web")))["id"]
        await send(hub, request(root(new_trace()), service="shop"), caller=project_key(web))
        new = (await made_agents(hub))[-1]
        assert (new["service_name"], new["project_id"]) == ("shop", web)
        assert [row["agent_id"] for row in await trace_rows(hub)] == [new["id"]]

    database.run_hub(use, unknown_agents="create")


def test_the_administrator_can_refuse_traces_of_the_local_user(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        assert (await refused(hub, LOCAL)).status == 400
        assert await made_agents(hub) == [] and (await projects.list_projects(hub, LOCAL))["data"] == []

    database.run_hub(use, unknown_agents="refuse")


@pytest.mark.parametrize("name", [None, " ", "x" * 201, "a\0b"], ids=["none", "blank", "long", "a character that cannot be stored"])
async def test_names_that_no_agent_can_have_are_refused(name: str | None, hub: Hub) -> None:
    assert (await refused(hub, LOCAL, name)).status == 400
    assert await made_agents(hub) == []


async def test_a_body_in_one_piece_makes_no_agent(hub: Hub) -> None:
    with pytest.raises(Refusal):
        await post(hub, {"spans": [{"span_id": "a", "name": "x"}]})
    assert await made_agents(hub) == []


async def test_a_paused_project_gets_no_new_agents(hub: Hub) -> None:
    project, _ = await world(hub)
    await projects.update_project(hub, LOCAL, project, {"paused": True})
    assert (await refused(hub, LOCAL)).status == 403
    assert len(await made_agents(hub)) == 1


async def test_new_agents_are_limited_and_the_rest_is_refused(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    monkeypatch.setattr(intake, "MOST_MADE", 3)
    await world(hub)
    many = [group for number in range(5) for group in request(root(new_trace()), service=f"s{number}")["resourceSpans"]]
    found = await read_spans(hub, LOCAL, receive_json({"resourceSpans": many}))
    assert len(found.arrivals) == 3 and found.refused_spans == 2
    assert any("already created from service names" in reason and "POST /api/agents" in reason for reason in found.reasons)
    adopted = (await made_agents(hub))[-1]
    await agents.update_agent(hub, LOCAL, adopted["id"], {"settings": {}})
    await send(hub, request(root(new_trace()), service="s9"))
    assert [agent["name"] for agent in await made_agents(hub)] == ["shop", "s0", "s1", "s2", "s9"]


async def test_requests_at_once_make_one_agent(hub: Hub) -> None:
    await asyncio.gather(*(send(hub, request(root(new_trace()), service="new")) for _ in range(8)))
    assert len(await made_agents(hub)) == 1 and len(await trace_rows(hub)) == 8
    assert len((await projects.list_projects(hub, LOCAL))["data"]) == 1
