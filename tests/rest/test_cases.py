"""Cases over REST: any dialect, every problem with its place, versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import proctor
from tests.rest.seeds import SUITE
from tests.rest.services import Service

MIBO = {"name": "booking", "input_utterance": "book", "assertions": {"procedural": [{"target": "http_status", "expected_status": 200}]}}
EXAMPLES = Path(proctor.__file__).parent / "examples"


@pytest.fixture
def project(service: Service) -> str:
    return service.post("/api/projects", json={"name": "p"}).json()["id"]


@pytest.fixture
def agent(service: Service, project: str) -> str:
    return service.post("/api/agents", json={"project_id": project, "name": "a"}).json()["id"]


def make(service: Service, project: str, document: Any = SUITE, **more: Any) -> Any:
    return service.post("/api/cases", json={"project_id": project, "document": document, **more})


def test_a_case_is_stored_as_written(service: Service, project: str, agent: str) -> None:
    when = {"input": "^book", "metadata": {"env": "prod"}, "tags": ["vip"]}
    made = make(service, project, agent_id=agent, name="greets", when=when, sample=0.5, active=False)
    assert made.status_code == 201, made.text
    case = made.json()
    assert case["document"] == SUITE and case["dialect"] == "native" and case["version"] == 1 and case["warnings"] == []
    assert case["when"] == when and case["sample"] == 0.5 and case["active"] is False and case["agent_id"] == agent
    read = service.get(f"/api/cases/{case['id']}").json()
    assert read == {name: value for name, value in case.items() if name != "warnings"}
    (listed,) = service.get(f"/api/cases?agent_id={agent}&active=false").json()["data"]
    assert "document" not in listed and listed["id"] == case["id"]
    assert service.get("/api/cases?active=true").json()["data"] == []


@pytest.mark.parametrize("as_text", [False, True])
def test_a_document_may_be_json_or_text(service: Service, project: str, as_text: bool) -> None:
    made = make(service, project, json.dumps(MIBO) if as_text else MIBO)
    assert made.status_code == 201, made.text
    assert made.json()["dialect"] == "mibo"
    assert json.loads(made.json()["document"]) == MIBO


def test_documents_of_every_dialect_are_recognised(service: Service, project: str) -> None:
    found: dict[str, str] = {}
    for path in sorted(EXAMPLES.rglob("*")):
        if path.suffix in (".yaml", ".yml", ".json") and "evidence" not in path.name:
            answer = make(service, project, path.read_text(encoding="utf-8"))
            if answer.status_code == 201:
                found[answer.json()["dialect"]] = path.name
    assert set(found) == {"native", "mcplab", "mibo", "verial", "mcpjam"}


def test_every_problem_is_reported_with_its_place_and_the_nearest_name(service: Service, project: str) -> None:
    document = "proctor: 1\ncases:\n  - id: a\n    input: hi\n    expect:\n      - tool_caled: x\n      - response_mtches: y\n"
    answer = make(service, project, document)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "VALIDATION_ERROR"
    first, second = error["problems"]
    assert (first["line"], first["column"]) == (6, 9) and first["path"].startswith("$.cases[0].expect[0]")
    assert "tool_called" in first["nearest"]
    assert second["line"] == 7
    assert error["details"]["document"][0].startswith("6:9: ") and "tool_called" in error["details"]["document"][0]


@pytest.mark.parametrize(
    ("document", "more", "field"),
    [
        ("", {}, "document"),
        ("{", {}, "document"),
        ("hello", {}, "document"),
        ({"nothing": "known"}, {}, "document"),
        ([], {}, "document"),
        ("a\0b", {}, "document"),
        ("x" * 1_000_001, {}, "document"),
        (SUITE, {"dialect": "mibbo"}, "dialect"),
        (SUITE, {"dialect": "verial"}, "document"),
        (SUITE, {"sample": 1.5}, "sample"),
        (SUITE, {"sample": -0.1}, "sample"),
        (SUITE, {"when": {"input": "("}}, "when.input"),
        (SUITE, {"when": {"inptu": "x"}}, "when.inptu"),
        (SUITE, {"name": ""}, "name"),
    ],
)
def test_invalid_values_are_refused_at_their_field(service: Service, project: str, document: Any, more: Any, field: str) -> None:
    answer = make(service, project, document, **more)
    assert answer.status_code == 400, answer.text
    assert field in answer.json()["error"]["details"], answer.text


MCPLAB = {
    "agents": [{"id": "a", "provider": "openai", "model": "gpt-4o"}],
    "scenarios": [
        {
            "id": "c",
            "mcp_servers": [{"id": "s", "transport": "http", "url": "https://example.com/mcp"}],
            "prompt": "x",
            "eval": {"response_assertions": [{"type": "contains", "value": "x"}]},
        }
    ],
}
TARGET = {"type": "http", "url": "https://example.com", "headers": {"authorization": "Bearer verysecretvalue1234567890"}}


def test_a_document_with_a_secret_is_refused_and_not_stored(service: Service, project: str) -> None:
    native = {"proctor": 1, "cases": [{"id": "c", "input": "x", "expect": [{"response_contains": "x"}]}]}
    case = make(service, project, native).json()["id"]
    (server,) = MCPLAB["scenarios"][0]["mcp_servers"]
    held = {**MCPLAB["scenarios"][0], "mcp_servers": [{**server, "auth": {"type": "bearer", "token": "hunter2hunter2"}}]}
    mcplab = {**MCPLAB, "scenarios": [held]}
    for document in ({**native, "targets": {"t": TARGET}}, mcplab):
        answers = [make(service, project, document), service.patch(f"/api/cases/{case}", json={"document": document})]
        for answer in answers:
            assert answer.status_code == 400 and "${NAME}" in answer.text, answer.text
            assert "verysecret" not in answer.text and "hunter2" not in answer.text
    run = service.post("/api/runs", json={"project_id": project, "suite": mcplab, "target": {"type": "http", "url": "https://example.com"}})
    assert run.status_code == 400 and "${NAME}" in run.text, run.text
    named = {**native, "targets": {"t": {**TARGET, "headers": {"authorization": "Bearer ${TOKEN}"}}}}
    assert make(service, project, named).status_code == 201 and make(service, project, MCPLAB).status_code == 201


def test_a_case_is_for_an_agent_of_its_project_only(service: Service, project: str, agent: str) -> None:
    other = service.post("/api/projects", json={"name": "q"}).json()["id"]
    assert make(service, other, agent_id=agent).status_code == 404
    case = make(service, other).json()["id"]
    assert service.patch(f"/api/cases/{case}", json={"agent_id": agent}).status_code == 404
    mine = make(service, project).json()["id"]
    assert service.patch(f"/api/cases/{mine}", json={"agent_id": agent}).json()["agent_id"] == agent
    assert service.patch(f"/api/cases/{mine}", json={"agent_id": None}).json()["agent_id"] is None


def test_only_another_document_makes_another_version_and_the_old_ones_stay(service: Service, project: str) -> None:
    path = f"/api/cases/{make(service, project).json()['id']}"
    assert service.patch(path, json={"name": "b", "sample": 0.1, "when": {"tags": ["x"]}, "active": False}).json()["version"] == 1
    assert service.patch(path, json={"document": SUITE}).json()["version"] == 1
    second = SUITE.replace("hello", "goodbye")
    assert service.patch(path, json={"document": second}).json()["version"] == 2
    third = service.patch(path, json={"document": MIBO}).json()
    assert third["version"] == 3 and third["dialect"] == "mibo" and third["name"] == "b" and third["when"] == {"tags": ["x"]}
    assert service.patch(path, json={"document": "nonsense"}).status_code == 400
    versions = service.get(f"{path}/versions").json()
    assert [one["version"] for one in versions["data"]] == [3, 2, 1]
    page = service.get(f"{path}/versions?limit=2").json()
    rest = service.get(f"{path}/versions", params={"cursor": page["_meta"]["next"]}).json()
    assert [one["version"] for one in (*page["data"], *rest["data"])] == [3, 2, 1]
    assert service.get(f"{path}/versions?cursor=x").status_code == 400
    assert service.get(f"{path}/versions/2").json()["document"] == second
    assert service.get(f"{path}/versions/4").status_code == 404
    assert service.patch(path, json={"when": None}).json()["when"] is None


def test_a_case_is_paused_resumed_and_deleted(service: Service, project: str) -> None:
    path = f"/api/cases/{make(service, project).json()['id']}"
    assert service.post(f"{path}/pause").json()["active"] is False
    assert service.post(f"{path}/resume").json()["active"] is True
    assert service.delete(path).status_code == 204
    assert service.get(path).status_code == service.get(f"{path}/versions").status_code == service.delete(path).status_code == 404
    notes = service.get("/api/audit?resource=case").json()["data"]
    assert [note["action"] for note in notes] == ["delete", "resume", "pause", "create"]
    assert "document" not in json.dumps(notes)


def test_warnings_of_a_document_are_reported_and_do_not_refuse_it(service: Service, project: str) -> None:
    answer = make(service, project, {"name": "empty", "input_utterance": "hi", "assertions": {}}, dialect="mibo")
    assert answer.status_code == 201, answer.text
    assert [(one["level"], one["code"]) for one in answer.json()["warnings"]] == [("warning", "no_assertions")]
