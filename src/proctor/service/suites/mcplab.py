"""MCPLab suites that were sent: limits on agents and servers, and the library of the project.

Their own agents run on their own servers. Scenarios times agents and the number of servers are limited before anything is created.
`outbound.py` checks servers and models; attached files must be in the suite itself.

A sent suite has no files: `ref` entries refer to the MCPLab library of the project. The settings of the project contain what a workspace
has in `agents.yaml`, `servers.yaml` and `test-cases/`:

    mcplab:
      agents: {gpt: {provider: openai, model: gpt-4o-mini}}
      servers: {orders: {transport: http, url: "https://orders.example/mcp"}, time: {command: uvx, args: [mcp-server-time]}}
      test_cases: [{id: lookup, prompt: Where is order 17?, mcp_servers: [{ref: orders}]}]

MCPLab itself only has HTTP servers. A server with a `command` is started on the machine of the service, if an administrator allowed that
(`outbound.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, cast

import msgspec

from proctor.actions.mcplab.access import PROVIDER_VARIABLES
from proctor.actions.mcplab.plan import Plan, plan
from proctor.errors import InputError, SpecError
from proctor.formats.mcplab.library import Library, LibraryDocument, read_library
from proctor.formats.mcplab.setup import Entry
from proctor.formats.text.located import Located, Reading
from proctor.formats.text.references import References
from proctor.formats.workspace_file import Section
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.model.problem import Origin, Problem
from proctor.model.show import kind_of, nearest, show
from proctor.service.suites.outbound import MOST_SERVERS, Outbound
from proctor.targets.mcp.settings import ServerSettings, read_servers

LIBRARY_KEY: Final = "mcplab"
STARTED: Final = "stdio"
"""The transport of a server that is started as a process."""
NO_FILES: Final = "a sent document has no files: write the entry in place of the reference"
_KEYS: Final = ("agents", "servers", "test_cases")
_IN_THE_PROJECT: Final = f"{NO_FILES}, or describe it under `{LIBRARY_KEY}` in the settings of the project"

ALONE: Final = Library(hint=NO_FILES)
"""The library of a document without a project."""


class _JsonReading(Reading):
    """A reading of settings that were sent as JSON: its problems have a path but no line."""

    def __init__(self) -> None:
        super().__init__(file=None, text="")

    def origin(self, node: Located) -> Origin:
        """Return the path alone."""
        return Origin(path=node.path)


def library_of(described: Json) -> Library:
    """Return the library in the settings of a project under `mcplab`. Raises `InputError`."""
    if described is None:
        return Library(hint=_IN_THE_PROJECT)
    if not isinstance(described, Mapping):
        raise _wrong(f"expected an object, found {kind_of(described)}")
    sections = cast(Mapping[str, Json], described)
    for key in sections:
        if key not in _KEYS:
            raise _wrong(f"unknown key {key!r}", nearest=nearest(key, _KEYS), expected=f"one of {', '.join(_KEYS)}")
    cases: Json = sections.get("test_cases") or []
    if not isinstance(cases, list):
        raise _wrong(f"test_cases: expected a list, found {kind_of(cases)}")
    # Separated first, since MCPLab's reader only accepts HTTP servers.
    over_http, started = _split_servers(sections.get("servers"))
    library = read_library(
        servers=_document(over_http, "servers"),
        agents=_document(sections.get("agents"), "agents"),
        scenarios=[document for at, case in enumerate(cases) if (document := _document(case, f"test_cases[{at}]")) is not None],
    )
    return msgspec.structs.replace(library, hint=_IN_THE_PROJECT, servers={**library.servers, **started})


def _split_servers(servers: Json) -> tuple[Json, dict[str, Entry]]:
    """Return the servers for MCPLab's reader, and by id those with a command."""
    if not isinstance(servers, Mapping):
        return servers, {}
    named = cast(Mapping[str, Json], servers)
    started: dict[str, Entry] = {
        id: {**{key: value for key, value in entry.items() if key != "name"}, "id": id, "transport": STARTED}
        for id, entry in named.items()
        if isinstance(entry, Mapping) and "command" in entry
    }
    return {id: entry for id, entry in named.items() if id not in started}, started


def _document(value: Json, place: str) -> LibraryDocument | None:
    if value is None:
        return None
    section = Section.of(value, path=f"$.{LIBRARY_KEY}.{place}", trusted=False)
    return LibraryDocument(section.node, _JsonReading())


def _wrong(message: str, *, nearest: tuple[str, ...] = (), expected: str | None = None) -> InputError:
    problem = Problem(message=f"`{LIBRARY_KEY}`: {message}", origin=Origin(path=f"$.{LIBRARY_KEY}"), nearest=nearest, expected=expected)
    return InputError(problem.message, [problem])


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
    planned = plan(suite)
    if len(planned.servers) > MOST_SERVERS:
        raise InputError(f"the scenarios use {len(planned.servers)} MCP servers; expected at most {MOST_SERVERS}")
    return planned


def admit_sent_plan(planned: Plan, values: Mapping[str, str], references: References, outbound: Outbound) -> dict[str, ServerSettings]:
    """Return the settings of servers that are started. Raises `InputError`, and `Refusal` for forbidden addresses."""
    _check_attachments(planned)
    for id, entry in planned.servers.items():
        outbound.check_server(f"MCP server {id!r}", entry, field="suite")
        auth: Json = entry.get("auth")
        # A started server may have any shape here; its settings are checked when they are read.
        value: Json = auth.get("value") if isinstance(auth, dict) and auth.get("type") == "api_key" else None
        if isinstance(value, str) and not _REFERENCE.fullmatch(value):
            raise InputError(f"MCP server {id!r}: the API key is in plain text; add it as a secret of the project and write ${{NAME}}")
    driven = {row.agent["id"]: row.agent for row in planned.rows if row.case.skip is None}
    for agent in driven.values():
        _, address = PROVIDER_VARIABLES[agent["provider"]]
        outbound.check_address(values.get(address) or None, f"agent {agent['id']!r}, the secret {address}", field="suite")
    entries = {id: entry for id, entry in planned.servers.items() if entry["transport"] == STARTED}
    section = Section.of({"servers": entries}, path=f"$.{LIBRARY_KEY}", trusted=False)
    try:
        return {server.id: server for server in read_servers(section.plain(references)["servers"])}
    except SpecError as error:
        raise section.refusal_error(error) from None


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
