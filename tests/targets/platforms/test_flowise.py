"""Flowise: requests to it, and the prediction that a real one (3.1.2) returned."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from proctor.cassettes.ports import LIVE
from proctor.checks.run.limits import HttpStatus
from proctor.errors import InputError
from proctor.model.case import Assertion
from proctor.model.evidence import Evidence
from proctor.targets.build import build_target
from proctor.targets.shared.faults import TargetFault
from tests.targets.loopback import Answer, ReceivedRequest, Reply, attempt, serve

SAMPLE = json.loads((Path(__file__).parents[2] / "evidence/samples/flowise/flowise-3.1.2-prediction-agentflow-tool.json").read_text())


def drive(answer: Answer, go: Any, **settings: Any) -> tuple[Evidence, list[ReceivedRequest]]:
    async def run() -> tuple[Evidence, list[ReceivedRequest]]:
        async with serve(answer) as server:
            target = build_target("flow", {"type": "flowise", "url": server.url, "flow": "abc-1", **settings})
            await target.open()
            try:
                return await target.run(go, LIVE), server.requests
            finally:
                await target.close()

    return asyncio.run(run())


def test_the_question_is_sent_to_the_flow_and_the_response_is_a_prediction() -> None:
    evidence, requests = drive(lambda _: Reply(body=SAMPLE), attempt("What is 2+3*4? Then confirm my order."), api_key="flow-key")
    assert (requests[0].method, requests[0].path) == ("POST", "/api/v1/prediction/abc-1")
    assert requests[0].json == {"question": "What is 2+3*4? Then confirm my order.", "overrideConfig": {"sessionId": "session-a-0001"}}
    assert requests[0].headers["authorization"] == "Bearer flow-key"
    assert evidence.case == "case-1" and evidence.http_status == 200 and evidence.duration_ms is not None
    assert evidence.text == "The result is 14. Order #1001 confirmed."
    assert [call.name for call in evidence.tool_calls or ()] == ["calculator"]
    assert [node.name for node in evidence.nodes or ()][:2] == ["Start", "Order Agent"]
    assert evidence.metadata["chatId"] == "s-1" and evidence.metadata["request_id"] == "request-a-0001"


def test_turns_share_the_session_and_keep_other_overrides() -> None:
    evidence, requests = drive(
        lambda request: Reply(
            body={"text": request.json["question"].upper(), "chatId": "c", "question": "q", "usedTools": [{"tool": "t", "toolInput": {}}]}
        ),
        attempt("one", "two"),
        override_config={"temperature": 0, "sessionId": "overridden"},
    )
    assert [request.json["overrideConfig"] for request in requests] == [{"temperature": 0, "sessionId": "session-a-0001"}] * 2
    assert evidence.turns is not None and [turn.text for turn in evidence.turns] == ["ONE", "TWO"]
    assert [call.name for call in evidence.tool_calls or ()] == ["t", "t"]


def test_a_body_of_the_case_is_sent_exactly() -> None:
    _, requests = drive(lambda _: Reply(body={"text": "x"}), attempt(body={"question": "mine", "history": []}))
    assert requests[0].json == {"question": "mine", "history": []}


def test_a_flowise_error_is_evidence_only_if_its_status_is_claimed() -> None:
    refusal = Reply(status=500, body={"statusCode": 500, "success": False, "message": "Error: chatflow not found", "stack": {}})
    claim = Assertion(check="http_status", spec=HttpStatus(status=500))
    evidence, _ = drive(lambda _: refusal, attempt("hi", assertions=(claim,)))
    assert (evidence.http_status, evidence.text) == (500, "Error: chatflow not found")
    with pytest.raises(TargetFault, match="chatflow not found") as caught:
        drive(lambda _: refusal, attempt("hi"))
    assert caught.value.code == "http_status" and caught.value.evidence is not None and caught.value.evidence.text is None


def test_a_text_answer_is_a_text() -> None:
    reply = Reply(data=b"plain words", headers={"content-type": "text/plain"})
    assert drive(lambda _: reply, attempt("hi"))[0].text == "plain words"


def test_an_invalid_address_is_refused() -> None:
    with pytest.raises(InputError, match="url: expected an address such as"):
        build_target("flow", {"type": "flowise", "url": "localhost:3000", "flow": "a"})
    with pytest.raises(InputError, match="flow: the id of the flow is empty"):
        build_target("flow", {"type": "flowise", "url": "http://localhost:3000", "flow": ""})
