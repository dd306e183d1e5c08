"""The reference page of the simulated systems, written from the kinds themselves: a new kind appears by itself."""

from __future__ import annotations

import importlib
import re

from proctor.simulators.ports import Simulator, find_simulator, list_kinds

_BEGIN = """<!-- Generated from the code by `python -m docs.generate`. Do not edit: change the code and run `make docs`. -->

# Kinds of simulated systems

What each kind answers and what it leaves for the checks, in the words of its own file in `src/proctor/simulators/kinds/`.
[Simulated systems](simulated-systems.md) covers what all have in common; the how-to pages show each at work. Everything that is refused is
answered with a 4xx and a reason, never with a 5xx: a 500 is a bug in the simulator.
"""


def kinds_page() -> str:
    """Return the page: a table of all kinds, and a section for each."""
    kinds = [find_simulator(kind) for kind in list_kinds()]
    rows = ["| kind | simulated system |", "|---|---|"]
    rows += [f"| [`{one.kind}`](#{one.kind}) | {one.summary} |" for one in kinds]
    return "\n".join([_BEGIN, *rows, "", *(_write_section(one) for one in kinds)])


def _write_section(simulator: Simulator) -> str:
    text = importlib.import_module(f"proctor.simulators.kinds.{simulator.kind}").__doc__ or ""
    facts = [("Seed", _join_lines(simulator.seed.__doc__))]
    if simulator.steps:
        facts.append(("Steps of a scenario", ", ".join(f"`{step}`" for step in simulator.steps)))
    if simulator.open_paths:
        facts.append(("Answered without the token", ", ".join(f"`{path}`" for path in simulator.open_paths)))
    tools = "\n".join(f"| `{tool.name}` | {tool.description} |" for tool in simulator.list_tools())
    facts_list = "\n".join(f"* {name}: {value}" for name, value in facts)
    return f"## `{simulator.kind}`\n\n{_fence_lists(text.strip())}\n\n{facts_list}\n\n| tool for models | |\n|---|---|\n{tools}\n"


def _join_lines(text: str | None) -> str:
    return " ".join((text or "").split())


def _fence_lists(text: str) -> str:
    """Return a docstring with its indented lists of requests as blocks of text."""
    found = re.sub(r"(?m)(?:^    .*\n?|^\n(?=    ))+", lambda match: f"\n```text\n{_dedent(match[0])}\n```\n", text + "\n")
    return re.sub(r"\n{3,}", "\n\n", found).strip()


def _dedent(block: str) -> str:
    return "\n".join(line[4:] for line in block.strip("\n").splitlines())
