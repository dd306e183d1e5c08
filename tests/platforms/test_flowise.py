"""The Flowise target on the real Flowise: chatflows, a tool agent, agentflows, and every way to be refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.serving import serving
from tests.platforms.driving import Verdicts, proctor_run, read_output_files
from tests.platforms.flowise_world import FlowiseWorld, flowise_running
from tests.platforms.stub_model import StubModel

pytestmark = [pytest.mark.platform, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def flowise(flowise_home: Path, model: StubModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlowiseWorld]:
    with flowise_running(flowise_home, tmp_path_factory.mktemp("flowise"), model.url) as world:
        yield world


def target(flowise: FlowiseWorld, flow: str, **more: Any) -> dict[str, Any]:
    return {"type": "flowise", "url": flowise.url, "flow": flowise.flows.get(flow, flow), **more}


def drive(flowise: FlowiseWorld, folder: Path, flow: str, suite: str, *arguments: str, **more: Any) -> Verdicts:
    done = proctor_run(folder, {"flow": target(flowise, flow, **more)}, suite, *arguments, environment={"FLOWISE_KEY": flowise.key})
    assert flowise.key not in read_output_files(folder), "the key is written nowhere"
    return done


TALK = """\
proctor: 1
cases:
  - id: echo
    input: hello
    expect: [{response_equals: 'You sent: hello'}, {http_status: 200}, no_tools_called, {responded_within: 20000}]
  - id: remembers
    turns:
      - my name is Ada
      - {input: and again, expect: [response_equals: 'You sent: and again']}
      - {input: first word of ours, expect: [response_equals: 'You began with: my name is Ada']}
    expect: [turns_within: 3]
  - id: another-session
    input: first word of ours
    expect: [response_equals: 'You began with: first word of ours']
  - id: body
    body: {question: hello from a body}
    expect: [response_equals: 'You sent: hello from a body']
  - id: untrue
    input: hello
    expect: [response_contains: goodbye]
  - id: broken
    input: break
    expect: [http_status: 200]
"""
WRONG = {"untrue", "broken"}


def expected(done: Verdicts) -> dict[str, str]:
    return {case: "fail" if case in WRONG else "pass" for case in done.outcomes}


def test_a_chatflow_separates_sessions(flowise: FlowiseWorld, tmp_path: Path) -> None:
    done = drive(flowise, tmp_path, "talk", TALK)
    assert len(done.outcomes) == 6 and done.outcomes == expected(done), done.document
    assert done.code == 1
    assert "500" in done.why("broken")


TOOLS = """\
proctor: 1
cases:
  - id: calculates
    input: calculate 2+3*4
    expect:
      - tool_called: {name: calculator, arguments: {input: 2+3*4}}
      - response_matches: '14.*Order #\\d{4,} confirmed'
      - no_tool_errors
  - id: two-at-once
    input: calculate 1+1 and 2+2
    expect:
      - tool_call_count: {name: calculator, count: 2}
      - tool_calls_match: [{name: calculator, arguments: {input: 1+1}}, {name: calculator, arguments: {input: 2+2}}]
      - response_contains: 2 and 4
  - id: remembers
    turns:
      - {input: my name is Ada, expect: [no_tools_called]}
      - {input: calculate 6*7, expect: [tool_called: calculator, response_contains: '42']}
      - {input: first word of ours, expect: [response_equals: 'You began with: my name is Ada']}
    expect: [tool_call_count: {name: calculator, count: 1}]
  - id: untrue
    input: hello
    expect: [tool_called: calculator]
  - id: broken
    input: break
    expect: [http_status: 200]
"""
NODES = """\
  - id: nodes
    input: calculate 2+3*4
    expect:
      - node_called: Start
      - node_called: {name: Order Agent, tool_calls: [{name: calculator, arguments: {input: 2+3*4}}]}
      - node_called: {name: Refund Agent, condition: not_called}
      - tokens_within: {total: 100}
