"""n8n: executions that a real one (2.8.4) recorded, found by the request id."""

from __future__ import annotations

import asyncio
import copy
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
from tests.targets.loopback import Player, ReceivedRequest, Recorder, Reply, attempt, serve

SAMPLES = Path(__file__).parents[2] / "evidence/samples/n8n"
KEY = "n8n-api-key-secret"


def execution(name: str, request_id: str, **changes: Any) -> dict[str, Any]:
    """A recorded execution, with this request id."""
    document = json.loads((SAMPLES / f"n8n-2.8.4-execution-{name}.json").read_text())
    document["data"]["resultData"]["runData"]["Webhook"][0]["data"]["main"][0][0]["json"]["headers"]["x-request-id"] = request_id
    return {**document, **changes}


class N8n:
    """The part of n8n that a target uses: a webhook, and pages of executions that become visible one poll after another."""

    def __init__(self, *looks: list[dict[str, Any]], webhook: Reply | None = None, cursors: bool = False) -> None:
        self.looks = list(looks)
        self.webhook = webhook or Reply(body={"output": "from the webhook"})
        self.cursors = cursors
        self.polls: list[ReceivedRequest] = []
        self.triggers: list[ReceivedRequest] = []

    def __call__(self, request: ReceivedRequest) -> Reply:
        if not request.path.startswith("/api/v1/executions"):
            self.triggers.append(request)
            return self.webhook
        self.polls.append(request)
        if request.headers.get("x-n8n-api-key") != KEY:
            return Reply(status=401, body={"message": "unauthorized"})
        page = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return Reply(body={"data": page, "nextCursor": "next" if self.cursors and self.looks else None})


def drive(n8n: N8n, go: Any, tape: Any = LIVE, *, api: bool = True, **settings: Any) -> Evidence:
    async def run() -> Evidence:
        async with serve(n8n) as server:
            more = {"api": server.url, "api_key": KEY, "poll_every_s": 0, "workflow_id": "wf1"} if api else {}
            target = build_target("flow", {"type": "n8n", "webhook": f"{server.url}/webhook/agent", **more, **settings})
            await target.open()
            try:
                return await target.run(go, tape)
            finally:
                await target.close()

    return asyncio.run(run())


def claims(status: int) -> dict[str, Any]:
    return {"assertions": (Assertion(check="http_status", spec=HttpStatus(status=status)),)}


def refused(n8n: N8n, go: Any, **more: Any) -> TargetFault:
    with pytest.raises(TargetFault) as caught:
        drive(n8n, go, **more)
    return caught.value


def test_the_webhook_gets_message_and_ids_and_the_execution_is_found() -> None:
    ours, other = execution("ai-agent-tool", "request-a-0001"), execution("order-confirmed", "other-id")
    n8n = N8n([other], [other, ours], webhook=Reply(status=201, body={"output": "hi"}))
    evidence = drive(n8n, attempt("What is 2+3*4? Then confirm my order."))
    (trigger,) = n8n.triggers
    assert (trigger.method, trigger.path) == ("POST", "/webhook/agent")
    message = "What is 2+3*4? Then confirm my order."
    assert trigger.json == {"chatInput": message, "sessionId": "session-a-0001", "requestId": "request-a-0001"}
    assert (trigger.headers["x-request-id"], trigger.headers["x-session-id"]) == ("request-a-0001", "session-a-0001")
    assert len(n8n.polls) == 2
    assert n8n.polls[0].path == "/api/v1/executions?includeData=true&limit=20&workflowId=wf1"
    assert evidence.case == "case-1" and evidence.text == "The result is 14. Order #1001 confirmed."
    assert [call.name for call in evidence.tool_calls or ()] == ["Calculator"]
    assert evidence.http_status == 201, "the webhook's own status"
    assert evidence.duration_ms is not None and evidence.duration_ms < 1000, "the webhook's own time, not that of the recording"
    assert evidence.now == "2026-11-15T00:31:42.997Z"
    assert evidence.metadata["execution_id"] == "2" and evidence.metadata["webhook_answer"] == {"output": "hi"}


def test_a_running_execution_is_awaited() -> None:
    running = execution("ai-agent-tool", "request-a-0001", finished=False, status="running", stoppedAt=None)
    n8n = N8n([running], [running], [execution("ai-agent-tool", "request-a-0001")])
    assert drive(n8n, attempt("hi")).metadata["status"] == "success"
    assert len(n8n.polls) == 3


def test_a_failed_execution_is_evidence_of_an_error() -> None:
    failed = [execution("err", "request-a-0001")]
    reply = Reply(status=500, body={"message": "Error in workflow"})
    evidence = drive(N8n(failed, webhook=reply), attempt("hi", **claims(500)))
    assert evidence.http_status == 500 and evidence.error is not None and evidence.metadata["status"] == "error"
    fault = refused(N8n(failed, webhook=reply), attempt("hi"))
    assert (fault.code, fault.message) == (
        "http_status",
        'the agent answered status 500, which is not an answer: {"message":"Error in workflow"}',
    )
    assert fault.evidence is not None and fault.evidence.nodes is not None, "the evidence of the execution is not lost"


