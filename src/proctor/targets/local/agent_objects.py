"""Examines agent objects of frameworks: their tools, whether all cases share one, and where their code raised.

A function of the user's makes or chooses the agent for each case. If the agent itself is the target, all cases share one object: its
conversation continues from case to case, and its keyword arguments are the framework's, not ours. The tools of an agent are unknown if one
of them has no readable name, or if the agent may get more of them from servers or other agents.
"""

from __future__ import annotations

import dis
import importlib
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from proctor.errors import SpecError
from proctor.model.show import exception_text, shorten
from proctor.processes.threads import is_interrupt
from proctor.targets.frameworks.base import find_package
from proctor.targets.frameworks.recognise import FUNCTION_PAGE, find_page

_MORE = ("handoffs", "mcp_servers", "managed_agents", "sub_agents", "agents", "members", "tool_retriever", "python_executor")
"""Members through which an agent gets tools of others, or runs code that looks like a tool."""
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]")
_KEEPS = ("messages", "memory", "chat_history")
"""Members in which agents of frameworks store their conversation."""
_AT_ONCE = re.compile(r"already (?:processing|running|in use)|concurrent(?:ly)? (?:invo|use|run|call|request)", re.IGNORECASE)

_ONE_AT_A_TIME = (
    "the agent answers one message at a time: make it in the function, one for each session_id, or run one case at a time with -j 1"
)


def find_agent_object(function: object) -> object | None:
    """Return the framework agent that is the target, or whose method is; None for other functions."""
    # Only bound methods: a function written in C also has a `__self__`, which is its module.
    owner = getattr(function, "__self__", None) if hasattr(function, "__func__") else function
    if owner is None or isinstance(owner, type) or find_page(owner) == FUNCTION_PAGE:
        return None
    return owner


def describe_shared_agent(function: object, name: str) -> str | None:
    """Return a warning if the target is an agent that stores its conversation, which all cases then share."""
    agent = find_agent_object(function)
    try:
        if agent is None or all(getattr(agent, member, None) is None for member in _KEEPS):
            return None
    except Exception:  # a foreign object may raise anything; then it is not known to store history
        return None
    return (
        f"warning: target {name!r} is one {_describe_agent(agent)} for all cases: it remembers earlier cases; "
        f"make it in a function for each session_id, see {find_page(agent)}"
    )


def _describe_agent(agent: object) -> str:
    return f"{find_package(agent).partition('.')[0]} {type(agent).__name__}"


def describe_exception(error: BaseException) -> str:
    """Return the exception and its location: the last line of the user's own code, and the line of the package that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    text = exception_text(error)
    message = f"{type(error).__name__}: {text}"
    if not frames:
        return message
    last = frames[-1]
    # Files of the user, and not of an installed package, Python or proctor.
    others = ("<", str(Path(__file__).parents[2]), sysconfig.get_path("stdlib"))
    own = [frame for frame in frames if not (_INSTALLED.search(frame.filename) or frame.filename.startswith(others))]
    places = [f"{Path(own[-1].filename).name}:{own[-1].lineno}"] if own else []
    if not own or own[-1] is not last:
        # The path of a package starts at its name: `strands/agent/agent.py`.
        installed = list(_INSTALLED.finditer(last.filename))
        path = last.filename[installed[-1].end() :].replace("\\", "/") if installed else Path(last.filename).name
        places.append(f"in {path}:{last.lineno}")
    hint = f"; {_ONE_AT_A_TIME}" if _AT_ONCE.search(text) else ""
    return f"{message} ({', '.join(places)}){hint}"


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
    except Exception:  # a framework's object may raise anything when examined; then its tools are unknown
        return None
    return frozenset(found) if found else None


def find_inner_agents(function: object, called: Iterable[str]) -> dict[str, str]:
    """Return which of the called tools use a framework agent, if their functions name it: the tool, and the agent.

    What such an agent calls is in no result of the outer one.
    """
    try:
        tools = {name: (agent, tool) for agent in _find_agents(function) for name, tool in _list_tools(agent) or ()}
        found = {name: _find_inner_agent(*tools[name]) for name in dict.fromkeys(called) if name in tools}
    except Exception:  # a foreign object may raise anything
        return {}
    return {name: _describe_agent(agent) for name, agent in found.items() if agent is not None}


def _find_agents(function: object) -> list[object]:
    """Return the agent that is the target, else the agents in the function's module."""
    agent = find_agent_object(function)
    return [agent] if agent is not None else [value for value in getattr(function, "__globals__", {}).values() if _is_agent(value)]


def _is_agent(value: object) -> bool:
    """Return whether a value is an agent, and not a model, a tool, a class of the framework or a builder of the agent."""
    if isinstance(value, type) or find_agent_object(value) is None or hasattr(value, "compile"):
        return False
    return any(hasattr(value, name) for name in ("tool_names", "toolsets", "tools", "nodes"))


def _list_tools(agent: Any) -> list[tuple[str | None, object]] | None:
    """Return the tools of an agent with their names; None if a list of tools is unreadable."""
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
    if getattr(tool, "functions", None):  # a toolkit has a name, and its tools have others
        return None
    named = (getattr(tool, "name", None), getattr(getattr(tool, "metadata", None), "name", None), getattr(tool, "__name__", None))
    return next((name for name in named if isinstance(name, str) and name), None)


