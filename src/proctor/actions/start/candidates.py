"""Looks around in a folder and lists the agents that a suite could be written for, the most likely first."""

from __future__ import annotations

from pathlib import Path

import msgspec

from proctor.actions.start.exports import find_exports, list_required, read_package
from proctor.actions.start.found import FoundAgent, FoundExport, FoundFunction, FoundProgram, FoundRoute, PythonCode
from proctor.actions.start.frameworks import FRAMEWORKS
from proctor.actions.start.node_code import read_node_code
from proctor.actions.start.python_code import read_python_code
from proctor.model.evidence import Json
from proctor.report.words.wording import count_noun
from proctor.sources.workspaces import is_workspace

RECORDED = "recorded"
KINDS: dict[str, str] = {
    "function": "a Python function",
    "http": "an agent behind HTTP",
    "command": "a program that reads the message and prints the answer",
    "n8n": "a workflow of n8n",
    "flowise": "a flow of Flowise",
    "mcp": "a model with the tools of MCP servers",
    "openapi": "an agent behind HTTP that an OpenAPI file describes",
    "mcplab": "an MCPLab workspace",
    **{name: f"an agent of {name}" for name in FRAMEWORKS},
    RECORDED: "evidence that was recorded; no agent is called",
}
"""Everything that `proctor init --for` takes."""
MOST_UNREAD = 3
"""Files that are named where Python cannot read them."""
_MCPLAB_FOLDERS = (".", "mcplab")


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One agent that a suite could be written for, and how it was found."""

    kind: str
    why: str
    agent: FoundAgent | None = None
    function: FoundFunction | None = None
    route: FoundRoute | None = None
    export: FoundExport | None = None
    program: FoundProgram | None = None
    package: dict[str, Json] | None = None
    workspace: str | None = None
    tools: tuple[str, ...] = ()
    """Tools that the code names."""
    remarks: tuple[str, ...] = ()


def list_candidates(folder: Path) -> list[Candidate]:
    """Return what the folder holds; nothing is imported, started or asked."""
    if not folder.is_dir():
        return []
    code = read_python_code(folder)
    package = read_package(folder)
    node = [] if package is None else _list_node(folder, package)
    return [*_list_agents(code), *_list_others(folder, code), *node, *_list_mentioned(folder, code)]


def list_gaps(folder: Path, *, is_found: bool) -> list[str]:
    """Return in words what could not be looked through, and that nothing was found where there is code."""
    code = read_python_code(folder) if folder.is_dir() else PythonCode()
    told = [f"{unread}; nothing was looked for in this file" for unread in code.unread[:MOST_UNREAD]]
    if not is_found and code.files:
        told.append(f"no agent was found in {count_noun(code.files, 'Python file')}: this is an example with recorded evidence")
    return told


def _list_agents(code: PythonCode) -> list[Candidate]:
    found = [
        Candidate(
            kind=agent.framework,
            why=f"{agent.file}:{agent.line}: {agent.name}{'()' if agent.is_factory else ''} is made by {agent.maker}",
            agent=agent,
            tools=code.tools,
            remarks=tuple(
                f"also found: {other.name} in {other.file}:{other.line}"
                for other in code.agents
                if other is not agent and other.framework == agent.framework
            )[:3],
        )
        for agent in code.agents
    ]
    # Of each framework the likeliest; the others stand in its remarks.
    return list({one.kind: one for one in reversed(found)}.values())[::-1]


def _list_others(folder: Path, code: PythonCode) -> list[Candidate]:
    found: list[Candidate] = []
    for place in _MCPLAB_FOLDERS:
        if is_workspace(folder / place):
            found.append(Candidate(kind="mcplab", why=f"{place}: a workspace of MCPLab", workspace=place))
    for function in code.functions[:1]:
        why = f"{function.file}:{function.line}: {function.called} takes a message"
        found.append(Candidate(kind="function", why=why, function=function, tools=code.tools))
    for export in find_exports(folder):
        found.append(Candidate(kind=export.kind, why=f"{export.file}: {KINDS[export.kind]}", export=export, remarks=export.remarks))
    found += [_make_served(route, code.tools) for route in code.routes[:1]]
    return found


def _make_served(route: FoundRoute, tools: tuple[str, ...] = ()) -> Candidate:
    why = f"{route.file}:{route.line}: POST {route.path}"
    remarks = (f"start your agent first; proctor.yaml says that it listens on port {route.port}",)
    return Candidate(kind="http", why=why, route=route, tools=tools, remarks=remarks)


def _list_node(folder: Path, package: dict[str, Json]) -> list[Candidate]:
    """Return the agents of a project of Node.js; of programs, functions and the template only the likeliest, since all are commands."""
    code = read_node_code(folder, package)
    served = [_make_served(route) for route in code.routes[:1]]
    for program in code.programs[:1]:
        others = tuple(f"also found: {other.why}" for other in code.programs[1:4])
        return [Candidate(kind="command", why=program.why, program=program, remarks=(*program.remarks, *others)), *served]
    for function in code.functions[:1]:
        why = f"{function.file}:{function.line}: {function.name}() takes a message"
        return [Candidate(kind="command", why=why, function=function, package=package), *served]
    return [*served, Candidate(kind="command", why="package.json: a project of Node.js", package=package)]


def _list_mentioned(folder: Path, code: PythonCode) -> list[Candidate]:
    """Return frameworks that are used or required, without an agent that could be imported."""
    found: list[Candidate] = []
    seen = {agent.framework for agent in code.agents}
    for name in dict.fromkeys((*code.imported, *list_required(folder))):
        if name in seen:
            continue
        hidden = next((one for one in code.hidden if one.framework == name), None)
        told = (
            ()
            if hidden is None
            else (
                f"{hidden.file}:{hidden.line}: {hidden.name} is made inside a function or block, where nothing can import it; "
                "make it at the top of the module, or write its call into proctor_agent.py",
            )
        )
        where = "imported in the code" if name in code.imported else "among the requirements"
        found.append(Candidate(kind=name, why=f"{name} is {where}", remarks=told))
    # langgraph brings langchain along: both are imported where one is used.
    if {"langgraph", "langchain"} <= {one.kind for one in found} or "langgraph" in seen:
        found = [one for one in found if one.kind != "langchain"]
    return found
