"""`/api/examinations` over HTTP: a server is examined as a run, within the addresses and commands that the operator allows."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.service.access.callers import LOCAL
from proctor.service.refusals import Refusal
from proctor.service.runs.examinations import NewExamination, start_examination
from tests.doctor.servers import SCRIPT, http_server
from tests.rest.services import Service
from tests.rest.test_runs import a_project, until
from tests.service.agents import LOOPBACK

pytestmark = pytest.mark.timeout(60)
COMMAND = [sys.executable, "-S", str(SCRIPT)]
QUICK = {"profiles": ["mcp-2025-11-25"], "areas": ["tools", "errors"], "timeout_s": 2}


@pytest.fixture
def examining(database_url: str, tmp_path: Path) -> Iterator[Service]:
    commands = (shlex.join([*COMMAND, "*"]),)
    with Service(database_url, tmp_path, with_workers=True, allowed_addresses=LOOPBACK, allowed_commands=commands) as running:
        yield running


@pytest.fixture
def guarded(database_url: str, tmp_path: Path) -> Iterator[Service]:
    with Service(database_url, tmp_path, with_workers=True) as running:
        yield running


def examine(service: Service, project: str, server: Any, **more: Any) -> dict[str, Any]:
    sent = service.post("/api/examinations", json={"project_id": project, "server": server, **QUICK, **more})
    assert sent.status_code == 202, sent.text
    id = sent.json()["id"]
    until(lambda: service.get(f"/api/runs/{id}"), lambda run: run["status"] in ("completed", "failed"), within_s=30)
    return service.get(f"/api/examinations/{id}").json()


def test_an_address_is_examined_as_a_run(examining: Service) -> None:
    project = a_project(examining)
    with http_server("--defect", "unknown-tool") as url:
        found = examine(examining, project, url, name="nightly", tags=["ci"])
    run, findings = found["run"], found["findings"]
    assert (run["status"], run["outcome"], run["name"], sorted(run["tags"])) == ("completed", "fail", "nightly", ["ci", "doctor"])
    assert run["suite_name"] == f"doctor {url}" and run["target"] == url
    assert findings["verdict"] == "failed" and findings["server"] == "shop 1.0" and findings["tool_calls"] == 0
    (finding,) = [each for each in findings["findings"] if each["verdict"] == "fail"]
    assert finding["check"] == "unknown-tool" and finding["clause"].startswith("https://modelcontextprotocol.io/specification/2025-11-25/")
    assert finding["evidence"]
    assert [(area["area"], area["failed"]) for area in findings["areas"] if area["failed"]] == [("tools", 1)]
    assert "find_order" in found["definitions"]["tools"]
    (listed,) = examining.get(f"/api/examinations?project_id={project}").json()["data"]
    assert listed["id"] == run["id"]
    (failed,) = examining.get(f"/api/runs/{run['id']}/results?outcome=fail").json()["data"]
    assert failed["case"] == "unknown-tool" and "expected an error" in failed["reason"]
    sarif = examining.get(f"/api/runs/{run['id']}/report?format=sarif")
    assert sarif.json()["runs"][0]["results"][0]["ruleId"] == "unknown-tool"


@pytest.mark.in_turn
def test_a_comparison_names_what_the_server_changed(examining: Service) -> None:
    project = a_project(examining)
    ids: list[str] = []
    locked: dict[str, Any] = {}
    for defect in ([], ["--defect", "parameter-choice"]):
        with http_server(*defect) as url:
            # The address has another port, so the server has an id.
            found = examine(examining, project, {"id": "shop", "url": url}, **({"lock": locked} if locked else {}))
        ids.append(found["run"]["id"])
        locked = locked or found["definitions"]
    line = "the server shop changed: tool `find_order` has a new parameter `action`"
    assert examining.get(f"/api/runs/{ids[1]}/compare?base={ids[0]}").json()["server_changes"] == [line]
    several = examining.get(f"/api/comparisons?runs={','.join(ids)}").json()
    assert several["comparisons"][0]["found"]["server_changes"] == [line]
    (change,) = examining.get(f"/api/examinations/{ids[1]}").json()["findings"]["changes"]
    assert (change["kind"], change["fails"]) == ("compatible", False)
    page = examining.client.get(f"/ui/p/{project}/compare?runs={','.join(ids)}").text
    assert "has a new parameter" in page


@pytest.mark.in_turn
def test_a_command_that_the_operator_allows_is_examined(examining: Service) -> None:

    project = a_project(examining)
    found = [
        examine(examining, project, {"id": "shop", "command": COMMAND[0], "args": [*COMMAND[1:], *more]})
        for more in ([], ["--defect", "unknown-tool"])
    ]
    assert [each["run"]["outcome"] for each in found] == ["pass", "fail"]


@pytest.mark.parametrize(
    ("server", "status", "field", "why"),
    [
        ("http://127.0.0.1:9/mcp", 400, "server", "127.0.0.1"),
        ("http://169.254.169.254/mcp", 400, "server", "169.254.169.254"),
        ("http://user:secret@shop.example/mcp", 400, "server", "secret"),
        ("ftp://shop.example/", 400, "server", "http"),
        ("shop", 400, "server", "id of a server"),
        ({"command": "sh", "args": ["-c", "id"]}, 403, "server", "allowed"),
        (
            {"url": "https://shop.example/mcp", "headers": {"Authorization": "Bearer abcdef0123456789"}},
            400,
            "server.headers.Authorization",
            "",
        ),
        ({"url": "https://shop.example/mcp", "transport": "in_process"}, 400, "server", ""),
        ({"url": "https://shop.example/sse"}, 400, "server", "streamable HTTP"),
        ({"url": 17}, 400, "server", ""),
        ({}, 400, "server", ""),
    ],
)
def test_servers_not_allowed_by_the_operator_are_refused(guarded: Service, server: Any, status: int, field: str, why: str) -> None:
    project = a_project(guarded)
    answer = guarded.post("/api/examinations", json={"project_id": project, "server": server})
    assert answer.status_code == status, answer.text
    error = answer.json()
    assert why in answer.text and any(field in str(path) for path in [*(error.get("fields") or {}), answer.text])


def test_a_name_that_leads_to_this_machine_is_not_reached(guarded: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is checked again when it is resolved, also for metadata that the server points to."""

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    monkeypatch.setattr("proctor.network.guard.Guard._look_up", lambda self, host, port: resolve(host, port))
    found = examine(guarded, a_project(guarded), "http://shop.example/mcp")
    assert found["run"]["status"] == "failed" and "may not be reached" in found["run"]["error"], found["run"]
    assert found["findings"] is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("profiles", ["mcp-1999"]),
        ("areas", ["nothing"]),
        ("expected", ["no-such-check"]),
        ("calls", {"calls": [{"arguments": {}}]}),
        ("lock", {"version": 99}),
        ("fuzz", 5),
        ("fuzz", 10_000),
        ("timeout_s", 600),
        ("authorize_with", "MISSING"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(guarded: Service, field: str, value: Any) -> None:
    body = {"project_id": a_project(guarded), "server": "https://shop.example/mcp", field: value}
    answer = guarded.post("/api/examinations", json=body)
    assert answer.status_code == 400, answer.text


def test_the_token_is_a_secret_of_the_project_and_is_shown_nowhere(examining: Service) -> None:
    project = a_project(examining)
    token = "tok-5f0c2d7b9a1e"
    assert examining.put(f"/api/projects/{project}/secrets/SHOP", json={"value": token}).status_code in (200, 201, 204)
    with http_server() as url:
        found = examine(examining, project, url, authorize_with="SHOP")
    assert found["run"]["status"] == "completed", found["run"]
    id = found["run"]["id"]
    shown = [str(found), *(examining.get(f"/api/runs/{id}/report?format={name}").text for name in ("json", "sarif", "junit", "html"))]
    assert not any(token in text for text in shown)


@pytest.mark.parametrize(
    ("field", "value"), [("fuzz", 10_000), ("timeout_s", 1e9), ("areas", ["nothing"]), ("profiles", "text"), ("tags", ["a"] * 50)]
)
def test_the_limits_hold_for_callers_other_than_rest(guarded: Service, field: str, value: Any) -> None:
    project = a_project(guarded)
    spec = NewExamination(project_id=project, server="https://shop.example/mcp", **{field: value})
    with pytest.raises(Refusal) as refused:
        guarded.run(lambda hub: start_examination(hub, LOCAL, spec))
    assert field in refused.value.fields
