"""The n8n target on the real n8n: workflows with and without an agent, three generations of the agent node, every way to be refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.serving import serving
from tests.platforms.driving import Verdicts, proctor_run, read_output_files
from tests.platforms.n8n_world import N8nWorld, n8n_running
from tests.platforms.server import ask, wanted
from tests.platforms.stub_model import StubModel

pytestmark = [pytest.mark.platform, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def n8n(n8n_home: Path, model: StubModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[N8nWorld]:
    with n8n_running(n8n_home, tmp_path_factory.mktemp("n8n"), model.url) as world:
        yield world


def target(n8n: N8nWorld, workflow: str, **more: Any) -> dict[str, Any]:
    path = "chat-for-tests/chat" if workflow == "chat" else workflow
    return {
        "type": "n8n",
        "webhook": f"{n8n.url}/webhook/{path}",
        "api": n8n.url,
        "api_key": "${N8N_KEY}",
        "workflow_id": n8n.workflows.get(workflow, "none"),
        "poll_for_s": 15,
        **more,
    }


def drive(n8n: N8nWorld, folder: Path, workflow: str, suite: str, *arguments: str, **more: Any) -> Verdicts:
    done = proctor_run(folder, {"flow": target(n8n, workflow, **more)}, suite, *arguments, environment={"N8N_KEY": n8n.key})
    assert n8n.key not in read_output_files(folder), "the key is written nowhere"
    return done


ORDERS = """\
proctor: 1
cases:
  - id: answer
    input: tea
    expect:
      - http_status: 201
      - response_equals: Order of tea confirmed
      - json_field: {field: stock, value: 3}
      - node_called: {name: Shop, arguments: {stock: 3, path: /shop/tea}}
      - node_called: {name: Read}
      - no_tools_called
      - responded_within: {ms: 20000}
  - id: request
    input: milk
    expect:
      - node_called: {name: Shop, arguments: {method: POST, url: {$contains: /shop/milk}}}
  - id: untrue
    input: salt
    expect:
      - node_called: Refund
      - response_contains: refused
"""


def test_a_workflow_without_ai_shows_its_nodes_and_its_respond_node_answers(n8n: N8nWorld, tmp_path: Path) -> None:
    done = drive(n8n, tmp_path, "orders", ORDERS)
    assert done.outcomes == {"answer": "pass", "request": "pass", "untrue": "fail"}, done.document
    assert done.code == 1
    assert "Refund" in done.why("untrue") and "Order of salt confirmed" in done.why("untrue")


AGENT = """\
proctor: 1
cases:
  - id: calculates
    input: calculate 2+3*4
    expect:
      - tool_called: Calculator
      - node_called: {name: AI Agent, tool_calls: [{name: Calculator}]}
      - node_called: Model
      - response_matches: '14.*Order #\\d{4,} confirmed'
      - http_status: 200
      - no_tool_errors
      - tokens_within: {total: 50, input: 40, output: 10}
  - id: two-at-once
    input: calculate 1+1 and 2+2
    expect:
      - tool_call_count: {name: Calculator, count: 2}
      - response_contains: Order
  - id: remembers
    turns:
      - {input: my name is Ada, expect: [no_tools_called, {response_equals: 'You sent: my name is Ada'}]}
      - {input: calculate 6*7, expect: [tool_called: Calculator, response_contains: '42']}
      - {input: first word of ours, expect: [response_equals: 'You began with: my name is Ada']}
    expect:
      - turns_within: 3
      - tool_call_count: {name: Calculator, count: 1}
  - id: another-session
    input: first word of ours
    expect: [response_equals: 'You began with: first word of ours']
  - id: untrue
    input: hello
    expect: [tool_called: Calculator]
  - id: broken
    input: break
    expect: [http_status: 200]
"""


@pytest.mark.parametrize("workflow", ["agent-1", "agent-2", "agent-3", "agent-3-steps", "chat", "stream"])
def test_agents_of_every_generation_show_their_tools_tokens_and_sessions(n8n: N8nWorld, tmp_path: Path, workflow: str) -> None:
    done = drive(n8n, tmp_path, workflow, AGENT)
    right = {"calculates", "two-at-once", "remembers", "another-session"}
    if workflow == "stream":
        right.add("broken")  # its status was sent before anything failed
    assert done.outcomes == {case: "pass" if case in right else "fail" for case in done.outcomes}, done.document
    assert len(done.outcomes) == 6
    assert workflow == "stream" or "500" in done.why("broken")


def test_an_n8n_recording_replays_without_n8n(n8n: N8nWorld, tmp_path: Path) -> None:
    live = drive(n8n, tmp_path, "agent-3", AGENT, "--record", "tape.jsonl")
    # The recording has n8n but not its model; no server listens at the address for the other key.
    again = proctor_run(
        tmp_path, {"flow": target(n8n, "agent-3")}, AGENT, "--replay", "tape.jsonl", environment={"N8N_KEY": "of another user"}
    )
    assert again.outcomes == live.outcomes
    assert n8n.key not in (tmp_path / "tape.jsonl").read_text(encoding="utf-8")


ANSWERS = """\
proctor: 1
cases:
  - {id: calculates, input: calculate 2+3*4, expect: [response_contains: '14', response_ends_with: 'Order #1001 confirmed.']}
  - id: remembers
    turns: [my name is Ada, {input: first word of ours, expect: [response_equals: 'You began with: my name is Ada']}]
  - {id: unseen, input: calculate 2+3*4, expect: [tool_called: Calculator]}
