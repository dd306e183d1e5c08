"""The tools of an agent of a framework, as far as the agent object shows them without being asked anything.

An agent is looked at where it is the target itself, or stands in the module of the function that is. Where one of its tools has no name
that could be read, or where it may get more of them from elsewhere (servers, other agents), its tools are unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from proctor.targets.shared_agents import find_agent_object

_MORE = ("handoffs", "mcp_servers", "managed_agents", "sub_agents", "agents", "members", "tool_retriever", "python_executor")
"""Members through which an agent has tools of others, or runs code that shows as a tool."""


def find_known_tools(function: object) -> frozenset[str] | None:
    """Return the names of the tools of the agents behind a function; None where they are unknown."""
    try:
        return _find_tools(function)
    except Exception:  # an object of somebody else's may do anything when it is looked at; then nothing is known of it
        return None


def _find_tools(function: object) -> frozenset[str] | None:
    own = find_agent_object(function)
    names: dict[str, object] = getattr(function, "__globals__", {}) if own is None else {"": own}
    agents = [value for value in names.values() if own is not None or _is_agent(value)]
    found: set[str] = set()
    for agent in agents:
        tools = _read_tools(agent)
        if tools is None:
            return None
        found |= tools
    return frozenset(found) if found else None


def _is_agent(value: object) -> bool:
    """Return whether a value of a module is an agent, and not a model, a tool, a class of the framework or what builds the agent."""
    if isinstance(value, type) or find_agent_object(value) is None or hasattr(value, "compile"):
        return False
    return any(hasattr(value, name) for name in ("tool_names", "toolsets", "tools", "nodes"))


def _read_tools(agent: Any) -> set[str] | None:
    if any(getattr(agent, member, None) for member in _MORE):
        return None
    if isinstance(getattr(agent, "tool_names", None), list):
        return _list_names(agent.tool_names)
    if isinstance(getattr(agent, "toolsets", None), Sequence):
        return _join([_list_names(getattr(each, "tools", None)) for each in agent.toolsets])
    if isinstance(getattr(agent, "nodes", None), Mapping):
        nodes = [getattr(getattr(node, "bound", None), "tools_by_name", None) for node in agent.nodes.values()]
        return _join([_list_names(each) for each in nodes if each is not None])
    return _list_names(getattr(agent, "tools", None))


def _join(several: list[set[str] | None]) -> set[str] | None:
    known = [each for each in several if each is not None]
    return set[str]().union(*known) if known and len(known) == len(several) else None


def _list_names(tools: object) -> set[str] | None:
    """Return the names in a list or a mapping of tools; None where one has none."""
    if isinstance(tools, Mapping):
        return {key for key in cast("Mapping[object, object]", tools) if isinstance(key, str)}
    if not isinstance(tools, (list, tuple)):
        return None
    names = [_find_name(tool) for tool in cast("Sequence[object]", tools)]
    return {name for name in names if name is not None} if None not in names else None


def _find_name(tool: Any) -> str | None:
    if isinstance(tool, str):
        return tool
    if getattr(tool, "functions", None):  # a kit of several tools has a name, and each of them another
        return None
    named = (getattr(tool, "name", None), getattr(getattr(tool, "metadata", None), "name", None), getattr(tool, "__name__", None))
    return next((name for name in named if isinstance(name, str) and name), None)
