"""Suites from users are untrusted: what a service refuses to reach, start, read or resolve unless an administrator allows it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.actions.running.run_policy import Policy
from proctor.service.access.callers import LOCAL, Caller
from proctor.service.access.secrets import set_secret
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.runs.building import ProjectPolicy
from proctor.service.runs.requests import NewRun, get_run, start_run
from proctor.service.runs.results import list_run_results
from proctor.service.runs.worker import work_once
from tests.databases import TestDatabase
from tests.service.agents import LOOPBACK, a_project, an_agent, suite
from tests.tables import rows

SERVER = Path(__file__).parents[2] / "targets" / "bare_server.py"


@pytest.fixture
def sqlite(sqlite_url: str, tmp_path: Path) -> TestDatabase:
    return TestDatabase(sqlite_url, tmp_path)


@pytest.mark.in_turn
@rows("service/runs/cases/runs_refused.yaml")
def test_forbidden_suites_are_refused(row: dict[str, Any], sqlite: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in row.get("environment", {}).items():
        monkeypatch.setenv(name, value)
    given = dict(row["given"])

    async def use(hub: Hub) -> None:
        project = await a_project(hub, **given.pop("project", {}))
        for name, value in given.pop("secrets", {}).items():
            await set_secret(hub, LOCAL, project, name, value)
        sent: dict[str, Any] = {"suite": suite("a", **given.pop("suite", {}))}
        if given.pop("judged", False):
            sent["suite"]["cases"][0]["expect"] = [{"judged": "is polite"}]
        if (user := given.pop("user", None)) is not None:
            sent["suite"]["cases"][0]["user"] = user
        if given.pop("without_suite", False):
            sent = {}
        with pytest.raises(Refusal) as refused:
            await start_run(hub, LOCAL, NewRun(project_id=project, **sent, **given))
        problem = f"{refused.value.message} {json.dumps(refused.value.fields, ensure_ascii=False)}"
        assert row["expect"] in problem, problem
        assert refused.value.code == row.get("code", "VALIDATION_ERROR"), problem

    sqlite.run_hub(use, **row.get("allow", {}))


def test_only_organization_keys_start_runs(sqlite: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        project = await a_project(hub)
        reader = Caller(organization_id=LOCAL.organization_id, kind="project", project_id=project)
        for caller, code in ((reader, "FORBIDDEN"), (Caller(organization_id="org_other"), "NOT_FOUND")):
            with pytest.raises(Refusal) as refused:
                await start_run(
                    hub, caller, NewRun(project_id=project, suite=suite("a"), target={"type": "http", "url": "https://example.com"})
                )
            assert refused.value.code == code

    sqlite.run_hub(use)


def test_an_allowed_command_is_started(sqlite: TestDatabase) -> None:
    servers = [{"id": "bare", "command": sys.executable, "args": [str(SERVER)]}]
    replies = [{"text": "hello"}]

    async def use(hub: Hub) -> None:
        project = await a_project(hub, models={"m": {"provider": "scripted", "replies": replies}})
        target = {"type": "mcp_agent", "model": "m", "servers": servers}
        run = await start_run(hub, LOCAL, NewRun(project_id=project, suite=suite("a"), target=target))
        await work_once(hub)
        found = await get_run(hub, LOCAL, run["id"])
        assert (found["status"], found["outcome"]) == ("completed", "pass"), (found, await list_run_results(hub, LOCAL, run["id"]))

    sqlite.run_hub(use, allowed_commands=(f"{sys.executable} {SERVER}",))


def test_an_allowed_function_and_an_allowed_file_are_used(sqlite: TestDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "agent_of_this_test.py").write_text("def answer(message):\n    return f'hello {message}'\n")
    (tmp_path / "kept.json").write_text(json.dumps({"case": "a", "text": "hello again"}))

    async def use(hub: Hub) -> None:
        project = await a_project(hub)
        for target in (
            {"type": "callable", "function": "agent_of_this_test:answer"},
            {"type": "recorded", "evidence": ["kept.json"]},
            {"type": "command", "command": ["sh", "-c", "echo hello"]},
            {"type": "command", "command": "sh -c 'echo hello'"},
        ):
            run = await start_run(hub, LOCAL, NewRun(project_id=project, suite=suite("a"), target=target))
            await work_once(hub)
            found = await get_run(hub, LOCAL, run["id"])
            assert (found["status"], found["outcome"]) == ("completed", "pass"), (found, await list_run_results(hub, LOCAL, run["id"]))

    sqlite.run_hub(use, allowed_commands=("callable agent_of_this_test:answer", "recorded kept.json", "sh -c 'echo hello'"))


def test_a_queued_suite_may_be_refused_when_it_is_driven(sqlite: TestDatabase) -> None:
    async def send(hub: Hub) -> str:
        async with an_agent() as agent:
            run = await start_run(hub, LOCAL, NewRun(project_id=await a_project(hub), suite=suite("a"), target=agent.target))
        return str(run["id"])

    async def drive(hub: Hub) -> None:
        await work_once(hub)
        run = await get_run(hub, LOCAL, run_id)
        assert run["status"] == "failed" and "this machine itself" in run["error"]

    run_id = sqlite.run_hub(send, allowed_addresses=LOOPBACK)
    sqlite.run_hub(drive)


def test_an_mcp_server_at_an_address_that_turns_out_to_be_private_fails_the_run(sqlite: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            project = await a_project(hub, models={"m": {"provider": "scripted", "replies": [{"text": "hello"}]}})
            await set_secret(hub, LOCAL, project, "WHERE", agent.url)
            target = {"type": "mcp_agent", "model": "m", "servers": [{"id": "s", "url": "${WHERE}", "transport": "http"}]}
            run = await start_run(hub, LOCAL, NewRun(project_id=project, suite=suite("a"), target=target))
            await work_once(hub)
            found = await get_run(hub, LOCAL, run["id"])
            assert found["status"] == "failed" and found["error"].startswith("address_refused: "), found
            assert not agent.server.requests

    sqlite.run_hub(use)


def test_a_model_at_an_address_that_resolves_to_a_private_one_is_not_called(sqlite: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            model = {"provider": "openai", "model": "m", "base_url": "${WHERE}", "api_key": "${KEY}"}
            project = await a_project(hub, models={"m": model})
            await set_secret(hub, LOCAL, project, "WHERE", agent.url)
            await set_secret(hub, LOCAL, project, "KEY", "a-key-of-a-model")
            run = await start_run(
                hub, LOCAL, NewRun(project_id=project, suite=suite("a"), target={"type": "mcp_agent", "model": "m", "servers": []})
            )
            await work_once(hub)
            row = (await list_run_results(hub, LOCAL, run["id"]))["data"][0]
            assert row["outcome"] == "error" and "--allowed-address" in row["reason"], row
            assert not agent.server.requests

    sqlite.run_hub(use)


def test_a_judge_of_the_project_goes_by_the_same_rules(sqlite: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            judge = {"provider": "openai", "model": "m", "base_url": "${WHERE}", "api_key": "${KEY}"}
            project = await a_project(hub, models={"m": judge}, judge={"model": "m"})
            await set_secret(hub, LOCAL, project, "WHERE", "http://169.254.169.254/v1")
            await set_secret(hub, LOCAL, project, "KEY", "a-key-of-a-judge")
            judged = suite("a")
            judged["cases"][0]["expect"] = [{"judged": "is polite"}]
            run = await start_run(hub, LOCAL, NewRun(project_id=project, suite=judged, target=agent.target))
            await work_once(hub)
            found = await list_run_results(hub, LOCAL, run["id"])
            assert found["data"][0]["outcome"] == "error", found

    sqlite.run_hub(use, allowed_addresses=LOOPBACK)


def test_the_service_replaces_every_rule_of_ones_own_machine() -> None:
    rules = {name for name in vars(Policy) if not name.startswith("__")}
    # The hub depends on these settings; the last two only list what `admit_suite` refuses on a local machine.
    left = rules - set(vars(ProjectPolicy)) - {"surroundings", "list_named", "_uses_configured_judge"}
    assert not left, "a stranger's suite could do there what its own user may"
