"""Schedules over MCP: the tool is derived from the same declarations as REST."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp.client import Client

from proctor.service.access.callers import LOCAL
from proctor.service.access.projects import NewProject, create_project
from tests.mcp_server.clients import ERAS, connected
from tests.mcp_server.scenario import call, refusal
from tests.service.agents import suite

TARGET = {"type": "http", "url": "https://agent.example/"}


@pytest.mark.parametrize("mode", ERAS)
async def test_an_agent_makes_changes_runs_and_deletes_a_schedule(tmp_path: Path, mode: str) -> None:
    async with connected(tmp_path / "home", local=False, mode=mode) as (client, hub):
        project = (await create_project(hub, LOCAL, NewProject(name="shop")))["id"]
        times = await call(client, "schedules", action="preview", cron="0 6 * * MON-FRI", timezone="Europe/Berlin", count=2)
        assert [time["local"][11:16] for time in times["times"]] == ["06:00", "06:00"]
        run = {"suite": suite("a"), "target": TARGET, "timeout_s": 30}
        made = await call(client, "schedules", action="create", projectId=project, name="nightly", cron="@daily", run=run)
        assert (made["run"]["timeout_s"], made["run"]["suite"], made["overlap"]) == (30, suite("a"), "skip")
        assert made["nextAt"].endswith("T00:00:00.000Z") and made["lastRun"] is None
        (listed,) = (await call(client, "schedules", action="list", projectId=project))["data"]
        assert listed["id"] == made["id"] and listed["run"]["suite"] is None
        changed = await call(client, "schedules", action="update", id=made["id"], cron="@hourly", active=False)
        assert (changed["cron"], changed["nextAt"], changed["run"]) == ("@hourly", None, made["run"])
        started = await call(client, "schedules", action="runNow", id=made["id"])
        assert started["scheduleId"] == made["id"] and started["status"] == "queued"
        assert (await call(client, "schedules", action="get", id=made["id"]))["lastRun"]["id"] == started["id"]
        assert await call(client, "schedules", action="delete", id=made["id"]) == {"id": made["id"], "deleted": True}
        error = await refusal(client, "schedules", action="get", id=made["id"])
        assert error["code"] == "NOT_FOUND"


async def test_problems_of_a_schedule_are_reported_with_their_path(tmp_path: Path) -> None:
    async with connected(tmp_path / "home", local=False) as (client, hub):
        project = (await create_project(hub, LOCAL, NewProject(name="shop")))["id"]
        given = {"projectId": project, "name": "n", "cron": "@daily", "run": {"suite": suite("a"), "target": TARGET}}

        async def refuse(client: Client, **more: object) -> str:
            return (await refusal(client, "schedules", action="create", **{**given, **more}))["path"]

        assert await refuse(client, cron="0 25 * * *") == "cron"
        assert await refuse(client, timezone="Mars/Base") == "timezone"
        assert await refuse(client, overlap="stop") == "overlap"
        assert await refuse(client, run={"suite": suite("a"), "repeats": 2}) == "run.repeats"
        assert await refuse(client, every="day") == "every"
        assert (await refusal(client, "schedules", action="create", name="n"))["details"].keys() == {"projectId", "cron", "run"}


async def test_a_workspace_has_no_schedules(tmp_path: Path) -> None:
    async with connected(tmp_path / "home") as (client, _):
        assert "schedules" not in {tool.name for tool in (await client.list_tools()).tools}