def test_every_turn_has_its_own_execution() -> None:
    pages = [execution("ai-agent-tool", f"request-a-0001-{n}", id=str(n)) for n in (2, 1)]
    evidence = drive(N8n(pages), attempt("one", "two"))
    assert evidence.turns is not None
    assert [turn.metadata["execution_id"] for turn in evidence.turns] == ["1", "2"]
    assert [turn.input for turn in evidence.turns] == ["one", "two"]
    assert [call.name for call in evidence.tool_calls or ()] == ["Calculator", "Calculator"]


def test_older_pages_are_searched_up_to_a_limit() -> None:
    other, ours = execution("order-confirmed", "else"), execution("ai-agent-tool", "request-a-0001")
    n8n = N8n([other], [other], [ours], cursors=True)
    assert drive(n8n, attempt("hi")).metadata["execution_id"] == "2"
    assert [poll.path.endswith("&cursor=next") for poll in n8n.polls] == [False, True, True]
    endless = N8n(*[[other]] * 5, [ours], cursors=True)
    drive(endless, attempt("hi"))
    assert [poll.path.endswith("&cursor=next") for poll in endless.polls] == [False, True, True, True, True, False]


def test_a_missing_execution_is_a_fault_at_the_time_limit() -> None:
    with pytest.raises(TargetFault, match=r"'request-a-0001' .* 0\.1 s") as caught:
        drive(N8n([execution("order-confirmed", "else")]), attempt("hi"), poll_for_s=0.1, poll_every_s=0.02)
    assert caught.value.code == "no_execution"
    waiting = execution("ai-agent-tool", "request-a-0001", finished=False, status="waiting", stoppedAt=None)
    with pytest.raises(TargetFault, match="execution 2 ") as caught:
        drive(N8n([waiting]), attempt("hi"), poll_for_s=0.1, poll_every_s=0.02)
    assert caught.value.code == "no_execution"


def test_a_wrong_key_is_a_fault_that_does_not_show_it() -> None:
    with pytest.raises(TargetFault, match="401") as caught:
        drive(N8n([]), attempt("hi"), api_key="wrong-key-value")
    assert caught.value.code == "unauthorized" and "wrong-key-value" not in str(caught.value)


def test_an_api_response_without_a_list_is_a_fault() -> None:
    def answer(request: ReceivedRequest) -> Reply:
        return Reply(data=b"<html>") if request.path.startswith("/api") else Reply(body={"ok": True})

    with pytest.raises(TargetFault) as caught:
        drive(answer, attempt("hi"))  # type: ignore[arg-type]
    assert caught.value.code == "bad_answer"


def test_an_unknown_webhook_is_not_looked_up() -> None:
    n8n = N8n([], webhook=Reply(status=404, body={"code": 404, "message": "The requested webhook is not registered."}))
    evidence = drive(n8n, attempt("hi", **claims(404)))
    assert (evidence.http_status, evidence.text, n8n.polls) == (404, "The requested webhook is not registered.", [])
    assert refused(n8n, attempt("hi")).code == "http_status" and n8n.polls == []


@pytest.mark.parametrize("status", [401, 403])
def test_a_webhook_that_refuses_the_caller_is_not_looked_up(status: int) -> None:
    headers = {"www-authenticate": 'Basic realm="Webhook"', "content-type": "text/plain"}
    n8n = N8n([], webhook=Reply(status=status, data=b"Authorization data is wrong!", headers=headers))
    evidence = drive(n8n, attempt("hi", **claims(status)))
    assert (evidence.http_status, evidence.text, n8n.polls) == (status, "Authorization data is wrong!", [])


def test_a_workflow_that_answers_403_itself_is_looked_up() -> None:
    n8n = N8n([execution("order-confirmed", "request-a-0001")], webhook=Reply(status=403, body={"message": "not yours"}))
    evidence = drive(n8n, attempt("hi", **claims(403)))
    assert evidence.http_status == 403 and [node.name for node in evidence.nodes or ()][-1] == "Respond"


def test_an_execution_of_a_chat_trigger_is_found_by_the_id_in_its_body() -> None:
    ours, other = execution("ai-agent-tool", "unused"), execution("ai-agent-tool", "unused")
    for document, request_id in ((ours, "request-a-0001"), (other, "request-b-0001")):
        # The trigger of 2.8.4 returns exactly the body that it received.
        sent = {"chatInput": "hi", "sessionId": "session-a-0001", "requestId": request_id}
        document["data"]["resultData"]["runData"]["Webhook"][0]["data"]["main"][0][0]["json"] = sent
        document["id"] = request_id
    evidence = drive(N8n([other, ours]), attempt("hi"))
    assert (evidence.metadata["execution_id"], evidence.input) == ("request-a-0001", "hi")


