"""MCPLab suites on the service: their own agents on their own servers, as far as administrator and project allow."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml

from proctor.cassettes import redaction
from proctor.mcp_server.arguments import RunRequest
from proctor.mcp_server.service_runs import ServiceRuns
from proctor.service.access.callers import LOCAL
from proctor.service.access.projects import update_project
from proctor.service.access.secrets import set_secret
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.runs.requests import NewRun, get_run, start_run
from proctor.service.runs.results import get_run_result, list_run_results, run_report
from proctor.service.runs.worker import run_worker, work_once
from proctor.service.traces.cases import NewCase, create_case, update_case
from proctor.store.sql.tables import runs
from tests.actions.mcplab_world import AGENTS, CONFIG, LOOKUP, clerk, completion
from tests.databases import TestDatabase
from tests.llm.provider_server import Provider, ReceivedRequest, ScriptedResponse, provider
from tests.service.agents import LOOPBACK, a_project, an_agent, working
from tests.tables import rows
from tests.targets.mcp_twins import http_shop

BARE = Path(__file__).parents[2] / "targets" / "bare_server.py"
KEY = "sk-of-the-project-1234"


@pytest.fixture
def sqlite(sqlite_url: str, tmp_path: Path) -> TestDatabase:
    return TestDatabase(sqlite_url, tmp_path)


def config(url: str, *, agents: Any = None, **more: Any) -> dict[str, Any]:
    """A complete config."""
    server = {"id": "shop", "transport": "http", "url": f"{url}/mcp"}
    rules = {"tool_constraints": {"required_tools": ["lookup_order"]}, "response_assertions": [{"type": "contains", "value": "shipped"}]}
    return {
        "name": "Orders",
        "agents": agents or [{"id": "gpt", "provider": "openai", "model": "gpt-test"}],
        "scenarios": [{"id": "lookup", "prompt": "status of order 17", "mcp_servers": [server], "eval": rules}],
        **more,
    }


async def with_keys(hub: Hub, seen: Provider, **settings: Any) -> str:
    project = await a_project(hub, **settings)
    await set_secret(hub, LOCAL, project, "OPENAI_API_KEY", KEY)
    await set_secret(hub, LOCAL, project, "OPENAI_BASE_URL", f"{seen.url}/v1")
    return project


async def driven(hub: Hub, project: str, **sent: Any) -> dict[str, Any]:
    run = await start_run(hub, LOCAL, NewRun(project_id=project, **sent))
    assert await work_once(hub) == run["id"]
    return await get_run(hub, LOCAL, run["id"])


async def results(hub: Hub, run_id: str) -> dict[str, dict[str, Any]]:
    page = await list_run_results(hub, LOCAL, run_id, limit=100)
    return {row["case"]: row for row in page["data"]}


async def refusal(hub: Hub, project: str, **sent: Any) -> Refusal:
    with pytest.raises(Refusal) as refused:
        await start_run(hub, LOCAL, NewRun(project_id=project, **sent))
    return refused.value


def words(refused: Refusal) -> str:
    return f"{refused.message} {json.dumps([refused.fields, refused.problems], ensure_ascii=False)} {refused.hint}"


def test_a_suite_is_driven_by_its_own_agents_on_its_own_servers(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with provider(clerk) as seen:
            run = await driven(hub, await with_keys(hub, seen), suite=config(url), repeat=2)
            assert (run["status"], run["outcome"], run["target"], run["dialect"]) == ("completed", "pass", "gpt", "mcplab"), run
            assert run["counts"]["pass"] == run["attempts"] == 2
            assert {request.headers["authorization"] for request in seen.requests} == {f"Bearer {KEY}"}
            ids = {headers["x-request-id"] for headers in gate.seen if "x-request-id" in headers}
            assert ids == {f"mcplab-run:{run['id']}:lookup:gpt:lookup-gpt-run{number}" for number in (1, 2)}
            page = await list_run_results(hub, LOCAL, run["id"])
            whole = await get_run_result(hub, LOCAL, run["id"], page["data"][0]["id"])
            assert whole["evidence"]["tool_calls"][0]["name"] == "lookup_order" and len(whole["result"]["assertions"]) == 2
            assert KEY not in json.dumps(whole)

    with http_shop() as (url, gate):
        database.run_hub(use, allowed_addresses=LOOPBACK)


def test_the_same_suite_runs_over_mcp(sqlite: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with provider(clerk) as seen:
            await with_keys(hub, seen)
            async with working(run_worker, hub):
                run = await ServiceRuns(hub).start(LOCAL, RunRequest(document=config(url)), wait_s=10)
            assert (run["status"], run["outcome"], run["target"]) == ("completed", "pass", "gpt"), run

    with http_shop() as (url, _):
        sqlite.run_hub(use, allowed_addresses=LOOPBACK)


def test_every_scenario_runs_with_every_selected_agent(sqlite: TestDatabase) -> None:
    agents = [
        {"id": "gpt", "provider": "openai", "model": "gpt-test"},
        {"id": "mini", "provider": "openai", "model": "mini-test"},
        {"id": "page", "type": "browser", "provider": "claude", "url": "https://chat.example/new"},
        {"id": "other", "provider": "anthropic", "model": "has no key"},
    ]

    async def use(hub: Hub) -> None:
        async with provider(clerk) as seen:
            project = await with_keys(hub, seen)
            sent = config(url, agents=agents, run_defaults={"selected_agents": ["gpt", "mini", "page"]})
            run = await driven(hub, project, suite=sent)
            assert (run["status"], run["attempts"], run["target"]) == ("completed", 3, "gpt, mini, page"), run
            found = await results(hub, run["id"])
            assert {id: row["outcome"] for id, row in found.items()} == {"lookup-gpt": "pass", "lookup-mini": "pass", "lookup-page": "skip"}
            report = json.loads(await run_report(hub, LOCAL, run["id"], "json"))
            assert sorted(case["id"] for case in report["cases"]) == sorted(found)
            assert {request.body["model"] for request in seen.requests} == {"gpt-test", "mini-test"}

    with http_shop() as (url, _):
        sqlite.run_hub(use, allowed_addresses=LOOPBACK)


def test_references_lead_into_the_library_of_the_project_as_it_was_when_the_run_was_sent(sqlite: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with provider(clerk) as seen:
            shop = {"transport": "http", "url": f"{url}/mcp", "auth": {"type": "bearer", "token": "${SHOP_TOKEN}"}}
            library = {"agents": yaml.safe_load(AGENTS), "servers": {"shop": shop}, "test_cases": [yaml.safe_load(LOOKUP)]}
            project = await with_keys(hub, seen, mcplab=library)
            await set_secret(hub, LOCAL, project, "SHOP_TOKEN", "tok-1234567")
            run = await start_run(hub, LOCAL, NewRun(project_id=project, suite=CONFIG))
            await update_project(hub, LOCAL, project, {"settings": {}})
            await work_once(hub)
            found = await get_run(hub, LOCAL, run["id"])
            assert (found["status"], found["outcome"], found["counts"]["pass"]) == ("completed", "pass", 2), found
            assert {headers["authorization"] for headers in gate.seen} == {"Bearer tok-1234567"}
            assert set(await results(hub, run["id"])) == {"lookup", "total"}
            again = words(await refusal(hub, project, suite=CONFIG))
            assert "the server 'shop' is not in the library" in again and "`mcplab` in the settings of the project" in again

    with http_shop() as (url, gate):
        gate.accepted = {"Bearer tok-1234567"}
        sqlite.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_server_of_the_library_is_started_where_that_command_is_allowed_and_only_there(sqlite: TestDatabase) -> None:
    library = {"servers": {"shop": {"command": sys.executable, "args": [str(BARE)]}}}
    sent = config("https://not.used")
    sent["scenarios"][0]["mcp_servers"] = [{"ref": "shop"}]

    async def allowed(hub: Hub) -> None:
        async with provider(clerk) as seen:
            run = await driven(hub, await with_keys(hub, seen, mcplab=library), suite=sent)
            # It was started and listed its tools, which do not include the one the model wants.
            reasons = [row["reason"] for row in (await results(hub, run["id"])).values()]
            assert (run["status"], reasons) == ("completed", ['there is no tool "lookup_order"'])

    async def not_allowed(hub: Hub) -> None:
        async with provider(clerk) as seen:
            refused = await refusal(hub, await with_keys(hub, seen, mcplab=library), suite=sent)
            assert refused.code == "FORBIDDEN" and "MCP server 'shop' is not allowed on the server" in refused.message
            assert "--allowed-command" in (refused.hint or "") and set(refused.fields) == {"suite"}
            assert not seen.requests

    sqlite.run_hub(allowed, allowed_addresses=LOOPBACK, allowed_commands=(f"{sys.executable} {BARE}",))
    sqlite.run_hub(not_allowed, allowed_addresses=LOOPBACK, allowed_commands=(sys.executable,))


def test_a_queued_suite_may_be_refused_when_it_is_driven(sqlite: TestDatabase) -> None:
    async def send(hub: Hub) -> str:
        async with provider(clerk) as seen:
            return str((await start_run(hub, LOCAL, NewRun(project_id=await with_keys(hub, seen), suite=config(url))))["id"])

    async def drive(hub: Hub) -> None:
        await work_once(hub)
        run = await get_run(hub, LOCAL, run_id)
        assert run["status"] == "failed" and "this machine itself" in run["error"]

    with http_shop() as (url, gate):
        run_id = sqlite.run_hub(send, allowed_addresses=LOOPBACK)
        sqlite.run_hub(drive)
        assert not gate.seen


@rows("service/runs/cases/mcplab_refused.yaml")
def test_a_forbidden_suite_is_refused_before_anything_starts(
    row: dict[str, Any], sqlite: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in row.get("environment", {}).items():
        monkeypatch.setenv(name, value)
    given = dict(row["given"])

    async def use(hub: Hub) -> None:
        project = await a_project(hub, **given.get("project", {}))
        for name, value in given.get("secrets", {"OPENAI_API_KEY": KEY}).items():
            await set_secret(hub, LOCAL, project, name, value)
        sent = config("https://shop.example")
        scenario = sent["scenarios"][0]
        scenario.update(given.get("scenario", {}))
        scenario["mcp_servers"][0].update(given.get("server", {}))
        sent.update(given.get("suite", {}))
        refused = await refusal(hub, project, suite=sent)
        for expected in [row["expect"]] if isinstance(row["expect"], str) else row["expect"]:
            assert expected in words(refused), words(refused)
        assert refused.code == row.get("code", "VALIDATION_ERROR")

    sqlite.run_hub(use, **row.get("allow", {}))


def test_more_than_a_service_drives_at_once_is_refused_before_it_is_multiplied(sqlite: TestDatabase) -> None:
    def agents(count: int) -> list[dict[str, Any]]:
        return [{"id": f"a{number}", "provider": "openai", "model": "x"} for number in range(count)]

    async def use(hub: Hub) -> None:
        async with provider(clerk) as seen:
            project = await with_keys(hub, seen)
            assert "51 agents" in words(await refusal(hub, project, suite=config("https://x.example", agents=agents(51))))
            many = [{"id": f"s{number}", "prompt": "x"} for number in range(1001)]
            sent = {**config("https://x.example", agents=agents(50)), "scenarios": many}
            assert "50000 combinations" in words(await refusal(hub, project, suite=sent))
            servers = [{"id": f"s{number}", "transport": "http", "url": "https://x.example"} for number in range(51)]
            sent = config("https://x.example")
            sent["scenarios"][0]["mcp_servers"] = servers
            assert "51 MCP servers" in words(await refusal(hub, project, suite=sent))

    sqlite.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_target_that_is_named_goes_before_the_suites_own_agents(sqlite: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            sent = config("https://shop.example")
            sent["scenarios"][0]["eval"] = {"response_assertions": [{"type": "contains", "value": "hello"}]}
            named = await driven(hub, await a_project(hub, targets={"shop": agent.target}), suite=sent, target="shop")
            inline = await driven(hub, await a_project(hub), suite=sent, target=agent.target)
            assert [(run["outcome"], run["target"]) for run in (named, inline)] == [("pass", "shop"), ("pass", "target")]

    sqlite.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_suite_without_agents_goes_to_the_target_of_its_project(sqlite: TestDatabase) -> None:
    sent = {"id": "greets", "prompt": "a", "eval": {"response_assertions": [{"type": "contains", "value": "hello"}]}}

    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            run = await driven(hub, await a_project(hub, targets={"shop": agent.target}), suite=sent)
            assert (run["outcome"], run["target"]) == ("pass", "shop")
            assert "no target: send one" in words(await refusal(hub, await a_project(hub), suite=sent))

    sqlite.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_case_of_the_project_is_driven_by_the_agents_of_its_library(sqlite: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with provider(clerk) as seen:
            library = {
                "agents": [{"id": "gpt", "provider": "openai", "model": "gpt-test"}],
                "servers": [{"id": "shop", "transport": "http", "url": f"{url}/mcp"}],
            }
            project = await with_keys(hub, seen, mcplab=library)
            case = await create_case(hub, LOCAL, NewCase(project_id=project, document=LOOKUP))
            run = await driven(hub, project, cases=[case["id"]])
            assert (run["status"], run["outcome"], run["target"], run["dialect"]) == ("completed", "pass", "gpt", "mcplab"), run

    with http_shop() as (url, _):
        sqlite.run_hub(use, allowed_addresses=LOOPBACK)


@pytest.mark.parametrize("whose", ["project", "service"])
def test_claims_about_the_agent_go_to_the_judge_of_the_project_or_of_the_service(
    whose: str, sqlite: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: ReceivedRequest) -> ScriptedResponse:
        if request.body["model"] != "the-judge":
            return clerk(request)
        (check, *_) = re.findall(r"check-[0-9]+-[0-9a-f]{12}", json.dumps(request.body))
        return completion(json.dumps({"results": [{"id": check, "quotes": [], "reason": "so it says", "pass": True}]}))

    async def use(hub: Hub) -> None:
        async with provider(answer) as seen:
            judge: dict[str, Any] = {}
            if whose == "project":
                judge = {"judge": {"model": "j"}, "models": {"j": {"provider": "openai", "model": "the-judge"}}}
            else:
                monkeypatch.setenv("PROCTOR_JUDGE_MODEL", "openai/the-judge")
                monkeypatch.setenv("PROCTOR_JUDGE_BASE_URL", f"{seen.url}/v1")
                monkeypatch.setenv("PROCTOR_JUDGE_API_KEY", "sk-of-the-service-1234")
            sent = config(url)
            sent["scenarios"][0]["eval"] = {"agent_assertions": [{"label": "where", "prompt": "says where the order is"}]}
            run = await driven(hub, await with_keys(hub, seen, **judge), suite=sent)
            judged = [one for one in seen.requests if one.body["model"] == "the-judge"]
            assert (run["status"], run["outcome"], len(judged)) == ("completed", "pass", 1), (run, await results(hub, run["id"]))
            used = KEY if whose == "project" else "sk-of-the-service-1234"
            assert judged[0].headers["authorization"] == f"Bearer {used}"
            assert {one.headers["authorization"] for one in seen.requests if one not in judged} == {f"Bearer {KEY}"}

    with http_shop() as (url, _):
        sqlite.run_hub(use, allowed_addresses=LOOPBACK)


@pytest.mark.timeout(60)
def test_a_run_that_was_interrupted_goes_on_with_each_combination_once(database: TestDatabase) -> None:
    times: Counter[str] = Counter()

    def slowly(request: ReceivedRequest) -> ScriptedResponse:
        if request.body["messages"][-1]["role"] != "tool":
            times[request.body["model"]] += 1
        return clerk(request)

    agents = [{"id": id, "provider": "openai", "model": id} for id in ("one", "two")]

    async def use(hub: Hub) -> None:
        async with provider(slowly) as seen:
            run = await start_run(
                hub, LOCAL, NewRun(project_id=await with_keys(hub, seen), suite=config(url, agents=agents), repeat=5, concurrency=1)
            )
            stop = asyncio.Event()
            task = asyncio.create_task(work_once(hub, stop))
            async with asyncio.timeout(20):
                while (await get_run(hub, LOCAL, run["id"]))["finished"] < 3:
                    await asyncio.sleep(0.01)
            stop.set()
            await task
            before = await get_run(hub, LOCAL, run["id"])
            assert before["status"] == "queued" and 3 <= before["finished"] < 10
            assert await work_once(hub) == run["id"]
            after = await get_run(hub, LOCAL, run["id"])
            assert (after["status"], after["counts"]["pass"]) == ("completed", 10)
            page = await list_run_results(hub, LOCAL, run["id"], limit=100)
            counted = Counter((row["case"], row["attempt"]) for row in page["data"])
            assert counted == Counter({(f"lookup-{agent}", number): 1 for agent in ("one", "two") for number in range(5)})
            assert 10 <= sum(times.values()) <= 12

    with http_shop() as (url, _):
        database.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_judge_that_fails_is_reported_in_the_words_of_mcplab(sqlite: TestDatabase) -> None:
    def answer(request: ReceivedRequest) -> ScriptedResponse:
        return clerk(request) if request.body["model"] != "the-judge" else completion("no idea")

    async def use(hub: Hub) -> None:
        async with provider(answer) as seen:
            judge = {"judge": {"model": "j"}, "models": {"j": {"provider": "openai", "model": "the-judge"}}}
            sent = config(url)
            sent["scenarios"][0]["eval"] = {"agent_assertions": [{"label": "where", "prompt": "says where the order is"}]}
            run = await driven(hub, await with_keys(hub, seen, **judge), suite=sent)
            page = await list_run_results(hub, LOCAL, run["id"])
            whole = await get_run_result(hub, LOCAL, run["id"], page["data"][0]["id"])
            assert "Agent check failed: judge " in json.dumps(whole["result"]), whole["result"]

    with http_shop() as (url, _):
        sqlite.run_hub(use, allowed_addresses=LOOPBACK)


@pytest.mark.timeout(60)
def test_a_server_of_many_scenarios_is_examined_once_outside_the_loop(sqlite: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[tuple[str, bool]] = []
    redact_text = redaction.redact_text

    def looking(text: str) -> str:
        if text.startswith("https://shop.example/"):
            looked.append((text, threading.current_thread() is threading.main_thread()))
        return redact_text(text)

    monkeypatch.setattr(redaction, "redact_text", looking)
    large = {"id": "shop", "transport": "http", "url": "https://shop.example/" + "x" * 10_000}
    scenario = {"prompt": "hi", "eval": {"response_assertions": [{"type": "contains", "value": "hello"}]}}
    older = {"name": "older", "servers": [large], "scenarios": [{**scenario, "id": f"s{at}", "servers": ["shop"] * 5} for at in range(500)]}
    library = {"servers": {"shop": {key: value for key, value in large.items() if key != "id"}}}
    first = {**scenario, "id": "first", "mcp_servers": [large]}
    refs = {"name": "refs", "scenarios": [first, *({**scenario, "id": f"r{at}", "mcp_servers": [{"ref": "shop"}]} for at in range(500))]}

    async def use(hub: Hub) -> None:
        async with an_agent() as agent:
            project = await a_project(hub, targets={"shop": agent.target}, mcplab=library)
            for sent, most in ((older, 1), (refs, 3)):
                looked.clear()
                await start_run(hub, LOCAL, NewRun(project_id=project, suite=sent))
                assert 1 <= len(looked) <= most and not any(on_loop for _, on_loop in looked)
            looked.clear()
            made = [await create_case(hub, LOCAL, NewCase(project_id=project, document=older, name=name)) for name in ("one", "two")]
            await update_case(hub, LOCAL, made[0]["id"], {"document": {**older, "name": "another"}})
            assert len(looked) == 3 and not any(on_loop for _, on_loop in looked)
            run = await start_run(hub, LOCAL, NewRun(project_id=project, cases=[case["id"] for case in made]))
            async with hub.database.reading() as connection:
                text = (await connection.execute(sa.select(runs.c.document).where(runs.c.id == run["id"]))).scalar_one()
            assert len(text) < 1_000_000 and "shop" in text

    sqlite.run_hub(use, allowed_addresses=LOOPBACK)


def test_a_secret_of_a_server_is_found_wherever_the_server_is_declared(sqlite: TestDatabase) -> None:
    shop = {"id": "shop", "transport": "http", "url": "https://u:abcdefgh12345678@shop.example/"}
    clean = {"id": "clean", "transport": "http", "url": "https://shop.example/"}
    scenarios = [{"id": "a", "prompt": "hi", "mcp_servers": [clean]}, {"id": "b", "prompt": "hi", "mcp_servers": [clean, shop]}]

    async def use(hub: Hub) -> None:
        project = await a_project(hub)
        with pytest.raises(Refusal, match="plain secret") as refused:
            await create_case(hub, LOCAL, NewCase(project_id=project, document={"name": "x", "scenarios": scenarios}))
        assert set(refused.value.fields) == {"document.servers[1].url"}

    sqlite.run_hub(use)