"""


@pytest.mark.parametrize(("flow", "suite"), [("tools", TOOLS), ("agentflow", TOOLS + NODES)])
def test_agents_show_their_tools(flowise: FlowiseWorld, tmp_path: Path, flow: str, suite: str) -> None:
    done = drive(flowise, tmp_path, flow, suite)
    assert len(done.outcomes) == suite.count("- id: ") and done.outcomes == expected(done), done.document


SHOP = """\
proctor: 1
cases:
  - id: order
    input: tea
    expect:
      - response_contains: 'The shop says: '
      - response_contains: '"stock": 3'
      - node_called: Shop
      - node_called: {name: Reply, index: -1}
      - no_tools_called
"""


def test_an_agentflow_without_a_model_shows_its_nodes(flowise: FlowiseWorld, tmp_path: Path) -> None:
    done = drive(flowise, tmp_path, "shop", SHOP)
    assert done.outcomes == {"order": "pass"}, done.document


def test_a_flowise_recording_replays_without_flowise(flowise: FlowiseWorld, tmp_path: Path, model: StubModel) -> None:
    live = drive(flowise, tmp_path, "locked", TALK, "--record", "tape.jsonl", api_key="${FLOWISE_KEY}")
    before = len(model.requests)
    again = proctor_run(
        tmp_path,
        {"flow": target(flowise, "locked", api_key="${FLOWISE_KEY}")},
        TALK,
        "--replay",
        "tape.jsonl",
        environment={"FLOWISE_KEY": "of another user"},
    )
    assert again.outcomes == live.outcomes == expected(live)
    assert len(model.requests) == before, "nothing was sent"


ONE = "proctor: 1\ncases:\n  - {id: one, input: hello, expect: [http_status: 200, response_contains: hello]}\n"


def test_a_locked_flow_needs_its_key(flowise: FlowiseWorld, tmp_path: Path) -> None:
    opened = drive(flowise, tmp_path / "opened", "locked", ONE, api_key="${FLOWISE_KEY}")
    assert opened.outcomes == {"one": "pass"}, opened.document
    for name, more in (("without", {}), ("wrong", {"api_key": "no-such-key-at-all"})):
        closed = drive(flowise, tmp_path / name, "locked", ONE, **more)
        assert closed.outcomes == {"one": "fail"} and "Unauthorized" in closed.why("one"), closed.document


def test_an_unknown_flow_fails_the_case_with_a_reason(flowise: FlowiseWorld, tmp_path: Path) -> None:
    done = drive(flowise, tmp_path, "5f1c2e9a-3b7d-4c55-9a41-0d9f0f6a7c11", ONE)
    assert done.outcomes == {"one": "fail"} and "not found" in done.why("one"), done.document


PASSIVE = """\
proctor: 1
cases:
  - id: sums
    expect:
      - tool_called: {name: calculator, arguments: {input: 2+3*4}}
      - response_matches: '14.*Order #\\d{4,} confirmed'
      - tokens_within: {total: 100}
      - responded_within: 20000
  - id: untrue
    expect: [{response_contains: goodbye}]
"""


def test_traces_of_its_phoenix_exporter_are_evaluated_by_the_service(flowise: FlowiseWorld, tmp_path: Path) -> None:
    with serving(tmp_path, flags=("--quiet-period-s", "1")) as server:
        _, project = server.ask("POST", "/api/projects", {"name": "shop"})
        place = {"project_id": project["id"], "name": "shop", "kind": "flowise", "service_name": "shop"}
        _, agent = server.ask("POST", "/api/agents", place)
        status, response = server.ask("POST", "/api/cases", {"project_id": project["id"], "document": PASSIVE})
        assert status == 201, response
        restricted = {"name": "flowise", "kind": "project", "project_id": project["id"], "agent_ids": [agent["id"]]}
        status, key = server.ask("POST", "/api/keys", restricted)
        assert status == 201, key
        flowise.trace("agentflow", endpoint=server.url, key=key["key"], project="shop")
        answer = flowise.predict("agentflow", "calculate 2+3*4")
        assert "14" in answer["text"]
        outcomes: dict[str, str] = {}
        end = time.monotonic() + 60
        while outcomes != {"sums": "pass", "untrue": "fail"}:
            assert time.monotonic() < end, outcomes
            time.sleep(0.5)
            _, page = server.ask("GET", f"/api/results?project_id={project['id']}")
            outcomes = {row["case_key"]: row["outcome"] for row in page["data"]}
