"""Writes the few lines between a target and an agent that was found in the code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from proctor.actions.start.found import FoundAgent
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
