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

import msgspec

from proctor.actions.history import find_home
from proctor.actions.mcplab_access import COMMAND_LINE, Access, Surroundings
from proctor.actions.mcplab_config import hash_of, public_suite, resolved_config, rules_of
from proctor.actions.mcplab_files import load_attachments, root_of, variables_of
from proctor.actions.mcplab_plan import Plan, ServerOverrides, configs_of, plan_all
from proctor.actions.mcplab_target import McplabTarget, McplabTargets, Route
from proctor.actions.run import LiveRun, drive
from proctor.actions.suites import load_suite
from proctor.actions.trust import Trust, named_in_settings, refuse_untrusted, trust_for
from proctor.cassettes.ports import Tape
from proctor.errors import InputError, StoreError
from proctor.formats.drafting import make_unique
from proctor.formats.yaml_text import to_yaml
from proctor.llm.ports import ChatModel
from proctor.llm.taped import TapedModel
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.model.problem import Problem
from proctor.model.result import RunResult
from proctor.model.run import RunEntry
from proctor.report.mcplab_artifacts import ArtifactRow, MadeWith, artifact_texts
from proctor.store.run_files import RunFiles
from proctor.targets.mcp_agent import AgentSettings, McpAgent
from proctor.targets.mcp_servers import McpServers
from proctor.targets.mcp_settings import ServerSettings

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


async def drive_mcplab(
    suite: Suite | str | Path,
    *,
    environment: Mapping[str, str],
    agents: Sequence[str] | None = None,
    agents_all: bool = False,
    overrides: ServerOverrides | None = None,
    oauth_tokens: Mapping[str, str] | None = None,
    root: str | Path | None = None,
    reached_by: Mapping[str, ServerSettings] | None = None,
    artifacts: bool | str | Path = False,
    home: str | Path | None = None,
    replay: str | Path | None = None,
    resume: str | None = None,
    note: str = "",
    trust: bool | None = None,
    **options: Json,
) -> LiveRun:
    """Run the scenarios of `suite` with the selected agents; `options` are those of `drive`.

    `artifacts` says where MCPLab's own files are written: `True` is the folder `mcplab` of the run, a path is a folder of runs; of several
    configs each has a folder of its own in there, called like its file.
    `root` is the workspace, where the suite's own place does not tell; `reached_by` says, by id, how servers are reached instead of by the
    address in the file: MCPLab only knows HTTP, and the same suite can run over stdio or in this process.
    Raises `InputError` before the run for what cannot work.
    """
    loaded = suite if isinstance(suite, Suite) else load_suite(suite)
    if replay is None:
        _refuse_strangers(loaded, trust_for("running", granted=trust, home=find_home(str(home) if home is not None else None)))
    ready = prepare_all(
        loaded,
        environment=environment,
        agents=agents,
        agents_all=agents_all,
        overrides=overrides,
        oauth_tokens=oauth_tokens,
        root=root,
        reached_by=reached_by,
        offline=replay is not None,
    )
    if resume is not None:
        _check_same_agents(home, resume, ready.target.name)
    live = await drive(
        ready.suite,
        target=ready.target,
        home=home,
        replay=replay,
        resume=resume,
        note=note,
        secrets=ready.secrets,
        trust=trust,
        **options,
    )
    if artifacts:
        folder = live.folder / ARTIFACTS_FOLDER if artifacts is True else Path(artifacts) / live.result.run_id
        kept = RunFiles(find_home(str(home) if home is not None else None)).open(live.result.run_id)
        entries = list(live.entries.values())
        for name, config in ready.configs.items():
            write_artifacts(folder / name, live.result, entries, config, note=kept.header.note, stopped=live.ended != "completed")
    return live


def _refuse_strangers(suite: Suite, trust: Trust) -> None:
    """Refuse configs that are not trusted, before the files beside them are read; each names servers and agents."""
    for config in configs_of(suite):
        if not trust.takes(config.suite):
            named = {key: config.suite.settings.get(key) for key in ("servers", "agents")}
            refuse_untrusted(config.suite, named_in_settings(named, ""), trust)


def prepare_all(
    suite: Suite,
    *,
    agents: Sequence[str] | None = None,
    agents_all: bool = False,
    overrides: ServerOverrides | None = None,
    oauth_tokens: Mapping[str, str] | None = None,
    **options: Json,
) -> Together:
    """Everything up to the first connection, of every config. Raises `InputError` with every problem of all of them."""
    plans = plan_all(suite, agents=agents, agents_all=agents_all, overrides=overrides)
    if not plans:
        raise InputError(f"the suite {suite.name!r} has no scenario to run")
    tokens = dict(oauth_tokens or {})
    known = list(dict.fromkeys(server for config in configs_of(suite) for server in config.known("servers")))
    for server in tokens:
        if server not in known:
            raise InputError(f"an OAuth token for {server!r}: there is no such server; available: {', '.join(known) or 'none'}")
    readies: list[Ready] = []
    problems: dict[Problem, None] = {}
    for planned in plans:
        try:
            readies.append(_prepare(planned, tokens=tokens, **options))
        except InputError as error:
            # Configs that share a library share what is missing for it: each thing is told once.
            problems |= dict.fromkeys(error.problems or [Problem(message=str(error))])
    if problems:
        raise InputError(next(iter(problems)).message, list(problems))
    cases = tuple(case for planned in plans for case in planned.suite.cases)
    kept = public_suite(msgspec.structs.replace(suite, cases=cases))
    secrets = frozenset(secret for ready in readies for secret in ready.secrets)
    if "configs" not in suite.settings:
        return Together(suite=kept, target=readies[0].target, secrets=secrets, configs={"": readies[0]})
    return Together(suite=kept, target=McplabTargets([ready.target for ready in readies]), secrets=secrets, configs=_folders(readies))


def prepare_mcplab(
    suite: Suite,
    *,
    agents: Sequence[str] | None = None,
    agents_all: bool = False,
    overrides: ServerOverrides | None = None,
    **options: Json,
) -> Ready:
    """Everything up to the first connection, of a suite that is one config. Raises `InputError` with every problem."""
    (ready,) = prepare_all(suite, agents=agents, agents_all=agents_all, overrides=overrides, **options).configs.values()
    return ready


def _prepare(
    planned: Plan,
    *,
    environment: Mapping[str, str],
    tokens: Mapping[str, str],
    root: str | Path | None = None,
    reached_by: Mapping[str, ServerSettings] | None = None,
    offline: bool = False,
    surroundings: Surroundings = COMMAND_LINE,
) -> Ready:
    place = Path(root) if root is not None else root_of(planned.suite)
    known = variables_of(environment, place) if surroundings.dotenv else environment
    access = Access(known, tokens=tokens, offline=offline, surroundings=surroundings)
    files: dict[str, list[dict[str, Json]]] = {}
    for row in planned.rows:
        if row.scenario not in files:
            files[row.scenario] = load_attachments(row.case, place, access.problems, scenario=row.scenario)
    instead = reached_by or {}
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
    """A folder for each config: its file without the ending."""
    folders: dict[str, Ready] = {}
    for ready in readies:
        name = _NOT_IN_NAME.sub("_", Path(ready.plan.suite.path or ready.plan.suite.name).stem).strip("._") or "config"
        folders[make_unique(name, set(folders))] = ready
    return folders


def _check_same_agents(home: str | Path | None, resume: str, name: str) -> None:
    before = RunFiles(find_home(str(home) if home is not None else None)).open(resume).header.target
    if before != name:
        raise InputError(f"run {resume!r} was started with the agents {before}, not {name}; select the same, or start a new run")
