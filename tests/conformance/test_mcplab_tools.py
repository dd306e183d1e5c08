"""MCPLab's rules about tools and their inputs, against its own test vectors."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proctor.checks.registry import default_registry
from proctor.checks.tools.tool_arguments import ToolInputContains, ToolInputMatches, ToolInputPath
from proctor.checks.tools.tool_calls import ToolCalled, ToolNotCalled
from proctor.checks.tools.tool_order import ToolsExactly, ToolsInOrder
from proctor.errors import SpecError
from proctor.model.evidence import Evidence, ToolCall
from proctor.model.verdict import Verdict
from tests.builders import evidence
from tests.tables import load, rows


def decide(check: str, spec: msgspec.Struct, seen: Evidence) -> Verdict:
    return default_registry().prepare(check, spec)(seen)


@rows("conformance/mcplab/tools.yaml")
def test_rules_about_tools(row: dict[str, Any]) -> None:
    given = row["given"]
    available = tuple(given["available"]) if "available" in given else None
    seen = evidence(None, *given["observed"], available_tools=available)
    found: dict[str, Any] = {}
    for key, check, spec in (("forbidden", "tool_not_called", ToolNotCalled), ("required", "tool_called", ToolCalled)):
        if key in given:
            found[key] = [decide(check, spec(name=name, server_prefix=True), seen).outcome for name in given[key]]
    if "sequence" in given:
        verdict = decide("tools_in_order", ToolsInOrder(names=tuple(given["sequence"]), server_prefix=True), seen)
        found["sequence"] = verdict.outcome
        if "message" in row["expect"]:
            assert row["expect"]["message"] in verdict.reason
    if "allow" in given:
        allowed = tuple(tuple(names) for names in given["allow"])
        found["allow"] = decide("tools_exactly", ToolsExactly(any_of=allowed, server_prefix=True), seen).outcome
    assert found == {key: value for key, value in row["expect"].items() if key != "message"}


@rows("conformance/mcplab/tool_inputs.yaml")
def test_rules_about_tool_inputs(row: dict[str, Any]) -> None:
    given = row["given"]
    calls = given.get("calls", [{"name": "s", "arguments": {"q": "Paris", "n": 1}}])
    seen = evidence(None, *(msgspec.convert(call, ToolCall) for call in calls))
    if "contains" in given:
        check, spec = "tool_input_contains", msgspec.convert({"server_prefix": True, **given["contains"]}, ToolInputContains)
    elif "regex" in given:
        check, spec = (
            "tool_input_matches",
            msgspec.convert({"server_prefix": True, "on_invalid": "fail", **given["regex"]}, ToolInputMatches),
        )
    else:
        check, spec = "tool_input_path", msgspec.convert({"server_prefix": True, "syntax": "mcplab", **given["jsonpath"]}, ToolInputPath)
    if row["expect"] == "load_error":
        with pytest.raises(SpecError) as caught:
            decide(check, spec, seen)
        assert caught.value.field == "path"
        return
    verdict = decide(check, spec, seen)
    assert verdict.outcome == row["expect"], verdict.reason
    assert row.get("message", "") in verdict.reason


def test_every_difference_from_the_original_has_a_reason() -> None:
    for row in load("conformance/mcplab/tool_inputs.yaml"):
        assert (row["original"] != row["expect"]) is bool(row.get("why")), row["id"]
    for row in load("conformance/mcplab/tools.yaml"):
        outcomes = [outcome for value in row["expect"].values() for outcome in ([value] if isinstance(value, str) else value)]
        assert (len(row["original"]) != outcomes.count("fail")) is bool(row.get("why")), row["id"]
