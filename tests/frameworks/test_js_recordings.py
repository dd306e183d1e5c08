"""Recordings of JavaScript frameworks are consistent: each has its truth, each truth its trace, and none identifies the machine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.js import wires

HERE = Path(__file__).resolve().parent / "js"
EVIDENCE = Path(__file__).resolve().parents[1] / "evidence" / "frameworks"
TABLE: dict[str, Any] = json.loads((HERE / "combinations.json").read_text())
SCENARIOS: dict[str, Any] = json.loads((HERE / "scenarios.json").read_text())["scenarios"]
TRUTH: dict[str, Any] = json.loads((EVIDENCE / "truth-js.json").read_text())
MESSAGES: dict[str, Any] = json.loads((EVIDENCE / "messages" / "truth-js.json").read_text())
MACHINE = re.compile(r"/(?:work|root|home|tmp)/|(?:127\.0\.0\.1|localhost):(?!8080)\d{4,5}|host\.name|process\.pid")


def read_trace_ids(name: str) -> set[str]:
    requests: list[Any] = json.loads((EVIDENCE / f"{name}.json").read_text())
    return {
        span["traceId"]
        for request in requests
        for resource in request.get("resourceSpans", [])
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    }


def test_the_table_and_the_recordings_match() -> None:
    rows = TABLE["combinations"]
    assert set(TRUTH) == {name for name, row in rows.items() if row.get("traces", True)}
    assert set(MESSAGES) == {kind for row in rows.values() for kind in row.get("messages", {})}
    assert {row["set"] for row in rows.values()} == set(TABLE["sets"])
    assert all(re.fullmatch(r".+@\d[\w.-]*", package) for packages in TABLE["sets"].values() for package in packages)
    assert {row["driver"] for row in rows.values()} == {path.stem.removeprefix("drive-") for path in HERE.glob("drive-*.mjs")}


@pytest.mark.parametrize("name", sorted(TRUTH))
def test_the_truth_covers_exactly_the_recorded_traces(name: str) -> None:
    traces = {trace: truth for part in ("traces", "plain", "apart") for trace, truth in TRUTH[name].get(part, {}).items()}
    recorded = set(traces) | {other for truth in traces.values() for other in truth["others"]}
    assert recorded == read_trace_ids(name)
    assert {truth["scenario"].split("-")[0] for truth in traces.values()} == set(SCENARIOS)


@pytest.mark.parametrize("file", [*sorted(TRUTH), *(f"messages/{kind}" for kind in sorted(MESSAGES))])
def test_no_file_identifies_the_machine(file: str) -> None:
    assert MACHINE.findall((EVIDENCE / f"{file}.json").read_text()) == []


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_the_scripted_model_follows_a_scenario_over_chat_completions(scenario: str) -> None:
    turns = SCENARIOS[scenario]
    messages: list[Any] = [{"role": "system", "content": "…"}]
    answers: list[str] = []
    for number, turn in enumerate(turns):
        messages.append({"role": "user", "content": turn["input"]})
        for step in range(len(turn["steps"]) + 1):
            position = wires.locate_in_chat({"messages": messages})
            assert position == (number, step)
            reply = wires.speak_chat(wires.plan_reply(turns, position, len(messages), "call"), {})
            assert isinstance(reply, dict)
            message = reply["choices"][0]["message"]
            messages.append(message)
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": "{}"} for call in message.get("tool_calls", [])]
        answers.append(messages[-1]["content"])
    assert answers == [turn["text"] for turn in turns]
