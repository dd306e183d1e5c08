"""Which tools an n8n agent called, from the runs of the tool nodes and from the agent's own list of steps.

Newer executions have a run for each call of a tool node; the arguments are in it. The agent's `intermediateSteps` (present when
Return Intermediate Steps is on) name the tool as the model knows it, and carry the arguments where the run does not. A step
belongs to the first unused run of the same agent run that has its name and its arguments (calls made at once may run in another
order), else to the first that has its name, else, when both lists are equally long, to the one at its place. Where no runs were
recorded the steps alone are the calls. If a step cannot be read, or no run of its agent belongs to it, the calls are unknown.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any

import msgspec

from proctor.evidence.shared.calls import CONTENT_ERROR, PROTOCOL_ERROR, mcp_error, read_arguments, read_known_arguments
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.unrecognised import check_object, list_unrecognised
from proctor.evidence.values.access import dict_or_empty, list_of, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text
from proctor.model.account import Part
from proctor.model.evidence import Json, ToolCall

_ACTION: dict[str, Part | tuple[Part, ...] | None] = {
    **dict.fromkeys(("log", "type"), None),
    **dict.fromkeys(("toolInput", "toolCallId", "messageLog"), "tool_arguments"),
    "tool": "tool_calls",
}
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


class ToolRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a tool node."""

    name: str
    own_name: str | None
    agent: str | None
    agent_run: int
    arguments: Json
    output: Json
    error: Json
    duration_ms: Json


class AgentStep(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `intermediateSteps`."""

    tool: str
    arguments: Json
    result: Json
    id: str | None


def list_tool_calls(runs: list[ToolRun], agents: list[tuple[str, int, list[Any]]], unknowns: Unknowns) -> list[tuple[int, ToolCall]]:
    """Return the calls in order, each with the run of the agent that made it."""
    steps = {
        (name, index): [step for entry in entries if (step := read_step(entry, unknowns)) is not None] for name, index, entries in agents
    }
    by_agent: dict[tuple[str, int], list[ToolRun]] = {}
    for run in runs:
        by_agent.setdefault((run.agent or "", run.agent_run), []).append(run)
    paired: dict[int, AgentStep] = {}
    for key, made in by_agent.items():
        found = _pair(made, steps.get(key, []))
        if len(found) < len(steps.get(key, [])):
            unknowns.mark("tool_calls", f"{key[0]!r} lists more calls than there are runs of its tools")
        paired.update(found)
    calls = [(run.agent_run, _call(run, paired.get(id(run)), unknowns)) for run in runs]
    for (name, index), listed in steps.items():
        if (name, index) not in by_agent:
            calls.extend((index, _from_step(step, name)) for step in listed)
    return calls


def read_step(entry: Json, unknowns: Unknowns) -> AgentStep | None:
    """Read one intermediate step; arguments are `toolInput`, else those of the message the step came from."""
    action = dict_or_empty(dict_or_empty(entry).get("action"))
    tool = text_or_none(action.get("tool"))
    if tool is None:
        unknowns.mark("tool_calls", "an intermediate step does not name its tool")
        return None
    check_object(action, _ACTION, "an intermediate step", unknowns)
    call_id, arguments = text_or_none(action.get("toolCallId")), action.get("toolInput")
    if arguments is None or arguments == "" or arguments == {}:
        logged = [call for message in list_of(action.get("messageLog")) for call in _list_logged_calls(message)]
        same = [call for call in logged if call.get("id") == call_id] or logged
        may_be_lost = any(isinstance(decode_container(action[key]), dict) for key in list_unrecognised(action, _ACTION))
        arguments = same[0].get("args") if same else None if may_be_lost else arguments
    if arguments is None:
        unknowns.mark("tool_arguments", f"an intermediate step has no arguments of {tool!r}")
    return AgentStep(
        tool=tool,
        arguments=None if arguments is None else read_known_arguments(arguments, f"a step of {tool!r}", unknowns),
        result=dict_or_empty(entry).get("observation"),
        id=call_id,
    )


def _list_logged_calls(message: Json) -> list[dict[str, Any]]:
    inner = dict_or_empty(message).get("kwargs")
    calls = dict_or_empty(inner if isinstance(inner, dict) else message).get("tool_calls")
    return [call for call in list_of(calls) if isinstance(call, dict)]


def _pair(runs: list[ToolRun], steps: list[AgentStep]) -> dict[int, AgentStep]:
    paired: dict[int, AgentStep] = {}
    free = dict(enumerate(steps))
    for exactly in (True, False):
        waiting: dict[tuple[str, str | None], deque[int]] = {}
        for number, step in free.items():
            waiting.setdefault((step.tool, as_text(step.arguments) if exactly else None), deque()).append(number)
        for run in runs:
            if id(run) in paired or (exactly and run.arguments is None):
                continue
            arguments = as_text(read_arguments(run.arguments)) if exactly else None
            found = [queue for name in _list_names(run) if (queue := waiting.get((name, arguments)))]
            # Of all the names under which the model may have known the tool, the earliest step counts.
            if found:
                paired[id(run)] = free.pop(min(found, key=lambda queue: queue[0]).popleft())
    # As many of both: what names do not pair is paired by its place.
    if len(runs) == len(steps):
        for run, step in zip((run for run in runs if id(run) not in paired), free.values(), strict=True):
            paired[id(run)] = step
    return paired


def _list_names(run: ToolRun) -> set[str]:
    return {name for name in (run.name, _spell_for_model(run.name), run.own_name) if name is not None}


def _spell_for_model(node_name: str) -> str:
    # n8n offers a tool to the model under its node's name, other characters replaced.
    return _NOT_IN_NAMES.sub("_", node_name)


def _call(run: ToolRun, step: AgentStep | None, unknowns: Unknowns) -> ToolCall:
    result = run.output
    # n8n wraps the result of a tool.
    if isinstance(result, dict) and set(result) == {"response"}:
        result = result["response"]
    arguments = run.arguments if run.arguments is not None else (step.arguments if step is not None else None)
    if arguments is None:
        unknowns.mark("tool_arguments", f"the run of {run.name!r} does not record what was passed to it")
    aliases = dict.fromkeys(name for name in (step.tool if step else None, run.own_name, _spell_for_model(run.name)) if name)
    aliases.pop(run.name, None)
    error, kind = None, None
    if run.error is not None:
        error, kind = dict_or_empty(run.error).get("message") or run.error, PROTOCOL_ERROR
    elif mcp_error(result) is not None:
        error, kind = mcp_error(result), CONTENT_ERROR
    return ToolCall(
        name=run.name,
        arguments=None if arguments is None else read_arguments(arguments),
        result=result,
        error=error,
        error_kind=kind,
        duration_ms=run.duration_ms if isinstance(run.duration_ms, (int, float)) else None,
        node=run.agent,
        id=step.id if step is not None else None,
        aliases=tuple(aliases),
    )


def read_step_call(entry: Json, agent: str, unknowns: Unknowns) -> ToolCall | None:
    """Return the call of an intermediate step."""
    step = read_step(entry, unknowns)
    return None if step is None else _from_step(step, agent)


def _from_step(step: AgentStep, agent: str) -> ToolCall:
    return ToolCall(name=step.tool, arguments=step.arguments, result=step.result, node=agent, id=step.id)
