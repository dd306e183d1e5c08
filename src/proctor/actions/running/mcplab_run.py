"""Run an MCPLab workspace: its agents, on its servers, through its scenarios.

Everything that can be known to be wrong before the run is told before it, all at once: an agent that is not there, a variable that is not
set, a login that was not made, a file outside the workspace. An agent without its key fails alone, unless no other has one. What the
original loses or hides is not copied: a scenario that fails fails the run, one that reaches its turn limit has not passed, an answer is
kept whatever happened, headers are sent.

Several configs are one run. Each keeps its agents and servers, and has a folder of its own among MCPLab's files, as each would have had a
run of its own there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from proctor.actions.mcplab.access import Access
from proctor.actions.mcplab.config import hash_of, public_suite, resolved_config
from proctor.actions.mcplab.files import load_attachments, root_of, variables_of
from proctor.actions.mcplab.plan import Plan, configs_of
from proctor.actions.running.run_policy import McplabOptions, Policy
from proctor.actions.workspace.close_all import close_all
from proctor.actions.workspace.combined_suites import TargetsTogether
from proctor.cassettes.ports import Tape
from proctor.errors import InputError, StoreError, TargetError
from proctor.formats.mcplab.text import rules_of
from proctor.formats.native.drafting import make_unique
from proctor.formats.text.yaml_text import to_yaml
from proctor.llm.ports import ChatModel
from proctor.llm.taped import TapedModel
from proctor.model.attempt import Attempt
from proctor.model.case import Suite
from proctor.model.evidence import Evidence, Json
from proctor.model.problem import Problem
from proctor.model.result import RunResult
from proctor.model.run import RunEntry
from proctor.report.data.mcplab_artifacts import ArtifactRow, MadeWith, artifact_texts
from proctor.targets.mcp.agent import McpAgent
from proctor.targets.mcp.agent_conversation import AgentSettings
from proctor.targets.mcp.servers import McpServers
from proctor.targets.mcp.settings import ServerSettings

# --- all agents of an MCPLab run as one target: each case goes to its own agent

NO_MODEL: Final = "missing_variable"
_LONGEST_ID: Final = 180
_NOT_IN_SLUG = re.compile(r"[^a-z0-9_-]+")
# What cannot stand in the value of a header.
_NOT_IN_HEADER = re.compile(r"[^\x21-\x7e]")


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Where one case goes, and with what."""

    scenario: str
    agent: str
    servers: tuple[str, ...] = ()
    attachments: tuple[dict[str, Json], ...] = ()


