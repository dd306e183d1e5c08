"""What an MCPLab suite comes to when it is run: every scenario with every selected agent, and the servers each of them uses.

* Agents are selected by `--agents-all`, else `--agents`, else `run_defaults.selected_agents`, else all there are.
* With one agent a case keeps the id of its scenario, with several it is `<scenario>-<agent>`; scenario by scenario, agent by agent.
* Server overrides replace the servers of scenarios: one for a single scenario wins over the one for all.
* A browser agent cannot be driven: its cases are skipped, code `unsupported_agent`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from proctor.errors import InputError
from proctor.formats.drafting import unique
from proctor.model.case import Case, Skip, Suite
from proctor.model.evidence import Json
from proctor.model.show import nearest, show

Entry = dict[str, Json]
UNSUPPORTED = "unsupported_agent"


class ServerOverrides(msgspec.Struct, frozen=True, kw_only=True):
    """Servers, by id, in place of those the scenarios name."""

    everywhere: tuple[str, ...] | None = None
    scenarios: dict[str, tuple[str, ...]] = {}


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario with one agent."""

    case: Case
    """As it is run: with the id of this combination."""
    scenario: str
    agent: Entry
    servers: tuple[str, ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run before anything is connected."""

    suite: Suite
    """The suite that is run: one case per scenario and agent."""
    rows: tuple[Planned, ...]
    servers: dict[str, Entry]
    """Every server that a row uses."""

    def agents(self) -> list[Entry]:
        """The agents that have something to do, in order."""
        return list({row.agent["id"]: row.agent for row in self.rows}.values())


def read_overrides(everywhere: str | None = None, scenarios: Iterable[str] = ()) -> ServerOverrides:
    """Overrides as they are written on the command line: `a,b`, and `SCENARIO=a,b` any number of times."""
    chosen: dict[str, tuple[str, ...]] = {}
    for item in scenarios:
        name, equals, ids = item.partition("=")
        if not equals or not name.strip():
            raise InputError(f"a server override is written SCENARIO=SERVER,SERVER, found {show(item, 80)}")
        chosen[name.strip()] = names_in(ids)
    return ServerOverrides(everywhere=None if everywhere is None else names_in(everywhere), scenarios=chosen)


def read_tokens(items: Iterable[str]) -> dict[str, str]:
    """Tokens as they are written on the command line: `SERVER=TOKEN`, split at the first `=`. A bad one is never shown."""
    tokens: dict[str, str] = {}
    for number, item in enumerate(items, 1):
        server, _, token = item.partition("=")
        if not server.strip() or not token:
            raise InputError(f"OAuth token number {number} is not written SERVER=TOKEN")
        tokens[server.strip()] = token
    return tokens


def names_in(text: str) -> tuple[str, ...]:
    """The names in a list separated by commas, each once."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def plan(suite: Suite, *, agents: Sequence[str] | None = None, agents_all: bool = False, overrides: ServerOverrides | None = None) -> Plan:
    """Which scenario runs with which agent on which servers. Raises `InputError`."""
    if suite.dialect != "mcplab":
        raise InputError(f"the suite {suite.name!r} is no MCPLab suite (its dialect is {suite.dialect}): it names no agents to run")
    if suite.cases and not suite.settings:
        raise InputError("several MCPLab configs at once: each has agents of its own, so run them one by one")
    chosen = _selected(suite, agents, agents_all)
    known = {server["id"]: server for server in suite.settings.get("servers") or ()}
    overrides = overrides or ServerOverrides()
    _check_overrides(suite, overrides, known)
    taken: set[str] = set()
    rows: list[Planned] = []
    for case in suite.cases:
        servers = _servers_of(case, overrides)
        for agent in chosen:
            name = case.id if len(chosen) == 1 else f"{case.id}-{agent['id']}"
            if name in taken:
                name = unique(name, taken)
            taken.add(name)
            rows.append(
                Planned(case=_as_run(case, name, agent, overrides, known, len(chosen)), scenario=case.id, agent=agent, servers=servers)
            )
    used = dict.fromkeys(server for row in rows if row.case.skip is None for server in row.servers)
    return Plan(
        suite=msgspec.structs.replace(suite, cases=tuple(row.case for row in rows)),
        rows=tuple(rows),
        servers={server: known[server] for server in used},
    )


def _selected(suite: Suite, agents: Sequence[str] | None, agents_all: bool) -> list[Entry]:
    known: dict[str, Entry] = {agent["id"]: agent for agent in suite.settings.get("agents") or ()}
    if not known:
        raise InputError(f"the suite {suite.name!r} names no agents: write them under 'agents', or in agents.yaml")
    if agents_all:
        return list(known.values())
    wanted = agents
    if wanted is None:
        wanted = suite.settings.get("run_defaults", {}).get("selected_agents") or list(known)
    if not wanted:
        raise InputError(f"no agent is selected; available: {', '.join(known)}")
    for name in wanted:
        if name not in known:
            close = nearest(name, known)
            hint = f"; nearest: {', '.join(close)}" if close else ""
            raise InputError(f"there is no agent {name!r}{hint}; available: {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(wanted)]


def _check_overrides(suite: Suite, overrides: ServerOverrides, known: Mapping[str, Entry]) -> None:
    if overrides.everywhere is not None and not overrides.everywhere:
        raise InputError("a server override for all scenarios names no server")
    scenarios = {case.id for case in suite.cases}
    for name in overrides.scenarios:
        if name not in scenarios:
            close = nearest(name, scenarios)
            raise InputError(f"a server override: there is no scenario {name!r}" + (f"; nearest: {close[0]}" if close else ""))
    for server in (*(overrides.everywhere or ()), *(each for ids in overrides.scenarios.values() for each in ids)):
        if server not in known:
            raise InputError(f"a server override: there is no server {server!r}; available: {', '.join(known) or 'none'}")


def _overridden(case: Case, overrides: ServerOverrides) -> tuple[str, ...] | None:
    return overrides.scenarios.get(case.id, overrides.everywhere)


def _servers_of(case: Case, overrides: ServerOverrides) -> tuple[str, ...]:
    instead = _overridden(case, overrides)
    if instead is not None:
        return instead
    return tuple(dict.fromkeys(server["id"] for server in case.settings.get("mcp_servers") or ()))


def _as_run(case: Case, name: str, agent: Entry, overrides: ServerOverrides, known: Mapping[str, Entry], agents: int) -> Case:
    # A case that needs no change stays the one that was read, so that a kept run finds its places in the file again.
    changes: dict[str, Json] = {}
    if name != case.id or agents > 1:
        changes |= {"id": name, "tags": {**case.tags, "agent": agent["id"], "scenario": case.id}}
    instead = _overridden(case, overrides)
    if instead is not None:
        changes["settings"] = {**case.settings, "mcp_servers": [known[server] for server in instead]}
    skip = case.skip if case.skip is None or case.skip.code != UNSUPPORTED else None
    if agent["type"] == "browser":
        skip = Skip(code=UNSUPPORTED, reason=f"{agent['id']!r} is a browser agent, which proctor does not drive")
    if skip != case.skip:
        changes["skip"] = skip
    return msgspec.structs.replace(case, **changes) if changes else case
