"""A state is verified as uploaded, and its secrets are neither stored nor shown."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.errors import StoreError
from proctor.store.sql.compressed_json import unpack
from proctor.store.sql.tables import METADATA, records
from tests.rest.services import Service
from tests.rest.verial import Author

AUTHORIZATION, LOGIN, NUMBER, LETTER = "AUTH-7781-long-and-true", "hunter2hunter2", 778_134, "pa-4711 " * 60
SECRETS = (AUTHORIZATION, LOGIN, str(NUMBER), "pa-4711", "PA-99-X")
"""What must be in no place that can be read afterwards."""
STATE: dict[str, Any] = {
    "portal": {
        "requests": [
            {
                "id": "R-1",
                "status": "submitted",
                "authorization": AUTHORIZATION,
                "credentials": {"user": "reception", "password": LOGIN, "pin": NUMBER},
                "prior_authorization": {"number": "PA-99-X", "letter": LETTER},
            }
        ]
    },
    "files": [{"path": "out/request.json", "content": json.dumps({"authorization": AUTHORIZATION, "note": "sent"})}],
    "voice": {"turns": [{"speaker": "agent", "text": f"The header is Bearer {AUTHORIZATION}."}]},
}


def portal(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"assert": "portal-state-match", "correlate_by": {"resource": "requests"}, "assertions": list(fields)}


HOLD: list[dict[str, Any]] = [
    portal({"path": "authorization", "expected": {"matcher": "regex", "value": "^AUTH-[0-9]{4}-"}}),
    portal({"path": "credentials.user", "expected": "reception"}, {"path": "credentials.pin", "expected": {"$gt": 778_000}}),
    portal({"path": "prior_authorization.number", "expected": {"matcher": "regex", "value": "^PA-[0-9]{2}-X$"}}),
    {"assert": "sftp-file-present", "path": "out/*.json", "fields": [{"path": "authorization", "expected": {"$regex": "^AUTH"}}]},
]
FAIL: list[dict[str, Any]] = [
    portal({"path": "authorization", "expected": "AUTH-0"}, {"path": "status", "expected": "draft"}),
    portal({"path": "credentials", "expected": {}}, {"path": "credentials.pin", "expected": 1}),
    portal({"path": "prior_authorization.letter", "expected": "x"}),
    portal({"path": "id", "expected": "R-2"}, {"path": "credentials.password", "expected": None}),
    {"assert": "sftp-file-present", "path": "out/*.json", "fields": [{"path": "authorization", "expected": 1}]},
    {"assert": "voice-transcript", "contains": ["the header is"], "not_contains": ["header is bearer"]},
]


@pytest.fixture
def author(service: Service) -> Author:
    return Author(service, service.keys()["organization"])


def run_with(author: Author, assertions: list[dict[str, Any]]) -> dict[str, Any]:
    benchmark = author.benchmark()
    task = author.task(benchmark)
    for assertion in assertions:
        author.criterion(task, assertion)
    return author.post("/benchmark-runs", {"benchmark_id": benchmark["id"]})


async def read_everything(hub: Any) -> str:
    """Every value of every table, decompressed."""
    found: list[str] = []
    async with hub.database.reading() as connection:
        for table in METADATA.sorted_tables:
            for row in await connection.execute(sa.select(table)):
                found += [_read_cell(value) for value in row]
    return "\n".join(found)


def _read_cell(value: Any) -> str:
    if not isinstance(value, (bytes, memoryview)):
        return str(value)
    try:
        return str(unpack(bytes(value)))
    except StoreError:
        return repr(bytes(value))


async def count_sealed(hub: Any) -> int:
    async with hub.database.reading() as connection:
        rows = await connection.execute(sa.select(records.c.blob).where(records.c.kind == "sealed_state"))
        blobs = [bytes(blob) for blob in rows.scalars()]
    for blob in blobs:
        with pytest.raises(zlib.error):
            zlib.decompress(blob)
        assert not any(secret.encode() in blob for secret in SECRETS)
    return len(blobs)


@pytest.mark.timeout(60)
def test_the_uploaded_state_is_verified_and_its_secrets_are_not_stored(author: Author, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    run = run_with(author, [*HOLD, *FAIL])
    (task,) = run["task_runs"]
    answers: list[Any] = [author.upload(task["id"], STATE)]
    assert author.service.run(count_sealed) == 1
    between = author.service.run(read_everything)
    done = author.post(f"/task-runs/{task['id']}/complete")
    assert [entry["passed"] for entry in done["criterion_runs"]] == [True] * len(HOLD) + [False] * len(FAIL), done["criterion_runs"]
    # Compared values are shown as they are, and secret ones as redacted.
    first, second = done["criterion_runs"][len(HOLD)]["evidence"]["assertion_results"]
    assert first == {"path": "authorization", "expected": "AUTH-0", "actual": "[redacted]", "passed": False}
    assert second == {"path": "status", "expected": "draft", "actual": "submitted", "passed": False}
    assert "submitted" in done["criterion_runs"][len(HOLD)]["details"] and "[redacted]" in done["criterion_runs"][len(HOLD)]["details"]
    paths = (f"/task-runs/{task['id']}", f"/benchmark-runs/{run['id']}", "/criterion-runs", "/eval-runs", "/runs", "/api/audit")
    answers += [done, *(author.get(path) for path in paths)]
    pages = [f"/ui/task-runs/{task['id']}", f"/ui/benchmark-runs/{run['id']}", f"/ui/criterion-runs/{done['criterion_runs'][0]['id']}"]
    shown = [author.service.get(page, key=author.key) for page in pages]
    assert [page.status_code for page in shown] == [200, 200, 200]
    after = author.service.run(read_everything)
    assert "R-1" in after and author.service.run(count_sealed) == 0
    for place, text in {
        "database before": between,
        "database after": after,
        "answers": json.dumps(answers),
        "pages": "\n".join(page.text for page in shown),
        "log": caplog.text,
    }.items():
        assert [secret for secret in SECRETS if secret in text] == [], place


@pytest.mark.timeout(60)
def test_the_token_of_a_run_reveals_no_secret(author: Author) -> None:
    benchmark = author.benchmark()
    task = author.task(benchmark)
    for assertion in FAIL:
        author.criterion(task, assertion)
    author.post(f"/benchmarks/{benchmark['id']}/publish")
    run = author.post("/v1/benchmark-runs", {"benchmark": "booking@1"}, key=author.solver_key())
    (task_run,) = run["task_runs"]
    author.post(task_run["start_url"], key=run["bearer_token"])
    author.upload(task_run["id"], STATE)
    text = json.dumps(author.post(task_run["complete_url"], key=run["bearer_token"]))
    assert "[redacted]" in text and [secret for secret in SECRETS if secret in text] == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("ending", ["complete", "cancel", "cancel run", "replaced", "replaced by one without"])
def test_an_upload_is_deleted_when_it_can_no_longer_be_verified(author: Author, ending: str) -> None:
    run = run_with(author, HOLD)
    task = run["task_runs"][0]["id"]
    author.ask("PUT", f"/benchmark-runs/{run['id']}/state", STATE)
    author.upload(task, STATE)
    assert author.service.run(count_sealed) == 2
    if ending.startswith("replaced"):
        author.upload(task, STATE if ending == "replaced" else {"portal": {"requests": []}})
        assert author.service.run(count_sealed) == (2 if ending == "replaced" else 1)
        assert author.post(f"/task-runs/{task}/complete")["score"] == pytest.approx(1.0 if ending == "replaced" else 0.25)
    elif ending == "cancel run":
        author.post(f"/benchmark-runs/{run['id']}/cancel")
    else:
        author.post(f"/task-runs/{task}/{ending}")
    assert author.service.run(count_sealed) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"files": [{"path": {"password": LOGIN}}]},
        {"fhir": {"resources": [f"Bearer {AUTHORIZATION}"]}},
        {"portal": {"credentials": LOGIN}},
        {"hl7": {"outbound": [{"authorization": LETTER}]}},
    ],
)
def test_the_refusal_of_a_state_quotes_no_secret(author: Author, wrong: dict[str, Any]) -> None:
    run = run_with(author, HOLD)
    text = json.dumps(author.upload(run["task_runs"][0]["id"], wrong, status=400))
    assert "expected" in text and [secret for secret in SECRETS if secret in text] == []


def test_a_state_without_secrets_is_stored_once(author: Author) -> None:
    run = run_with(author, HOLD)
    author.upload(run["task_runs"][0]["id"], {"portal": {"requests": [{"id": "R-1", "status": "submitted"}]}})
    assert author.service.run(count_sealed) == 0


def test_an_undecryptable_state_is_reported_with_a_next_step(author: Author) -> None:
    run = run_with(author, HOLD)
    task = run["task_runs"][0]["id"]
    author.upload(task, STATE)

    async def damage(hub: Any) -> None:
        async with hub.database.writing() as connection:
            await connection.execute(sa.update(records).where(records.c.kind == "sealed_state").values(blob=b"gAAAAAB-of-another-key"))

    author.service.run(damage)
    refused = author.post(f"/task-runs/{task}/complete", status=409)
    assert "cannot be decrypted" in refused["error"]["message"]
    author.upload(task, STATE)
    assert author.post(f"/task-runs/{task}/complete")["score"] == 1.0
