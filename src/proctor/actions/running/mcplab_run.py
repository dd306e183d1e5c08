"""Run an MCPLab workspace: its agents, on its servers, through its scenarios.

All problems that can be found before the run are reported before it, all at once: a missing agent, variable or login, a file outside the
workspace. An agent without its key fails alone, unless no other has one. Defects of the original are not copied: a failed
scenario fails the run, one that reaches its turn limit has not passed, an answer is always stored, headers are sent.

Several configs are one run. Each has its own agents and servers, and its own folder among MCPLab's files, because it would be a
run of its own in MCPLab.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from proctor.actions.mcplab.access import Access
from proctor.actions.mcplab.files import find_suite_root, load_attachments, variables_of
from proctor.actions.mcplab.plan import Entry, Plan, Planned, configs_of
from proctor.actions.running.run_policy import McplabOptions, Policy
from proctor.actions.workspace.close_all import close_all
from proctor.actions.workspace.combined_suites import CombinedTargets
from proctor.cassettes.ports import Tape
from proctor.errors import InputError, StoreError, TargetError
from proctor.formats.mcplab.text import rules_of, write_scenario
from proctor.formats.native.drafting import make_unique
from proctor.formats.text.yaml_text import to_yaml
from proctor.llm.ports import ChatModel
from proctor.llm.taped import TapedModel
from proctor.model.attempt import Attempt
from proctor.model.case import Suite
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import to_whole_numbers
from proctor.model.problem import Problem
from proctor.model.result import RunResult
from proctor.model.run import RunEntry
from proctor.report.data.mcplab_artifacts import ArtifactRow, MadeWith, artifact_texts
from proctor.targets.mcp.agent import McpAgent
from proctor.targets.mcp.agent_conversation import AgentSettings
from proctor.targets.mcp.results import Listing
from proctor.targets.mcp.servers import McpServers
from proctor.targets.mcp.settings import HIDDEN, ServerSettings, strip_url

# The configuration of a run in MCPLab's own form: no references, no library, no secrets.

_SECRET_WORDS: Final = ("token", "key", "secret", "password", "passwd", "auth", "cookie", "credential")


def resolved_config(plan: Plan, attachments: Mapping[str, Iterable[Mapping[str, Json]]]) -> dict[str, Json]:
    """The configuration of a run; `attachments` holds what was read for each scenario."""
    config: dict[str, Json] = {"name": plan.suite.name}
    if plan.suite.description:
        config["description"] = plan.suite.description
    config["agents"] = [dict(agent) for agent in plan.agents()]
    by_id = {server["id"]: server for server in plan.suite.settings.get("servers") or ()}
    scenarios: dict[str, Json] = {}
    for row in plan.rows:
        if row.scenario not in scenarios:
            servers = [public_server(by_id[server]) for server in row.servers]
            scenarios[row.scenario] = write_scenario(row.case, servers, list(map(dict, attachments.get(row.scenario, ()))), row.scenario)
    config["scenarios"] = list(scenarios.values())
    config["run_defaults"] = {"selected_agents": [agent["id"] for agent in plan.agents()]}
    return config


def public_suite(suite: Suite) -> Suite:
    """Return the suite without secrets, as it may be stored with a run; the same object if there are none."""

    def shown(holder: dict[str, Json], key: str) -> dict[str, Json]:
        servers = [public_server(server) for server in holder.get(key) or ()]
        return holder if servers == (holder.get(key) or []) else {**holder, key: servers}

    def shown_all(settings: dict[str, Json]) -> dict[str, Json]:
        if "configs" not in settings:
            return shown(settings, "servers")
        configs = [{**each, "settings": shown(each["settings"], "servers")} for each in settings["configs"]]
        return settings if configs == settings["configs"] else {**settings, "configs": configs}

    settings = shown_all(suite.settings)
    cases = tuple(
        case if (public := shown(case.settings, "mcp_servers")) is case.settings else msgspec.structs.replace(case, settings=public)
        for case in suite.cases
    )
    if settings is suite.settings and all(new is old for new, old in zip(cases, suite.cases, strict=True)):
        return suite
    return msgspec.structs.replace(suite, settings=settings, cases=cases)


def public_server(server: Entry) -> Entry:
    """A server without its secrets."""
    public: Entry = {key: value for key, value in server.items() if key not in ("auth", "headers")}
    # A local server process has no secrets.
    if "url" in public and public["url"] != strip_url(public["url"]):
        public["url"] = strip_url(public["url"])
    if server.get("headers"):
        public["headers"] = {key: _hide_secret(value) if _is_secret(key) else value for key, value in server["headers"].items()}
    auth = server.get("auth")
    if auth is not None:
        public["auth"] = _hide_auth_secrets(auth)
    return public


def _hide_auth_secrets(auth: Entry) -> Entry:
    public: Entry = {}
    for key, value in auth.items():
        if key in ("token", "value", "client_secret"):
            public[key] = _hide_secret(value)
        elif key == "token_params":
            public[key] = {name: _hide_secret(each) if _is_secret(name) else each for name, each in value.items()}
        elif key in ("token_url", "authorization_url"):
            public[key] = strip_url(value)
        else:
            public[key] = value
    return public


def _hide_secret(value: Json) -> Json:
    reference = isinstance(value, str) and value.startswith("${") and value.endswith("}") and value[2:-1].isidentifier()
    return value if reference else HIDDEN


def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in _SECRET_WORDS)


NO_MODEL: Final = "missing_variable"
_LONGEST_ID: Final = 180
_NOT_IN_SLUG = re.compile(r"[^a-z0-9_-]+")
# Characters that are not allowed in a header value.
_NOT_IN_HEADER = re.compile(r"[^\x21-\x7e]")


class McplabTarget:
    """The agents of a run. It owns the models and the servers, and closes both."""

    def __init__(
        self,
        *,
        rows: Iterable[Planned],
        attachments: Mapping[str, Sequence[Mapping[str, Json]]],
        agents: Mapping[str, McpAgent],
        models: Mapping[str, ChatModel],
        servers: McpServers,
        name: str,
        lacking: Mapping[str, str] | None = None,
    ) -> None:
        self._rows = {row.case.id: row for row in rows}
        self._attachments = attachments
        """The attachments of each scenario."""
        self._agents = agents
        self._models = models
        self._servers = servers
        self.name = name
        """The agents, in order."""
        self.cases = frozenset(self._rows)
        self._lacking = lacking or {}
        """Why an agent cannot be driven, by its name."""
        self.listings: tuple[Listing, ...] = ()
        """What the servers offer, after `open`."""

    async def open(self) -> None:
        """Connect every server that a case uses."""
        await self._servers.open()
        self.listings = self._servers.listings

    async def close(self) -> None:
        """Close the servers and the models."""
        await close_all((self._servers, *self._models.values()))

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Run the agent of the case."""
        case = attempt.case
        row = self._rows.get(case.id)
        if row is None:
            raise TargetError(f"case {case.id!r} belongs to no agent of this run")
        agent: str = row.agent["id"]
        if agent in self._lacking:
            raise TargetError(self._lacking[agent], code=NO_MODEL)
        settings = {**case.settings, "mcp_servers": list(row.servers), "attachments": list(self._attachments.get(row.scenario, ()))}
        run_id = attempt.request_id.removesuffix(f":{case.id}:{attempt.number}")
        routed = msgspec.structs.replace(
            attempt, case=msgspec.structs.replace(case, settings=settings), request_id=request_id(run_id, row, case.id, attempt.number)
        )
        evidence = await self._agents[agent].run(routed, tape)
        model = self._models[agent]
        metadata: dict[str, Json] = {"agent": agent, "scenario": row.scenario, "request_id": routed.request_id}
        answered = evidence.metadata.get("model")
        if answered != model.name:
            metadata["answered_by"] = answered
        return msgspec.structs.replace(evidence, metadata={**evidence.metadata, "model": model.name, **metadata})


