"""Labels and notes of people over REST, and the accuracy of judges measured with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.service.hub import Hub
from proctor.store.runs.retention import Deletable, delete_listed
from tests.integration.judge_server import data_of, judge_server
from tests.integration.running import proctor
from tests.pages.trace_seeds import seed_traces
from tests.rest.services import Service


@pytest.fixture
def key(service: Service) -> str:
    found = service.keys()["organization"]
    service.run(seed_traces)
    return found


def label(service: Service, key: str, **fields: Any) -> Any:
    body = {"subject": "result", "subject_id": "res_shop", "claim": 1, "label": "pass", **fields}
    answer = service.post("/api/annotations", key=key, json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_a_label_has_its_author_time_and_judge(service: Service, key: str) -> None:
    made = label(service, key, note="polite")
    assert made["author"].startswith("key_") and made["created_at"] and made["parent_id"] == "trc_shop"
    judged = service.get(f"/api/annotations/{made['id']}", key=key).json()["judged"]
    assert judged["criterion"] == "The answer says sorry." and "42.50 was refunded" in judged["answer"]
    assert judged["outcome"] == "pass" and judged["score"] == 0.9 and judged["threshold"] == 0.8
    listed = service.get("/api/annotations?subject=result&subject_id=res_shop", key=key).json()["data"]
    assert [one["id"] for one in listed] == [made["id"]]


def test_labelling_a_claim_again_replaces_the_label(service: Service, key: str) -> None:
    first, second = label(service, key), label(service, key, label="fail", note="on second thought")
    assert first["id"] == second["id"] and second["label"] == "fail"
    assert label(service, key, claim=2)["id"] != first["id"]


def test_a_claim_without_a_judge_can_be_labelled_and_counts_for_no_judge(service: Service, key: str) -> None:
    made = label(service, key, claim=0)
    assert service.get(f"/api/annotations/{made['id']}", key=key).json()["judged"] is None
    assert service.get("/api/annotations/agreement?project_id=proj_home", key=key).json()["labels"] == 0


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"subject": "trace", "subject_id": "trc_shop"}, 400),
        ({"subject": "trace", "subject_id": "trc_shop", "note": "  "}, 400),
        ({"subject": "trace", "subject_id": "trc_shop", "claim": 1, "label": "pass"}, 400),
        ({"subject": "trace", "subject_id": "trc_gone", "label": "pass"}, 404),
        ({"subject": "attempt", "subject_id": "trc_shop", "label": "pass"}, 404),
        ({"subject": "trace", "subject_id": "trc_shop", "label": "maybe"}, 400),
        ({"subject": "trace", "subject_id": "trc_shop", "note": "x" * 4_001}, 400),
        ({"subject": "result", "subject_id": "res_shop", "claim": -1, "label": "pass"}, 400),
    ],
)
def test_an_invalid_label_is_refused(service: Service, key: str, body: dict[str, Any], status: int) -> None:
    assert service.post("/api/annotations", key=key, json=body).status_code == status


def test_an_annotation_is_changed_by_its_new_author_and_taken_back(service: Service, key: str) -> None:
    made = label(service, key)
    path = f"/api/annotations/{made['id']}"
    assert service.patch(path, key=key, json={"note": "checked twice"}).json()["label"] == "pass"
    assert service.patch(path, key=key, json={"label": None, "note": ""}).status_code == 400
    assert service.delete(path, key=key).status_code == 204
    assert service.get(path, key=key).status_code == 404


def test_labels_of_a_trace_are_deleted_with_it(service: Service, key: str) -> None:
    made = label(service, key)

    async def forget(hub: Hub) -> None:
        async with hub.database.writing() as connection:
            await delete_listed(connection, [Deletable(kind="trace", id="trc_shop", created_at="", size=0)])

    service.run(forget)
    assert service.get(f"/api/annotations/{made['id']}", key=key).status_code == 404


def test_judged_claims_wait_until_they_are_labelled(service: Service, key: str) -> None:
    queue = service.get("/api/annotations/queue?project_id=proj_home", key=key).json()
    # Failed and passed claims alternate; of each, the least certain come first.
    assert [(one["subject_id"], one["claim"], one["outcome"]) for one in queue["waiting"]] == [
        ("res_rude", 1, "fail"),
        ("res_shop", 1, "pass"),
        ("res_rude", 2, "fail"),
        ("res_shop", 2, "pass"),
    ]
    assert (queue["total"], queue["answers"], queue["labelled"], queue["indexing"]) == (4, 4, 0, False)
    label(service, key, subject_id="res_rude", claim=1, label="skip")
    label(service, key, claim=2)
    left = service.get("/api/annotations/queue?project_id=proj_home", key=key).json()["waiting"]
    assert [(one["subject_id"], one["claim"]) for one in left] == [("res_rude", 2), ("res_shop", 1)]


def test_agreement_is_computed_with_intervals(service: Service, key: str) -> None:
    label(service, key)
    label(service, key, claim=2)
    label(service, key, subject_id="res_rude", label="pass", note="the tone is fine")
    label(service, key, subject_id="res_rude", claim=2, label="fail")
    found = service.get("/api/annotations/agreement?project_id=proj_home", key=key).json()
    assert found["labels"] == 4 and found["threshold"] == 0.8 and found["undecided"] == 0
    accuracy = found["figures"]["accuracy"]
    assert accuracy["value"] == 0.75 and 0 < accuracy["low"] < 0.75 < accuracy["high"] < 1


def test_the_export_is_what_calibrating_a_judge_reads(service: Service, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    label(service, key, note="says sorry")
    label(service, key, claim=2)
    label(service, key, subject_id="res_rude", label="fail")
    label(service, key, subject_id="res_rude", claim=2, label="fail")
    answer = service.get("/api/annotations/export?project_id=proj_home", key=key)
    assert "labels.jsonl" in answer.headers["content-disposition"]
    file = tmp_path / "labels.jsonl"
    file.write_bytes(answer.content)
    lines = [json.loads(line) for line in answer.content.splitlines()]
    assert {line.get("threshold") for line in lines} == {0.8}, "in the form of the claim"
    assert sorted(line["batch"] for line in lines) == ["res_rude"] * 2 + ["res_shop"] * 2, "as they were judged"
    monkeypatch.chdir(tmp_path)
    with judge_server() as server:
        monkeypatch.setenv("PROCTOR_JUDGE_BASE_URL", server.url)
        monkeypatch.setenv("PROCTOR_JUDGE_API_KEY", "k-123456789")
        monkeypatch.setenv("PROCTOR_JUDGE_MODEL", "stub")
        done = proctor("judge", "calibrate", file)
        sent = json.dumps([data_of(body) for body in server.requests])
    assert done.code == 0, done.err
    assert "4 labelled answers, 2 right and 2 wrong" in done.out
    assert "42.50 was refunded" in sent and "says sorry" not in sent, "a judge sees the answer, and no label"
