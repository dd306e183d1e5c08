"""Reads MCPLab evaluation configs and separate test-case files.

A scenario becomes a case with the same id. MCPLab runs a scenario once per agent; here the agents are settings of the runner.
The rules are those of MCPLab's loader with two differences: an unknown key is reported (below the top level it is an error; the loader
keeps it silently), and mistakes that MCPLab finds only at run time are errors of the file. Older forms are read with a warning: `name` for
`id`, maps for lists, a top-level `servers` pool, `servers` and `agent` in a scenario, `tool_sequence: {allow: ...}`.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from proctor.formats.mcplab.library import Library
from proctor.formats.mcplab.rules import (
    CONFIG_KEYS,
    MISPLACED_KEYS,
    REMOVED_KEYS,
    SCENARIO_KEYS,
    read_captures,
    read_rules,
    warn_of_snapshots,
)
from proctor.formats.mcplab.setup import Entry, iterate_entries, read_agent, read_attachments, read_server, refuse_ref
from proctor.formats.text.located import Located, Reading
from proctor.model.case import UNSEEN_TOOLS, Case, Scoring, Suite
from proctor.model.evidence import Json
from proctor.model.problem import Origin
from proctor.model.show import nearest

_ROOT_RULE: Final = (
    "the library is looked for in the bundle root: the parent of a folder named 'evals' or 'configs', else the folder of this file"
)
_SCORING: Final = Scoring(mode="boolean", when_empty="pass")


def sniff(document: Located) -> bool:
    """Return whether the document has `scenarios`, or is one scenario: a `prompt` or `eval` with MCPLab's rule blocks."""
    if document.get("proctor") is not None:
        return False
    if any(document.get(key) is not None for key in ("scenarios", *REMOVED_KEYS)):
        return True
    rules = document.get("eval")
    if rules is not None and (rules.is_object or rules.value is None):
        return True
    prompt = document.get("prompt")
    return prompt is not None and any(document.get(key) is not None for key in ("id", "mcp_servers", "extract"))


def read(document: Located, reading: Reading, *, name: str, library: Library | None = None) -> Suite:
    """Read an evaluation config or one test case. `ref` entries refer to `library`; without one they are errors."""
    if library is not None:
        reading.problems.extend(library.problems)
    if reading.require_object(document, "an MCPLab file") is None:
        return Suite(name=name, dialect="mcplab")
    config = _Config(reading, library)
    is_config = document.get("scenarios") is not None or (document.get("prompt") is None and document.get("eval") is None)
    return config.read_suite(document, name) if is_config else config.read_single_case(document, name)


