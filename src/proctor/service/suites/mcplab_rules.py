"""Limits of sent MCPLab suites whose own agents run on their own servers.

Scenarios times agents and the number of servers are limited before anything is created. `outbound.py` checks servers and models; attached
files must be in the suite itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from proctor.actions.mcplab.access import PROVIDER_VARIABLES
from proctor.actions.mcplab.plan import Plan, plan
from proctor.errors import InputError, SpecError
from proctor.formats.text.references import References
from proctor.formats.workspace_file.workspace import Section
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.model.problem import Problem
from proctor.model.show import show
from proctor.service.suites.mcplab_library import LIBRARY_KEY, STARTED
from proctor.service.suites.outbound import MOST_SERVERS, Outbound
from proctor.targets.mcp.settings import ServerSettings, read_servers

MOST_AGENTS: Final = 50
MOST_COMBINATIONS: Final = 50_000
"""Scenarios times agents."""
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


def plan_sent_suite(suite: Suite) -> Plan:
    """Return every scenario with every selected agent. Raises `InputError`, also above the limits."""
    known: list[Json] = suite.settings.get("agents") or []
    selected: Json = (suite.settings.get("run_defaults") or {}).get("selected_agents") or known
    if len(selected) > MOST_AGENTS:
        raise InputError(f"{len(selected)} agents would run; expected at most {MOST_AGENTS}: select some with run_defaults.selected_agents")
    # Before planning, which creates a row per combination.
    if len(suite.cases) * len(selected) > MOST_COMBINATIONS:
        raise InputError(f"{len(suite.cases)} scenarios with {len(selected)} agents; expected at most {MOST_COMBINATIONS} combinations")
    found = plan(suite)
    if len(found.servers) > MOST_SERVERS:
        raise InputError(f"the scenarios use {len(found.servers)} MCP servers; expected at most {MOST_SERVERS}")
    return found


def admit_sent_plan(planned: Plan, values: Mapping[str, str], references: References, outbound: Outbound) -> dict[str, ServerSettings]:
    """Return the settings of servers that are started. Raises `InputError`, and `Refusal` for forbidden addresses."""
    _check_attachments(planned)
    for id, entry in planned.servers.items():
        outbound.check_server(f"MCP server {id!r}", entry, field="suite")
        _check_key(id, entry)
    driven = {row.agent["id"]: row.agent for row in planned.rows if row.case.skip is None}
    for agent in driven.values():
        _, address = PROVIDER_VARIABLES[agent["provider"]]
        outbound.check_address(values.get(address) or None, f"agent {agent['id']!r}, the secret {address}", field="suite")
    return _read_started(planned, references)


def _check_attachments(planned: Plan) -> None:
    problems: dict[str, Problem] = {}
    for row in planned.rows:
        for each in row.case.settings.get("attachments") or ():
            if each.get("path") and not each.get("data") and row.scenario not in problems:
                message = f"scenario {row.scenario!r}: the attachment {show(each['path'], 80)} names a file, which a sent suite cannot have"
                hint = "write its content as `data`, in base64"
                problems[row.scenario] = Problem(message=message, origin=row.case.origin, hint=hint, code="bad_attachment")
    if problems:
        raise InputError(next(iter(problems.values())).message, list(problems.values()))


def _check_key(id: str, entry: Mapping[str, Json]) -> None:
    """Reject a plain API key, since suites are stored and shown."""
    auth: Json = entry.get("auth")
    # A started server may have any shape here; its settings are checked when they are read.
    value: Json = auth.get("value") if isinstance(auth, dict) and auth.get("type") == "api_key" else None
    if isinstance(value, str) and not _REFERENCE.fullmatch(value):
        raise InputError(f"MCP server {id!r}: the API key is in plain text; add it as a secret of the project and write ${{NAME}}")


def _read_started(planned: Plan, references: References) -> dict[str, ServerSettings]:
    """Return the settings of started servers; `${NAME}` in their variables are secrets of the project."""
    entries = {id: entry for id, entry in planned.servers.items() if entry["transport"] == STARTED}
    section = Section.of({"servers": entries}, path=f"$.{LIBRARY_KEY}", trusted=False)
    try:
        return {server.id: server for server in read_servers(section.plain(references)["servers"])}
    except SpecError as error:
        raise section.refusal_error(error) from None