def request_id(run_id: str, row: Planned, case_id: str, number: int) -> str:
    """The id that the tool calls of one attempt carry."""
    slug = _NOT_IN_SLUG.sub("_", row.agent["id"].lower()).strip("_")
    # MCPLab names a combination by scenario and agent, even if there is only one agent.
    combination = case_id if case_id != row.scenario else f"{row.scenario}-{row.agent['id']}"
    full_id = f"mcplab-run:{run_id}:{row.scenario}:{slug}:{combination}-run{number + 1}"
    return _NOT_IN_HEADER.sub("_", full_id)[-_LONGEST_ID:]


ARTIFACTS_FOLDER = "mcplab"
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_AGENT_SETTINGS = ("system", "max_turns", "temperature", "max_tokens")


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """One config before anything is sent: its agents, servers and scenarios, and the files that they come from."""

    plan: Plan
    target: McplabTarget
    secrets: frozenset[str]
    config: dict[str, Json]
    """The configuration without secrets."""


class Together(msgspec.Struct, frozen=True, kw_only=True):
    """All configs of a run."""

    suite: Suite
    """What is driven and stored, without secrets."""
    target: McplabTarget | CombinedTargets
    secrets: frozenset[str]
    configs: dict[str, Ready]
    """Configs by the folder of their files below that of the run; a single config has no folder."""


