"""The clinic of the tutorial, for a model with tools and a program over HTTP: each single fault fails the claim that names it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import proctor
from proctor.actions.running.sandboxed_target import SandboxedTarget
from proctor.cassettes.ports import LIVE
from proctor.llm.ports import ChatReply, ChatRequest, ModelCall
from proctor.llm.scripted import ScriptedModel
from proctor.model.attempt import Attempt
from proctor.model.evidence import Evidence
from proctor.targets.mcp.agent import McpAgent
from proctor.targets.mcp.servers import McpServers
from proctor.targets.mcp.settings import ServerSettings
from tests.actions.running.test_run_systems import call, list_failed
from tests.executed_page import FENCE, ROOT
from tests.targets.mcp_twins import local_shop

PAGE = ROOT / "docs" / "tutorial" / "simulated-clinic.md"
PATIENT, DAY, CONFIRMED = "the patient has an appointment", "it is on the day of the referral", "it is confirmed"
LOOKED, NOTHING_ELSE = "it looked for a slot first", "nothing else happened"
SABOTAGES: dict[str, tuple[str, ...]] = {
    "none": (),
    "wrong patient": (PATIENT,),
    "wrong date": (DAY,),
    "file not written": (CONFIRMED,),
    "extra booking": (NOTHING_ELSE,),
    "deleted resource": (NOTHING_ELSE,),
    "no look at slots": (LOOKED,),
}
"""Faults of the agent, and the claims that fail for them."""


def read_suite() -> str:
    """Return the suite of the tutorial as its reader saves it."""
    text = PAGE.read_text(encoding="utf-8")
    found = FENCE.search(text, text.index("<!-- file: clinic.yaml -->"))
    assert found is not None
    return found["body"]


def make_appointment(patient: str, day: str) -> dict[str, Any]:
    actor = [{"actor": {"reference": f"Patient/{patient}"}, "status": "accepted"}]
    return {"resourceType": "Appointment", "status": "booked", "start": f"{day}T09:00:00Z", "participant": actor}


def list_work(sabotage: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the work of a clerk as tool calls."""
    appointment = make_appointment(
        "amy" if sabotage == "wrong patient" else "ann", "2026-11-21" if sabotage == "wrong date" else "2026-11-20"
    )
    work: list[tuple[str, dict[str, Any]]] = [
        ("files_read", {"path": "inbox/referral.json"}),
        ("fhir_search", {"resource_type": "Patient", "search": {"family:exact": "Smith"}}),
        ("fhir_search", {"resource_type": "Slot", "search": {"status": "free"}}),
        ("fhir_create", {"resource": appointment}),
        ("files_write", {"path": "outbox/confirmed.json", "content": json.dumps({"day": "2026-11-20"})}),
    ]
    if sabotage == "file not written":
        return work[:-1]
    if sabotage == "no look at slots":
        return [work[0], work[1], *work[3:]]
    if sabotage == "extra booking":
        return [*work, ("fhir_create", {"resource": make_appointment("ann", "2026-11-21")})]
    if sabotage == "deleted resource":
        return [*work, ("fhir_delete", {"resource_type": "Patient", "id": "amy"})]
    return work


def make_model_agent(sabotage: str) -> McpAgent:
    """Return our agent on a model that works call by call, with no server of its own."""
    work = list_work(sabotage)

    def speak(request: ChatRequest) -> ChatReply | str:
        done = sum(message.role == "tool" for message in request.messages)
        if done == len(work):
            return "Booked."
        return ChatReply(tool_calls=(ModelCall(id=f"c{done}", name=work[done][0], arguments=work[done][1]),))

    return McpAgent("clerk", servers=McpServers([]), model_for=lambda tape: ScriptedModel(speak))


def make_http_agent(sabotage: str) -> Any:
    """Return a program that does the same by requests of its own."""

    def book(message: str, context: dict[str, Any]) -> str:
        for tool, given in list_work(sabotage):
            match tool:
                case "files_read":
                    call(context, "drop", "GET", f"/{given['path']}")
                case "files_write":
                    call(context, "drop", "PUT", f"/{given['path']}", json.loads(given["content"]))
                case "fhir_search":
                    query = "&".join(f"{name}={value}" for name, value in given["search"].items())
                    call(context, "clinic", "GET", f"/{given['resource_type']}?{query}")
                case "fhir_create":
                    call(context, "clinic", "POST", "/Appointment", given["resource"])
                case _:
                    call(context, "clinic", "DELETE", f"/{given['resource_type']}/{given['id']}")
        return "Booked."

    return book