"""


@pytest.mark.parametrize("workflow", ["agent-1", "agent-3", "stream"])
def test_without_the_api_only_the_answer_is_seen(n8n: N8nWorld, tmp_path: Path, workflow: str) -> None:
    done = drive(n8n, tmp_path, workflow, ANSWERS, api=None, api_key=None, workflow_id=None)
    assert done.outcomes == {"calculates": "pass", "remembers": "pass", "unseen": "fail"}, done.document
    assert "tool calls" in done.why("unseen") and "missing_evidence" in done.why("unseen"), done.why("unseen")


ECHO = """\
proctor: 1
cases:
  - id: echo
    input: hello
    expect: [response_equals: hello, node_called: Done]
"""


def test_an_execution_that_continues_after_the_webhook_response_is_awaited(n8n: N8nWorld, tmp_path: Path) -> None:
    done = drive(n8n, tmp_path, "later", ECHO.replace("[response", "[node_called: Wait, response"))
    assert done.outcomes == {"echo": "pass"}, done.document


def test_all_workflows_are_searched_if_none_is_named(n8n: N8nWorld, tmp_path: Path) -> None:
    done = drive(n8n, tmp_path, "later", ECHO, "-n", "4", workflow_id=None)
    assert done.document["counts"]["pass"] == 4, done.document


def test_a_locked_webhook_needs_its_header(n8n: N8nWorld, tmp_path: Path) -> None:
    opened = drive(n8n, tmp_path / "opened", "locked", ECHO, auth={"type": "headers", "headers": {"x-door": "open-sesame"}})
    assert opened.outcomes == {"echo": "pass"}, opened.document
    assert "open-sesame" not in read_output_files(tmp_path / "opened"), "n8n repeats what its webhook received"
    closed = drive(n8n, tmp_path / "closed", "locked", ECHO.replace("response_equals: hello", "http_status: 403"), "--max-seconds", "60")
    assert closed.outcomes == {"echo": "fail"}, closed.document
    assert "Authorization data is wrong" in read_output_files(tmp_path / "closed" / ".proctor")


def test_unusable_settings_are_reported_clearly(n8n: N8nWorld, tmp_path: Path) -> None:
    unknown = drive(n8n, tmp_path / "unknown", "nowhere", ECHO)
    assert unknown.outcomes == {"echo": "fail"} and "404" in read_output_files(tmp_path / "unknown" / ".proctor")
    refused = proctor_run(tmp_path / "refused", {"flow": target(n8n, "later")}, ECHO, environment={"N8N_KEY": "no-such-key"})
    assert refused.outcomes == {"echo": "error"} and "refused the key (status 401)" in refused.why("echo")
    lost = drive(n8n, tmp_path / "lost", "later", ECHO, workflow_id=n8n.workflows["orders"], poll_for_s=1)
    assert lost.outcomes == {"echo": "error"} and "no_execution" in lost.why("echo")


PASSIVE = """\
proctor: 1
cases:
  - id: ordered
    expect:
      - node_called: {name: Shop, arguments: {stock: 3, path: /shop/tea}}
      - node_called: {name: Respond}
      - no_tools_called
  - id: untrue
    expect: [{node_called: Refund}]
"""
ONE = "proctor: 1\ncases:\n  - {id: one, input: tea, expect: [http_status: 201]}\n"


def test_a_forwarded_execution_is_evaluated_by_the_service(n8n: N8nWorld, tmp_path: Path) -> None:
    drive(n8n, tmp_path, "orders", ONE)
    workflow = n8n.workflows["orders"]
    listed = ask("GET", f"{n8n.url}/api/v1/executions?workflowId={workflow}&includeData=true&limit=1", headers={"x-n8n-api-key": n8n.key})
    (execution,) = wanted(listed, "executions")["data"]
    with serving(tmp_path, flags=("--quiet-period-s", "0")) as server:
        _, project = server.ask("POST", "/api/projects", {"name": "shop"})
        place = {"project_id": project["id"], "name": "orders", "kind": "n8n", "service_name": "orders", "external_ref": workflow}
        assert server.ask("POST", "/api/agents", place)[0] == 201
        assert server.ask("POST", "/api/cases", {"project_id": project["id"], "document": PASSIVE})[0] == 201
        _, key = server.ask("POST", "/api/keys", {"name": "n8n", "kind": "project", "project_id": project["id"]})
        body = {"data": execution, "metadata": {"workflowId": workflow}}
        status, response = server.ask("POST", "/public/traces", body, {"x-api-key": key["key"], "x-request-id": execution["id"]})
        assert status == 201, response
        outcomes: dict[str, str] = {}
        end = time.monotonic() + 30
        while outcomes != {"ordered": "pass", "untrue": "fail"}:
            assert time.monotonic() < end, outcomes
            time.sleep(0.2)
            _, page = server.ask("GET", f"/api/results?project_id={project['id']}")
            outcomes = {row["case_key"]: row["outcome"] for row in page["data"]}
