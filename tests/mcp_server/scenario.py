"""The work of a coding agent with criteria, from an empty service to verified runs, at every entry point."""

from __future__ import annotations

from typing import Any

from mcp.client import Client

APPOINTMENT = {
    "assert": "fhir-resource-state",
    "resource_type": "Appointment",
    "search": {"patient": "Patient/john-smith", "status": "booked"},
    "fields": [{"path": "participant.0.actor.display", "expected": "Dr. Rivera"}],
}
PRIOR_AUTH = {
    "assert": "portal-state-match",
    "correlate_by": {"resource": "prior_auth_requests", "key": "request_id"},
    "assertions": [{"path": "status", "expected": "submitted"}],
}
"""The two examples of the reference."""


def state(doctor: str, status: str) -> dict[str, Any]:
    """The systems after the agent has worked in them."""
    patient = {"actor": {"reference": "Patient/john-smith"}}
    booked = {"resourceType": "Appointment", "id": "a1", "status": "booked", "participant": [{"actor": {"display": doctor}}, patient]}
    return {"fhir": {"resources": [booked]}, "portal": {"prior_auth_requests": [{"request_id": "PA-1", "status": status}]}}


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the result of a call, which must be no error."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.structured_content
    return result.structured_content


async def refusal(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """How a call is refused."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    return result.structured_content["error"]


async def a_task(client: Client) -> tuple[str, str]:
    """A benchmark with one task: their ids."""
    benchmark = await call(client, "benchmarks", action="create", name="Scheduling", timeout=600)
    item = {"instruction": "Book John Smith with Dr. Rivera", "expected_inputs": ["patient"]}
    task = await call(client, "tasks", action="create", benchmarkId=benchmark["id"], name="Book", taskItem=item)
    assert task["taskItem"] == item
    return benchmark["id"], task["id"]


async def author_and_verify(client: Client) -> None:
    """Author both examples, verify them on passing, partly passing and failing states, and check every answer."""
    benchmark_id, task_id = await a_task(client)
    await _author(client, task_id)

    passed = await _verified(client, benchmark_id, state("Dr. Rivera", "submitted"))
    assert (passed["verdict"], passed["score"], passed["status"]) == ("pass", 1.0, "completed")
    assert passed["axes"] == {"correctness": {"score": 1.0, "weight": 2}, "safety": {"score": 1.0, "weight": 1}}
    await _look_at_evidence(client, passed)

    partial = await _verified(client, benchmark_id, state("Dr. Rivera", "draft"))
    assert partial["verdict"] == "partial" and abs(partial["score"] - 2 / 3) < 1e-9
    assert partial["axes"] == {"correctness": {"score": 1.0, "weight": 2}, "safety": {"score": 0.0, "weight": 1}}

    failed = await _verified(client, benchmark_id, state("Dr. Who", "draft"))
    assert (failed["verdict"], failed["score"]) == ("fail", 0.0)
    first, second = failed["criterionRuns"]
    wrong = {"path": "participant.0.actor.display", "expected": "Dr. Rivera", "actual": "Dr. Who", "passed": False}
    assert first["passed"] is False and first["evidence"]["field_results"] == [wrong]
    assert second["evidence"]["assertion_results"] == [{"path": "status", "expected": "submitted", "actual": "draft", "passed": False}]
    page = (await client.read_resource(f"proctor://task-runs/{failed['id']}")).contents[0]
    assert "verdict: fail" in page.text and '"Dr. Who"' in page.text


async def _author(client: Client, task_id: str) -> None:
    first = await call(
        client, "criteria", action="create", taskId=task_id, label="Booked", assertion=APPOINTMENT, weight=2, axis="correctness"
    )
    second = await call(client, "criteria", action="create", taskId=task_id, label="Authorised", assertion=PRIOR_AUTH, axis="wrong")
    assert {"id", "taskId", "label", "assertion", "weight", "axis", "inputEntityId", "createdAt"} <= set(first)
    assert (first["weight"], second["weight"], first["assertion"]) == (2, 1, APPOINTMENT)
    changed = await call(client, "criteria", action="update", id=second["id"], axis="safety")
    assert (changed["axis"], changed["assertion"]) == ("safety", PRIOR_AUTH)
    third = await call(client, "criteria", action="create", taskId=task_id, label="Too much", assertion=PRIOR_AUTH)
    listed = await call(client, "criteria", action="list", taskId=task_id)
    assert [entry["id"] for entry in listed["data"]] == [third["id"], second["id"], first["id"]]
    assert await call(client, "criteria", action="delete", id=third["id"]) == {"id": third["id"], "deleted": True}
    assert (await refusal(client, "criteria", action="get", id=third["id"]))["code"] == "NOT_FOUND"

    misspelt = {**APPOINTMENT, "assert": "fhir-resource-stat"}
    error = await refusal(client, "criteria", action="create", taskId=task_id, label="x", assertion=misspelt)
    assert (error["code"], error["path"], error["nearest"]) == ("VALIDATION_ERROR", "assertion.assert", ["fhir-resource-state"])
    assert "portal-state-match" in error["nextStep"]


async def _verified(client: Client, benchmark_id: str, after: dict[str, Any]) -> dict[str, Any]:
    run = await call(client, "benchmark_runs", action="start", benchmarkId=benchmark_id)
    (task_run,) = run["taskRuns"]
    put = await call(client, "task-runs", action="putState", id=task_run["id"], state=after)
    assert put["families"] == ["fhir", "portal"]
    done = await call(client, "task-runs", action="complete", id=task_run["id"])
    assert (await refusal(client, "task-runs", action="complete", id=task_run["id"]))["code"] == "CONFLICT"
    run = await call(client, "benchmark_runs", action="get", id=run["id"])
    assert (run["status"], run["verdict"], run["score"]) == ("completed", done["verdict"], done["score"])
    return done


async def _look_at_evidence(client: Client, task_run: dict[str, Any]) -> None:
    listed = await call(client, "criterion-runs", action="list", taskRunId=task_run["id"])
    assert sorted(entry["id"] for entry in listed["data"]) == sorted(entry["id"] for entry in task_run["criterionRuns"])
    one = await call(client, "criterion-runs", action="get", id=task_run["criterionRuns"][0]["id"])
    right = {"path": "participant.0.actor.display", "expected": "Dr. Rivera", "actual": "Dr. Rivera", "passed": True}
    assert one["passed"] is True and one["score"] == 1.0 and one["evidence"]["field_results"] == [right]
    assert "1 of 1" in one["details"]