def drive(agent: McpAgent) -> Evidence:
    """Return the evidence of one attempt at the clinic."""
    (case,) = proctor.parse_suite(read_suite()).cases

    async def attempt() -> Evidence:
        target = SandboxedTarget(agent)
        await target.open()
        try:
            return await target.run(Attempt(case=case, request_id="r1", session_id="s1"), LIVE)
        finally:
            await target.close()

    return asyncio.run(attempt())


@pytest.mark.parametrize("sabotage", SABOTAGES)
@pytest.mark.parametrize("make_agent", [make_model_agent, make_http_agent], ids=["model with tools", "program over HTTP"])
def test_each_fault_fails_the_claim_that_names_it(tmp_path: Path, make_agent: Any, sabotage: str) -> None:
    (tmp_path / "clinic.yaml").write_text(read_suite(), encoding="utf-8")
    (case,) = proctor.run(tmp_path / "clinic.yaml", target=make_agent(sabotage), home=tmp_path).cases
    assert list_failed(case) == list(SABOTAGES[sabotage])
    assert case.outcome == ("fail" if SABOTAGES[sabotage] else "pass")


def test_calls_of_tools_are_requests_and_tool_calls() -> None:
    evidence = drive(make_model_agent("none"))
    assert evidence.state is not None and evidence.tool_calls is not None
    assert [(one.server, one.name, one.error) for one in evidence.tool_calls][:2] == [
        ("drop", "files_read", None),
        ("clinic", "fhir_search", None),
    ]
    assert [(one.system, one.method, one.path) for one in evidence.state.requests or ()] == [
        ("drop", "GET", "/inbox/referral.json"),
        ("clinic", "GET", "/Patient?family:exact=Smith"),
        ("clinic", "GET", "/Slot?status=free"),
        ("clinic", "POST", "/Appointment"),
        ("drop", "PUT", "/outbox/confirmed.json"),
    ]
    assert set(evidence.available_tools or ()) >= {"fhir_search", "clinic:fhir_search", "files_write"}


def test_systems_are_added_to_the_servers_of_the_agent() -> None:
    replies = [
        ChatReply(tool_calls=(ModelCall(id="1", name="lookup_order", arguments={"id": 17}),)),
        ChatReply(tool_calls=(ModelCall(id="2", name="files_read", arguments={"path": "inbox/referral.json"}),)),
        ChatReply(text="Done."),
    ]
    agent = McpAgent("clerk", servers=McpServers([local_shop()], waits_s=()), model_for=lambda tape: ScriptedModel(replies))
    evidence = drive(agent)
    assert [(one.server, one.name, one.error) for one in evidence.tool_calls or ()] == [
        ("shop", "lookup_order", None),
        ("drop", "files_read", None),
    ]


def test_attempts_of_a_model_have_systems_of_their_own(tmp_path: Path) -> None:
    """Each finds no appointment and books one: the claim that nothing else happened counts it."""
    (tmp_path / "clinic.yaml").write_text(read_suite(), encoding="utf-8")
    result = proctor.run(tmp_path / "clinic.yaml", target=make_model_agent("none"), home=tmp_path, repeat=20, concurrency=10)
    assert [case.outcome for case in result.cases] == ["pass"] * 20


def test_a_wrong_call_is_reported_to_the_model_which_may_retry() -> None:
    calls = [("fhir_read", {"resource_type": "Patient"}), ("fhir_read", {"resource_type": "Patient", "id": "eve"})]
    results: list[str] = []

    def speak(request: ChatRequest) -> ChatReply | str:
        done = [message.text for message in request.messages if message.role == "tool"]
        results[:] = done
        return (
            "Sorry."
            if len(done) == len(calls)
            else ChatReply(tool_calls=(ModelCall(id="c", name=calls[len(done)][0], arguments=calls[len(done)][1]),))
        )

    agent = McpAgent("clerk", servers=McpServers([]), model_for=lambda tape: ScriptedModel(speak))
    evidence = drive(agent)
    assert "fhir_read needs id" in results[0] and "OperationOutcome" in results[1]
    assert evidence.state is not None
    assert [one.status for one in evidence.state.requests or ()] == [404]
    assert [one.error is not None for one in evidence.tool_calls or ()] == [True, True]


def test_a_server_and_a_system_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "clinic.yaml").write_text(read_suite(), encoding="utf-8")
    servers = McpServers([ServerSettings(id="clinic", transport="in_process", server=object())], offline=True)
    agent = McpAgent("clerk", servers=servers, model_for=lambda tape: ScriptedModel(["hi"]))
    (case,) = proctor.run(tmp_path / "clinic.yaml", target=agent, home=tmp_path).cases
    assert case.outcome == "error" and "a system of that name" in (case.reason or "")