class _Config:
    def __init__(self, reading: Reading, library: Library | None) -> None:
        self.reading = reading
        self.library = library
        self.pool: dict[str, Entry] = {}
        """The top-level `servers`, which older scenarios name by id."""
        self.servers: dict[str, tuple[Entry, Origin]] = {}
        """The first definition of every server in use, to detect two definitions under one id."""
        self.agents: dict[str, Entry] = {}
        self.wanted_agents: list[str] = []
        """Agents named by the scenarios of older files."""
        self.strict_refs = True

    def read_suite(self, document: Located, name: str) -> Suite:
        reading = self.reading
        reading.check_record_keys(document, CONFIG_KEYS, "an evaluation config", {**MISPLACED_KEYS, **REMOVED_KEYS})
        warn_of_snapshots(document, reading)
        self._read_pool(document.get("servers"))
        for given_id, item in iterate_entries(document.get("agents"), self.reading, "'agents'"):
            if item.get("ref") is not None:
                agent = self._resolve(item, self.reading, "agent", self.library.agents if self.library else {})
            else:
                agent = read_agent(item, self.reading, "an agent", given_id)
            if agent is None:
                continue
            if agent["id"] in self.agents:
                self._report_duplicate(item, "agent", agent["id"])
            self.agents.setdefault(agent["id"], agent)
        cases_by_id: dict[str, Case] = {}
        for item in reading.list_items(document.find("scenarios"), "'scenarios'"):
            is_reference = item.get("ref") is not None
            case = self._read_referred_scenario(item, cases_by_id) if is_reference else self._read_scenario(item, reading, cases_by_id)
            if case is not None:
                cases_by_id.setdefault(case.id, case)
        cases = list(cases_by_id.values())
        if not cases and not reading.has_errors_since(0):
            reading.warn(document, "no scenarios: there is nothing to check", code="no_cases")
        defaults = self._read_run_defaults(document.find("run_defaults"))
        settings: dict[str, Json] = {
            "agents": list(self._list_agents().values()),
            "servers": self._list_servers(),
            "run_defaults": defaults,
        }
        return Suite(
            name=_read_trimmed_text(document.find("name"), reading, "'name'") or name,
            description=_read_trimmed_text(document.find("description"), reading, "'description'"),
            dialect="mcplab",
            cases=self._mark_browsers(cases),
            settings=settings,
        )

    def read_single_case(self, document: Located, name: str) -> Suite:
        """Return a standalone test case. MCPLab never loads it that way, so unknown servers and agents are not errors."""
        self.strict_refs = False
        case = self._read_scenario(document, self.reading, {})
        return Suite(
            name=(case.name if case is not None else "") or name,
            dialect="mcplab",
            cases=() if case is None else self._mark_browsers([case]),
            settings={"agents": list(self._list_agents().values()), "servers": self._list_servers()},
        )

    def _read_pool(self, node: Located | None) -> None:
        if node is not None and node.is_list and node.value:
            hint = "write them under 'mcp_servers' of the scenarios that use them"
            self.reading.warn(node, "top-level 'servers' are the old form", hint=hint, code="legacy_form")
        for given_id, item in iterate_entries(node, self.reading, "'servers'"):
            server = self._read_server(item, self.reading, given_id)
            if server is None:
                continue
            if server["id"] in self.pool:
                self._report_duplicate(item, "server", server["id"])
            else:
                self.pool[server["id"]] = server
                self._define(server, item, self.reading)

    def _read_server(self, node: Located, reading: Reading, given_id: str | None = None) -> Entry | None:
        if node.get("ref") is None:
            return read_server(node, reading, "a server", given_id)
        # Looked up in both rather than merged, because a document may have many references.
        known = ChainMap(self.pool, self.library.servers if self.library else {})
        return self._resolve(node, reading, "server", known)

    def _define(self, server: Entry, node: Located, reading: Reading) -> None:
        first = self.servers.setdefault(server["id"], (server, reading.origin(node)))
        # Identity first: all references to one library entry give the same object.
        if first[0] is not server and first[0] != server:
            message = f"the server {server['id']!r} is defined differently at {first[1]}"
            reading.error(node.get("id") or node, message, hint="use one definition, or another id", code="conflicting_server")

    def _resolve(self, node: Located, reading: Reading, kind: str, known: Mapping[str, Entry]) -> Entry | None:
        reading.check_keys(node, ("ref",), f"a reference to a library {kind}")
        ref = node.get("ref")
        ref_id = reading.require_text(ref, "'ref'")
        if ref is None or ref_id is None:
            return None
        if ref_id not in known:
            self._report_unresolved(ref, reading, kind, tuple(known))
            return None
        return known[ref_id]

    def _report_unresolved(self, ref: Located, reading: Reading, kind: str, known: tuple[str, ...]) -> None:
        message = f"the {kind} {ref.value!r} is not in the library"
        if self.library is not None and self.library.root:
            message += f" of {self.library.root}"
        hint = self.library.hint if self.library is not None and self.library.hint is not None else _ROOT_RULE
        report = reading.error if self.strict_refs else reading.warn
        report(ref, message, nearest=nearest(ref.value, known), hint=hint, code="unresolved_ref")

    def _report_duplicate(self, node: Located, kind: str, name: str) -> None:
        self.reading.error(node.get("id") or node.get("ref") or node, f"two {kind}s with the id {name!r}", code="duplicate_id")

    def _list_agents(self) -> dict[str, Entry]:
        library = self.library.agents if self.library else {}
        return {**self.agents, **{key: agent for key, agent in library.items() if key not in self.agents}}

    def _list_servers(self) -> list[Entry]:
        own = {key: server for key, (server, _) in self.servers.items()}
        return [*own.values(), *(server for key, server in (self.library.servers if self.library else {}).items() if key not in own)]

    def _mark_browsers(self, cases: Iterable[Case]) -> tuple[Case, ...]:
        """Return the cases with the names of agents whose recordings cannot show tools: chat pages in a browser."""
        browsers = [agent["id"] for agent in self._list_agents().values() if agent["type"] == "browser"]
        if not browsers:
            return tuple(cases)
        return tuple(msgspec.structs.replace(case, settings={**case.settings, UNSEEN_TOOLS: browsers}) for case in cases)

    def _read_referred_scenario(self, item: Located, cases: dict[str, Case]) -> Case | None:
        self.reading.check_keys(item, ("ref", "mcp_servers"), "a reference to a library scenario")
        ref = item.get("ref")
        ref_id = self.reading.require_text(ref, "'ref'")
        if ref is None or ref_id is None:
            return None
        known = self.library.scenarios if self.library else {}
        document = known.get(ref_id)
        if document is None or document.document is None:
            self._report_unresolved(ref, self.reading, "scenario", tuple(known))
            return None
        if ref_id in cases:
            self._report_duplicate(item, "scenario", ref_id)
            return None
        case = self._read_scenario(document.document, document.reading, cases, overlay=item.get("mcp_servers"))
        # Moved, not copied: the next suite that refers to the same scenario starts with a clean list.
        self.reading.problems.extend(document.reading.problems)
        document.reading.problems.clear()
        return case

    def _read_scenario(self, node: Located, reading: Reading, cases: dict[str, Case], overlay: Located | None = None) -> Case | None:
        """Return one scenario; `overlay` are the servers of a reference, which replace its own."""
        if reading.require_object(node, "a scenario") is None or refuse_ref(node, reading):
            return None
        reading.check_keys(node, SCENARIO_KEYS, "a scenario")
        warn_of_snapshots(node, reading)
        id_node = reading.require_member(node, "id", "a scenario")
        case_id = reading.require_text(id_node, "the id of a scenario")
        if case_id is not None and not case_id.strip():
            reading.error(id_node or node, "the id of a scenario is empty")
            case_id = None
        if case_id is not None and id_node is not None and case_id in cases:
            first = cases[case_id].origin
            reading.error(id_node, f"two scenarios with the id {case_id!r}: the first is at {first}", code="duplicate_id")
        prompt = reading.require_text(node.get("prompt"), "'prompt'")
        if node.get("prompt") is None:
            reading.warn(node, "a scenario without 'prompt' can only be checked on recorded runs", code="missing_key")
        self._read_older_agent(node, reading)
        settings: dict[str, Json] = {}
        if node.get("mcp_servers") is not None or node.get("servers") is not None or overlay is not None:
            settings["mcp_servers"] = self._read_scenario_servers(node, reading, overlay)
        if attachments := read_attachments(node.find("attachments"), reading):
            settings["attachments"] = attachments
        assertions = read_rules(node.get("eval"), reading)
        captures = read_captures(node.find("extract"), reading)
        tags = node.find("tags")
        if case_id is None:
            return None
        rules = node.find("eval")
        # Content of `eval` counts even if it is invalid.
        written = rules is not None and (not rules.is_object or any(each.value for key, each in rules.members() if key != "agent_context"))
        if not assertions and not written:
            reading.warn(node, f"the scenario {case_id!r} has no rules: it passes whatever the agent does", code="no_assertions")
        return Case(
            id=case_id,
            name=_read_trimmed_text(node.find("name"), reading, "'name'"),
            description=_read_trimmed_text(node.find("description"), reading, "'description'"),
            input=prompt,
            tags={} if tags is None else {"tags": tags.plain()},
            assertions=assertions,
            captures=captures,
            scoring=_SCORING,
            settings=settings,
            origin=reading.origin(node),
        )

    def _read_older_agent(self, node: Located, reading: Reading) -> None:
        member = node.find("agent")
        name = reading.require_text(member, "'agent'")
        if member is None or name is None:
            return
        message = "'agent' does not pin a scenario to an agent: it adds the agent to the selection for all scenarios"
        reading.warn_at_key(node, "agent", message, hint="write run_defaults: {selected_agents: [...]}", code="legacy_form")
        if self.strict_refs and self._is_known_agent(member, name, reading) and name not in self.wanted_agents:
            self.wanted_agents.append(name)

    def _read_scenario_servers(self, node: Located, reading: Reading, overlay: Located | None) -> list[Entry]:
        own, older = node.get("mcp_servers"), node.get("servers")
        if overlay is not None:
            return self._read_server_list(overlay if overlay.value is not None else None, self.reading)
        if own is not None and own.value and older is not None and older.value:
            reading.error_at_key(node, "servers", "'servers' and 'mcp_servers' cannot stand together", hint="keep 'mcp_servers'")
            return []
        if older is not None and older.value and reading.require_list(older, "'servers' of a scenario") is not None:
            return self._read_older_servers(node, older, reading)
        return self._read_server_list(node.find("mcp_servers"), reading)

    def _read_server_list(self, node: Located | None, reading: Reading) -> list[Entry]:
        servers_by_id: dict[str, Entry] = {}
        for item in reading.list_items(node, "'mcp_servers'"):
            own = item.get("ref") is None
            server = read_server(item, reading, "a server of a scenario") if own else self._read_server(item, reading)
            if server is not None:
                self._define(server, item, reading)
                servers_by_id.setdefault(server["id"], server)
        return list(servers_by_id.values())

    def _read_older_servers(self, node: Located, older: Located, reading: Reading) -> list[Entry]:
        reading.warn_at_key(node, "servers", "'servers' of a scenario is the old form", hint="write 'mcp_servers'", code="legacy_form")
        servers_by_id: dict[str, Entry] = {}
        for item in older.items():
            name = reading.require_text(item, "a server id")
            if name is None:
                continue
            if name in self.pool:
                servers_by_id[name] = self.pool[name]
            elif self.strict_refs:
                message = f"the server {name!r} is not defined in the top-level 'servers'"
                reading.error(item, message, nearest=nearest(name, self.pool), code="unresolved_ref")
        return list(servers_by_id.values())

    def _is_known_agent(self, node: Located, name: str, reading: Reading) -> bool:
        if name in self.agents or (self.library is not None and name in self.library.agents):
            return True
        close = nearest(name, self._list_agents())
        reading.error(node, f"the agent {name!r} is not defined", nearest=close, hint=_ROOT_RULE, code="unresolved_ref")
        return False

    def _read_run_defaults(self, node: Located | None) -> dict[str, Json]:
        selected = list(self.wanted_agents)
        if node is not None and self.reading.require_object(node, "'run_defaults'") is not None:
            self.reading.check_keys(node, ("selected_agents",), "'run_defaults'")
            listed = self.reading.require_list(node.get("selected_agents"), "'selected_agents'")
            names = [name for item in (listed.items() if listed is not None else ()) if (name := self._select(item))]
            if listed is not None and all(item.value is None or item.value == "" for item in listed.items()):
                self.reading.error(listed, "'selected_agents' is empty", hint="leave it out to run all agents")
            selected = [*names, *(name for name in selected if name not in names)]
        return {"selected_agents": selected} if selected else {}

    def _select(self, item: Located) -> str | None:
        if isinstance(item.value, (list, dict)) or item.value is None:
            self.reading.require_text(item, "an agent id in 'selected_agents'")
            return None
        # YAML reads an id that consists of digits as a number.
        name = item.value.strip() if isinstance(item.value, str) else str(item.value)
        return name if name and self._is_known_agent(item, name, self.reading) else None


def _read_trimmed_text(node: Located | None, reading: Reading, what: str) -> str:
    return (reading.require_text(node, what) or "").strip()
