"""Keys and the audit log over REST."""

from __future__ import annotations

import json

import pytest

from tests.rest.services import Service


def test_a_key_is_shown_once_listed_masked_and_revoked(service: Service) -> None:
    made = service.post("/api/keys", json={"kind": "organization", "name": "ci"}).json()
    key = made["key"]
    assert key.startswith("proctor_org_") and made["masked"] == f"proctor_org_...{key[-4:]}"
    for answer in (service.get("/api/keys", key=key), service.get(f"/api/keys/{made['id']}", key=key), service.get("/api/audit", key=key)):
        assert answer.status_code == 200 and key not in answer.text and "hash" not in answer.text
    revoked = service.delete(f"/api/keys/{made['id']}", key=key).json()
    assert revoked["revoked_at"] is not None
    assert service.get("/api/keys", key=key).status_code == 401


def test_keys_are_filtered_and_run_tokens_listed_only_by_kind(service: Service) -> None:
    keys = service.keys()
    kinds = [one["kind"] for one in service.get("/api/keys", key=keys["organization"]).json()["data"]]
    assert kinds == ["solver", "project", "project", "organization"]
    assert len(service.get("/api/keys?kind=run", key=keys["organization"]).json()["data"]) == 1
    assert len(service.get("/api/keys?project_id=proj_home", key=keys["organization"]).json()["data"]) == 2
    assert service.get("/api/keys?kind=master", key=keys["organization"]).status_code == 400


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"kind": "master", "name": "x"}, 400),
        ({"kind": "project", "name": "x"}, 400),
        ({"kind": "organization", "name": ""}, 400),
        ({"kind": "organization", "name": "x", "expires_at": "yesterday"}, 400),
        ({"kind": "organization", "name": "x", "expires_at": "2001-01-01"}, 400),
        ({"kind": "project", "name": "x", "project_id": "proj_none"}, 404),
        ({"kind": "project", "name": "x", "project_id": "proj_home", "agent_ids": ["agent_foreign_1"]}, 404),
        ({"kind": "project", "name": "x", "project_id": "proj_home", "agent_ids": []}, 400),
        ({"kind": "organization", "name": "x", "key": "vk_chosen"}, 400),
        ({"kind": "project", "name": "x", "project_id": "proj_home", "agent_ids": ["agent_home_1"], "expires_at": "2999-01-01"}, 201),
    ],
)
def test_a_key_is_for_what_there_is(service: Service, body: dict[str, object], status: int) -> None:
    key = service.keys()["organization"]
    assert service.post("/api/keys", json=body, key=key).status_code == status


def test_the_audit_log_shows_who_did_what_and_can_be_filtered(service: Service) -> None:
    made = service.post("/api/keys", json={"kind": "organization", "name": "a"}).json()
    project = service.post("/api/projects", json={"name": "p"}, key=made["key"]).json()
    first, second = service.get("/api/audit", key=made["key"]).json()["data"]
    assert (first["actor"], first["action"], first["resource"], first["resource_id"]) == (made["id"], "create", "project", project["id"])
    assert (second["actor"], second["resource_id"]) == ("local", made["id"])
    assert len(service.get(f"/api/audit?resource=project&resource_id={project['id']}", key=made["key"]).json()["data"]) == 1
    assert made["key"] not in json.dumps([first, second])


def test_the_local_user_stays_in_until_there_is_a_key_that_can_do_the_same(service: Service) -> None:
    project = service.post("/api/projects", json={"name": "shop"}).json()
    sender = service.post("/api/keys", json={"kind": "project", "name": "sender", "project_id": project["id"]}).json()
    assert service.get(f"/api/projects/{project['id']}", key=sender["key"]).status_code == 200
    assert service.get("/api/keys").status_code == 200
    assert service.post("/api/keys", json={"kind": "organization", "name": "admin"}).status_code == 201
    assert service.get("/api/keys").status_code == 401
