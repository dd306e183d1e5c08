"""The server over streamable HTTP inside the service: keys, host names, sizes, and what each kind of key may do."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from proctor.mcp_server import http
from proctor.rest.app import make_app
from proctor.rest.settings import ServeSettings
from proctor.service.access.callers import LOCAL
from proctor.service.access.keys import KeySpec, create_key
from proctor.service.access.projects import NewProject, create_project
from proctor.service.hub import Hub
from proctor.service.settings import ServiceSettings
from tests.mcp_server.clients import ERAS
from tests.mcp_server.scenario import APPOINTMENT, a_task, author_and_verify, call, refusal, state
from tests.rest.seeds import sow
from tests.rest.services import make_keys
from tests.service.agents import LOOPBACK, an_agent, suite

ADDRESS = "http://127.0.0.1:8700"
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
JSON = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}


class Running:
    """The application in this process and this event loop, over HTTP without a socket."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app

    @property
    def hub(self) -> Hub:
        return self.app.state.hub

    def web(self, key: str | None = None, **headers: str) -> httpx2.AsyncClient:
        sent = {**headers, **({"authorization": f"Bearer {key}"} if key else {})}
        return httpx2.AsyncClient(transport=httpx2.ASGITransport(self.app), base_url=ADDRESS, headers=sent)

    @contextlib.asynccontextmanager
    async def client(self, key: str | None = None, mode: Any = "auto") -> AsyncGenerator[Client]:
        async with self.web(key) as web, Client(streamable_http_client(f"{ADDRESS}/mcp", http_client=web), mode=mode) as client:
            yield client


def serving(home: Path, doing: Callable[[Running], Awaitable[None]], *, with_workers: bool = False, **settings_of: Any) -> None:
    settings = ServeSettings(service=ServiceSettings(home=home, **settings_of), database=str(home / "proctor.db"))

    async def whole() -> None:
        app = make_app(settings, with_workers=with_workers)
        async with asyncio.timeout(50):
            async with app.router.lifespan_context(app):
                await doing(Running(app))

    asyncio.run(whole())


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.timeout(60)
def test_both_examples_are_authored_and_verified_with_a_key(tmp_path: Path, mode: str) -> None:
    async def doing(running: Running) -> None:
        _, key = await create_key(running.hub, LOCAL, KeySpec(kind="organization", name="ci"))
        async with running.client(key, mode) as client:
            await author_and_verify(client)
        async with running.web(key) as web:
            noted = await web.get("/api/audit", params={"resource": "criterion"})
            assert {note["action"] for note in noted.json()["data"]} == {"create", "update", "delete"}
            assert all(note["actor"].startswith("key_") for note in noted.json()["data"])

    serving(tmp_path, doing)


def test_the_server_is_loaded_once_by_the_first_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[str] = []
    really_load = http.make_service_server

    def load(hub: Hub) -> Any:
        loads.append(threading.current_thread().name)
        if len(loads) == 1:
            raise RuntimeError("no memory for it")
        return really_load(hub)

    monkeypatch.setattr(http, "make_service_server", load)

    async def doing(running: Running) -> None:
        async with running.web() as web:
            assert (await web.get("/health")).status_code == 200 and not loads
            # A failed load is tried again.
            assert (await web.post("/mcp", json=LIST)).status_code == 500
            # The first request may be cancelled: the others use the load that it began.
            gone = asyncio.create_task(web.post("/mcp", json=LIST, headers=JSON))
            others = [asyncio.create_task(web.post("/mcp", json=LIST, headers=JSON)) for _ in range(3)]
            await asyncio.sleep(0)
            gone.cancel()
            answers = await asyncio.gather(*others)
        assert [answer.status_code for answer in answers] == [200] * 3
        assert len(loads) == 2 and threading.current_thread().name not in loads

    serving(tmp_path, doing)


