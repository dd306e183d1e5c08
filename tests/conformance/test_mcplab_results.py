"""Tool results as MCPLab sends them to a model, sent by an agent of one of its workspaces."""

from __future__ import annotations

from typing import Any

from proctor.actions.running.mcplab_run import _make_agent
from proctor.cassettes.ports import LIVE
from proctor.evals.agents.tools import AgentTool, ToolSet
from proctor.llm.ports import ChatReply
from proctor.model.case import Case
from proctor.targets.mcp.results import CallResult
from tests.tables import rows
from tests.targets.mcp_twins import ScriptedModel, attempt, calls, run


@rows("conformance/mcplab/tool_results.yaml")
def test_the_model_gets_the_same_result_as_from_the_original(row: dict[str, Any]) -> None:
    async def execute(arguments: dict[str, Any]) -> CallResult:
        return CallResult(result=row.get("given"), error=row.get("error"))

    model = ScriptedModel(calls(("look", {})), ChatReply(text="done"))
    agent = _make_agent({"id": "gpt"}, model, ToolSet([AgentTool(name="look", execute=execute)]))
    run(agent.run(attempt(Case(id="c", input="go")), LIVE))
    assert model.requests[1].messages[-1].text == row["expect"] == row["original"]
