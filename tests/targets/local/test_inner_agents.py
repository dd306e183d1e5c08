"""An agent that a tool of another agent uses: its calls are unknown if nothing recorded them, and the run warns."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.actions.running.run import RunOptions, drive
from proctor.checks.tools.tool_calls import ToolNotCalled
from proctor.model.case import Assertion, Case, Suite
from proctor.targets.local.agent_objects import find_inner_agents
from tests.actions.running.test_tool_names import make_agent

expert = make_agent("smolagents", tools={"refund": 1})


def ask_expert(query: str) -> str:
    return str(expert.run(query))


def look_up(query: str) -> str:
    return "shipped"


def with_closure() -> Any:
    inner = make_agent("pydantic_ai", toolsets=[])
    return lambda query: inner.run_sync(query)


CALLED = [
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "desk", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "done"},
    {"role": "assistant", "content": "done"},
]


def outer(tool: Any, **members: Any) -> Any:
    return make_agent("strands", tools=[SimpleNamespace(name="desk", func=tool)], **members)


EXPERT = {"desk": "smolagents Agent"}
BY_NAME = {"desk": SimpleNamespace(func=ask_expert)}


@pytest.mark.parametrize(
    ("agent", "found"),
    [
        (outer(ask_expert), EXPERT),
        (outer(with_closure()), {"desk": "pydantic_ai Agent"}),
        (outer(look_up), {}),
        (make_agent("pydantic_ai", toolsets=[SimpleNamespace(tools=BY_NAME)]), EXPERT),
        (make_agent("langgraph", nodes={"tools": SimpleNamespace(bound=SimpleNamespace(tools_by_name=BY_NAME))}), EXPERT),
        (make_agent("agno", tools=[ask_expert]), {}),
    ],
    ids=["in its module", "in its closure", "none", "Pydantic AI", "LangGraph", "not called"],
)
def test_an_agent_is_found_in_the_function_of_a_called_tool(agent: Any, found: dict[str, str]) -> None:
    assert find_inner_agents(agent, ["desk"]) == found


@pytest.mark.parametrize(("tool", "outcome"), [(ask_expert, "error"), (look_up, "pass")], ids=["an agent", "no agent"])
def test_the_calls_of_an_agent_inside_a_tool_are_unknown_and_the_run_warns(tool: Any, outcome: str, tmp_path: Path) -> None:
    warnings: list[str] = []
    kind = type(outer(tool))
    kind.__call__ = lambda self, message: CALLED
    checks = (Assertion(check="tool_not_called", spec=ToolNotCalled(name="refund")),)
    suite = Suite(name="one", cases=(Case(id="a", input="go", assertions=checks),))
    agent = kind()
    agent.tools = outer(tool).tools
    run = asyncio.run(drive(suite, RunOptions(announce=warnings.append), target=agent, home=tmp_path))
    assert [case.outcome for case in run.result.cases] == [outcome]
    assert len([line for line in warnings if "not instrumented" in line and "'desk'" in line]) == (outcome == "error")
