"""Writes the few lines between a target and an agent that was found in the code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import PurePosixPath

from proctor.actions.start.found import FoundAgent, FoundFunction
from proctor.actions.start.frameworks import Framework

_AGENT = "agent"


def write_adapter(framework: Framework, agent: FoundAgent) -> str:
    """Return the few lines that ask an agent which was found in the code."""
    module, root = find_module(agent.file)
    name = agent.name if agent.name != "answer" else "agent"
    imported = agent.name if name == agent.name else f"{agent.name} as {name}"
    path = ["import sys", "from pathlib import Path", f'sys.path.insert(0, str(Path(__file__).parent / "{root}"))', ""] if root else []
    made = [f"{_AGENT} = {name}()"] if agent.is_factory else []
    asked = _AGENT if agent.is_factory else name
    field = agent.field or {"crewai": "message", "dspy": "question"}.get(framework.name)
    lines = [
        f'"""Asks the agent in {agent.file} for proctor."""',
        "",
        *path,
        *sorted((*framework.imports, f"from {module} import {imported}"), key=lambda line: line.startswith("from")),
        *([""] if made or framework.before else []),
        *made,
        *fill_lines(framework.before, asked, None),
        "",
        "",
        *fill_lines(framework.ask_by_maker.get(agent.maker, framework.ask), asked, field),
    ]
    return "\n".join(lines) + "\n"


def write_class_adapter(function: FoundFunction) -> str:
    """Return the few lines that ask an object of a class by its method: one for each case, since such objects keep their conversation."""
    module, root = find_module(function.file)
    path = ["import sys", "from pathlib import Path", "", f'sys.path.insert(0, str(Path(__file__).parent / "{root}"))', ""] if root else []
    asked = "" if function.name == "__call__" else f".{function.name}"
    return "\n".join(
        [
            f'"""Asks {function.called} for proctor: a new object for each case, which keeps its conversation."""',
            "",
            *path,
            f"from {module} import {function.holder}" + ("  # noqa: E402" if root else ""),
            "",
            "_agents = {}",
            "",
            "",
            "def answer(message, session_id):",
            "    if session_id not in _agents:",
            f"        _agents[session_id] = {function.holder}()",
            f"    return _agents[session_id]{asked}(message)",
            "",
        ]
    )


def write_node_adapter(function: FoundFunction) -> str:
    """Return the few lines that call a function of a module of Node.js with what stands on standard input."""
    return "\n".join(
        [
            f"// Asks {function.name}() for proctor: the message on standard input, the answer on standard output.",
            'import { readFileSync } from "node:fs";',
            "",
            "const print = console.log;",
            "console.log = console.error; // what the agent prints is no part of its answer",
            f"const {{ {function.name} }} = await import({json.dumps(f'./{function.file}')});",
            f'const answer = await {function.name}(readFileSync(0, "utf8"));',
            'print(typeof answer === "string" ? answer : JSON.stringify(answer));',
            "",
        ]
    )


def find_module(file: str) -> tuple[str, str | None]:
    """Return how a file is imported from the folder of the suite, and the folder that has to be looked in first, if any."""
    parts = PurePosixPath(file).with_suffix("").parts
    if parts[-1] == "__init__":
        parts = parts[:-1]
    if parts[0] == "src" and len(parts) > 1:
        return ".".join(parts[1:]), "src"
    # A folder whose name is no word of Python cannot be a package.
    bad = max((index for index, part in enumerate(parts[:-1]) if not part.isidentifier()), default=-1)
    return ".".join(parts[bad + 1 :]), "/".join(parts[: bad + 1]) or None


def fill_lines(lines: Sequence[str], agent: str, field: str | None) -> list[str]:
    """Return lines of a framework for an agent of this name; `field` is the name of its input, where it has one."""
    return [line.format(agent=agent, field=field or "message") for line in lines]
