"""Examines the agent objects of frameworks: which tools they have, whether all cases share one, and where their code raised.

A function of the user's makes or chooses the agent for each case. If the agent itself is the target, all cases share one object: its
conversation continues from case to case, and its keyword arguments are the framework's, not ours. The tools of an agent are unknown if one
of them has no readable name, or if the agent may get more of them from servers or other agents.
"""

from __future__ import annotations

import dis
import re
import sysconfig
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from proctor.model.show import exception_text
from proctor.targets.frameworks.looking import find_package
from proctor.targets.frameworks.recognise import FUNCTION_PAGE, find_page

_MORE = ("handoffs", "mcp_servers", "managed_agents", "sub_agents", "agents", "members", "tool_retriever", "python_executor")
"""Members through which an agent has tools of others, or runs code that shows as a tool."""
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]")
_KEEPS = ("messages", "memory", "chat_history")
"""Members in which agents of frameworks keep their conversation."""
_AT_ONCE = re.compile(r"already (?:processing|running|in use)|concurrent(?:ly)? (?:invo|use|run|call|request)", re.IGNORECASE)

_ONE_AT_A_TIME = (
    "the agent answers one message at a time: make it in the function, one for each session_id, or run one case at a time with -j 1"
)


def find_agent_object(function: object) -> object | None:
    """Return the agent of a framework that is called itself, or whose method is; None for a function of anybody's."""
    # Of bound methods only: a function written in C has a `__self__` too, which is its module.
    owner = getattr(function, "__self__", None) if hasattr(function, "__func__") else function
    if owner is None or isinstance(owner, type) or find_page(owner) == FUNCTION_PAGE:
        return None
    return owner


def describe_shared_agent(function: object, name: str) -> str | None:
    """Return a warning where the target is an agent that keeps its conversation, which all cases then share."""
    agent = find_agent_object(function)
    if agent is None or not _keeps_conversation(agent):
        return None
    return (
        f"warning: target {name!r} is one {_describe_agent(agent)} for all cases: it remembers earlier cases; "
        f"make it in a function for each session_id, see {find_page(agent)}"
    )


def _describe_agent(agent: object) -> str:
    return f"{find_package(agent).partition('.')[0]} {type(agent).__name__}"


def _keeps_conversation(agent: object) -> bool:
    try:
        return any(getattr(agent, member, None) is not None for member in _KEEPS)
    except Exception:  # a foreign object may raise anything; then it is not known to keep history
        return False


def describe_exception(error: BaseException) -> str:
    """Return what was raised and where: the last line of the user's own code, and the line of the package that raised, if another did."""
    frames = traceback.extract_tb(error.__traceback__)
    text = exception_text(error)
    message = f"{type(error).__name__}: {text}"
    if not frames:
        return message
    last = frames[-1]
    own = next((frame for frame in reversed(frames) if _is_own(frame.filename)), None)
    places = [f"{Path(own.filename).name}:{own.lineno}"] if own is not None else []
    if own is not last:
        places.append(f"in {_shorten_path(last.filename)}:{last.lineno}")
    hint = f"; {_ONE_AT_A_TIME}" if _AT_ONCE.search(text) else ""
    return f"{message} ({', '.join(places)}){hint}"


def _is_own(file: str) -> bool:
    """Return whether a file is neither of an installed package nor of Python nor of proctor."""
    ours = str(Path(__file__).parents[2])
    return not (_INSTALLED.search(file) or file.startswith(("<", ours, sysconfig.get_path("stdlib"))))


def _shorten_path(file: str) -> str:
    """Return a path from its package on: `strands/agent/agent.py`."""
    found = list(_INSTALLED.finditer(file))
    return file[found[-1].end() :].replace("\\", "/") if found else Path(file).name


# --- tools and the agents inside them -----------------------------------------------------------------------------------


