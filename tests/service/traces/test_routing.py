"""Which agent a trace belongs to: by its key, its agent name, its service or its workflow."""

from __future__ import annotations

import json

import pytest

from proctor.service.access import agents, projects
from proctor.service.access.callers import LOCAL, Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from tests.databases import TestDatabase
from tests.service.trace_world import new_trace, post, project_key, refusal, request, root, send, trace_rows, world

SPANS = {"spans": [{"span_id": "a", "name": "flow", "attributes": {"gen_ai.response.text": "hi"}}]}


def test_a_trace_for_no_agent_is_refused_with_a_hint(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        await world(hub)
        await post(hub, SPANS)

    error = database.run_hub(refusal(use))
    assert error.status == 400 and error.hint is not None and "platformId" in error.hint


def test_a_body_of_the_second_generation_without_an_agent_names_one_that_was_not_found(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        await world(hub)
        await post(hub, {"data": {"text": "hi"}})

    assert database.run_hub(refusal(use)).status == 404


@pytest.mark.parametrize("place", ["metadata", "externalMetadata"])
@pytest.mark.parametrize("name", ["workflowId", "chatflowId"])
async def test_a_body_of_the_second_generation_is_routed_by_its_workflow(place: str, name: str, hub: Hub) -> None:
    _, agent = await world(hub, external_ref="wf-1")
    await post(hub, {"data": {"text": "hi"}, place: {name: "wf-1"}})
    assert (await trace_rows(hub))[0]["agent_id"] == agent


@pytest.mark.parametrize(
    "named", ['{"platformId": "ID"}', '{"metadata": {"mibo": {"platform_id": "ID"}}}', '{"metadata": {"mibo.platform_id": "ID"}}']
)
async def test_the_agent_is_named_at_the_top_or_in_the_metadata_nested_or_flat(named: str, hub: Hub) -> None:
    _, agent = await world(hub)
    await post(hub, {**SPANS, **json.loads(named.replace("ID", agent))})
    assert (await trace_rows(hub))[0]["agent_id"] == agent


async def test_a_key_for_one_agent_needs_no_name_and_one_for_several_is_held_to_them(hub: Hub) -> None:
    project, one = await world(hub)
    two = (await agents.create_agent(hub, LOCAL, agents.NewAgent(project_id=project, name="two")))["id"]
    three = (await agents.create_agent(hub, LOCAL, agents.NewAgent(project_id=project, name="three")))["id"]

    await post(hub, SPANS, caller=project_key(project, two))
    assert (await trace_rows(hub))[-1]["agent_id"] == two
    await post(hub, {**SPANS, "platformId": one}, caller=project_key(project, one, two))
    for caller, body, status in (
        (project_key(project, one, two), SPANS, 400),
        (project_key(project, one, two), {**SPANS, "platformId": three}, 403),
        (project_key(project), {**SPANS, "platformId": "agent_nobody"}, 404),
        (Caller(organization_id="org_other", kind="project", project_id="p"), {**SPANS, "platformId": one}, 404),
        (Caller(organization_id=LOCAL.organization_id, kind="solver"), {**SPANS, "platformId": one}, 403),
    ):
        with pytest.raises(Refusal) as caught:
            await post(hub, body, caller=caller)
        assert caught.value.status == status, caught.value.message


@pytest.mark.parametrize("field", ["service_name", "external_ref"])
async def test_a_project_key_finds_agents_of_its_project_only(field: str, hub: Hub) -> None:
    _, of_batch = await world(hub, **{"service_name": None, field: "shop"})
    web = (await projects.create_project(hub, LOCAL, projects.NewProject(name="web")))["id"]

    async def send_to_shop() -> None:
        if field == "service_name":
            await send(hub, request(root(new_trace()), service="shop"), caller=project_key(web))
        else:
            await post(hub, {"data": {"text": "hi"}, "metadata": {"workflowId": "shop"}}, caller=project_key(web))

    with pytest.raises(Refusal) as caught:
        await send_to_shop()
    assert caught.value.status == (400 if field == "service_name" else 404), caught.value.message
    assert of_batch not in caught.value.message and await trace_rows(hub) == []
    of_web = (await agents.create_agent(hub, LOCAL, agents.NewAgent(project_id=web, name="shop", **{field: "shop"})))["id"]
    await send_to_shop()
    assert [row["agent_id"] for row in await trace_rows(hub)] == [of_web]