def test_after_a_respond_node_the_answer_is_the_webhook_response() -> None:
    page = [execution("order-confirmed", "request-a-0001")]
    evidence = drive(N8n(page, webhook=Reply(status=201, body={"message": "Order of tea confirmed", "stock": 3})), attempt("hi"))
    assert (evidence.text, evidence.body) == ("Order of tea confirmed", {"message": "Order of tea confirmed", "stock": 3})
    assert evidence.http_status == 201 and evidence.nodes is not None
    agent = [execution("ai-agent-tool", "request-a-0001")]
    evidence = drive(N8n(agent, webhook=Reply(body={"reply": "wrapped"})), attempt("hi"))
    assert evidence.text == "The result is 14. Order #1001 confirmed.", "an agent's answer is its own"


def test_without_the_api_only_the_answer_is_known() -> None:
    evidence = drive(N8n([], webhook=Reply(body=[{"output": "from the last node"}])), attempt("hi"), api=False)
    assert (evidence.text, evidence.http_status, evidence.tool_calls) == ("from the last node", 200, None)
    evidence = drive(N8n([], webhook=Reply(body={"a": {"b": "deep"}})), attempt("hi"), api=False, response_path="a.b")
    assert evidence.text == "deep"


def stream(*pieces: tuple[str, str | None]) -> Reply:
    lines = [
        {"type": kind, **({"content": content} if content is not None else {}), "metadata": {"nodeName": "A"}} for kind, content in pieces
    ]
    return Reply(data="".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode())


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([("begin", None), ("item", "Your "), ("item", "order"), ("end", None)], "Your order"),
        ([("begin", None), ("item", "Let me see."), ("end", None), ("begin", None), ("item", "14"), ("end", None)], "14"),
        ([("begin", None), ("item", "14"), ("end", None), ("begin", None), ("end", None)], "14"),
        ([("item", "no beginning")], "no beginning"),
    ],
)
def test_a_streamed_answer_is_joined(pieces: list[tuple[str, str | None]], text: str) -> None:
    evidence = drive(N8n([], webhook=stream(*pieces)), attempt("hi"), api=False)
    assert (evidence.text, evidence.error) == (text, None)


@pytest.mark.parametrize(
    ("pieces", "why"),
    [
        ([("begin", None), ("error", "the model is broken")], "the model is broken"),
        ([("begin", None), ("item", "half of")], "the stream stopped before the agent had ended"),
        ([("begin", None), ("end", None), ("begin", None), ("item", "half of")], "the stream stopped before the agent had ended"),
    ],
)
def test_an_aborted_stream_is_no_answer(pieces: list[tuple[str, str | None]], why: str) -> None:
    fault = refused(N8n([], webhook=stream(*pieces)), attempt("hi"), api=False)
    assert (fault.code, fault.message) == ("agent_failed", f"the workflow failed while it answered: {why}")


@pytest.mark.parametrize("lines", ['{"type":"begin"}\n{"type":"chapter","content":"one"}\n', '{"type":"begin"}\n{"type":"it'])
def test_invalid_stream_lines_are_a_fault(lines: str) -> None:
    assert refused(N8n([], webhook=Reply(data=lines.encode())), attempt("hi"), api=False).code == "bad_answer"


def test_a_trace_inside_the_response_is_read() -> None:
    trace = copy.deepcopy(execution("ai-agent-tool", "x"))
    for body in (trace, [trace]):
        evidence = drive(N8n([], webhook=Reply(body=body)), attempt("hi"), api=False)
        assert [call.name for call in evidence.tool_calls or ()] == ["Calculator"]
        assert evidence.text == "The result is 14. Order #1001 confirmed."


def test_a_recording_has_only_our_execution_and_replays_without_waiting() -> None:
    tape = Recorder()
    other, ours = execution("order-confirmed", "other-id"), execution("ai-agent-tool", "request-a-0001")
    recorded = drive(N8n([other], [other, ours]), attempt("hi"), tape)
    assert [kind for kind, *_ in tape.exchanges] == ["http", "http"]
    assert "other-id" not in repr(tape.exchanges) and KEY not in repr(tape.exchanges) and "request-a-0001" not in repr(tape.exchanges)

    async def again() -> Evidence:
        base = tape.exchanges[0][1]["url"].removesuffix("/webhook/agent")
        target = build_target(
            "flow", {"type": "n8n", "webhook": f"{base}/webhook/agent", "api": base, "api_key": "another", "workflow_id": "wf1"}
        )
        await target.open()
        try:
            return await target.run(attempt("hi", marker="b"), Player(tape.exchanges))
        finally:
            await target.close()

    replayed = asyncio.run(again())
    assert replayed.metadata["request_id"] == "request-b-0001"
    assert (replayed.text, replayed.tool_calls, replayed.duration_ms) == (recorded.text, recorded.tool_calls, recorded.duration_ms)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"webhook": "ftp://x/y"}, "webhook: expected an address"),
        ({"webhook": "http://x/y", "api": "http://x"}, "reading executions needs both"),
        ({"webhook": "http://x/y", "api_key": "k"}, "reading executions needs both"),
        ({"webhook": "http://x/y", "poll_for_s": 0}, "poll_for_s: expected a number above 0"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_target("flow", {"type": "n8n", **settings})
