"""Claims about tools that the agent does not have are warned of, where the agent shows its tools; no verdict changes."""

from __future__ import annotations

import asyncio
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

import proctor
from proctor.actions.running.run import RunOptions, drive
from proctor.targets.local.agent_objects import find_known_tools


def make_agent(root: str, **members: Any) -> Any:
    """An object as a framework makes it: known by the module of its class."""
    kind = type("Agent", (), {"__module__": f"{root}.agent", "__call__": lambda self, message: "done"})
    agent = kind()
    for name, value in members.items():
        setattr(agent, name, value)
    return agent


def named(name: str) -> Any:
    return SimpleNamespace(name=name)


@pytest.mark.parametrize(
    ("agent", "tools"),
    [
        (make_agent("strands", tool_names=["look", "cancel"]), {"look", "cancel"}),
        (make_agent("smolagents", tools={"look": 1, "final_answer": 2}), {"look", "final_answer"}),
        (make_agent("pydantic_ai", toolsets=[SimpleNamespace(tools={"look": 1})]), {"look"}),
        (make_agent("pydantic_ai", toolsets=[SimpleNamespace(tools={"look": 1}), object()]), None),
        (make_agent("agents", tools=[named("look")], handoffs=[]), {"look"}),
        (make_agent("agents", tools=[named("look")], handoffs=["other"]), None),
        (make_agent("agents", tools=[object()]), None),
        (make_agent("llama_index", tools=[SimpleNamespace(metadata=named("look"))]), {"look"}),
        (
            make_agent("langgraph", nodes={"tools": SimpleNamespace(bound=SimpleNamespace(tools_by_name={"look": 1})), "x": named("x")}),
            {"look"},
        ),
        (make_agent("agno", tools=[SimpleNamespace(name="kit", functions={"look": 1})]), None),
        (make_agent("smolagents", tools={"look": 1}, python_executor=object()), None),
        (make_agent("mine", tool_names=["look"]), None),
    ],
)
def test_tools_of_an_agent_are_known_if_all_have_names(agent: Any, tools: set[str] | None) -> None:
    function = FunctionType((lambda message: agent).__code__, {"agent": agent, "other": 5}, closure=(lambda: agent).__closure__)
    assert find_known_tools(function) == tools
    assert find_known_tools(agent) == tools


def test_a_claim_about_a_missing_tool_is_a_warning_and_keeps_its_verdict(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    suite = proctor.parse_suite(
        "proctor: 1\ncases: [{id: a, input: x, expect: [{tool_not_called: cancel_orders}, {tool_not_called: cancel_order}]}]"
    )
    announced: list[str] = []

    def answer(message: str) -> dict[str, Any]:
        return {"text": "done", "tool_calls": []}

    answer.__globals__["_agent_of_this_test"] = make_agent("strands", tool_names=["look_up", "cancel_order"])
    try:
        driven = asyncio.run(drive(suite, RunOptions(announce=announced.append), target=answer))
    finally:
        del answer.__globals__["_agent_of_this_test"]
    assert driven.result.passed
    assert [line for line in announced if "no tool" in line] == [
        "<input>:2:36: warning: the agent has no tool 'cancel_orders'; nearest: cancel_order"
    ]