def test_the_local_user_needs_no_key_until_there_is_one(tmp_path: Path) -> None:
    async def doing(running: Running) -> None:
        async with running.client() as client:
            assert (await call(client, "tasks", action="list"))["data"] == []
        await create_key(running.hub, LOCAL, KeySpec(kind="organization", name="ci"))
        async with running.web() as web:
            answer = await web.post("/mcp", json=LIST)
            assert answer.status_code == 401 and answer.headers["www-authenticate"].startswith("Bearer")

    serving(tmp_path, doing)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://127.0.0.1:8700"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example"}, 403),
        ({"host": "localhost:8700"}, 200),
        ({"authorization": "Bearer vk_wrong"}, 401),
        ({"content-type": "text/plain"}, 400),
        ({"accept": "text/html"}, 406),
    ],
    ids=str,
)
@pytest.mark.timeout(60)
def test_requests_from_elsewhere_are_refused(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    async def doing(running: Running) -> None:
        async with running.web() as web:
            sent = {"content-type": "application/json", "accept": "application/json, text/event-stream", **headers}
            answer = await web.post("/mcp", content=b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}', headers=sent)
            assert answer.status_code == status, answer.text

    serving(tmp_path, doing)


@pytest.mark.timeout(60)
def test_nonsense_is_answered_as_nonsense(tmp_path: Path) -> None:
    async def doing(running: Running) -> None:
        async with running.web(accept="application/json, text/event-stream") as web:
            for method in ("GET", "DELETE", "PUT"):
                assert (await web.request(method, "/mcp")).status_code == 405
            json = {"content-type": "application/json"}
            for version in ("2025-06-18", "2026-07-28", "1999-01-01"):
                for body in (b"", b"{", b"[]", b"null", b'{"jsonrpc": "2.0"}', b'{"jsonrpc": "2.0", "id": 1, "method": "nothing"}'):
                    answer = await web.post("/mcp", content=body, headers={**json, "mcp-protocol-version": version})
                    assert answer.status_code < 500, (version, body, answer.text)
            deep = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": ' + b"[" * 5000 + b"]" * 5000 + b"}"
            assert (await web.post("/mcp", content=deep, headers=json)).status_code == 400
            assert (await web.post("/mcp", content=b" " * 10_000_001, headers=json)).status_code == 413

    serving(tmp_path, doing)


@pytest.mark.timeout(60)
def test_nothing_of_another_organization_is_seen(tmp_path: Path) -> None:
    async def doing(running: Running) -> None:
        keys = await make_keys(running.hub)
        await sow(running.hub)
        async with running.client(keys["organization"]) as ours, running.client(keys["foreign_organization"]) as theirs:
            benchmark_id, task_id = await a_task(ours)
            criterion = await call(ours, "criteria", action="create", taskId=task_id, label="x", assertion=APPOINTMENT)
            run = await call(ours, "benchmark_runs", action="start", benchmarkId=benchmark_id)
            task_run = run["taskRuns"][0]["id"]
            for tool, arguments in (
                ("benchmarks", {"action": "get", "id": benchmark_id}),
                ("tasks", {"action": "delete", "id": task_id}),
                ("tasks", {"action": "list", "benchmarkId": benchmark_id}),
                ("criteria", {"action": "get", "id": criterion["id"]}),
                ("criteria", {"action": "list", "taskId": task_id}),
                ("criteria", {"action": "update", "id": criterion["id"], "label": "y"}),
                ("criteria", {"action": "create", "taskId": task_id, "label": "y", "assertion": APPOINTMENT}),
                ("benchmark_runs", {"action": "get", "id": run["id"]}),
                ("benchmark_runs", {"action": "start", "benchmarkId": benchmark_id}),
                ("task-runs", {"action": "putState", "id": task_run, "state": state("Dr. Rivera", "x")}),
                ("task-runs", {"action": "complete", "id": task_run}),
                ("criterion-runs", {"action": "list", "taskRunId": task_run}),
                ("search_traces", {"id": "trc_home"}),
                (
                    "run_suite",
                    {"document": "proctor: 1\ncases: [{id: a, input: b, expect: [{response_contains: c}]}]", "projectId": "proj_home"},
                ),
            ):
                assert (await refusal(theirs, tool, **arguments))["code"] == "NOT_FOUND", tool
            for tool in ("benchmarks", "benchmark_runs", "criterion-runs"):
                assert {entry["organizationId"] for entry in (await call(theirs, tool, action="list"))["data"]} <= {"org_foreign"}
            found = await call(theirs, "search_traces")
            assert found["data"] and all("home" not in trace["id"] for trace in found["data"])

    serving(tmp_path, doing)


SUITE = {"proctor": 1, "cases": [{"id": "a", "input": "x", "expect": [{"response_contains": "x"}]}]}
BY_KIND = {
    "describe": ({}, {"organization", "project", "agent", "solver", "run"}),
    "validate_suite": ({"document": SUITE}, {"organization", "project", "agent"}),
    "check_evidence": ({"document": SUITE, "evidence": {"text": "x"}}, {"organization", "project", "agent"}),
    "search_traces": ({}, {"organization", "project", "agent"}),
    "list_runs": ({}, {"organization", "project"}),
    **{
        tool: ({"action": "list"}, {"organization"})
        for tool in ("criterion-runs", "eval-runs", "tasks", "benchmarks", "benchmark_runs", "task-runs")
    },
    **{tool: ({"action": "list", "taskId": "task_home"}, {"organization"}) for tool in ("criteria", "evals")},
    **{tool: ({"action": "list"}, {"organization"}) for tool in ("environments", "simulators", "datasets")},
}


