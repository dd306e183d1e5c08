"""Plans the run of an MCPLab suite: every scenario with every selected agent, and the servers each of them uses.

* Agents are selected by `--agents-all`, else `--agents`, else `run_defaults.selected_agents`, else all there are.
* With one agent a case keeps the id of its scenario, with several it is `<scenario>-<agent>`; scenario by scenario, agent by agent.
* Server overrides replace the servers of scenarios: one for a single scenario wins over the one for all.
* A browser agent cannot be driven: its cases are skipped, code `unsupported_agent`.
* Each of several configs is planned separately, with its own agents and servers, as if it were run alone. `--agents` selects those that
  each config has, and a server override for one scenario applies to the configs that have it. A name that no config has is an error, and so
  is a config that is left without an agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from proctor.errors import InputError
from proctor.formats.native.drafting import make_unique
from proctor.model.case import Case, Skip, Suite
from proctor.model.evidence import Json
from proctor.model.show import show, suggest

Entry = dict[str, Json]
UNSUPPORTED = "unsupported_agent"


class ServerOverrides(msgspec.Struct, frozen=True, kw_only=True):
    """Servers, by id, in place of those the scenarios name."""

    everywhere: tuple[str, ...] | None = None
    scenarios: dict[str, tuple[str, ...]] = {}


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario with one agent."""

    case: Case
    """The case to run, with the id of this combination."""
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
        """The agents that have cases, in order."""
        return list({row.agent["id"]: row.agent for row in self.rows}.values())


def read_overrides(everywhere: str | None = None, scenarios: Iterable[str] = ()) -> ServerOverrides:
    """Read overrides from the command line: `a,b`, and `SCENARIO=a,b` any number of times."""
    chosen: dict[str, tuple[str, ...]] = {}
    for item in scenarios:
        name, equals, ids = item.partition("=")
        if not equals or not name.strip():
            raise InputError(f"a server override is written SCENARIO=SERVER,SERVER, found {show(item, 80)}")
        chosen[name.strip()] = names_in(ids)
    return ServerOverrides(everywhere=None if everywhere is None else names_in(everywhere), scenarios=chosen)


def read_tokens(items: Iterable[str]) -> dict[str, str]:
    """Read tokens from the command line: `SERVER=TOKEN`, split at the first `=`. An invalid one is never shown."""
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


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """One MCPLab config of a suite."""

    suite: Suite
    scenarios: dict[str, str] = {}
    """The config's id of a scenario by the id of the case, if they differ."""

    def scenario(self, case: Case) -> str:
        """The name of a case in the config."""
        return self.scenarios.get(case.id, case.id)

    def named(self, name: str) -> bool:
        """Whether a scenario has this name, in the config or in the suite."""
        return any(name in (case.id, self.scenario(case)) for case in self.suite.cases)

    def known(self, key: str) -> dict[str, Entry]:
        """Its `agents` or `servers` by id."""
        return {entry["id"]: entry for entry in self.suite.settings.get(key) or ()}


def configs_of(suite: Suite, *, all_of_them: bool = False) -> list[Config]:
    """The configs a suite was read from: itself, or those that have a case in it, or `all_of_them`."""
    if suite.dialect != "mcplab":
        raise InputError(f"the suite {suite.name!r} is no MCPLab suite (its dialect is {suite.dialect}): it names no agents to run")
    if "configs" not in suite.settings:
        return [Config(suite=suite)]
    configs: list[Config] = []
    for each in suite.settings["configs"]:
        cases = tuple(case for case in suite.cases if case.id in each["scenarios"])
        path = None if each.get("file") is None else str(Path(suite.path or ".") / each["file"])
        part = Suite(name=each["name"], dialect="mcplab", path=path, cases=cases, settings=each["settings"])
        if cases or all_of_them:
            configs.append(Config(suite=part, scenarios=each["scenarios"]))
    return configs


def plan_all(
    suite: Suite, *, agents: Sequence[str] | None = None, agents_all: bool = False, overrides: ServerOverrides | None = None
) -> list[Plan]:
    """Return the plans of all configs of a suite; the ids of their cases are unique in the run. Raises `InputError`."""
    configs = configs_of(suite)
    if len(configs) == 1:
        return [plan(configs[0], agents=agents, agents_all=agents_all, overrides=overrides)]
    for name in () if agents_all else agents or ():
        _require_known("agent", name, [known for config in configs for known in config.known("agents")], _ANYWHERE)
    overrides = overrides or ServerOverrides()
    for name in overrides.scenarios:
        if not any(config.named(name) for config in configs):
            _require_known("scenario", name, [config.scenario(case) for config in configs for case in config.suite.cases], _ANYWHERE)
    plans: list[Plan] = []
    used_ids: set[str] = set()
    for config in configs:
        own_agents = agents if agents is None or agents_all else [name for name in agents if name in config.known("agents")]
        own_overrides = {name: ids for name, ids in overrides.scenarios.items() if config.named(name)}
        try:
            chosen = msgspec.structs.replace(overrides, scenarios=own_overrides)
            plans.append(plan(config, agents=own_agents, agents_all=agents_all, overrides=chosen, taken=used_ids))
        except InputError as error:
            raise InputError(f"config {config.suite.name!r}: {error}", error.problems) from None
    return plans


