"""Calls on the service that the agent leads by webhooks, as the SDKs of Twilio make them."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from proctor.simulators.voice.webhooks import sign_request
from tests.rest.agent_site import AgentSite
from tests.rest.services import Service
from tests.rest.verial import Author
from tests.rest.verification.test_sandbox_kinds import ROWS, start
from tests.rest.verification.test_sandboxes import Agent

LOOPBACK = ("127.0.0.1",)


class Webhooks(AgentSite):
    """The agent's webhooks, each answered by the next document."""

    def __init__(self) -> None:
        self.documents: list[str] = []
        self.requests: list[tuple[dict[str, str], str | None]] = []
        super().__init__("/voice", self._answer)

    def _answer(self, method: str, headers: Mapping[str, str], sent: bytes) -> bytes:
        self.requests.append((dict(parse_qsl(sent.decode(), keep_blank_values=True)), headers.get("x-twilio-signature")))
        return f"<Response>{self.documents.pop(0)}</Response>".encode()


@pytest.fixture
def hooks() -> Iterator[Webhooks]:
    running = Webhooks()
    yield running
    running.close()


def call(agent: Agent, url: str) -> str:
    """Make a call as an SDK does, with the token as password; return its id."""
    word = base64.b64encode(f"AC1:{agent.token}".encode()).decode()
    form = {"To": "+18005550100", "From": "+15550100", "Url": url}
    path = agent.at("voice", "/2010-04-01/Accounts/AC1/Calls.json")
    answer = agent.service.post(path, data=form, headers={"authorization": f"Basic {word}"})
    assert answer.status_code == 201 and answer.json()["status"] == "queued", answer.text
    return answer.json()["sid"]


def wait_for_end(agent: Agent, id: str) -> dict[str, Any]:
    for _ in range(200):
        found = agent.ask("GET", agent.at("voice", f"/calls/{id}"))
        if found["status"] in ("completed", "failed"):
            return found
        time.sleep(0.02)
    raise AssertionError(f"the call does not end: {found}")


@pytest.mark.timeout(60)
def test_webhooks_lead_a_call_and_its_words_are_verified(database_url: str, tmp_path: Path, hooks: Webhooks) -> None:
    with Service(database_url, tmp_path, allowed_addresses=LOOPBACK) as service:
        agent = start(Author(service, service.keys()["organization"]), ROWS["voice"])
        listen = '<Gather input="speech"/>'
        hooks.documents = [listen, f"<Say>It is member W1.</Say>{listen}", "<Hangup/>"]
        # A lock held during a webhook would be a deadlock here.
        hooks.before_answer = lambda: agent.ask("GET", agent.at("voice", "/calls"))
        found = wait_for_end(agent, call(agent, hooks.address))
        assert [turn["text"] for turn in found["turns"]] == ["Member services.", "It is member W1.", "Active."]
        assert [fields.get("SpeechResult") for fields, _ in hooks.requests] == [None, "Member services.", "Active."]
        for fields, signature in hooks.requests:
            assert sign_request(hooks.address, fields.items(), agent.token) == {"x-twilio-signature": signature}
        assert agent.complete()["verdict"] == "pass"


@pytest.mark.timeout(60)
def test_a_call_ends_with_its_task_and_a_forbidden_address_is_never_contacted(database_url: str, tmp_path: Path, hooks: Webhooks) -> None:
    with Service(database_url, tmp_path, allowed_addresses=LOOPBACK) as service:
        author = Author(service, service.keys()["organization"])
        agent = start(author, ROWS["voice"])
        found = wait_for_end(agent, call(agent, "http://10.0.0.1/voice"))
        assert found["status"] == "failed"
        (made,) = agent.run["sandboxes"]
        responses = [event["response"] for event in author.get(f"/sandboxes/{made['id']}/events")["data"] if event["method"] == "WEBHOOK"]
        assert "refused" in responses[0]["problems"][0]
        reached = threading.Event()
        released = threading.Event()
        hooks.documents = ["<Say>too late</Say>"]
        hooks.before_answer = lambda: (reached.set(), released.wait(20))
        call(agent, hooks.address)
        assert reached.wait(20)
        assert agent.complete()["verdict"] == "fail"
        released.set()
        for _ in range(200):
            if not service.hub.sandbox_tasks:
                break
            time.sleep(0.02)
        assert not service.hub.sandbox_tasks and len(hooks.requests) == 1
        state = author.get(f"/sandboxes/{made['id']}/state")["state"]
        assert [turn["text"] for turn in state["voice"]["turns"]] == ["Member services."] * 2
