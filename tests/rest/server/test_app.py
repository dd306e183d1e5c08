"""The application as a whole: health, metrics, logs, ids of requests, bugs, workers, errors in the words of each dialect."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa
from google.rpc.status_pb2 import Status
from prometheus_client.parser import text_string_to_metric_families

import proctor
from proctor.errors import InputError, StoreError
from proctor.rest import app, process
from proctor.rest.app import make_app
from proctor.rest.errors import make_refusal_response
from proctor.rest.metrics import Metrics, write_page
from proctor.rest.settings import SETTINGS, ServeSettings, read_settings, show_default
from proctor.service.hub import Hub, stamp
from proctor.service.refusals import STATUS, Refusal
from proctor.service.settings import ServiceSettings
from proctor.store.sql.tables import runs, traces
from tests.rest.seeds import sow
from tests.rest.services import Service


@pytest.fixture
def lines() -> Iterator[Any]:
    """The log lines, as objects."""
    stream = io.StringIO()
    loggers = [logging.getLogger(name) for name in ("proctor", "uvicorn")]
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    process.log_to_stream(stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


def test_no_route_is_rebuilt_at_the_first_request(tmp_path: Path) -> None:
    # As for an included router: all other requests would wait.
    app = make_app(ServeSettings(service=ServiceSettings(home=tmp_path)))
    assert [route for route in app.routes if not hasattr(route, "path")] == []


def gone(*_: object) -> Any:
    raise StoreError("the database cannot be used: it is gone")


# --- health and metrics ------------------------------------------------------------------------------------------------------


def test_a_healthy_service_reports_it_without_a_key(service: Service) -> None:
    service.keys()
    answer = service.get("/health")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok", "version": proctor.__version__, "database": "reachable", "reasons": []}


@pytest.mark.timeout(30)
def test_others_are_answered_while_the_document_is_made_and_it_is_made_once(service: Service) -> None:
    made, may_go_on, calls = service.app.openapi, threading.Event(), 0

    def make_slowly() -> dict[str, Any]:
        nonlocal calls
        calls += 1
        assert may_go_on.wait(5)
        return made()

    service.app.openapi = make_slowly
    with ThreadPoolExecutor(2) as others:
        documents = [others.submit(service.get, "/openapi.json") for _ in range(2)]
        while not calls:
            threading.Event().wait(0.01)
        assert service.get("/health").status_code == 200
        may_go_on.set()
        answers = [document.result() for document in documents]
    assert [answer.json() for answer in answers] == [made()] * 2 and calls == 1
    assert answers[0].headers["content-type"] == "application/json"


def test_without_its_database_the_service_is_unavailable_with_retry_after(service: Service, monkeypatch: Any) -> None:
    monkeypatch.setattr(service.hub.database, "reading", gone)
    answer = service.get("/health")
    assert answer.status_code == 503
    assert answer.json()["database"] == "unreachable"
    for path in ("/api/projects", "/public/traces", "/v1/traces", "/v1/logs"):
        answer = service.get(path)
        assert answer.status_code == 503, path
        assert int(answer.headers["retry-after"]) >= 1


def test_metrics_count_requests_by_route_and_never_by_address(service: Service) -> None:
    service.get("/api/projects/proj_a")
    service.get("/api/projects/proj_b")
    service.get("/nowhere/secret-name")
    service.hub.counters.add("traces_received", 3)
    answer = service.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    text = answer.text
    assert 'proctor_requests_total{method="GET",route="/api/projects/{project_id}",status="404"} 2' in text
    assert 'proctor_requests_total{method="GET",route="(none)",status="404"} 1' in text
    assert 'proctor_request_seconds_bucket{route="/api/projects/{project_id}",le="+Inf"} 2' in text
    assert 'proctor_request_seconds_count{route="/api/projects/{project_id}"} 2' in text
    assert "proctor_traces_received_total 3" in text
    assert "proctor_queue_depth 0" in text
    assert 'proctor_runs{status="queued"} 0' in text
    assert "proj_a" not in text and "secret-name" not in text


def test_metrics_are_well_formed(service: Service) -> None:
    service.get("/health")
    families = {family.name for family in text_string_to_metric_families(service.get("/metrics").text)}
    assert {"proctor_requests", "proctor_request_seconds", "proctor_queue_depth", "proctor_evaluations"} <= families


def test_metrics_include_queue_lengths_and_oldest_waits(service: Service) -> None:
    service.keys()
    service.run(sow)

    async def queue(hub: Hub) -> None:
        at = {name: stamp(hub.clock() - 90) for name in ("created_at", "updated_at")}
        run = {
            "organization_id": "org_default",
            "project_id": "proj_home",
            "suite_name": "s",
            "dialect": "native",
            "document": "",
            "note": "",
        }
        async with hub.database.writing() as connection:
            for number, status in enumerate(("queued", "queued", "running")):
                await connection.execute(runs.insert().values(id=f"run_{number}", status=status, **run, **at))
            await connection.execute(sa.update(traces).values(due_at=hub.clock() - 60))

    service.run(queue)
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(service.run(lambda hub: write_page(hub, Metrics())))
        for sample in family.samples
    }
    assert found["proctor_runs", "queued"] == 2 and found["proctor_runs", "running"] == 1
    assert 90 <= found["proctor_run_wait_seconds",] < 120
    assert found["proctor_queue_depth",] == 4
    assert 60 <= found["proctor_queue_wait_seconds",] < 90


def test_metrics_of_the_whole_process_are_not_for_one_of_several_tenants(service: Service) -> None:
    alone = service.post("/api/keys", json={"kind": "organization", "name": "only"}).json()["key"]
    assert service.get("/metrics", key=alone).status_code == 200
    keys = service.keys()
    for key in (alone, keys["organization"], keys["foreign_organization"]):
        refused = service.get("/metrics", key=key)
        assert refused.status_code == 403
        assert "--metrics-organization" in refused.json()["error"]["message"]


@pytest.mark.parametrize("named", ["org_foreign", "foreign"])
def test_metrics_are_read_by_the_organization_that_the_administrator_named(tmp_path: Path, named: str) -> None:
    with Service(f"sqlite:///{tmp_path / 'p.db'}", tmp_path, metrics_organization=named) as service:
        keys = service.keys()
        assert service.get("/metrics", key=keys["foreign_organization"]).status_code == 200
        assert service.get("/metrics", key=keys["organization"]).status_code == 403
        assert service.get("/metrics", key=keys["foreign_project"]).status_code == 403


# --- logs and ids ------------------------------------------------------------------------------------------------------------


def test_a_request_is_logged_without_its_content(service: Service, lines: Any) -> None:
    keys = service.keys()
    service.post("/api/projects", key=keys["organization"], json={"name": "very private"}, headers={"x-request-id": "r-1"})
    service.get("/api/agents/agent_private?project_id=hidden", key=keys["organization"])
    first, second = lines()
    assert {name: first[name] for name in ("method", "route", "status", "request_id", "level")} == {
        "method": "POST", "route": "/api/projects", "status": 201, "request_id": "r-1", "level": "info",
    }  # fmt: skip
    assert first["key_id"].startswith("key_") and first["ms"] >= 0
    assert second["route"] == "/api/agents/{agent_id}"
    text = json.dumps([first, second])
    assert "private" not in text and "hidden" not in text and keys["organization"] not in text


@pytest.mark.parametrize("name", ["proctor.serve", "proctor.service", "proctor.mcp"])
def test_no_part_of_the_service_logs_content(name: str, lines: Any, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("the password is swordfish")
    except ValueError:
        logging.getLogger(name).exception("a run failed")
    (line,) = lines()
    assert line["logger"] == name and line["error"] == "ValueError" and "swordfish" not in json.dumps(line)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("given", ["abc-1", "x" * 255])
def test_the_id_of_a_request_is_echoed(service: Service, given: str) -> None:
    assert service.get("/health", headers={"x-request-id": given}).headers["x-request-id"] == given


@pytest.mark.parametrize("given", [None, "", "x" * 256, "a b", "a\tb"])
def test_an_id_that_cannot_be_used_is_replaced(service: Service, given: str | None) -> None:
    answer = service.get("/health", headers={} if given is None else {"x-request-id": given})
    assert len(answer.headers["x-request-id"]) == 16


def test_a_bug_is_answered_with_nothing_but_the_id_and_logged(service: Service, monkeypatch: Any, lines: Any) -> None:
    def broken(*_: object) -> Any:
        raise ValueError("the password is swordfish")

    monkeypatch.setattr(service.hub.database, "reading", broken)
    answer = service.get("/api/projects", headers={"x-request-id": "r-2"})
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "INTERNAL_ERROR"
    assert "r-2" in answer.text and "swordfish" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    failed = next(line for line in lines() if line["level"] == "error")
    assert failed["error"] == "ValueError" and failed["request_id"] == "r-2" and failed["trace"]
    assert "swordfish" not in json.dumps(failed)


# --- errors in the words of each dialect -------------------------------------------------------------------------------------


def test_not_found_is_answered_in_the_format_of_its_path(service: Service) -> None:
    ours = service.get("/api/nothing")
    assert ours.status_code == 404 and ours.json()["error"]["code"] == "NOT_FOUND"
    mibo = service.get("/public/nothing").json()
    assert mibo["success"] is False and mibo["timestamp"].endswith("Z") and mibo["error"]["details"] == []
    wrong = service.put("/api/projects")
    assert wrong.status_code == 405 and set(wrong.headers["allow"].split(", ")) == {"GET", "POST"}


@pytest.mark.parametrize("code", STATUS)
@pytest.mark.parametrize("path", ["/api/x", "/public/traces", "/v1/traces", "/v1/logs", "/criteria"])
def test_every_refusal_has_its_status_and_shape_in_every_dialect(code: Any, path: str) -> None:
    scope = {"type": "http", "path": path, "headers": []}
    refusal = Refusal(code, "no", fields={"a.b": ["bad"]}, hint="try c", retry_after_s=0.2)
    answer = make_refusal_response(scope, refusal)
    assert answer.status_code == STATUS[code]
    assert answer.headers["retry-after"] == "1"
    body = json.loads(answer.body)
    if path == "/api/x":
        assert body == {"error": {"code": code, "message": "no", "details": {"a.b": ["bad"]}, "hint": "try c"}}
    elif path == "/criteria":
        assert body == {"error": {"code": code, "message": "no", "details": {"a.b": ["bad"]}}}
    elif path.startswith("/v1/"):
        assert set(body) == {"code", "message"}
    else:
        assert body["error"]["details"] == [{"location": "body", "path": "a.b", "msg": "bad", "type": "field"}]
        assert body["error"]["code"] == ("MISSING_API_KEY" if code == "UNAUTHORIZED" else body["error"]["code"])


def test_an_unknown_field_is_reported_with_the_nearest_one(service: Service) -> None:
    refused = service.client.post("/api/keys", json={"kind": "project", "name": "n", "agent_id": "agent_1"})
    assert refused.status_code == 400
    assert refused.json()["error"]["details"] == {"agent_id": ["unknown field; nearest: agent_ids"]}
    refused = service.client.post("/api/projects", json={"name": "n", "zzz": 1}).json()["error"]["details"]["zzz"]
    assert refused[0].startswith("unknown field; known: name, ")


def test_a_refused_protobuf_request_is_answered_in_protobuf() -> None:
    scope = {"type": "http", "path": "/v1/traces", "headers": [(b"content-type", b"application/x-protobuf")]}
    answer = make_refusal_response(scope, Refusal("UNAVAILABLE", "é" * 100))
    assert answer.headers["content-type"] == "application/x-protobuf"
    status = Status.FromString(bytes(answer.body))
    assert status.code == 14 and status.message == "é" * 100


# --- workers -----------------------------------------------------------------------------------------------------------------


def test_a_failing_worker_is_restarted_and_stops_on_request(lines: Any) -> None:
    calls: list[int] = []

    async def worker(hub: Hub, stop: asyncio.Event) -> None:
        calls.append(len(calls))
        if len(calls) < 3:
            raise RuntimeError("private details")
        await stop.wait()

    async def main() -> None:
        stop = asyncio.Event()
        task = asyncio.create_task(app.supervise_worker("w", worker, EMPTY, stop, first_s=0.001))
        while len(calls) < 3:
            await asyncio.sleep(0.001)
        stop.set()
        await asyncio.wait_for(task, 5)

    asyncio.run(main())
    assert EMPTY.counters.read()["worker_failures"] == 2
    failed = [line for line in lines() if line["message"] == "a worker failed"]
    assert len(failed) == 2
    assert failed[0]["worker"] == "w" and failed[0]["error"] == "RuntimeError" and "private" not in json.dumps(failed)


# The workers of these tests never use its content.
EMPTY = Hub(database=cast(Any, None), settings=cast(Any, None))


async def stubborn(hub: Hub, stop: asyncio.Event) -> None:
    while True:
        try:
            await asyncio.sleep(100)
        finally:
            pass


def test_a_worker_that_does_not_stop_is_cancelled(monkeypatch: Any, lines: Any) -> None:
    monkeypatch.setattr(app, "WORKERS", [f"{__name__}:stubborn"])
    monkeypatch.setattr(app, "STOP_S", 0.05)

    async def main() -> None:
        async with app.workers(EMPTY, asyncio.Event()):
            await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    assert "did not stop in time" in lines()[0]["message"]


# --- settings ----------------------------------------------------------------------------------------------------------------


def found_home(given: str | None) -> Path:
    return Path(given or "found")


def read(flags: dict[str, Any] | None = None, **environment: str) -> ServeSettings:
    return read_settings(flags or {}, environment, found_home)


def test_a_flag_wins_over_a_variable_over_the_default() -> None:
    assert read().port == 8700 and read().database_url == "found/proctor.db"
    assert read(PROCTOR_PORT="1", PROCTOR_HOME="there").port == 1
    settings = read({"port": "2", "allowed_hosts": ["a", "b"]}, PROCTOR_PORT="1", PROCTOR_ALLOWED_HOSTS="c")
    assert settings.port == 2 and settings.allowed_hosts == ("a", "b")
    settings = read(PROCTOR_ALLOWED_COMMANDS="npx x, uvx", PROCTOR_DATABASE_URL="postgresql://u@h/n")
    assert settings.service.allowed_commands == ("npx x", "uvx")
    assert settings.database_url == "postgresql://u@h/n"
    assert read(PROCTOR_PORT="").port == 8700
    assert read().service.unknown_agents is None and read({"unknown_agents": "refuse"}).service.unknown_agents == "refuse"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("PROCTOR_UNKNOWN_AGENTS", "maybe", "expected create or refuse"),
        ("PROCTOR_PORT", "70000", "expected a whole number from 0 to 65535"),
        ("PROCTOR_PORT", "secret", "expected a whole number"),
        ("PROCTOR_LEASE_S", "nan", "expected a number of 0 or more"),
        ("PROCTOR_HOST", " ", "expected some text"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_and_not_shown(name: str, value: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(**{name: value})
    assert name in str(caught.value) and message in str(caught.value) and (len(value) < 4 or value not in str(caught.value))


def test_every_setting_of_the_service_can_be_set_and_has_a_default_to_show() -> None:
    names = {setting.name for setting in SETTINGS}
    assert set(ServiceSettings.__struct_fields__) | set(ServeSettings.__struct_fields__) - {"service"} == names
    assert all(show_default(setting) for setting in SETTINGS)
    assert len({setting.variable for setting in SETTINGS}) == len(SETTINGS)
    assert all(setting.variable.startswith("PROCTOR_") for setting in SETTINGS)
