"""Projects and agents over REST: made, listed, changed, paused, deleted with everything in them; every write noted."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from proctor.service.hub import Hub
from proctor.store.sql.tables import METADATA, agents, case_versions, cases, keys, projects, results, trace_parts, traces
from tests.rest.seeds import SUITE, sow
from tests.rest.services import Service


def make(service: Service, name: str = "shop", **more: Any) -> dict[str, Any]:
    answer = service.post("/api/projects", json={"name": name, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


def agent(service: Service, project: dict[str, Any], **more: Any) -> Any:
    return service.post("/api/agents", json={"project_id": project["id"], "name": "helper", **more})


def test_a_project_is_made_read_changed_and_listed(service: Service) -> None:
    made = make(service, description="d", settings={"targets": {"shop": {"url": "http://x", "auth": {"token": "${SHOP_TOKEN}"}}}})
    assert made["id"].startswith("proj_") and made["paused"] is False
    assert service.get(f"/api/projects/{made['id']}").json() == made
    changed = service.patch(f"/api/projects/{made['id']}", json={"name": "store"}).json()
    assert changed["name"] == "store" and changed["description"] == "d" and changed["settings"] == made["settings"]
    assert service.patch(f"/api/projects/{made['id']}", json={"description": None}).json()["description"] is None
    assert service.get("/api/projects").json()["data"] == [service.get(f"/api/projects/{made['id']}").json()]


def test_how_long_things_stay_is_previewed_set_read_and_noted(service: Service) -> None:
    address = f"/api/projects/{make(service)['id']}/retention"
    assert service.get(f"{address}/preview?trace_days=30").json()["traces"] == 0
    assert service.put(address, json={"trace_days": 30}).json()["trace_days"] == 30
    assert (service.get(address).json()["trace_days"], service.get(address).json()["run_days"]) == (30, None)
    for body in ({"trace_days": 0}, {"trace_days": 3651}, {"trace_days": "30"}, {"trace_days": 1.5}, {"days": 3}):
        answer = service.put(address, json=body)
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "VALIDATION_ERROR", body
    assert service.get(f"{address}/preview?run_days=x").status_code == 400
    assert service.get(address).json()["trace_days"] == 30
    assert [note["action"] for note in service.get("/api/audit?resource=project").json()["data"]] == ["set_retention", "create"]


def test_lists_come_in_pages_newest_first(service: Service) -> None:
    names = [make(service, f"p{number}")["name"] for number in range(5)]
    first = service.get("/api/projects?limit=2").json()
    assert [one["name"] for one in first["data"]] == names[:2:-1]
    assert first["_meta"]["limit"] == 2 and first["_meta"]["prev"] is None
    second = service.get("/api/projects", params={"limit": 2, "cursor": first["_meta"]["next"]}).json()
    assert [one["name"] for one in second["data"]] == ["p2", "p1"]
    back = service.get("/api/projects", params={"limit": 2, "cursor": second["_meta"]["prev"]}).json()
    assert back["data"] == first["data"]
    assert service.get("/api/projects?limit=100").json()["_meta"]["limit"] == 100
    for limit in ("0", "-1", "101", "99999999999999999999"):
        for path in ("/api/projects", "/api/results", "/public/traces"):
            answer = service.get(path, params={"limit": limit})
            assert answer.status_code == 400 and "limit" in answer.text and "1" in answer.text, (path, limit, answer.text)


@pytest.mark.parametrize("query", ["cursor=nonsense", "limit=many", "cursor=WyJhIl0"])
def test_a_page_that_does_not_exist_is_a_bad_request(service: Service, query: str) -> None:
    answer = service.get(f"/api/projects?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] in ("BAD_REQUEST", "VALIDATION_ERROR")


@pytest.mark.parametrize(
    "body", [{"name": ""}, {"name": "  "}, {"name": "x" * 201}, {"name": "a\0"}, {}, {"name": None}, {"name": "x", "settings": []}]
)
def test_a_project_needs_a_name(service: Service, body: dict[str, Any]) -> None:
    answer = service.post("/api/projects", json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] == "VALIDATION_ERROR"


@pytest.mark.parametrize("value", ["sk-abcdefghijklmnopqrstuvwxyz123456", "hunter2"])
def test_a_secret_in_plain_is_refused_with_its_place_and_not_shown(service: Service, value: str) -> None:
    for place in ("projects", "agents"):
        project = make(service)
        settings = {"targets": {"shop": {"headers": [{"a": 1}], "password": value}}}
        answer = service.post(
            f"/api/{place}", json={"name": "x", "settings": settings, **({"project_id": project["id"]} if place == "agents" else {})}
        )
        assert answer.status_code == 400, answer.text
        assert list(answer.json()["error"]["details"]) == ["settings.targets.shop.password"]
        assert value not in answer.text


def test_pausing_and_resuming_are_writes_of_their_own(service: Service) -> None:
    project = make(service)
    one = agent(service, project).json()
    for path in (f"/api/projects/{project['id']}", f"/api/agents/{one['id']}"):
        assert service.post(f"{path}/pause").json()["paused"] is True
        assert service.get(path).json()["paused"] is True
        assert service.post(f"{path}/resume").json()["paused"] is False
    actions = [(note["resource"], note["action"]) for note in service.get("/api/audit").json()["data"]]
    assert actions[::-1] == [
        ("project", "create"), ("agent", "create"), ("project", "pause"), ("project", "resume"), ("agent", "pause"), ("agent", "resume"),
    ]  # fmt: skip


def test_an_agent_is_made_in_a_project_and_found_by_its_names_once(service: Service) -> None:
    project, other = make(service), make(service, "other")
    made = agent(service, project, kind="otlp", service_name="svc", external_ref="wf1")
    assert made.status_code == 201 and made.json()["kind"] == "otlp"
    for field in ({"service_name": "svc"}, {"external_ref": "wf1"}):
        answer = agent(service, project, **field)
        assert answer.status_code == 409 and answer.json()["error"]["code"] == "CONFLICT"
        assert agent(service, other, **field).status_code == 201
    second = agent(service, project, service_name="svc2").json()
    assert service.patch(f"/api/agents/{second['id']}", json={"service_name": "svc"}).status_code == 409
    assert service.patch(f"/api/agents/{second['id']}", json={"service_name": "svc2", "name": "b"}).status_code == 200
    assert service.patch(f"/api/agents/{second['id']}", json={"service_name": None}).json()["service_name"] is None
    listed = service.get(f"/api/agents?project_id={project['id']}").json()["data"]
    assert {one["id"] for one in listed} == {made.json()["id"], second["id"]}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"kind": "teapot"}, 400),
        ({"name": ""}, 400),
        ({"service_name": ""}, 400),
        ({"project_id": "proj_none"}, 404),
        ({"paused": True}, 400),
    ],
)
def test_an_agent_that_cannot_be_made_is_refused(service: Service, body: dict[str, Any], status: int) -> None:
    assert agent(service, make(service), **body).status_code == status


@pytest.mark.parametrize("noun", ["projects", "agents", "cases"])
def test_required_fields_cannot_be_emptied(service: Service, noun: str) -> None:
    key = service.keys()["organization"]
    service.run(sow)
    id = {"projects": "proj_home", "agents": "agent_home_1", "cases": "case_home"}[noun]
    assert service.patch(f"/api/{noun}/{id}", json={"name": None}, key=key).status_code == 400
    assert service.patch(f"/api/{noun}/{id}", json={}, key=key).status_code == 200


def counts(service: Service, *tables: sa.Table) -> dict[str, int]:
    async def count(hub: Hub) -> dict[str, int]:
        async with hub.database.reading() as connection:
            return {t.name: (await connection.execute(sa.select(sa.func.count()).select_from(t))).scalar_one() for t in tables}

    return service.run(count)


def test_deleting_an_agent_takes_what_is_its_and_nothing_else(service: Service) -> None:
    key = service.keys()["organization"]
    service.run(sow)
    document = {"project_id": "proj_home", "document": SUITE}
    everyones = service.post("/api/cases", json=document, key=key).json()["id"]
    assert service.delete("/api/agents/agent_home_1", key=key).status_code == 204
    assert service.delete("/api/agents/agent_home_1", key=key).status_code == 404
    left = {path: service.get(f"/api/{path}", key=key).status_code for path in (
        "agents/agent_home_1", "cases/case_home", "traces/trc_home", "results/res_home",
        "agents/agent_home_2", "cases/case_home_2", "traces/trc_home_2", "results/res_home_2", f"cases/{everyones}",
    )}  # fmt: skip
    assert list(left.values()) == [404, 404, 404, 404, 200, 200, 200, 200, 200]


def test_deleting_a_project_leaves_nothing_of_it_and_revokes_its_keys(service: Service) -> None:
    made = service.keys()
    service.run(sow)
    assert service.get("/api/projects", key=made["project"]).status_code == 200

    async def many(hub: Hub) -> None:
        row = {"organization_id": "org_default", "project_id": "proj_home", "agent_id": "agent_home_1", "format": "otlp", "status": "open"}
        at = {"created_at": hub.now(), "updated_at": hub.now()}
        async with hub.database.writing() as connection:
            await connection.execute(traces.insert(), [{"id": f"t{n}", "external_id": f"e{n}", **row, **at} for n in range(450)])
            await connection.execute(
                trace_parts.insert(), [{"trace_id": f"t{n}", "number": 1, "body": b"", "created_at": "x"} for n in range(450)]
            )

    service.run(many)
    assert service.delete("/api/projects/proj_home", key=made["organization"]).status_code == 204
    assert service.get("/api/projects", key=made["project"]).status_code == 401
    assert service.get("/api/projects", key=made["agent"]).status_code == 401
    # Only rows of the other organization remain.
    left = counts(service, projects, agents, cases, case_versions, traces, trace_parts, results)
    assert left == {"projects": 1, "agents": 2, "cases": 2, "case_versions": 2, "traces": 2, "trace_parts": 0, "results": 2}
    assert counts(service, keys)["keys"] > 5
    assert service.get("/api/projects/proj_foreign", key=made["foreign_organization"]).status_code == 200


def test_every_table_that_hangs_on_a_project_is_known_to_its_deletion() -> None:
    # A new table with a project must be thought of in store/runs/retention.py.
    with_project = {name for name, table in METADATA.tables.items() if "project_id" in table.c}
    known = {
        "agents",
        "cases",
        "keys",
        "traces",
        "results",
        "alert_rules",
        "runs",
        "secrets",
        "annotations",
        "schedules",
        "judged_claims",
        "proposals",
    }
    assert with_project == known


def test_senders_see_the_current_state_of_an_agent(service: Service) -> None:
    project = make(service)

    def send(id: str) -> int:
        return service.post("/public/traces", json={"platformId": id, "spans": [{"span_id": "a", "name": "x"}]}).status_code

    for _ in range(3):
        assert send("agent_none") == 404
        made = agent(service, project).json()
        assert send(made["id"]) == 201, "it is there at once"
        for place in (f"agents/{made['id']}", f"projects/{project['id']}"):
            service.post(f"/api/{place}/pause")
            assert send(made["id"]) == 403, "paused at once"
            service.post(f"/api/{place}/resume")
            assert send(made["id"]) == 201
        service.delete(f"/api/agents/{made['id']}")
        assert send(made["id"]) == 404
