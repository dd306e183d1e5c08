"""`/public/traces` over HTTP: Mibo's statuses, bodies and codes."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest

from proctor.service.hub import Hub
from proctor.service.traces.evaluator import evaluate_all
from proctor.store.sql.tables import traces
from tests.rest.services import Service
from tests.service.trace_world import new_trace, request, root, span

SPANS = {
    "spans": [{"span_id": "a", "parent_span_id": None, "name": "flow", "attributes": {"gen_ai.response.text": "hi"}, "status": {"code": 1}}]
}
SAMPLES = Path(__file__).parents[2] / "evidence" / "samples"


def test_a_trace_is_created_then_replaced_with_the_documented_body(service: Service) -> None:
    keys = service.keys()
    body = {**SPANS, "metadata": {"environment": "production"}, "externalMetadata": {"workflowId": "w"}, "platformId": "agent_home_1"}
    first = service.post("/public/traces", key=keys["project"], json=body, headers={"x-request-id": "r-1"})
    assert first.status_code == 201
    content = first.json()
    assert content["success"] is True and set(content) == {"success", "message", "data", "timestamp"}
    assert set(content["data"]) == {"id", "platformId", "externalId", "status", "createdAt", "updatedAt"}
    assert (content["data"]["platformId"], content["data"]["externalId"]) == ("agent_home_1", "r-1")
    assert first.headers["x-request-id"] == "r-1"
    second = service.post("/public/traces", key=keys["project"], json=body, headers={"x-request-id": "r-1"})
    assert second.status_code == 200 and second.json()["data"]["id"] == content["data"]["id"]
    third = service.post("/public/traces", key=keys["project"], json=body)
    assert third.status_code == 201 and third.json()["data"]["id"] != content["data"]["id"]


def test_the_id_in_the_body_of_the_second_generation_counts_too(service: Service) -> None:
    keys = service.keys()
    body = {"data": {"text": "hi"}, "externalId": "e-1", "platformId": "agent_home_1"}
    assert [service.post("/public/traces", key=keys["project"], json=body).status_code for _ in range(2)] == [201, 200]
    other = service.post("/public/traces", key=keys["project"], json=body, headers={"x-request-id": "e-2"})
    assert other.status_code == 201 and other.json()["data"]["externalId"] == "e-2", "the header wins"


def test_a_body_may_be_compressed_whatever_its_content_type(service: Service) -> None:
    keys = service.keys()
    packed = gzip.compress(json.dumps(SPANS).encode())
    for kind in ("application/json", "application/octet-stream"):
        headers = {"content-type": kind, "content-encoding": "gzip"}
        assert service.post("/public/traces", key=keys["agent"], content=packed, headers=headers).status_code == 201


ERRORS: list[tuple[str, str | None, dict[str, Any], int, str, str]] = [
    ("no key", None, {"json": SPANS}, 401, "MISSING_API_KEY", ""),
    ("wrong key", "mibo_wrong", {"json": SPANS}, 401, "INVALID_API_KEY", ""),
    ("no agent", "project", {"json": SPANS}, 400, "VALIDATION_ERROR", "platformId"),
    ("no agent, second generation", "project", {"json": {"data": {"text": "x"}}}, 404, "PLATFORM_NOT_FOUND", ""),
    ("unknown agent", "project", {"json": {**SPANS, "platformId": "nobody"}}, 404, "PLATFORM_NOT_FOUND", ""),
    ("agent of another organization", "project", {"json": {**SPANS, "platformId": "agent_foreign_1"}}, 404, "PLATFORM_NOT_FOUND", ""),
    ("no spans", "agent", {"json": {}}, 400, "VALIDATION_ERROR", "spans"),
    ("spans are no list", "agent", {"json": {"spans": 3}}, 400, "VALIDATION_ERROR", "spans"),
    ("no JSON", "agent", {"content": b"{nope"}, 400, "VALIDATION_ERROR", ""),
    ("empty OTLP", "agent", {"json": {"resourceSpans": []}}, 400, "VALIDATION_ERROR", "resourceSpans"),
    ("too long an id", "agent", {"json": SPANS, "headers": {"x-request-id": "x" * 256}}, 400, "VALIDATION_ERROR", "x-request-id"),
    ("solver key", "solver", {"json": SPANS}, 403, "AUTH_ERROR", ""),
    ("too large", "agent", {"content": b"[" + b" " * 10_000_001 + b"]"}, 413, "PAYLOAD_TOO_LARGE", ""),
    (
        "a bomb",
        "agent",
        {"content": gzip.compress(b" " * 50_000_000), "headers": {"content-encoding": "gzip"}},
        413,
        "PAYLOAD_TOO_LARGE",
        "",
    ),
    ("cut off gzip", "agent", {"content": gzip.compress(b"{}")[:-9], "headers": {"content-encoding": "gzip"}}, 400, "VALIDATION_ERROR", ""),
    ("deep", "agent", {"content": b'{"data":' + b"[" * 5000 + b"]" * 5000 + b"}"}, 400, "VALIDATION_ERROR", ""),
    ("protobuf", "agent", {"content": b"\x0a\x00", "headers": {"content-type": "application/x-protobuf"}}, 415, "VALIDATION_ERROR", ""),
]


@pytest.mark.parametrize(("why", "key", "sent", "status", "code", "path"), ERRORS, ids=[row[0] for row in ERRORS])
def test_errors_have_mibos_body_status_and_code(
    why: str, key: str | None, sent: dict[str, Any], status: int, code: str, path: str, tmp_path: Path
) -> None:
    with Service(f"sqlite:///{tmp_path}/p.db", tmp_path) as service:
        keys = service.keys()
        answer = service.post("/public/traces", key=keys.get(key or "", key), **sent)
        content = answer.json()
        assert (answer.status_code, content["success"], content["error"]["code"]) == (status, False, code), content
        assert content["error"]["message"] and content["timestamp"]
        if path:
            where = "headers" if path == "x-request-id" else "body"
            assert content["error"]["details"][0] == {**content["error"]["details"][0], "location": where, "path": path, "type": "field"}
        assert service.get("/public/traces", key=keys["organization"]).json()["data"] == [], "nothing was stored"


def test_a_fault_in_the_query_is_located_in_the_query(service: Service) -> None:
    keys = service.keys()
    for method, address, path in (("GET", "/public/traces?limit=many", "limit"), ("POST", "/public/traces?flush=perhaps", "flush")):
        answer = service.ask(method, address, key=keys["agent"], **({"json": SPANS} if method == "POST" else {}))
        assert answer.status_code == 400
        (detail,) = answer.json()["error"]["details"]
        assert (detail["location"], detail["path"], detail["type"]) == ("query", path, "field")


def test_a_key_for_other_agents_is_not_allowed(service: Service) -> None:
    keys = service.keys()
    third = service.post("/api/agents", key=keys["organization"], json={"project_id": "proj_home", "name": "third"}).json()["id"]
    body = {"kind": "project", "name": "two", "project_id": "proj_home", "agent_ids": ["agent_home_1", "agent_home_2"]}
    made = service.post("/api/keys", key=keys["organization"], json=body)
    answer = service.post("/public/traces", key=made.json()["key"], json={**SPANS, "platformId": third})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "AUTH_ERROR")


def test_a_paused_agent_takes_no_traces(service: Service) -> None:
    keys = service.keys()
    assert service.post("/api/agents/agent_home_1/pause", key=keys["organization"]).status_code == 200
    time.sleep(0.25)  # agents are remembered for a moment, but not when something is wrong with them
    assert service.post("/public/traces", key=keys["agent"], json=SPANS).status_code == 403


def test_otlp_in_json_is_taken_at_the_same_address_and_merged(service: Service) -> None:
    keys = service.keys()
    one, two = new_trace(), new_trace()
    first = service.post("/public/traces", key=keys["agent"], json=request(span(one, "bbbbbbbbbbbbbbbb", "aaaaaaaaaaaaaaaa"), root(two)))
    assert first.status_code == 201 and len(first.json()["traces"]) == 2
    second = service.post("/public/traces", key=keys["agent"], json=request(root(one), {"name": "nothing"}))
    assert second.status_code == 200 and second.json()["rejectedSpans"] == 1
    assert second.json()["data"]["externalId"] == one


def test_traces_are_listed_and_read_back_redacted(service: Service) -> None:
    keys = service.keys()
    sent = service.post("/public/traces", key=keys["agent"], json={**SPANS, "metadata": {"password": "hunter2", "env": "x"}}).json()["data"]
    listed = service.get("/public/traces?platformId=agent_home_1", key=keys["project"]).json()
    assert [row["id"] for row in listed["data"]] == [sent["id"]] and listed["_meta"]["next"] is None
    assert service.get("/public/traces?platformId=agent_home_2", key=keys["project"]).json()["data"] == []
    read = service.get(f"/public/traces/{sent['id']}", key=keys["project"]).json()["data"]
    assert read["received"]["spans"][0]["name"] == "flow" and "hunter2" not in json.dumps(read)
    missing = service.get("/public/traces/trc_nobody", key=keys["project"])
    assert missing.status_code == 404 and missing.json()["success"] is False
    assert service.get(f"/public/traces/{sent['id']}", key=keys["foreign_project"]).status_code == 404


RECORDED = [
    ("n8n", "n8n/n8n-2.8.4-execution-ai-agent-tool.json", "AI Agent"),
    ("flowise", "flowise/flowise-3.1.2-prediction-agentflow-tool.json", None),
    ("flowise", "flowise/flowise-3.1.2-prediction-chatflow-tool.json", None),
]


async def set_revision(hub: Hub, trace_id: str) -> None:
    async with hub.database.writing() as connection:
        await connection.execute(traces.update().where(traces.c.id == trace_id).values(revision=99))


@pytest.mark.parametrize(("kind", "name", "node"), RECORDED, ids=[row[1].rpartition("/")[2] for row in RECORDED])
def test_recorded_documents_of_the_platforms_are_evaluated_as_mibo_bodies(service: Service, kind: str, name: str, node: str | None) -> None:
    keys = service.keys()
    place = {"project_id": "proj_home", "name": kind, "kind": kind, "external_ref": "flow-1"}
    agent = service.post("/api/agents", key=keys["organization"], json=place).json()["id"]
    checks: list[dict[str, Any]] = [{"id": "speaks", "target": "response_regex", "pattern": "\\S", "should_match": True}]
    if node is not None:
        checks.append({"id": "ran", "target": "node_call", "expected_name": node, "condition": "MUST_CALL"})
    case = {"name": "recorded", "scenario": "recorded", "input_utterance": "x", "assertions": {"procedural": checks}}
    sent = {"project_id": "proj_home", "agent_id": agent, "document": case, "dialect": "mibo"}
    made = service.post("/api/cases", key=keys["organization"], json=sent)
    assert made.status_code == 201, made.text
    document = json.loads((SAMPLES / name).read_text(encoding="utf-8"))
    where = "chatflowId" if kind == "flowise" else "workflowId"
    answer = service.post("/public/traces", key=keys["project"], json={"data": document, "metadata": {where: "flow-1"}})
    assert answer.status_code == 201 and answer.json()["data"]["platformId"] == agent
    assert service.run(evaluate_all) == 1
    (result,) = service.get(f"/api/results?agent_id={agent}", key=keys["organization"]).json()["data"]
    whole = service.get(f"/api/results/{result['id']}", key=keys["organization"]).json()
    assert result["outcome"] == "pass", whole
    (found,) = whole["result"]["assertions"][0]["ranges"]
    assert found["pointer"] == "$.text" and found["end"] == found["start"] + 1
    # A trace received again since its decision may differ there.
    service.run(lambda hub: set_revision(hub, result["trace_id"]))
    assert "ranges" not in service.get(f"/api/results/{result['id']}", key=keys["organization"]).json()["result"]["assertions"][0]


def test_traces_are_evaluated_again_on_request(service: Service) -> None:
    keys = service.keys()
    service.post("/public/traces", key=keys["agent"], json=SPANS)
    assert service.run(evaluate_all) == 1
    queued = service.post("/api/traces/reevaluate", key=keys["organization"], json={"agent_id": "agent_home_1"})
    assert queued.status_code == 202 and queued.json() == {"traces": 1}
    assert service.run(evaluate_all) == 1