@pytest.mark.timeout(60)
def test_each_kind_of_key_may_do_what_the_table_lists(tmp_path: Path) -> None:
    async def doing(running: Running) -> None:
        keys = await make_keys(running.hub)
        await sow(running.hub)
        for kind in ("organization", "project", "agent", "solver", "run"):
            async with running.client(keys[kind]) as client:
                for tool, (arguments, allowed) in BY_KIND.items():
                    result = await client.call_tool(tool, arguments)
                    assert result.is_error != (kind in allowed), (kind, tool, result.structured_content)
                    if result.is_error:
                        assert result.structured_content["error"]["code"] == "FORBIDDEN", (kind, tool)
                        assert "organization key" in result.structured_content["error"]["nextStep"]
        async with running.client(keys["agent"]) as client:
            assert [trace["id"] for trace in (await call(client, "search_traces"))["data"]] == ["trc_home"]
            trace = await call(client, "search_traces", id="trc_home")
            assert trace["evidence"] == {"of": "home", "data": {"text": "home"}} and trace["results"][0]["caseId"] == "case_home"

    serving(tmp_path, doing)


@pytest.mark.timeout(60)
def test_the_token_of_a_run_cannot_grade_itself(tmp_path: Path) -> None:
    async def doing(running: Running) -> None:
        _, key = await create_key(running.hub, LOCAL, KeySpec(kind="organization", name="author"))
        async with running.client(key) as author:
            benchmark_id, task_id = await a_task(author)
            await call(author, "criteria", action="create", taskId=task_id, label="x", assertion=APPOINTMENT)
            run = await call(author, "benchmark_runs", action="start", benchmarkId=benchmark_id, scored=True)
        _, token = await create_key(running.hub, LOCAL, KeySpec(kind="run", name="token", benchmark_run_id=run["id"]))
        task_run = run["taskRuns"][0]["id"]
        async with running.client(token) as agent:
            for arguments in (
                {"action": "putState", "state": state("Dr. Rivera", "x")},
                {"action": "start"},
                {"action": "complete"},
                {"action": "get"},
            ):
                assert (await refusal(agent, "task-runs", id=task_run, **arguments))["code"] == "FORBIDDEN"
            assert (await refusal(agent, "tasks", action="get", id=task_id))["code"] == "FORBIDDEN"

    serving(tmp_path, doing)


@pytest.mark.timeout(60)
def test_a_suite_is_run_by_the_service(tmp_path: Path) -> None:
    async def doing(running: Running) -> None:
        async with an_agent() as agent, running.client() as client:
            assert (await refusal(client, "run_suite", document=suite("a"), target=agent.target))["path"] == "projectId"
            project = await create_project(running.hub, LOCAL, NewProject(name="shop"))
            first = await call(client, "run_suite", document=suite("a", "b"), target=agent.target, note="first")
            assert (first["status"], first["projectId"], first["counts"]["pass"]) == ("completed", project["id"], 2)
            assert first["result"]["outcome"] == "pass" and [case["id"] for case in first["result"]["cases"]] == ["a", "b"]
            agent.answer = "no"
            second = await call(client, "run_suite", document=suite("a", "b"), target=agent.target, projectId=project["id"], select="a")
            assert (second["status"], second["counts"]["fail"]) == ("completed", 1)
            assert [run["id"] for run in (await call(client, "list_runs"))["data"]] == [second["id"], first["id"]]
            shown = await call(client, "get_run", id=second["id"])
            assert shown["result"]["cases"][0]["assertions"][0]["check"] == "response_contains"
            compared = await call(client, "compare_runs", base=first["id"], candidate=second["id"])
            assert compared["comparison"]["newly_failing"] == ["a"]
            assert (await call(client, "compare_runs"))["chosen"] == [f"previous is {first['id']}", f"latest is {second['id']}"]
            third = await call(client, "run_suite", document=suite("a"), target=agent.target["url"], name="v3", tags=["nightly"])
            assert (await call(client, "get_run", id="@nightly"))["id"] == (await call(client, "get_run", id="v3"))["id"] == third["id"]
            assert [run["id"] for run in (await call(client, "list_runs", name="v3"))["data"]] == [third["id"]]
            page = (await client.read_resource(f"proctor://runs/{second['id']}")).contents[0]
            assert "greetings" in page.text
            error = await refusal(client, "run_suite", document=suite("a"), target=agent.target, select="nothing")
            assert error["path"] == "select"
            error = await refusal(client, "run_suite", document=suite("a"), target={"type": "callable", "function": "os:system"})
            assert error["code"] in ("FORBIDDEN", "VALIDATION_ERROR")

    serving(tmp_path, doing, with_workers=True, allowed_addresses=LOOPBACK)


@pytest.mark.timeout(60)
def test_a_run_that_goes_on_is_followed(tmp_path: Path) -> None:
    async def doing(running: Running) -> None:
        await create_project(running.hub, LOCAL, NewProject(name="shop"))
        async with an_agent() as agent, running.client() as client:
            agent.slow_s = 0.5
            started = await call(client, "run_suite", document=suite("a"), target=agent.target, waitS=0)
            assert started["status"] in ("queued", "running")
            ended = await call(client, "get_run", id=started["id"], waitS=20)
            assert ended["status"] == "completed"

    serving(tmp_path, doing, with_workers=True, allowed_addresses=LOOPBACK)
