"""`/api/runs` over HTTP: sent, followed, cancelled, read, reported, compared."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa

from proctor.store.sql.compressed_json import pack
from proctor.store.sql.tables import run_entries
from tests.rest.listening import Listening
from tests.rest.services import Service
from tests.service.agents import LOOPBACK, suite


class Agent:
    """An agent in its own thread."""

    def __init__(self) -> None:
        self.inputs: list[str] = []
        self.slow_s = 0.0
        self.more: dict[str, Any] = {}
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                text = json.loads(self.rfile.read(int(self.headers["content-length"])))["input"]
                agent.inputs.append(text)
                time.sleep(agent.slow_s)
                body = json.dumps({"text": f"hello {text}", **agent.more}).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.target = {"type": "http", "url": f"http://127.0.0.1:{self._server.server_address[1]}/", "response_path": "text"}
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def agent() -> Iterator[Agent]:
    found = Agent()
    yield found
    found.close()


@pytest.fixture
def driving(database_url: str, tmp_path: Path) -> Iterator[Service]:
    with Service(database_url, tmp_path, with_workers=True, allowed_addresses=LOOPBACK) as running:
        yield running


def a_project(service: Service, **settings: Any) -> str:
    made = service.post("/api/projects", json={"name": "shop", "settings": settings})
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def until(ask: Callable[[], Any], holds: Callable[[dict[str, Any]], bool], within_s: float = 10.0) -> dict[str, Any]:
    end = time.monotonic() + within_s
    while not holds(run := ask().json()):
        assert time.monotonic() < end, run
        time.sleep(0.02)
    return run


def parsed(text: str) -> list[dict[str, str]]:
    """Server-sent events, as a browser reads them."""
    blocks = [dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":")) for block in text.split("\n\n")]
    return [block for block in blocks if "data" in block]


def test_a_run_is_sent_followed_and_read(driving: Service, agent: Agent) -> None:
    project = a_project(driving, targets={"shop": agent.target})
    sent = driving.post("/api/runs", json={"project_id": project, "suite": suite("a", "b"), "repeat": 2, "target": "shop"})
    assert sent.status_code == 202, sent.text
    run_id = sent.json()["id"]
    assert sent.json()["status"] == "queued"
    stream = driving.get(f"/api/runs/{run_id}/events")
    assert stream.headers["content-type"].startswith("text/event-stream") and stream.headers["cache-control"] == "no-store"
    events = parsed(stream.text)
    assert [int(event["id"]) for event in events] == list(range(1, len(events) + 1))
    assert [events[0]["event"], events[-1]["event"]] == ["queued", "completed"]
    assert json.loads(events[-1]["data"])["counts"] == {"pass": 4}
    run = driving.get(f"/api/runs/{run_id}").json()
    assert (run["status"], run["outcome"], run["counts"]["pass"], run["target"]) == ("completed", "pass", 4, "shop")
    page = driving.get(f"/api/runs/{run_id}/results?limit=3").json()
    assert len(page["data"]) == 3 and page["_meta"]["next"]
    whole = driving.get(f"/api/runs/{run_id}/results/{page['data'][0]['id']}").json()
    assert whole["result"]["assertions"][0]["outcome"] == "pass" and whole["evidence"]["text"].startswith("hello")
    assert driving.get("/api/runs?status=completed").json()["data"][0]["id"] == run_id
    assert sorted(agent.inputs) == ["a", "a", "b", "b"]


def test_a_stream_is_taken_up_where_it_was_left(driving: Service, agent: Agent) -> None:
    project = a_project(driving)
    run_id = driving.post("/api/runs", json={"project_id": project, "suite": suite("a"), "target": agent.target}).json()["id"]
    whole = parsed(driving.get(f"/api/runs/{run_id}/events").text)
    for headers, query in (({"last-event-id": "2"}, ""), ({}, "?after=2"), ({"last-event-id": "2"}, "?after=4")):
        assert parsed(driving.get(f"/api/runs/{run_id}/events{query}", headers=headers).text) == whole[2:]
    assert parsed(driving.get(f"/api/runs/{run_id}/events", headers={"last-event-id": "nonsense"}).text) == whole
    assert driving.get(f"/api/runs/{run_id}/events", headers={"last-event-id": whole[-1]["id"]}).status_code == 204


def test_a_run_is_cancelled(driving: Service, agent: Agent) -> None:
    project = a_project(driving)
    agent.slow_s = 0.3
    body = {"project_id": project, "suite": suite("a", "b"), "target": agent.target, "repeat": 100, "concurrency": 2}
    run_id = driving.post("/api/runs", json=body).json()["id"]
    until(lambda: driving.get(f"/api/runs/{run_id}"), lambda run: run["finished"] > 0)
    began = time.monotonic()
    assert driving.post(f"/api/runs/{run_id}/cancel").status_code == 200
    run = until(lambda: driving.get(f"/api/runs/{run_id}"), lambda run: run["status"] == "cancelled")
    assert time.monotonic() - began < 5.0 and run["cancel_requested"] and 0 < run["finished"] < 200
    assert parsed(driving.get(f"/api/runs/{run_id}/events").text)[-1]["event"] == "cancelled"
    assert driving.get("/api/audit?resource=run").json()["data"][0]["action"] == "cancel"


@pytest.mark.parametrize(
    ("format", "kind"),
    [
        ("json", "application/json"),
        ("jsonl", "application/x-ndjson"),
        ("junit", "application/xml"),
        ("markdown", "text/markdown; charset=utf-8"),
        ("html", "text/html; charset=utf-8"),
        ("otlp", "application/x-ndjson"),
    ],
)
def test_reports_come_in_every_format(format: str, kind: str, service: Service) -> None:
    service.run(sow_runs)
    answer = service.get(f"/api/runs/run_home/report?format={format}")
    assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
    assert "greets" in answer.text or "home" in answer.text
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts; ") if format == "html" else policy.startswith("default-src 'none'")


def test_a_report_as_opentelemetry_events_names_the_trace_of_each(service: Service) -> None:
    service.run(sow_runs)
    trace = "0af7651916cd43dd8448eb211c80319c"

    async def observed(hub: Any) -> None:
        body = pack({"case": "greets", "outcome": "pass", "evidence": {"text": "hello", "metadata": {"trace_id": trace}}})
        async with hub.database.writing() as connection:
            await connection.execute(sa.update(run_entries).values(body=body))

    service.run(observed)
    (line,) = service.get("/api/runs/run_home/report?format=otlp").text.splitlines()
    (record,) = json.loads(line)["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    attributes = {pair["key"]: pair["value"] for pair in record["attributes"]}
    assert (record["eventName"], record["traceId"]) == ("gen_ai.evaluation.result", trace)
    assert attributes["proctor.run.id"] == {"stringValue": "run_home"}
    assert attributes["gen_ai.evaluation.score.label"] == {"stringValue": "pass"}


def test_runs_are_compared(service: Service) -> None:
    service.run(sow_runs)
    found = service.get("/api/runs/run_home/compare?base=run_home").json()
    assert found["comparison"]["verdict"] == "too_little_data" and found["base"]["run_id"] == "run_home"
    assert service.get("/api/runs/run_home/compare").status_code == 404, "there is no run before it"
    assert service.get("/api/runs/run_home/compare?base=run_none").status_code == 404


def drive(service: Service, project: str, target: dict[str, Any], **more: Any) -> str:
    sent = service.post("/api/runs", json={"project_id": project, "suite": suite("a"), "target": target, **more})
    assert sent.status_code == 202, sent.text
    service.get(f"/api/runs/{sent.json()['id']}/events")  # ends with the run
    return str(sent.json()["id"])


def test_runs_are_found_by_their_names_and_tags(driving: Service, agent: Agent) -> None:
    project, other = a_project(driving), a_project(driving)
    first = drive(driving, project, agent.target, name="v1", tags=["nightly", "Release"])
    second = drive(driving, project, agent.target, name="v1")
    third = drive(driving, project, agent.target, tags=["nightly"])
    elsewhere = drive(driving, other, agent.target, name="v1", tags=["nightly"])
    shown = driving.get(f"/api/runs/{first}").json()
    assert (shown["name"], shown["tags"]) == ("v1", ["nightly", "Release"])
    assert (driving.get(f"/api/runs/{third}").json()["name"], driving.get(f"/api/runs/{second}").json()["tags"]) == ("", [])

    def listed(query: str) -> list[str]:
        return [run["id"] for run in driving.get(f"/api/runs?project_id={project}&{query}").json()["data"]]

    assert listed("name=v1") == [second, first] and listed("tag=nightly") == [third, first] and listed("tag=Release") == [first]
    assert listed("name=v1&tag=nightly") == [first] and listed("name=v") == listed("tag=night") == listed("tag=release") == []

    def based(base: str) -> Any:
        found = driving.get(f"/api/runs/{third}/compare", params={"base": base} if base else {})
        return found.json()["base"]["run_id"] if found.status_code == 200 else found.status_code

    assert [based(word) for word in ("", "previous", "v1", "@Release", "latest", first)] == [second, second, second, first, third, first]
    assert [based(word) for word in ("v2", "@release", "@none", "baseline", "run_none")] == [404] * 5
    assert driving.get("/api/runs/latest").json()["id"] == elsewhere
    assert driving.get("/api/runs/@Release/report").json()["run_id"] == first
    assert driving.get("/api/runs/@Release/results").json()["data"][0]["run_id"] == first
    compared = driving.get(f"/api/runs/{third}/compare?base=@Release").json()
    assert (compared["base"]["name"], compared["base"]["tags"]) == ("v1", ["nightly", "Release"])


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"name": "latest"}, "name"),
        ({"name": "@tag"}, "name"),
        ({"name": "run_1"}, "name"),
        ({"name": "a/b"}, "name"),
        ({"tags": ["two words"]}, "tags"),
        ({"tags": ["a,b"]}, "tags"),
        ({"tags": [""]}, "tags"),
    ],
)
def test_a_name_that_could_not_find_the_run_again_is_refused(service: Service, given: dict[str, Any], field: str) -> None:
    good = {"type": "http", "url": "https://example.com/"}
    refused = service.post("/api/runs", json={"project_id": a_project(service), "suite": suite("a"), "target": good, **given})
    assert refused.status_code == 400 and field in refused.text, refused.text


def test_a_run_costs_what_the_prices_of_its_project_say(driving: Service, agent: Agent) -> None:
    agent.more = {"model": "small", "usage": {"input_tokens": 1000, "output_tokens": 100}}
    target = {"type": "http", "url": agent.target["url"]}
    claims = {"proctor": 1, "cases": [{"id": "a", "input": "a", "expect": [{"cost_within": 1}]}]}
    prices = {"small": {"input": 1, "output": 2, "per": 1000}}
    priced = drive(driving, a_project(driving, prices=prices), target, suite=claims)
    report = driving.get(f"/api/runs/{priced}/report").json()
    assert report["cost"] == {"agent": 1.2, "judge": 0.0, "currency": "USD", "known": 1.2, "cases_not_known": 0}
    assert report["cases"][0]["cost"] == {"agent": 1.2, "judge": 0.0, "currency": "USD"}
    assert "at most 1 USD, found 1.2 USD" in report["cases"][0]["assertions"][0]["reason"]
    assert "cost 1.2 USD" in driving.get(f"/api/runs/{priced}/report?format=markdown").text
    assert driving.get(f"/api/runs/{priced}/compare?base={priced}").json()["cost"]["verdict"]
    bare = driving.get(f"/api/runs/{drive(driving, a_project(driving), target, suite=claims)}/report").json()
    assert "cost" not in bare and bare["cases"][0]["assertions"][0]["code"] == "missing_evidence"
    wrong = {"project_id": a_project(driving, prices={"small": {"input": -1}}), "suite": suite("a"), "target": target}
    refused = driving.post("/api/runs", json=wrong)
    assert refused.status_code == 400 and "price" in refused.text, refused.text


async def sow_runs(hub: Any) -> None:
    from proctor.service.access.callers import LOCAL
    from tests.rest.seeds import seed_runs

    await seed_runs(hub, LOCAL, "home")


def test_an_invalid_run_is_answered_with_every_problem(service: Service) -> None:
    project = a_project(service)
    good = {"type": "http", "url": "https://example.com/"}
    for body, status, message in (
        ({"suite": "proctor: 1\ncases: [{id: a, expect: [{response_contain: x}]}]", "target": good}, 400, "nearest"),
        ({"suite": suite("a"), "target": {"type": "http", "url": "http://127.0.0.1/"}}, 400, "--allowed-address"),
        ({"suite": suite("a"), "target": {"type": "callable", "function": "os:system"}}, 403, "--allowed-command"),
        ({"suite": suite("a"), "target": {**good, "headers": {"x": "${NAME}"}}}, 400, "the project has no secret NAME"),
        ({"suite": suite("a"), "target": good, "repeat": 0}, 400, "repeat"),
        ({"suite": suite("a"), "target": good, "retries": 1}, 400, "retries"),
        ({"target": good}, 400, "suite"),
    ):
        answer = service.post("/api/runs", json={"project_id": project, **body})
        assert answer.status_code == status and message in answer.text, answer.text


@pytest.mark.live
@pytest.mark.timeout(60)
def test_a_stream_over_a_real_socket_is_live_and_does_not_hold_up_the_end(tmp_path: Path, agent: Agent) -> None:
    agent.slow_s = 0.2
    with Listening(f"sqlite:///{tmp_path / 'proctor.db'}", tmp_path, with_workers=True, allowed_addresses=LOOPBACK) as running:
        client = httpx2.Client(base_url=running.url, timeout=10)
        project = client.post("/api/projects", json={"name": "shop"}).json()["id"]
        body = {"project_id": project, "suite": suite("a", "b", "c"), "target": agent.target, "repeat": 50, "concurrency": 1}
        run_id = client.post("/api/runs", json=body).json()["id"]
        seen = 0
        with client.stream("GET", f"/api/runs/{run_id}/events") as stream:
            for line in stream.iter_lines():
                seen += line.startswith("event: finished")
                if seen == 3:
                    break
        assert 3 <= client.get(f"/api/runs/{run_id}").json()["finished"] < 10, "progress is shown during the run"
        running.app.state.stopping.set()
        client.close()