class McplabTarget:
    """The agents of a run. It owns the models and the servers, and gives both back."""

    def __init__(
        self,
        *,
        routes: Mapping[str, Route],
        agents: Mapping[str, McpAgent],
        models: Mapping[str, ChatModel],
        servers: McpServers,
        name: str,
        lacking: Mapping[str, str] | None = None,
    ) -> None:
        self._routes = routes
        self._agents = agents
        self._models = models
        self._servers = servers
        self._name = name
        self._lacking = lacking or {}
        """Why an agent cannot be driven, by its name."""

    @property
    def name(self) -> str:
        """The agents, in order."""
        return self._name

    @property
    def cases(self) -> frozenset[str]:
        """The cases that come here."""
        return frozenset(self._routes)

    async def open(self) -> None:
        """Connect every server that a case uses."""
        await self._servers.open()

    async def close(self) -> None:
        """Leave the servers and the models."""
        await close_all((self._servers, *self._models.values()))

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Let the agent of the case work."""
        case = attempt.case
        route = self._routes.get(case.id)
        if route is None:
            raise TargetError(f"case {case.id!r} belongs to no agent of this run")
        if route.agent in self._lacking:
            raise TargetError(self._lacking[route.agent], code=NO_MODEL)
        settings = {**case.settings, "mcp_servers": list(route.servers), "attachments": list(route.attachments)}
        run_id = attempt.request_id.removesuffix(f":{case.id}:{attempt.number}")
        asked = msgspec.structs.replace(
            attempt,
            case=msgspec.structs.replace(case, settings=settings),
            request_id=request_id(run_id, route, case.id, attempt.number),
        )
        evidence = await self._agents[route.agent].run(asked, tape)
        model = self._models[route.agent]
        about: dict[str, Json] = {"agent": route.agent, "scenario": route.scenario, "request_id": asked.request_id}
        answered = evidence.metadata.get("model")
        if answered != model.name:
            about["answered_by"] = answered
        return msgspec.structs.replace(evidence, metadata={**evidence.metadata, "model": model.name, **about})


class McplabTargets(TargetsTogether):
    """The agents of several configs as one target. Each config has its own connections: the same id may mean another server in another."""

    def __init__(self, targets: Sequence[McplabTarget]) -> None:
        super().__init__([(target, target.cases) for target in targets])


def request_id(run_id: str, route: Route, case_id: str, number: int) -> str:
    """The id that the tool calls of one attempt carry."""
    slug = _NOT_IN_SLUG.sub("_", route.agent.lower()).strip("_")
    # MCPLab calls a combination by scenario and agent, be there one agent or several.
    combination = case_id if case_id != route.scenario else f"{route.scenario}-{route.agent}"
    whole = f"mcplab-run:{run_id}:{route.scenario}:{slug}:{combination}-run{number + 1}"
    return _NOT_IN_HEADER.sub("_", whole)[-_LONGEST_ID:]


ARTIFACTS_FOLDER = "mcplab"
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_AGENT_SETTINGS = ("system", "max_turns", "temperature", "max_tokens")


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """One config before anything is sent: who is driven through what, and what that was made of."""

    plan: Plan
    target: McplabTarget
    secrets: frozenset[str]
    config: dict[str, Json]
    """Without anything secret."""


class Together(msgspec.Struct, frozen=True, kw_only=True):
    """All configs of a run."""

    suite: Suite
    """What is driven and kept, without anything secret."""
    target: McplabTarget | McplabTargets
    secrets: frozenset[str]
    configs: dict[str, Ready]
    """By the folder of their files among those of the run; a single config has none of its own."""


def prepare_all(suite: Suite, policy: Policy, options: McplabOptions) -> Together:
    """Return everything up to the first connection, of every config. Raises `InputError` with every problem of all of them."""
    plans = policy.plan_agents(suite, options)
    if not plans:
        raise InputError(f"the suite {suite.name!r} has no scenario to run")
    known = list(dict.fromkeys(server for config in configs_of(suite) for server in config.known("servers")))
    for server in options.oauth_tokens:
        if server not in known:
            raise InputError(f"an OAuth token for {server!r}: there is no such server; available: {', '.join(known) or 'none'}")
    readies: list[Ready] = []
    problems: dict[Problem, None] = {}
    for planned, instead in plans:
        try:
            readies.append(_prepare(planned, policy, options, instead))
        except InputError as error:
            # Configs that share a library share what is missing for it: each thing is told once.
            problems |= dict.fromkeys(error.problems or [Problem(message=str(error))])
    if problems:
        raise InputError(next(iter(problems)).message, list(problems))
    cases = tuple(case for planned, _ in plans for case in planned.suite.cases)
    kept = public_suite(msgspec.structs.replace(suite, cases=cases))
    secrets = frozenset(secret for ready in readies for secret in ready.secrets)
    if "configs" not in suite.settings:
        return Together(suite=kept, target=readies[0].target, secrets=secrets, configs={"": readies[0]})
    return Together(suite=kept, target=McplabTargets([ready.target for ready in readies]), secrets=secrets, configs=_folders(readies))


def _prepare(planned: Plan, policy: Policy, options: McplabOptions, instead: Mapping[str, ServerSettings]) -> Ready:
    place = options.root if options.root is not None else root_of(planned.suite)
    surroundings, offline = policy.surroundings, policy.offline
    known = variables_of(policy.variables, place, policy.may_read) if surroundings.dotenv else policy.variables
    access = Access(known, tokens=options.oauth_tokens, offline=offline, surroundings=surroundings)
    files: dict[str, list[dict[str, Json]]] = {}
    for row in planned.rows:
        if row.scenario not in files:
            files[row.scenario] = load_attachments(row.case, place, access.problems, scenario=row.scenario)
    servers = [instead.get(name) or access.server(entry) for name, entry in planned.servers.items()]
    driven = {row.agent["id"]: row.agent for row in planned.rows if row.case.skip is None}
    models, lacking = access.models(driven)
    access.finish()
    usable_servers = [server for server in servers if server is not None]
    connected = McpServers(usable_servers, offline=offline, transport=surroundings.server_transport)
    target = McplabTarget(
        routes={
            row.case.id: Route(
                scenario=row.scenario, agent=row.agent["id"], servers=row.servers, attachments=tuple(files.get(row.scenario, ()))
            )
            for row in planned.rows
        },
        agents={name: _agent(driven[name], model, connected) for name, model in models.items()},
        models=models,
        lacking=lacking,
        servers=connected,
        name=", ".join(agent["id"] for agent in planned.agents()),
    )
    secrets = frozenset((*access.secrets, *(secret for server in instead.values() for secret in server.list_secrets())))
    return Ready(plan=planned, target=target, secrets=secrets, config=resolved_config(planned, files))


def write_artifacts(
    folder: Path, run: RunResult, entries: Sequence[RunEntry], ready: Ready, *, note: str = "", stopped: bool = False
) -> None:
    """Write `results.json`, `trace.jsonl`, `summary.md`, `report.html` and `resolved-config.yaml`. Raises `StoreError`."""
    from proctor import __version__  # the package itself imports this room

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
    made_with = MadeWith(rows=rows, config_hash=hash_of(ready.config), version=f"proctor {__version__}", note=note, stopped=stopped)
    texts = {"resolved-config.yaml": to_yaml(ready.config), **artifact_texts(run, entries, made_with)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            # Never half a file where there was a whole one.
            half = folder / f".{name}.{os.getpid()}"
            half.write_text(text, encoding="utf-8", newline="\n")
            half.replace(folder / name)
    except OSError as error:
        raise StoreError(f"the MCPLab files cannot be written to {str(folder)!r}: {error.strerror or error}") from error


def _agent(agent: dict[str, Json], model: ChatModel, servers: McpServers) -> McpAgent:
    def model_for(tape: Tape) -> ChatModel:
        return TapedModel(model, tape)

    given = {key: agent[key] for key in _AGENT_SETTINGS if agent.get(key) is not None}
    settings = AgentSettings(**given, tool_errors="json", unknown_tools="end")
    return McpAgent(agent["id"], servers=servers, model_for=model_for, settings=settings)


def _folders(readies: Sequence[Ready]) -> dict[str, Ready]:
    """Return a folder for each config: its file without the ending."""
    folders: dict[str, Ready] = {}
    for ready in readies:
        name = _NOT_IN_NAME.sub("_", Path(ready.plan.suite.path or ready.plan.suite.name).stem).strip("._") or "config"
        folders[make_unique(name, set(folders))] = ready
    return folders
