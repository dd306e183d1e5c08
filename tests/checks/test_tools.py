"""The checks about tools and widgets, row by row."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from proctor.checks.registry import default_registry
from proctor.errors import CheckFault, SpecError
from proctor.model.evidence import Evidence, Node, Render, ToolCall
from tests.builders import call, evidence
from tests.tables import rows


def the_evidence(given: dict[str, Any]) -> Evidence:
    tool_calls = None
    if "calls" in given:
        tool_calls = tuple(call(*entry) if isinstance(entry, list) else call(entry) for entry in given["calls"])
    if "raw" in given:
        tool_calls = msgspec.convert(given["raw"], tuple[ToolCall, ...])
    return Evidence(
        tool_calls=tool_calls,
        nodes=msgspec.convert(given["nodes"], tuple[Node, ...]) if "nodes" in given else None,
        renders=msgspec.convert(given["renders"], tuple[Render, ...]) if "renders" in given else None,
        context=given.get("context"),
    )


@rows("checks/cases/tools.yaml")
def test_claims_about_tools(row: dict[str, Any]) -> None:
    given = row["given"]
    entry = default_registry().get(given["check"])
    spec = msgspec.convert(given["spec"], entry.spec)
    if row["expect"] == "spec_error":
        with pytest.raises(SpecError) as caught:
            entry.prepare(spec)
        assert (caught.value.field or "").startswith(row["field"])
        return
    decide = entry.prepare(spec)
    seen = the_evidence(given)
    verdict = decide(seen)
    assert verdict.outcome == row["expect"], verdict.reason
    assert row.get("reason", "") in verdict.reason
    assert verdict.code == row.get("code")
    if "at" in row:
        assert row["at"] in verdict.pointers
    if verdict.passed:
        assert decide(seen) is verdict, "a pass is one constant verdict"


def test_a_fault_inside_one_call_does_not_hide_that_another_holds() -> None:
    entry = default_registry().get("tool_input_contains")
    decide = entry.prepare(msgspec.convert({"tool": "a", "text": "rome"}, entry.spec))
    unwritable = call("a", {"q": {1, 2}})
    assert decide(evidence(None, unwritable, call("a", {"q": "Rome"}))).passed
    with pytest.raises(CheckFault) as caught:
        decide(evidence(None, unwritable))
    assert caught.value.code == "not_json"


def test_an_argument_that_cannot_be_compared_does_not_undo_a_failure() -> None:
    entry = default_registry().get("tool_called")
    decide = entry.prepare(msgspec.convert({"name": "a", "arguments": {"x": 1, "y": {"$expr": "UNKNOWN"}}}, entry.spec))
    verdict = decide(evidence(None, call("a", {"x": 2, "y": 3})))
    assert verdict.outcome == "fail"
    assert "$.tool_calls[0].arguments.x is different" in verdict.reason and "could not be compared" in verdict.reason


def test_deeply_nested_arguments_neither_recurse_nor_hang() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    seen = evidence(None, call("a", {"x": deep}))
    for check, spec in (
        ("tool_called", {"name": "a", "arguments": {"x": 1}}),
        ("tool_called", {"name": "a", "arguments": {"x": 1}, "values": "placeholders", "match": "exact"}),
        ("tool_not_called", {"name": "a"}),
    ):
        entry = default_registry().get(check)
        verdict = entry.prepare(msgspec.convert(spec, entry.spec))(seen)
        assert verdict.outcome == "fail" and len(verdict.reason) < 3000


MINE = ("tool_calls", "tool_order", "tool_arguments", "tool_errors", "widget")
ENTRIES = [entry for entry in default_registry() if entry.owner.rpartition(".")[2] in MINE]


@pytest.mark.parametrize("entry", [pytest.param(entry, id=entry.name) for entry in ENTRIES])
def test_the_example_of_a_check_can_be_used(entry: Any) -> None:
    [(name, value)] = yaml.safe_load(entry.example).items()
    assert name == entry.name
    fields = value if isinstance(value, dict) else {entry.shorthand: value}
    entry.prepare(msgspec.convert(fields, entry.spec))