def plan(
    config: Config | Suite,
    *,
    agents: Sequence[str] | None = None,
    agents_all: bool = False,
    overrides: ServerOverrides | None = None,
    taken: set[str] | None = None,
) -> Plan:
    """Plan which scenarios of one config run with which agents on which servers. Raises `InputError`.

    `taken` are the ids of cases that other configs use; those of this one are added.
    """
    if isinstance(config, Suite):
        configs = configs_of(config)
        if len(configs) != 1:
            raise InputError(f"expected one MCPLab config, found {len(configs)} in the suite {config.name!r}")
        config = configs[0]
    suite = config.suite
    chosen = _select_agents(suite, agents, agents_all)
    known = config.known("servers")
    overrides = overrides or ServerOverrides()
    _check_overrides(config, overrides, known)
    taken = set() if taken is None else taken
    rows: list[Planned] = []
    for case in suite.cases:
        scenario = config.scenario(case)
        instead = overrides.scenarios.get(case.id, overrides.scenarios.get(scenario, overrides.everywhere))
        servers = tuple(dict.fromkeys(server["id"] for server in case.settings.get("mcp_servers") or ())) if instead is None else instead
        replaced = None if instead is None else [known[server] for server in instead]
        for agent in chosen:
            name = case.id if len(chosen) == 1 else f"{case.id}-{agent['id']}"
            if name in taken:
                name = make_unique(name, taken)
            taken.add(name)
            as_run = _make_run_case(case, name, scenario if len(chosen) > 1 or name != case.id else None, agent, replaced)
            rows.append(Planned(case=as_run, scenario=scenario, agent=agent, servers=servers))
    # A server that only skipped cases name is not connected.
    used = dict.fromkeys(server for row in rows if row.case.skip is None for server in row.servers)
    return Plan(
        suite=msgspec.structs.replace(suite, cases=tuple(row.case for row in rows)),
        rows=tuple(rows),
        servers={server: known[server] for server in used},
    )


_ANYWHERE = " in any of the configs"


def _require_known(what: str, name: str, known: Iterable[str], where: str = "") -> None:
    available = list(dict.fromkeys(known))
    if name not in available:
        raise InputError(f"there is no {what} {name!r}{where}{suggest(name, available)}; available: {', '.join(available)}")


def _select_agents(suite: Suite, agents: Sequence[str] | None, agents_all: bool) -> list[Entry]:
    known: dict[str, Entry] = {agent["id"]: agent for agent in suite.settings.get("agents") or ()}
    if not known:
        raise InputError(f"the suite {suite.name!r} names no agents: write them under 'agents', or in agents.yaml")
    if agents_all:
        return list(known.values())
    agent_names = agents
    if agent_names is None:
        agent_names = suite.settings.get("run_defaults", {}).get("selected_agents") or list(known)
    if not agent_names:
        raise InputError(f"no agent is selected; available: {', '.join(known)}")
    for name in agent_names:
        _require_known("agent", name, known)
    return [known[name] for name in dict.fromkeys(agent_names)]


def _check_overrides(config: Config, overrides: ServerOverrides, known: Mapping[str, Entry]) -> None:
    if overrides.everywhere is not None and not overrides.everywhere:
        raise InputError("a server override for all scenarios names no server")
    for name in overrides.scenarios:
        if not config.named(name):
            scenarios = dict.fromkeys(config.scenario(case) for case in config.suite.cases)
            raise InputError(f"a server override: there is no scenario {name!r}{suggest(name, scenarios)}")
    for server in (*(overrides.everywhere or ()), *(each for ids in overrides.scenarios.values() for each in ids)):
        if server not in known:
            raise InputError(f"a server override: there is no server {server!r}; available: {', '.join(known) or 'none'}")


def _make_run_case(case: Case, name: str, scenario: str | None, agent: Entry, servers: list[Entry] | None) -> Case:
    """Return the case of one combination; `scenario` is recorded if the id lacks it, `servers` if they are not those of the case."""
    # An unchanged case stays the same object, so that a stored run still finds its lines in the file.
    changes: dict[str, Json] = {}
    if scenario is not None:
        changes |= {"id": name, "tags": {**case.tags, "agent": agent["id"], "scenario": scenario}}
    if servers is not None:
        changes["settings"] = {**case.settings, "mcp_servers": servers}
    if agent["type"] == "browser":
        changes["skip"] = Skip(code=UNSUPPORTED, reason=f"{agent['id']!r} is a browser agent, which proctor does not drive")
    return msgspec.structs.replace(case, **changes) if changes else case
