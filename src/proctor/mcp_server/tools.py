"""Every tool there is, for a server on its user's machine and for one that others use."""

from __future__ import annotations

import msgspec

from proctor.mcp_server.nouns import NOUNS
from proctor.mcp_server.runs import COMPARE_RUNS, GET_RUN, LIST_RUNS, RUN_SUITE, SEARCH_TRACES
from proctor.mcp_server.suites import CHECK, DESCRIBE, VALIDATE
from proctor.mcp_server.tool import Action, Tool

OURS = (VALIDATE, CHECK, RUN_SUITE, LIST_RUNS, GET_RUN, COMPARE_RUNS, SEARCH_TRACES, DESCRIBE)
OF_THE_MACHINE = ("path", "evidencePath")
"""Parameters that name files: only for callers on the same machine."""
OF_THE_SERVICE = ("caseIds", "projectId")
"""Parameters that name what only the service has."""


def all_tools(*, local: bool) -> tuple[Tool, ...]:
    """Every tool. Files are named only where the server runs on the caller's machine, projects of runs only where it does not."""
    dropped = OF_THE_SERVICE if local else OF_THE_MACHINE
    return (*NOUNS, *(tool if tool is SEARCH_TRACES else _without(tool, dropped) for tool in OURS))


def _without(tool: Tool, names: tuple[str, ...]) -> Tool:
    action = tool.single
    assert action is not None
    takes = tuple(name for name in action.takes if name.rstrip("!") not in names)
    fewer = Action(call=action.call, does=action.does, takes=takes, clears=action.clears, reads=action.reads)
    return msgspec.structs.replace(tool, single=fewer)