def find_known_tools(function: object) -> frozenset[str] | None:
    """Return the names of the tools of the agents that a function uses; None if unknown."""
    found: set[str] = set()
    try:
        for agent in _find_agents(function):
            tools = _list_tools(agent)
            if not tools or any(name is None for name, _ in tools) or any(getattr(agent, member, None) for member in _MORE):
                return None
            found.update(name for name, _ in tools if name is not None)
    except Exception:  # an object of a framework may raise anything when it is examined; then nothing is known of it
        return None
    return frozenset(found) if found else None


def find_inner_agents(function: object, called: Iterable[str]) -> dict[str, str]:
    """Return which of the called tools use an agent of a framework, as far as their functions name it: the tool, and the agent.

    What such an agent calls is in no result of the outer one.
    """
    try:
        tools = {name: (agent, tool) for agent in _find_agents(function) for name, tool in _list_tools(agent) or ()}
        found = {name: _find_inner_agent(*tools[name]) for name in dict.fromkeys(called) if name in tools}
    except Exception:  # as above
        return {}
    return {name: _describe_agent(agent) for name, agent in found.items() if agent is not None}


def _find_agents(function: object) -> list[object]:
    """Return the agent that is the target itself, else those in the module of the function."""
    own = find_agent_object(function)
    return [own] if own is not None else [value for value in getattr(function, "__globals__", {}).values() if _is_agent(value)]


def _is_agent(value: object) -> bool:
    """Return whether a value is an agent, and not a model, a tool, a class of the framework or a builder of the agent."""
    if isinstance(value, type) or find_agent_object(value) is None or hasattr(value, "compile"):
        return False
    return any(hasattr(value, name) for name in ("tool_names", "toolsets", "tools", "nodes"))


def _list_tools(agent: Any) -> list[tuple[str | None, object]] | None:
    """Return the tools of an agent with their names; None if a list of tools cannot be read."""
    names, toolsets, nodes = (getattr(agent, member, None) for member in ("tool_names", "toolsets", "nodes"))
    if isinstance(names, list):
        registry = getattr(getattr(agent, "tool_registry", None), "registry", {})
        return [(name, registry.get(name)) for name in cast("list[str]", names)]
    if isinstance(toolsets, Sequence):
        toolboxes = [getattr(toolset, "tools", None) for toolset in cast("Sequence[object]", toolsets)]
    elif isinstance(nodes, Mapping):
        bound = [getattr(node, "bound", None) for node in cast("Mapping[object, object]", nodes).values()]
        toolboxes = [node.tools_by_name for node in cast("list[Any]", bound) if hasattr(node, "tools_by_name")]
    else:
        toolboxes = [getattr(agent, "tools", None)]
    found: list[tuple[str | None, object]] = []
    for tools in toolboxes:
        if isinstance(tools, Mapping):
            found += cast("Mapping[str, object]", tools).items()
        elif isinstance(tools, (list, tuple)):
            found += [(_find_name(tool), tool) for tool in cast("Sequence[object]", tools)]
        else:
            return None
    return found


def _find_name(tool: Any) -> str | None:
    if isinstance(tool, str):
        return tool
    if getattr(tool, "functions", None):  # a kit has a name, and each of its tools another
        return None
    named = (getattr(tool, "name", None), getattr(getattr(tool, "metadata", None), "name", None), getattr(tool, "__name__", None))
    return next((name for name in named if isinstance(name, str) and name), None)


def _find_inner_agent(outer: object, tool: object) -> object | None:
    """Return an agent that the function of a tool names: in its module, in its closure, or as the object it is a method of."""
    for member in ("", "function", "func", "coroutine", "fn", "_fn", "entrypoint", "_tool_func", "forward", "__wrapped__"):
        function: Any = getattr(tool, member, None) if member else tool
        owner, function = getattr(function, "__self__", None), getattr(function, "__func__", function)
        code = getattr(function, "__code__", None)
        if code is None:
            continue
        loaded = [one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL"]
        named = [function.__globals__[name] for name in loaded if name in function.__globals__]
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        agent = next((value for value in (owner, *named, *cells) if value is not outer and _is_agent(value)), None)
        if agent is not None:
            return agent
    return None
