"""Proposals over MCP: a coding agent proposes, and only the key of a person accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.service.access.callers import LOCAL, Caller
from proctor.service.access.projects import NewProject, create_project
from tests.mcp_server.clients import ERAS, connected
from tests.mcp_server.scenario import call, refusal

DOCUMENT = "proctor: 1\ncases: [{id: refund, input: Refund 17, expect: [{tool_called: refund}]}]"
PERSON = Caller(organization_id=LOCAL.organization_id, key_id="key_person")


@pytest.mark.parametrize("mode", ERAS)
async def test_an_agent_proposes_and_a_person_accepts(tmp_path: Path, mode: str) -> None:
    home = tmp_path / "home"
    async with connected(home, local=False, mode=mode) as (client, hub):
        project = (await create_project(hub, LOCAL, NewProject(name="shop")))["id"]
    agent = Caller(organization_id=LOCAL.organization_id, kind="project", key_id="key_agent", project_id=project)
    async with connected(home, caller=agent, local=False, mode=mode) as (client, _):
        sent = await call(client, "proposals", action="create", projectId=project, document=DOCUMENT, because="seen in a ticket")
        assert (sent["status"], sent["proposedBy"]) == ("pending", "key_agent")
        (listed,) = (await call(client, "proposals", action="list", status="pending"))["data"]
        assert listed["id"] == sent["id"] and "document" not in listed
        for action in ("accept", "reject", "delete"):
            assert (await refusal(client, "proposals", action=action, id=sent["id"]))["code"] == "FORBIDDEN"
        assert (await refusal(client, "proposals", action="update", id=sent["id"], name="x"))["code"] == "FORBIDDEN"
        assert (await refusal(client, "proposals", action="generate", projectId=project))["code"] == "FORBIDDEN"
        error = await refusal(client, "proposals", action="create", projectId=project, document="cases: [", because="x")
        assert error["code"] == "VALIDATION_ERROR"
    async with connected(home, caller=PERSON, local=False, mode=mode) as (client, _):
        accepted = await call(client, "proposals", action="accept", id=sent["id"], expectedVersion=1)
        assert accepted["status"] == "accepted" and accepted["caseId"].startswith("case_")


async def test_without_a_key_proposals_cannot_be_decided_over_mcp(tmp_path: Path) -> None:
    async with connected(tmp_path / "home", local=False) as (client, hub):
        project = (await create_project(hub, LOCAL, NewProject(name="shop")))["id"]
        sent = await call(client, "proposals", action="create", projectId=project, document=DOCUMENT, because="seen")
        error = await refusal(client, "proposals", action="accept", id=sent["id"])
        assert error["code"] == "FORBIDDEN" and "pages" in error["nextStep"]
        assert (await call(client, "proposals", action="get", id=sent["id"]))["status"] == "pending"


async def test_a_workspace_has_no_proposals(tmp_path: Path) -> None:
    async with connected(tmp_path / "home") as (client, _):
        assert "proposals" not in {tool.name for tool in (await client.list_tools()).tools}
