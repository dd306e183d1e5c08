"""The library of an MCPLab workspace: the targets of `ref` entries.

    <bundle root>/servers.yaml        a map `id -> definition` or a list; not wrapped in a key
    <bundle root>/agents.yaml         the same
    <bundle root>/test-cases/*.yaml   one scenario per file (`scenarios/` in older workspaces)

The caller reads these documents and builds a `Library` with `read_library`; this module does no I/O. An unreadable file or an incomplete
entry only matters if something refers to it: it is left out with a warning.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from proctor.formats.mcplab.setup import Entry, iterate_entries, read_agent, read_entry_id, read_server
from proctor.formats.text.located import Located, Reading
from proctor.model.problem import Problem

SERVERS_FILE: Final = "servers.yaml"
AGENTS_FILE: Final = "agents.yaml"
SCENARIO_FOLDERS: Final = ("test-cases", "scenarios")
"""Folders of scenarios; the second is the old name and counts only if the first does not exist."""
ROOT_FOLDERS: Final = ("evals", "configs")
"""The folder of configs, nested at any depth."""
_INSIDE_ROOT: Final = (*ROOT_FOLDERS, *SCENARIO_FOLDERS)


class LibraryDocument(msgspec.Struct, frozen=True):
    """One file of the library: its document (None if it is unreadable) and its reading."""

    document: Located | None
    reading: Reading


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a `ref` can name."""

    root: str = ""
    """The bundle root, for messages."""
    hint: str | None = None
    """The place to add a missing entry; None means the files of the bundle root."""
    servers: dict[str, Entry] = {}
    agents: dict[str, Entry] = {}
    scenarios: dict[str, LibraryDocument] = {}
    problems: tuple[Problem, ...] = ()
    """Problems found while reading the library; added to those of every suite that uses it."""


def find_bundle_root(path: str) -> str:
    """Return the folder whose library a file uses: the parent of `evals`, `configs` or `test-cases`, else the file's own folder."""
    folder = posixpath.dirname(path.replace("\\", "/"))
    return posixpath.dirname(folder) if posixpath.basename(folder) in _INSIDE_ROOT else folder


def read_library(
    *,
    root: str = "",
    servers: LibraryDocument | None = None,
    agents: LibraryDocument | None = None,
    scenarios: Iterable[LibraryDocument] = (),
) -> Library:
    """Return a library from files that the caller has read, each with its own `Reading`."""
    problems: list[Problem] = []
    known_servers = _read_definitions(servers, "a server of the library", ("transport", "url"), read_server, problems)
    known_agents = _read_definitions(agents, "an agent of the library", ("provider",), read_agent, problems)
    known_scenarios: dict[str, LibraryDocument] = {}
    for entry in scenarios:
        reading, document = entry.reading, entry.document
        if document is not None and reading.require_object(document, "a test case") is not None:
            name = read_entry_id(document, reading, "a test case") if document.get("id") is not None else None
            if name is None:
                reading.warn(document, "a test case without 'id' is left out of the library", code="left_out")
            elif name in known_scenarios:
                where = known_scenarios[name].reading.file or "another file"
                reading.warn(
                    document.get("id") or document, f"the test case {name!r} is also in {where}; that one is used", code="duplicate_id"
                )
            else:
                known_scenarios[name] = entry
        _as_warnings(reading)
        problems.extend(reading.problems)
        # Problems found later, while the scenario is read for a suite, belong to that suite.
        reading.problems.clear()
    return Library(root=root, servers=known_servers, agents=known_agents, scenarios=known_scenarios, problems=tuple(problems))


def _read_definitions(
    entry: LibraryDocument | None,
    what: str,
    needed: tuple[str, ...],
    read: Callable[[Located, Reading, str, str | None], Entry | None],
    problems: list[Problem],
) -> dict[str, Entry]:
    if entry is None:
        return {}
    reading = entry.reading
    _as_warnings(reading)
    definitions: dict[str, Entry] = {}
    for given_id, node in iterate_entries(entry.document, reading, what, warn_of_map=False):
        missing = _describe_missing_keys(node, needed)
        if missing:
            reading.warn(node, f"{what} without {missing} is left out", code="left_out")
            continue
        definition = read(node, reading, what, given_id)
        if definition is None:
            continue
        if definition["id"] in definitions:
            reading.error(node.get("id") or node, f"{what}: the id {definition['id']!r} appears twice", code="duplicate_id")
        definitions.setdefault(definition["id"], definition)
    problems.extend(reading.problems)
    return definitions


def _describe_missing_keys(node: Located, needed: tuple[str, ...]) -> str:
    if not node.is_object:
        return ""
    kind = node.get("type")
    if "provider" in needed and (kind is None or kind.value != "browser"):
        needed = ("provider", "model")
    elif "provider" in needed:
        return ""
    return " and ".join(repr(key) for key in needed if (member := node.get(key)) is None or member.value is None)


def _as_warnings(reading: Reading) -> None:
    reading.problems[:] = [msgspec.structs.replace(problem, level="warning") for problem in reading.problems]