def _find_inner_agent(outer: object, tool: object) -> object | None:
    """Return an agent that a tool's function refers to: in its module, in its closure, or as its bound object."""
    for member in ("", "function", "func", "coroutine", "fn", "_fn", "entrypoint", "_tool_func", "forward", "__wrapped__"):
        function: Any = getattr(tool, member, None) if member else tool
        owner, function = getattr(function, "__self__", None), getattr(function, "__func__", function)
        code = getattr(function, "__code__", None)
        if code is None:
            continue
        loaded = [instruction.argval for instruction in dis.get_instructions(code) if instruction.opname == "LOAD_GLOBAL"]
        named = [function.__globals__[name] for name in loaded if name in function.__globals__]
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        agent = next((value for value in (owner, *named, *cells) if value is not outer and _is_agent(value)), None)
        if agent is not None:
            return agent
    return None


# Imports the module that a target names, preferably from the folder of its suite or workspace.
# Python knows modules by their names alone. Two folders may each have an `agent.py`, and one process may drive both: a server of tools, a
# notebook, a test session. The second must not get the agent of the first.

_ENDS_AT_IMPORT = 'it ends the program when it is imported: put what starts it under `if __name__ == "__main__":`'
_INSTALL_FOLDERS = frozenset(("site-packages", "dist-packages"))
_FOLDERS: set[Path] = set()
"""Folders from which modules were imported here."""
_STRANGERS: set[str] = set()
"""The untrusted ones among them, as written in the path."""


def import_local_module(name: str, base: Path | None, trusted: bool) -> object:
    """Return a module, from the folder `base` if it has one. Raises `SpecError`.

    If the name is not trusted, the module must be in that folder.
    """
    top = name.partition(".")[0]
    local = base is not None and ((base / f"{top}.py").is_file() or (base / top).is_dir())
    if not trusted and not local:
        raise SpecError(
            f"function: the module {name!r} is not in the folder of the suite",
            field="function",
            hint="a suite may name functions of its own folder only; describe the target in proctor.yaml instead",
        )
    if local:
        assert base is not None
        _make_way(base, top, trusted)
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise SpecError(f"function: cannot import {name!r}: {error}", field="function") from error
    except BaseException as error:
        if is_interrupt(error):
            raise
        message = f"function: importing {name!r} raised {type(error).__name__}: {shorten(str(error))}"
        hint = _ENDS_AT_IMPORT if isinstance(error, SystemExit) else None
        raise SpecError(message, field="function", hint=hint) from error
    # The folder of the suite is last in the path, so the name may have matched an installed module.
    if not trusted and not lies_in(module, base):
        raise SpecError(f"function: {name!r} is an installed module, not the one next to the suite", field="function")
    return module


def lies_in(module: object, base: Path | None) -> bool:
    """Return whether a module's file belongs to a folder; packages of an environment below it do not."""
    file = getattr(module, "__file__", None)
    if file is None or base is None or not (path := Path(file).resolve()).is_relative_to(folder := base.resolve()):
        return False
    return _INSTALL_FOLDERS.isdisjoint(path.relative_to(folder).parts)


def _make_way(base: Path, top: str, trusted: bool) -> None:
    """Make the modules of a folder importable, and forget modules of other folders with the same names."""
    folder = base.resolve()
    imported = list(sys.modules.items())
    # A process has thousands of modules and a folder few files: it is listed once, and only its modules are checked.
    entries: set[str] = set()
    with suppress(OSError):  # Python finds nothing in a folder that cannot be listed
        entries.update(os.listdir(base))
    names = {name.partition(".")[0] for name, _ in imported}
    near = {name for name in names if name in entries or f"{name}.py" in entries}
    local_names = {name for name in near if (base / f"{name}.py").is_file() or (base / name / "__init__.py").is_file()}
    for name, module in imported:
        if name.partition(".")[0] not in local_names or lies_in(module, folder):
            continue
        if any(lies_in(module, other) for other in _FOLDERS if other != folder):
            # Earlier importers retain their module; later imports of the name get the one of this folder.
            del sys.modules[name]
        elif trusted and name == top and getattr(module, "__file__", None) is not None:
            message = f"function: {top!r} is {str(base / top)!r} here, and this process has imported {module.__file__!r} under that name"
            raise SpecError(message, field="function", hint="give the file of the agent another name")
    _FOLDERS.add(folder)
    # In an untrusted folder, no file may replace a module of Python's own.
    if not trusted:
        if str(base) not in sys.path or str(base) in _STRANGERS:
            sys.path[:] = [*(path for path in sys.path if path not in _STRANGERS), str(base)]
            importlib.invalidate_caches()
            _STRANGERS.add(str(base))
    elif sys.path[:1] != [str(base)]:
        # Before the folders of earlier runs, which may have modules of the same names.
        sys.path[:] = [str(base), *(path for path in sys.path if path != str(base))]
        importlib.invalidate_caches()
