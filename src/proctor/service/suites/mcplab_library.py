"""The MCPLab library of a project, for the `ref` entries of sent suites.

A sent suite has no files. The settings of the project contain what a workspace has in `agents.yaml`, `servers.yaml` and `test-cases/`:

    mcplab:
      agents: {gpt: {provider: openai, model: gpt-4o-mini}}
      servers: {orders: {transport: http, url: "https://orders.example/mcp"}, time: {command: uvx, args: [mcp-server-time]}}
      test_cases: [{id: lookup, prompt: Where is order 17?, mcp_servers: [{ref: orders}]}]

MCPLab itself only has HTTP servers. A server with a `command` is started on the machine of the service, if an administrator allowed that
(`outbound.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

import msgspec

from proctor.errors import InputError
from proctor.formats.mcplab.library import Library, LibraryDocument, read_library
from proctor.formats.mcplab.setup import Entry
from proctor.formats.text.located import Located, Reading
from proctor.formats.workspace_file.workspace import Section
from proctor.model.evidence import Json
from proctor.model.problem import Origin, Problem
from proctor.model.show import kind_of, nearest

LIBRARY_KEY: Final = "mcplab"
STARTED: Final = "stdio"
"""The transport of a server that is started as a process."""
NO_FILES: Final = "a sent document has no files: write the entry in place of the reference"
_KEYS: Final = ("agents", "servers", "test_cases")
_IN_THE_PROJECT: Final = f"{NO_FILES}, or describe it under `{LIBRARY_KEY}` in the settings of the project"

ALONE: Final = Library(hint=NO_FILES)
"""The library of a document without a project."""


class _Unplaced(Reading):
    """Settings that arrived as JSON: problems have a path and no line."""

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
        scenarios=[found for at, case in enumerate(cases) if (found := _document(case, f"test_cases[{at}]")) is not None],
    )
    return msgspec.structs.replace(library, hint=_IN_THE_PROJECT, servers={**library.servers, **started})


def _split_servers(servers: Json) -> tuple[Json, dict[str, Entry]]:
    """Return HTTP servers, and those that are started as processes."""
    if isinstance(servers, Mapping):
        named = cast(Mapping[str, Json], servers)
        started = {id: _describe_started_server(id, entry) for id, entry in named.items() if _is_started(entry)}
        return {id: entry for id, entry in named.items() if id not in started}, started
    if isinstance(servers, list):
        entries = cast(list[Json], servers)
        found = [
            _describe_started_server(str(entry.get("id") or entry.get("name") or ""), entry) for entry in entries if _is_started(entry)
        ]
        if any(not entry["id"] for entry in found):
            raise _wrong("servers: a server with a command needs 'id'")
        return [entry for entry in entries if not _is_started(entry)], {entry["id"]: entry for entry in found}
    return servers, {}


def _is_started(entry: Json) -> bool:
    return isinstance(entry, Mapping) and "command" in entry


def _describe_started_server(id: str, entry: Mapping[str, Json]) -> Entry:
    return {**{key: value for key, value in entry.items() if key != "name"}, "id": id, "transport": STARTED}


def _document(value: Json, place: str) -> LibraryDocument | None:
    if value is None:
        return None
    section = Section.of(value, path=f"$.{LIBRARY_KEY}.{place}", trusted=False)
    return LibraryDocument(section.node, _Unplaced())


def _wrong(message: str, *, nearest: tuple[str, ...] = (), expected: str | None = None) -> InputError:
    problem = Problem(message=f"`{LIBRARY_KEY}`: {message}", origin=Origin(path=f"$.{LIBRARY_KEY}"), nearest=nearest, expected=expected)
    return InputError(problem.message, [problem])
