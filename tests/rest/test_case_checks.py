"""A document before it is stored (validated, tried on stored traces), a case over time, and a run before it is started."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.service.access.callers import LOCAL
from proctor.service.hub import Hub
from proctor.service.runs.worker import work_once
from proctor.store.sql.compressed_json import pack
from proctor.store.sql.tables import results, run_entries, runs, traces
from tests.rest.seeds import SUITE
from tests.rest.services import Service

BROKEN = "proctor: 1\ncases:\n  - id: a\n    input: hi\n    expect:\n      - tool_caled: x\n      - response_mtches: y\n"
TWO = """\
proctor: 1
cases:
  - {id: greets, input: hello, expect: [{response_contains: hello}]}
  - {id: leaves, input: bye, expect: [{response_contains: bye}]}
"""


@pytest.fixture
def project(service: Service) -> str:
    return service.post("/api/projects", json={"name": "p"}).json()["id"]


@pytest.fixture
def agent(service: Service, project: str) -> str:
    return service.post("/api/agents", json={"project_id": project, "name": "a"}).json()["id"]


def validate(service: Service, document: Any, **more: Any) -> Any:
    return service.post("/api/cases/validate", json={"document": document, **more})


def test_a_document_is_validated_with_line_column_and_nearest_word_and_not_stored(service: Service, project: str) -> None:
    answer = validate(service, BROKEN)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["valid"] is False and found["cases"] == [] and found["dialect"] is None
    first, second = found["problems"]
    assert (first["line"], first["column"]) == (6, 9) and "tool_caled" in first["message"] and "tool_called" in first["nearest"]
    assert second["line"] == 7 and first["path"].startswith("$.cases[0].expect[0]")
    good = validate(service, TWO).json()
    assert good["valid"] is True and good["problems"] == [] and good["dialect"] == "native" and good["case_count"] == 2
    assert [case["id"] for case in good["cases"]] == ["greets", "leaves"] and good["cases"][0]["assertions"] == 1
    assert service.get(f"/api/cases?project_id={project}").json()["data"] == []


@pytest.mark.parametrize(
    ("document", "more", "field"),
    [("x" * 1_000_001, {}, "document"), ("a\0b", {}, "document"), (SUITE, {"dialect": "mibbo"}, "dialect")],
)
def test_unchecked_fields_are_refused_and_not_called_valid(service: Service, document: Any, more: Any, field: str) -> None:
    answer = validate(service, document, **more)
    assert answer.status_code == 400 and field in answer.json()["error"]["details"]


@pytest.mark.parametrize("document", ["", "{", "hello", [], {"nothing": "known"}, {"proctor": 1, "cases": 3}])
def test_a_document_without_a_suite_is_invalid_with_a_reason(service: Service, document: Any) -> None:
    found = validate(service, document).json()
    assert found["valid"] is False and found["problems"][0]["message"]


def test_a_secret_in_a_document_is_a_problem_with_its_path(service: Service) -> None:
    target = {"type": "http", "url": "https://example.com", "headers": {"authorization": "Bearer verysecretvalue1234567890"}}
    document = {"proctor": 1, "targets": {"shop": target}, "cases": [{"id": "a", "input": "x", "expect": [{"response_contains": "x"}]}]}
    found = validate(service, document).json()
    assert found["valid"] is False
    (problem,) = found["problems"]
    assert problem["path"].startswith("$.targets.shop") and "secret" in problem["message"] and problem["line"] is None
    assert "verysecret" not in str(found)


async def add_trace(hub: Hub, project: str, agent: str, number: int, body: Any, **more: Any) -> None:
    at = f"2026-11-1{number}T09:00:00.000Z"
    row = {"id": f"trc_{number}", "organization_id": LOCAL.organization_id, "project_id": project, "agent_id": agent}
    row |= {"external_id": f"x{number}", "format": "mibo", "status": "evaluated", "body": pack(body), "input_text": f"asked {number}"}
    async with hub.database.writing() as connection:
        await connection.execute(traces.insert().values(**row, created_at=at, updated_at=at, **more))


def test_a_document_is_tried_on_the_newest_traces_and_nothing_is_stored(service: Service, project: str, agent: str) -> None:
    async def add(hub: Hub) -> None:
        await add_trace(hub, project, agent, 1, {"data": {"output": "hello you"}})
        await add_trace(hub, project, agent, 2, {"data": {"output": "bye now"}}, metadata={"env": "prod"})
        await add_trace(hub, project, agent, 3, {"data": {"output": "hello"}}, size=2_000_000)

    service.run(add)
    body = {"project_id": project, "agent_id": agent, "document": SUITE}
    answer = service.post("/api/cases/try", json=body)
    assert answer.status_code == 200, answer.text
    large, second, first = answer.json()["traces"]
    assert large["error"].startswith("too_large") and large["results"] == []
    assert [result["outcome"] for result in second["results"]] == ["fail"] and second["results"][0]["assertions"][0]["reason"]
    assert [result["outcome"] for result in first["results"]] == ["pass"] and first["error"] is None
    assert answer.json()["counts"] == {"fail": 1, "pass": 1}
    chosen = service.post("/api/cases/try", json={**body, "when": {"metadata": {"env": "prod"}}, "limit": 20}).json()
    assert [trace["is_for"] for trace in chosen["traces"]] == [True, True, False] and chosen["counts"] == {"fail": 1}
    assert service.get("/api/results").json()["data"] == []
    broken = service.post("/api/cases/try", json={**body, "document": BROKEN})
    assert broken.status_code == 400 and broken.json()["error"]["problems"][0]["line"] == 6
    assert service.post("/api/cases/try", json={**body, "limit": 21}).status_code == 400


async def add_run(hub: Hub, project: str, number: int, outcomes: dict[str, list[str]], **settings: Any) -> None:
    at = f"2026-11-1{number}T09:00:00.000Z"
    run = {"id": f"run_{number}", "organization_id": LOCAL.organization_id, "project_id": project, "suite_name": f"suite {number}"}
    done = {"status": "completed", "outcome": "pass", "counts": {}, "settings": settings, "note": "", "dialect": "native", "document": TWO}
    async with hub.database.writing() as connection:
        await connection.execute(runs.insert().values(**run, **done, created_at=at, updated_at=at))
        for case, all_outcomes in outcomes.items():
            for attempt, outcome in enumerate(all_outcomes):
                entry = {"id": f"att_{number}_{case}_{attempt}", "run_id": f"run_{number}", "case_id": case, "attempt": attempt}
                await connection.execute(run_entries.insert().values(**entry, outcome=outcome, body=b"", created_at=at))


def test_the_history_over_runs_has_pass_rates_with_intervals_and_marks_flaky_runs(service: Service, project: str) -> None:
    async def add(hub: Hub) -> None:
        await add_run(hub, project, 1, {"greets": ["pass", "pass"], "leaves": ["fail", "error"]})
        await add_run(hub, project, 2, {"greets": ["pass", "fail", "pass", "skip"]})
        await add_run(hub, project, 3, {"other": ["fail"]})
        await add_run(hub, project, 4, {"leaves": ["skip"]})

    service.run(add)
    case = service.post("/api/cases", json={"project_id": project, "document": TWO}).json()["id"]
    found = service.get(f"/api/cases/{case}/history").json()["data"]
    assert [row["run_id"] for row in found] == ["run_4", "run_2", "run_1"]
    skipped, flaky, split = found
    assert skipped["decided"] == 0 and skipped["pass_rate"] is None and skipped["low"] is None and skipped["flaky"] is False
    assert flaky["flaky"] is True and flaky["decided"] == 3 and flaky["passed"] == 2 and flaky["counts"]["skip"] == 1
    assert flaky["pass_rate"] == pytest.approx(2 / 3) and flaky["low"] < 2 / 3 < flaky["high"]
    # One case always passes and the other never: that is no flaky case.
    assert split["flaky"] is False and split["pass_rate"] == 0.5 and split["cases"] == ["greets", "leaves"]
    one = service.get(f"/api/cases/{case}/history?key=greets").json()["data"]
    assert [(row["run_id"], row["passed"], row["decided"]) for row in one] == [("run_2", 2, 3), ("run_1", 2, 2)]
    wrong = service.get(f"/api/cases/{case}/history?key=none")
    assert wrong.status_code == 400 and "greets" in wrong.text


def test_a_run_of_other_cases_is_no_history_of_a_case_with_the_same_ids(service: Service, project: str) -> None:
    mine, other = (service.post("/api/cases", json={"project_id": project, "document": TWO, "name": name}).json()["id"] for name in "mo")

    async def add(hub: Hub) -> None:
        await add_run(hub, project, 1, {"greets": ["fail"]}, from_cases={other: {}})
        await add_run(hub, project, 2, {"greets": ["fail"], "m/greets": ["pass"]}, from_cases={other: {}, mine: {"greets": "m/greets"}})
        await add_run(hub, project, 3, {"greets": ["error"]}, from_cases=None)

    service.run(add)
    rows = service.get(f"/api/cases/{mine}/history").json()["data"]
    assert [(row["run_id"], row["cases"], row["passed"], row["decided"]) for row in rows] == [
        ("run_3", ["greets"], 0, 1),
        ("run_2", ["m/greets"], 1, 1),
    ]
    assert [row["run_id"] for row in service.get(f"/api/cases/{other}/history").json()["data"]] == ["run_3", "run_2", "run_1"]
    planned = {"project_id": project, "cases": [other, mine], "target": TARGET}
    run = service.post("/api/runs", json=planned).json()["id"]

    async def read_links(hub: Hub) -> Any:
        async with hub.database.reading() as connection:
            return (await connection.execute(runs.select().where(runs.c.id == run))).mappings().one()["settings"]["from_cases"]

    assert service.run(read_links) == {other: {}, mine: {"greets": "m/greets", "leaves": "m/leaves"}}


def test_the_history_over_runs_goes_on_from_page_to_page(service: Service, project: str) -> None:
    async def add(hub: Hub) -> None:
        for number in range(1, 6):
            await add_run(hub, project, number, {"greets": ["pass"]})

    service.run(add)
    case = service.post("/api/cases", json={"project_id": project, "document": TWO}).json()["id"]
    seen: list[str] = []
    cursor = ""
    while True:
        page = service.get(f"/api/cases/{case}/history?limit=2{cursor}").json()
        seen += [row["run_id"] for row in page["data"]]
        if page["_meta"]["next"] is None:
            break
        cursor = f"&cursor={page['_meta']['next']}"
    assert seen == [f"run_{number}" for number in (5, 4, 3, 2, 1)]
    assert service.get(f"/api/cases/{case}/history?cursor=xx").status_code == 400


def test_the_history_over_traces_counts_results_by_day(service: Service, project: str, agent: str) -> None:
    case = service.post("/api/cases", json={"project_id": project, "document": TWO}).json()["id"]

    async def add(hub: Hub) -> None:
        of = {"organization_id": LOCAL.organization_id, "project_id": project, "agent_id": agent, "case_id": case, "trace_revision": 1}
        rows = [(11, "pass", 1), (11, "fail", 1), (11, "pass", 2), (13, "skip", 2)]
        async with hub.database.writing() as connection:
            for number, (day, outcome, version) in enumerate(rows):
                at = f"2026-11-{day}T09:00:00.000Z"
                one = {"id": f"res_{number}", "trace_id": f"trc_{number}", "case_version": version, "case_key": "greets", "body": b""}
                await connection.execute(results.insert().values(**of, **one, outcome=outcome, created_at=at, updated_at=at))

    service.run(add)
    first = service.get(f"/api/cases/{case}/history/traces?limit=1").json()
    (day,) = first["data"]
    assert day["day"] == "2026-11-13" and day["pass_rate"] is None and day["counts"]["skip"] == 1 and first["_meta"]["next"] == "2026-11-13"
    rest = service.get(f"/api/cases/{case}/history/traces?limit=1&cursor=2026-11-13").json()
    (day,) = rest["data"]
    assert (day["day"], day["decided"], day["passed"], day["versions"]) == ("2026-11-11", 3, 2, [1, 2]) and day["newest_only"] is False
    assert rest["_meta"]["next"] is None
    assert service.get(f"/api/cases/{case}/history/traces?key=leaves").json()["data"] == []
    assert service.get(f"/api/cases/{case}/history/traces?cursor=yesterday").status_code == 400


def test_a_change_to_an_older_version_is_refused(service: Service, project: str) -> None:
    case = service.post("/api/cases", json={"project_id": project, "document": SUITE}).json()["id"]
    changed = service.patch(f"/api/cases/{case}", json={"document": TWO, "expected_version": 1})
    assert changed.status_code == 200 and changed.json()["version"] == 2
    late = service.patch(f"/api/cases/{case}", json={"document": SUITE, "expected_version": 1})
    assert late.status_code == 409 and "version 2" in late.text
    assert service.get(f"/api/cases/{case}").json()["document"] == TWO


TARGET = {"type": "http", "url": "https://example.com/"}


def dry_run(service: Service, project: str, **more: Any) -> Any:
    answer = service.post("/api/runs/dry-run", json={"project_id": project, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_dry_run_lists_what_would_be_driven_and_starts_nothing(service: Service, project: str) -> None:
    found = dry_run(service, project, suite=TWO, target=TARGET, repeat=3)
    assert found["startable"] is True and found["problems"] == [] and found["attempts"] == 6 and found["cases"] == ["greets", "leaves"]
    assert dry_run(service, project, suite=TWO, target=TARGET, selection="greets")["case_count"] == 1
    case = service.post("/api/cases", json={"project_id": project, "document": TWO}).json()["id"]
    assert dry_run(service, project, cases=[case], target=TARGET)["attempts"] == 2
    assert service.get("/api/runs").json()["data"] == []


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({}, "suite", "either `suite`"),
        ({"suite": BROKEN, "target": TARGET}, "suite", "tool_caled"),
        ({"suite": TWO}, "target", "no target"),
        ({"suite": TWO, "target": "shop"}, "target", "no target"),
        ({"suite": TWO, "target": {"type": "http", "url": "http://127.0.0.1:9/"}}, "target", "127.0.0.1"),
        ({"suite": TWO, "target": TARGET, "selection": "none"}, "selection", "no case is selected"),
        ({"cases": ["case_none"], "target": TARGET}, "", "case_none"),
        ({"suite": TWO, "target": TARGET, "tags": ["a b,c"]}, "tags", ""),
    ],
)
def test_a_dry_run_lists_what_keeps_a_run_from_being_started(service: Service, project: str, fields: Any, field: str, message: str) -> None:
    found = dry_run(service, project, **fields)
    assert found["startable"] is False and found["attempts"] is None
    assert any(problem["field"].startswith(field) and message in problem["message"] for problem in found["problems"]), found["problems"]
    started = service.post("/api/runs", json={"project_id": project, **fields})
    assert started.status_code in (400, 404)


def test_a_dry_run_lists_problems_of_fields_and_suite_together(service: Service, project: str) -> None:
    found = dry_run(service, project, suite=BROKEN, tags=["a b,c"])
    assert {problem["field"] for problem in found["problems"]} >= {"suite", "tags"}
    assert [problem["line"] for problem in found["problems"] if problem["field"] == "suite"] == [6, 7]


def test_a_dry_run_in_a_paused_project_reports_it(service: Service, project: str) -> None:
    service.post(f"/api/projects/{project}/pause")
    found = dry_run(service, project, suite=TWO, target=TARGET)
    assert found["startable"] is False and "paused" in found["problems"][0]["message"]


def test_a_case_is_tried_on_stored_traces_by_an_ordinary_run(service: Service, project: str, agent: str) -> None:
    case = service.post("/api/cases", json={"project_id": project, "agent_id": agent, "document": SUITE, "active": False}).json()["id"]
    nothing = service.post(f"/api/cases/{case}/backtest", json={})
    assert nothing.status_code == 409 and "no stored traces" in nothing.text

    async def add(hub: Hub) -> None:
        await add_trace(hub, project, agent, 1, {"data": {"output": "hello you"}})
        await add_trace(hub, project, agent, 2, {"data": {"output": "bye now"}})

    service.run(add)
    answer = service.post(f"/api/cases/{case}/backtest", json={"limit": 10, "name": "history"})
    assert answer.status_code == 202, answer.text
    run = answer.json()
    assert run["backtest"]["traces"] == 2 and run["backtest"]["looked_at"] == 0 and run["status"] == "queued"
    service.run(work_once)
    done = service.get(f"/api/runs/{run['id']}").json()
    assert done["status"] == "completed" and done["counts"] == {"pass": 1, "fail": 1, "error": 0, "skip": 0}
    assert [row["outcome"] for row in service.get("/api/runs/history/results").json()["data"]]
    assert service.post(f"/api/cases/{case}/backtest", json={"limit": 0}).status_code == 400
