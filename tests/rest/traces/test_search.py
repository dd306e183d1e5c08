"""Traces and results over REST: filtered by their fields, read whole."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.service.hub import Hub
from proctor.store.sql.compressed_json import pack
from proctor.store.sql.tables import trace_parts, traces
from tests.rest.seeds import sow
from tests.rest.services import Service


@pytest.fixture
def key(service: Service) -> str:
    found = service.keys()["organization"]
    service.run(sow)
    return found


@pytest.fixture(scope="module")
def shared_key(shared_service: Service) -> str:
    found = shared_service.keys()["organization"]
    shared_service.run(sow)
    return found


def ids(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["data"]]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["trc_home_2", "trc_home"]),
        ("agent_id=agent_home_1", ["trc_home"]),
        ("project_id=proj_home&status=evaluated", ["trc_home_2", "trc_home"]),
        ("project_id=proj_foreign", []),
        ("status=open", []),
        ("external_id=home", ["trc_home"]),
        ("query=ASKED AT HOME_2", ["trc_home_2"]),
        ("query=asked", ["trc_home_2", "trc_home"]),
        ("query=%25", []),
        ("query=home_2", ["trc_home_2"]),
        ("metadata=env=home", ["trc_home"]),
        ("metadata=env=foreign", []),
        ("metadata=none=home", []),
        ("since=2020-01-01", ["trc_home_2", "trc_home"]),
        ("until=2020-01-01T00:00:00Z", []),
        ("outcome=fail", []),
        ("query=%00", []),
        ("metadata=env=%00", []),
        ("metadata=env=home%00", []),
    ],
)
def test_traces_are_found_by_what_is_known_of_them(shared_service: Service, shared_key: str, query: str, found: list[str]) -> None:
    assert ids(shared_service.get(f"/api/traces?{query}", key=shared_key)) == found


@pytest.mark.parametrize("query", ["status=lost", "since=soon", "metadata=env", "metadata=a%22b=c", "query=" + "x" * 201, "outcome=great"])
def test_a_filter_that_cannot_be_used_is_refused(shared_service: Service, shared_key: str, query: str) -> None:
    assert shared_service.get(f"/api/traces?{query}", key=shared_key).status_code == 400


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["res_home_2", "res_home"]),
        ("trace_id=trc_home", ["res_home"]),
        ("case_id=case_home_2&outcome=pass", ["res_home_2"]),
        ("trace_id=trc_foreign", []),
        ("code=none", []),
    ],
)
def test_results_are_found_by_what_they_are_about(shared_service: Service, shared_key: str, query: str, found: list[str]) -> None:
    assert ids(shared_service.get(f"/api/results?{query}", key=shared_key)) == found


def test_a_trace_and_a_result_are_read_whole(shared_service: Service, shared_key: str) -> None:
    trace = shared_service.get("/api/traces/trc_home", key=shared_key).json()
    assert trace["received"] == {"of": "home", "data": {"text": "home"}} and [one["id"] for one in trace["results"]] == ["res_home"]
    assert shared_service.get("/api/results/res_home", key=shared_key).json()["result"] == {"of": "home"}


def test_the_evidence_of_a_trace_is_shown_with_the_received_body(service: Service, key: str) -> None:
    body = {"input": "hi \ud800", "data": {"text": "hello"}, "metadata": {"huge": 10**40}}

    async def add(hub: Hub) -> None:
        row = {"organization_id": "org_default", "project_id": "proj_home", "agent_id": "agent_home_1", "format": "mibo", "status": "open"}
        at = {"created_at": hub.now(), "updated_at": hub.now()}
        async with hub.database.writing() as connection:
            await connection.execute(traces.insert().values(id="trc_e", external_id="e", body=pack(body), **row, **at))

    service.run(add)
    trace = service.get("/api/traces/trc_e", key=key).json()
    assert trace["received"] == body
    assert trace["evidence"]["text"] == "hello"


def test_a_trace_that_came_in_pieces_is_read_in_their_order(service: Service, key: str) -> None:
    async def add(hub: Hub) -> None:
        row = {"organization_id": "org_default", "project_id": "proj_home", "agent_id": "agent_home_1", "format": "otlp", "status": "open"}
        async with hub.database.writing() as connection:
            at = {"created_at": hub.now(), "updated_at": hub.now()}
            await connection.execute(traces.insert().values(id="trc_p", external_id="p", revision=3, body=pack([1]), **row, **at))
            for number in (3, 2):
                values = {"trace_id": "trc_p", "number": number, "body": pack([number]), "created_at": hub.now()}
                await connection.execute(trace_parts.insert().values(values))

    service.run(add)
    assert service.get("/api/traces/trc_p", key=key).json()["received"] == [[1], [2], [3]]


def test_a_key_for_one_agent_sees_only_its_traces(service: Service) -> None:
    keys = service.keys()
    service.run(sow)
    assert ids(service.get("/api/traces", key=keys["agent"])) == ["trc_home"]
    assert ids(service.get("/api/traces?agent_id=agent_home_2", key=keys["agent"])) == []
    assert ids(service.get("/api/results", key=keys["agent"])) == ["res_home"]
    assert ids(service.get("/api/cases", key=keys["agent"])) == ["case_home"]
    assert ids(service.get("/api/agents", key=keys["agent"])) == ["agent_home_1"]
    assert ids(service.get("/api/projects", key=keys["agent"])) == ["proj_home"]