def prepare_all(suite: Suite, policy: Policy, options: McplabOptions) -> Together:
    """Prepare every config up to the first connection. Raises `InputError` with the problems of all of them."""
    plans = policy.plan_agents(suite, options)
    if not plans:
        raise InputError(f"the suite {suite.name!r} has no scenario to run")
    known = list(dict.fromkeys(server for config in configs_of(suite) for server in config.known("servers")))
    for server in options.oauth_tokens:
        if server not in known:
            raise InputError(f"an OAuth token for {server!r}: there is no such server; available: {', '.join(known) or 'none'}")
    readies: list[Ready] = []
    problems: dict[Problem, None] = {}
    for planned, replaced_servers in plans:
        try:
            readies.append(_prepare(planned, policy, options, replaced_servers))
        except InputError as error:
            # Configs that share a library share its problems: each is reported once.
            problems |= dict.fromkeys(error.problems or [Problem(message=str(error))])
    if problems:
        raise InputError(next(iter(problems)).message, list(problems))
    cases = tuple(case for planned, _ in plans for case in planned.suite.cases)
    public = public_suite(msgspec.structs.replace(suite, cases=cases))
    secrets = frozenset(secret for ready in readies for secret in ready.secrets)
    if "configs" not in suite.settings:
        return Together(suite=public, target=readies[0].target, secrets=secrets, configs={"": readies[0]})
    folders: dict[str, Ready] = {}
    for ready in readies:
        # The file name without the suffix.
        name = _NOT_IN_NAME.sub("_", Path(ready.plan.suite.path or ready.plan.suite.name).stem).strip("._") or "config"
        folders[make_unique(name, set(folders))] = ready
    # Each config has its own connections, because the same id may name different servers.
    target = CombinedTargets([(ready.target, ready.target.cases) for ready in readies])
    return Together(suite=public, target=target, secrets=secrets, configs=folders)


def _prepare(planned: Plan, policy: Policy, options: McplabOptions, replaced_servers: Mapping[str, ServerSettings]) -> Ready:
    place = options.root if options.root is not None else find_suite_root(planned.suite)
    surroundings, offline = policy.surroundings, policy.offline
    variables = variables_of(policy.variables, place, policy.may_read) if surroundings.dotenv else policy.variables
    access = Access(variables, tokens=options.oauth_tokens, offline=offline, surroundings=surroundings)
    files: dict[str, list[dict[str, Json]]] = {}
    for row in planned.rows:
        if row.scenario not in files:
            files[row.scenario] = load_attachments(row.case, place, access.problems, scenario=row.scenario)
    servers = [replaced_servers.get(name) or access.server(entry) for name, entry in planned.servers.items()]
    driven = {row.agent["id"]: row.agent for row in planned.rows if row.case.skip is None}
    models, lacking = access.models(driven)
    access.finish()
    usable_servers = [server for server in servers if server is not None]
    connected = McpServers(usable_servers, offline=offline, transport=surroundings.server_transport)
    target = McplabTarget(
        rows=planned.rows,
        attachments=files,
        agents={name: _make_agent(driven[name], model, connected) for name, model in models.items()},
        models=models,
        lacking=lacking,
        servers=connected,
        name=", ".join(agent["id"] for agent in planned.agents()),
    )
    secrets = frozenset((*access.secrets, *(secret for server in replaced_servers.values() for secret in server.list_secrets())))
    return Ready(plan=planned, target=target, secrets=secrets, config=resolved_config(planned, files))


def write_artifacts(
    folder: Path, run: RunResult, entries: Sequence[RunEntry], ready: Ready, *, note: str = "", stopped: bool = False
) -> None:
    """Write `results.json`, `trace.jsonl`, `summary.md`, `report.html` and `resolved-config.yaml`. Raises `StoreError`."""
    from proctor import __version__  # the package itself imports this module

    attachments = {each["id"]: each.get("attachments") or [] for each in ready.config["scenarios"]}
    rows = tuple(
        ArtifactRow(
            case=row.case.id,
            scenario=row.scenario,
            agent=row.agent["id"],
            provider=row.agent.get("provider"),
            model=row.agent.get("model"),
            rules=rules_of(row.case),
            attachments=tuple(attachments[row.scenario]),
        )
        for row in ready.plan.rows
    )
    # Of the compact JSON with sorted keys.
    config_hash = hashlib.sha256(msgspec.json.encode(to_whole_numbers(ready.config), order="deterministic")).hexdigest()
    made_with = MadeWith(rows=rows, config_hash=config_hash, version=f"proctor {__version__}", note=note, stopped=stopped)
    texts = {"resolved-config.yaml": to_yaml(ready.config), **artifact_texts(run, entries, made_with)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            # Written atomically, so that an existing file is never left incomplete.
            half = folder / f".{name}.{os.getpid()}"
            half.write_text(text, encoding="utf-8", newline="\n")
            half.replace(folder / name)
    except OSError as error:
        raise StoreError(f"the MCPLab files cannot be written to {str(folder)!r}: {error.strerror or error}") from error


def _make_agent(agent: dict[str, Json], model: ChatModel, servers: McpServers) -> McpAgent:
    def model_for(tape: Tape) -> ChatModel:
        return TapedModel(model, tape)

    agent_settings = {key: agent[key] for key in _AGENT_SETTINGS if agent.get(key) is not None}
    settings = AgentSettings(**agent_settings, tool_errors="json", unknown_tools="end")
    return McpAgent(agent["id"], servers=servers, model_for=model_for, settings=settings)
