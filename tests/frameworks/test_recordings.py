"""Recordings of real frameworks are complete: each has its truth, and none identifies the machine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.frameworks import truth
from tests.frameworks.model import Script
from tests.frameworks.shop import BY_NAME, PURE, SCENARIOS
from tests.frameworks.styles import STYLES, speak

HERE = Path(__file__).resolve().parent
RECORDINGS = HERE.parent / "evidence/frameworks"
TRUTH = json.loads((RECORDINGS / "truth.json").read_text())
MESSAGES = json.loads((RECORDINGS / "messages/truth.json").read_text())
COMBINATIONS = yaml.load((HERE / "combinations.yaml").read_text(), Loader=yaml.CSafeLoader)
ENVIRONMENTS = yaml.load((HERE / "environments.yaml").read_text(), Loader=yaml.CSafeLoader)["environments"]


def read(name: str) -> list[dict[str, Any]]:
    return json.loads((RECORDINGS / f"{name}.json").read_text())


@pytest.mark.parametrize("name", TRUTH)
def test_every_trace_of_the_truth_is_in_its_recording(name: str) -> None:
    spans = truth.spans_of(read(name))
    found = {span["traceId"] for span in spans}
    traces = {**TRUTH[name]["traces"], **TRUTH[name].get("plain", {})}
    assert set(traces) <= found
    assert {other for trace in traces.values() for other in [*trace["others"], *trace.get("stray", [])]} <= found
    assert len({trace["scenario"] for trace in traces.values()}) == len(traces) >= 6
    services = {
        a["value"]["stringValue"]
        for r in read(name)
        for s in r.get("resourceSpans", [])
        for a in s["resource"]["attributes"]
        if a["key"] == "service.name"
    }
    assert services == {name}


def test_every_recording_has_its_truth_and_its_row() -> None:
    files = {path.stem for path in RECORDINGS.glob("*.json") if not path.stem.startswith("truth")}
    assert set(TRUTH) <= files
    assert set(TRUTH) <= set(COMBINATIONS)
    assert {path.stem for path in (RECORDINGS / "messages").glob("*.json") if not path.stem.startswith("truth")} >= set(MESSAGES)


def test_every_environment_of_the_table_is_pinned() -> None:
    named = {row["environment"] for row in COMBINATIONS.values() if "environment" in row}
    assert named == set(ENVIRONMENTS)
    loose = [package for packages in ENVIRONMENTS.values() for package in packages if "==" not in package]
    assert loose == []


@pytest.mark.parametrize("path", sorted(RECORDINGS.rglob("*.json")), ids=lambda path: path.stem)
def test_no_recording_identifies_a_machine(path: Path) -> None:
    text = path.read_text()
    assert not re.findall(r"/(?:root|tmp|Users|private)/[^\"\s]{0,40}|/home/(?!app)[^\"\s]{0,40}|\.pyenv", text)
    assert not re.findall(r'"(?:host\.name|process\.pid|process\.command_line|process\.owner)"', text)


@pytest.mark.parametrize("kind", MESSAGES)
def test_every_message_list_has_the_scenarios_of_its_truth(kind: str) -> None:
    documents = json.loads((RECORDINGS / f"messages/{kind}.json").read_text())
    assert set(documents) == {*MESSAGES[kind]["scenarios"], *MESSAGES[kind].get("plain", {})}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_style_of_the_model_has_the_same_meaning(style: str, scenario: Any) -> None:
    meant = [call for spoken in speak(scenario, style) for call in spoken.means.calls]
    wanted = [call for turn in scenario.turns for step in turn.steps for call in step.calls]
    assert [(truth.bare(name), arguments) for name, arguments in meant] == wanted
    assert [spoken.means.text for spoken in speak(scenario, style) if spoken.means.text] == [turn.steps[-1].text for turn in scenario.turns]


def follow(name: str, *, skip: str = "") -> tuple[Script, list[dict[str, Any]]]:
    """Run the script to its end with a loop that calls every tool but one."""
    script, tools = Script(), []
    script.begin(name)
    while script.left:
        for tool, arguments in script.next("m").means.calls:
            if tool != skip:
                failed = arguments.get("id") == 99
                outcome = {"error": "not found"} if failed else {"result": PURE[tool](**arguments)}
                tools.append({"scenario": name, "name": tool, "arguments": arguments, **outcome})
    return script, tools


def test_the_facts_come_from_model_and_tools() -> None:
    script, tools = follow("multi")
    facts = truth.happened(script, tools)["multi"]
    assert [call["name"] for call in facts["calls"]] == ["lookup_order", "refund"]
    assert facts["usage"] == [420, 42]
    assert [turn["calls"] for turn in facts["turns"]] == [["lookup_order"], ["refund"]]
    assert truth.problems({"multi": facts}, script) == []


def test_an_agent_that_ignores_the_script_is_not_recorded() -> None:
    script, tools = follow("sequential", skip="refund")
    assert truth.problems(truth.happened(script, tools), script) == [("sequential", "refund was not called")]
    script = Script()
    script.begin("error")
    script.next("m")
    problems = dict(truth.problems(truth.happened(script, []), script))
    assert problems["error"] == "refund was not called"
    assert set(BY_NAME) >= set(problems)


def span(**fields: Any) -> dict[str, Any]:
    return {"name": "s", "spanId": "1", "traceId": "t", "attributes": {}, "events": [], "logs": [], "scope": "x", "ms": 9.0, **fields}


def test_tools_that_are_only_defined_are_hidden() -> None:
    script, tools = follow("error")
    facts = truth.happened(script, tools)["error"]
    defined = span(attributes={"gen_ai.tool.definitions": '[{"name": "refund"}]', "gen_ai.usage.input_tokens": 100})
    assert truth.carry(facts, [defined], {})["hidden"]
    called = span(name="execute_tool refund", attributes={"gen_ai.tool.name": "refund"}, status={"code": 2})
    assert truth.carry(facts, [defined, called], {})["calls"] == [{"name": "refund", "failed": True, "timed": True}]
