"""The simulated systems of a service as MCP servers: the same requests, events, limits and state, by calls of tools."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.rest.services import ADDRESS, Service
from tests.rest.verial import Author
from tests.rest.verification.test_sandboxes import Agent, appointment, benchmark, environment

_IDS = itertools.count(1)


@pytest.fixture
def author(service: Service) -> Author:
    return Author(service, service.keys()["organization"])


def speak(service: Service, path: str, token: str | None, method: str, *, status: int = 200, **params: Any) -> Any:
    """Send one message of MCP, and return its result, or its error."""
    headers = {"accept": "application/json", "content-type": "application/json"}
    sent = {"jsonrpc": "2.0", "id": next(_IDS), "method": method, "params": params}
    answer = service.ask("POST", path, key=token, json=sent, headers=headers)
    assert answer.status_code == status, answer.text
    message = answer.json()
    return message.get("result") or message.get("error")


class ToolAgent(Agent):
    """An agent with tools only, which sends no other request."""

    def call(self, tool: str, **arguments: Any) -> Any:
        return speak(self.service, self.at("mcp"), self.token, "tools/call", name=tool, arguments=arguments)

    def work(self, patient: str = "ann") -> None:
        for tool, arguments in (
            ("files_read", {"path": "inbox/referral.json"}),
            ("fhir_create", {"resource": appointment(patient)}),
            ("files_write", {"path": "outbox/done.json", "content": '{"patient": "ann"}'}),
        ):
            result = self.call(tool, **arguments)
            assert not result["isError"], result


def test_the_day_of_an_agent_that_has_tools(author: Author) -> None:
    agent = ToolAgent(author, benchmark(author, environment(author)))
    error = speak(agent.service, agent.at("mcp"), agent.token, "tools/list", status=409)
    assert "start one first" in error["message"]
    agent.start()
    tools = speak(agent.service, agent.at("mcp"), agent.token, "tools/list")["tools"]
    assert {"fhir_search", "fhir_create", "files_read", "files_write"} <= {tool["name"] for tool in tools}
    assert all(tool["inputSchema"]["type"] == "object" for tool in tools)
    agent.work()
    events = author.get(f"/sandboxes/{agent.sandbox('Files')['id']}/events")["data"]
    assert [(event["method"], event["path"], event["status"]) for event in reversed(events)][1:] == [
        ("GET", "/inbox/referral.json", 200),
        ("PUT", "/outbox/done.json", 201),
    ]
    held = agent.complete()
    assert held.pop("verdict") == "pass" and set(held.values()) == {True}
    speak(agent.service, agent.at("mcp"), agent.token, "tools/list", status=409)


def test_a_refusal_of_a_system_is_an_error_for_the_model(author: Author) -> None:
    agent = ToolAgent(author, benchmark(author, environment(author)))
    agent.start()
    gone = agent.call("fhir_read", resource_type="Patient", id="nobody")
    assert gone["isError"] and "OperationOutcome" in gone["content"][0]["text"]
    assert agent.call("fhir_read", resource_type="Patient")["content"][0]["text"] == "fhir_read needs id"
    wrong = agent.call("fhir_search", resource_type="Patient", serach={})
    assert wrong["isError"] and "nearest: search" in wrong["content"][0]["text"]
    unknown = agent.call("fhir_serch", resource_type="Patient")
    assert (unknown["code"], "fhir_search" in unknown["message"]) == (-32602, True)
    events = author.get(f"/sandboxes/{agent.sandbox('FHIR')['id']}/events")["data"]
    assert [(event["path"], event["status"]) for event in events] == [("/Patient/nobody", 404)], "what fits no schema is no request"


def test_a_sandbox_is_a_server_of_its_own(author: Author) -> None:
    simulator = author.post("/simulators", {"name": "shop", "type": "Records", "config": {"seed": {"orders": [{"id": "7"}]}}})
    made = author.post("/sandboxes", {"simulator_id": simulator["id"]})
    url, token = made["credentials"]["mcp_url"], made["credentials"]["token"]
    assert url == f"{ADDRESS}/sandboxes/{made['id']}/mcp"
    tools = speak(author.service, url, token, "tools/list")["tools"]
    assert {tool["name"].partition("_")[0] for tool in tools} == {"records"}
    arguments = {"collection": "orders", "row": {"note": f"my token is {token}"}}
    added = speak(author.service, url, token, "tools/call", name="records_create", arguments=arguments)
    assert not added["isError"]
    assert author.get(f"/sandboxes/{made['id']}/diff")["added"]
    (event,) = author.get(f"/sandboxes/{made['id']}/events")["data"]
    assert token not in str(event), "an event keeps no token"
    author.post(f"/sandboxes/{made['id']}/teardown")
    speak(author.service, url, token, "tools/list", status=401)
    speak(author.service, url, author.key, "tools/list", status=409)


def test_messages_count_as_requests(tmp_path: Path) -> None:
    with Service(f"sqlite:///{tmp_path / 'p.db'}", tmp_path, sandbox_requests_per_minute=3) as service:
        author = Author(service, service.keys()["organization"])
        simulator = author.post("/simulators", {"name": "drop", "type": "Files"})
        made = author.post("/sandboxes", {"simulator_id": simulator["id"]})
        for status in (200, 200, 200, 429):
            speak(service, made["credentials"]["mcp_url"], made["credentials"]["token"], "tools/list", status=status)
